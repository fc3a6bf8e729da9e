"""Faults: each changes the tree of a configuration, or its text, as people and programs get it wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple, TypeAlias

from tests.before_and_after.keys import RAW, WRONG, Key, Path, any_value, value_for
from tests.before_and_after.texts import Holder, Map, Raw, Tree, copied, holders, made_of


class Words(NamedTuple):
    """What faults are made of."""

    keys: tuple[Key, ...]
    names: tuple[str, ...]
    """The names of all keys."""
    texts: tuple[str, ...]
    """Further values."""
    sections: Mapping[Path, Tree]
    """A section without a mistake, by its place."""


TreeFault: TypeAlias = "Callable[[Map, Random, Words], None]"
TextFault: TypeAlias = "Callable[[str, Random], str]"

_INVISIBLE: Final = (
    *("\ufeff", "\u200b", "\u00a0", "\u2028", "\x85", "\x00", "\x07", "\t", "\r", "\ud800", "\u202e", "\x7f"),
)


def misspelt(name: str, random: Random) -> str:
    """`name` with one letter too many, too few, or another one; or in another case."""
    at = random.randrange(len(name) + 1)
    letter = random.choice("abcdefghijklmnopqrstuvwxyz_-")
    return random.choice(
        (
            name[:at] + letter + name[at:],
            name[:at] + name[at + 1 :],
            name[:at] + letter + name[at + 1 :],
            name[:at] + name[at : at + 2][::-1] + name[at + 2 :],
            name.upper(),
            name.replace("_", "-"),
            f"{name}s",
        )
    )


def _pick(tree: Map, random: Random) -> tuple[Holder, int] | None:
    """A place: what holds it, and its index."""
    full = [holder for holder in holders(tree) if (holder.pairs if isinstance(holder, Map) else holder)]
    if not full:
        return None
    holder = random.choice(full)
    return holder, random.randrange(len(holder.pairs) if isinstance(holder, Map) else len(holder))


def _pick_pair(tree: Map, random: Random) -> tuple[Map, int] | None:
    full = [holder for holder in holders(tree) if isinstance(holder, Map) and holder.pairs]
    if not full:
        return None
    holder = random.choice(full)
    return holder, random.randrange(len(holder.pairs))


def _value_at(holder: Holder, at: int) -> Tree:
    return holder.pairs[at][1] if isinstance(holder, Map) else holder[at]


def _put(holder: Holder, at: int, value: Tree) -> None:
    if isinstance(holder, Map):
        holder.pairs[at] = (holder.pairs[at][0], value)
    else:
        holder[at] = value


def remove(tree: Map, random: Random, _: Words) -> None:
    if (place := _pick(tree, random)) is not None:
        holder, at = place
        if isinstance(holder, Map):
            del holder.pairs[at]
        else:
            del holder[at]


def misspell(tree: Map, random: Random, _: Words) -> None:
    if (place := _pick_pair(tree, random)) is not None:
        holder, at = place
        key, value = holder.pairs[at]
        if isinstance(key, str):
            holder.pairs[at] = (misspelt(key, random), value)


def rename(tree: Map, random: Random, words: Words) -> None:
    if (place := _pick_pair(tree, random)) is not None:
        holder, at = place
        name: Tree = random.choice(words.names)
        if random.random() < 0.3:
            name = any_value(random, words.texts)
        holder.pairs[at] = (name, holder.pairs[at][1])


def repeat(tree: Map, random: Random, _: Words) -> None:
    """The same once more: a key that is set twice, a backend that is there twice."""
    if (place := _pick(tree, random)) is not None:
        holder, at = place
        to = random.randrange(at, len(holder.pairs if isinstance(holder, Map) else holder) + 1)
        if isinstance(holder, Map):
            key, value = holder.pairs[at]
            holder.pairs.insert(to, (key, copied(value)))
        else:
            holder.insert(to, copied(holder[at]))


def move(tree: Map, random: Random, _: Words) -> None:
    """A key goes to another section."""
    if (place := _pick_pair(tree, random)) is None:
        return
    holder, at = place
    pair = holder.pairs.pop(at)
    others = [each for each in holders(tree) if isinstance(each, Map)]
    random.choice(others).pairs.append(pair)


def reshape(tree: Map, random: Random, _: Words) -> None:
    """A list for a mapping, a text for a list, nothing, and so on."""
    if (place := _pick(tree, random)) is None:
        return
    holder, at = place
    value = _value_at(holder, at)
    choices: list[Tree] = [[value], Map([("x", value)]), [], Map([]), Raw(""), "x", [value, copied(value)]]
    if isinstance(value, Map):
        choices += [[each for _, each in value.pairs], [Map([pair]) for pair in value.pairs]]
        choices += [", ".join(str(key) for key, _ in value.pairs)] * 2
    elif isinstance(value, list):
        choices += [
            value[0] if value else "x",
            Map([(f"n{number}", each) for number, each in enumerate(value)]),
        ] * 2
    else:
        choices += [[part.strip() for part in value.split(",")], Raw(f"{value}:"), Raw(f"- {value}")]
    _put(holder, at, random.choice(choices))


def other_value(tree: Map, random: Random, words: Words) -> None:
    if (place := _pick(tree, random)) is not None:
        _put(*place, any_value(random, words.texts))


def near_value(tree: Map, random: Random, _: Words) -> None:
    """A text that is wrong by a character."""
    texts = [
        (holder, at)
        for holder in holders(tree)
        for at in range(len(holder.pairs) if isinstance(holder, Map) else len(holder))
        if isinstance(_value_at(holder, at), str)
    ]
    if texts:
        holder, at = random.choice(texts)
        text = str(_value_at(holder, at))
        place = random.randrange(len(text) + 1)
        insert = random.choice((*"x0 .-/:{}%*,", *_INVISIBLE, "${NOPE}", "${NUMBER}"))
        _put(
            holder,
            at,
            random.choice((text[:place] + insert + text[place:], text[:place] + text[place + 1 :])),
        )


def set_key(tree: Map, random: Random, words: Words) -> None:
    """Any key of the schema gets any value, in its place."""
    key = random.choice(words.keys)
    put(tree, key, value_for(key, random, words.texts), random, words)


def put(tree: Map, key: Key, value: Tree, random: Random, words: Words) -> None:
    """Set a key. What should be above it is made where it is not: mostly a section without a mistake."""
    place: Tree = tree
    for depth, (part, after) in enumerate(zip(key.path, (*key.path[1:], None), strict=True), 1):
        empty: Tree = [] if after == "[]" else Map([])
        known = words.sections.get(key.path[:depth])
        section = empty if known is None or random.random() < 0.2 else copied(known)
        below: Tree = value if after is None else section
        if isinstance(place, list):
            if not place or random.random() < 0.2:
                place.append(below)
            at = random.randrange(len(place))
            if after is None or isinstance(place[at], str):
                place[at] = below
            place = place[at]
        elif isinstance(place, Map):
            names = [str(name) for name, _ in place.pairs if isinstance(name, str)]
            name = part if part != "*" else random.choice(names) if names else "api"
            found = place.get(name)
            if after is None or found is None or isinstance(found, str):
                place.set(name, below)
            place = place.get(name) or below
    if len(key.path) > 3 and key.path[:2] == ("services", "*") and random.random() < 0.8:
        _adapt_dialect(tree, key.path[2])


def _adapt_dialect(tree: Map, options: str) -> None:
    """Services with options of a dialect get this dialect."""
    services = tree.get("services")
    for _, service in services.pairs if isinstance(services, Map) else ():
        if isinstance(service, Map) and options in DIALECTS and service.get(options) is not None:
            service.set("dialect", options)


DIALECTS: Final = frozenset(("chef", "custom", "ironic", "nova", "openstack", "senlin"))

TREE_FAULTS: Final[tuple[TreeFault, ...]] = (
    *(remove, misspell, rename, repeat, move, reshape, other_value, near_value),
    *(set_key, set_key, set_key, set_key),
)


# --- faults of a text ---------------------------------------------------------------------------------------


def _insert(text: str, random: Random, what: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + what + text[at:]


def invisible(text: str, random: Random) -> str:
    return _insert(text, random, random.choice(_INVISIBLE))


def any_piece(text: str, random: Random) -> str:
    return _insert(
        text, random, random.choice((*RAW, *WRONG, "\n", "  ", ": ", "---\n", "...\n", "#", " #", "- "))
    )


def cut(text: str, random: Random) -> str:
    at, number = random.randrange(len(text) + 1), random.randrange(1, 40)
    return text[:at] + text[at + number :]


def changed_line(text: str, random: Random) -> str:
    """One line is indented otherwise, repeated, left out, or exchanged with the next one."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    at = random.randrange(len(lines))
    line = lines[at]
    lines[at : at + 1] = random.choice(
        ([f" {line}"], [f"  {line}"], [line[1:]], [f"\t{line}"], [line, line], [], [f"# {line}"])
    )
    return "".join(lines)


def whole(text: str, random: Random) -> str:
    """The whole file is otherwise."""
    return random.choice(
        (
            text.replace("\n", "\r\n"),
            f"\ufeff{text}",
            f"---\n{text}",
            f"{text}---\n{text}",
            f"{text}...\n",
            f"%YAML 1.1\n---\n{text}",
            f"{text}\n# a comment",
            text.rstrip("\n"),
            text[: random.randrange(len(text) + 1)],
            f"&top\n{text}",
            "a: " + "[" * 40 + "]" * 40 + f"\n{text}",
        )
    )


TEXT_FAULTS: Final[tuple[TextFault, ...]] = (invisible, any_piece, cut, changed_line, changed_line, whole)


def with_faults(tree: Map, number: int, random: Random, words: Words) -> Map:
    """A copy with so many faults. What a fault has taken from it may be what the next one needs."""
    changed = copied(tree)
    assert isinstance(changed, Map)
    for _ in range(number):
        random.choice(TREE_FAULTS)(changed, random, words)
    return changed


def tree_of(value: object) -> Map:
    tree = made_of(value)
    assert isinstance(tree, Map)
    return tree
