"""Wrong configurations from a seed: thousands of files with one fault or several, in every section.

    Material, seed -> Case, Case, …

The same seed and the same material give the same files. Nothing here knows what a gateway says about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, NamedTuple, TypeAlias

from tests.before_and_after.faults import TEXT_FAULTS, Words, put, tree_of, with_faults
from tests.before_and_after.keys import Key, any_value, good_value, value_for
from tests.before_and_after.material import PART, Material
from tests.before_and_after.texts import Map, Tree, copied, made_of, read, written

IN_TURN: Final = 2
"""Every so many-th case is the next pair or piece; so with some 1,300 cases each was there."""

_DIALECTS: Final = ("ironic", "ironic", "nova", "custom", "chef", "openstack", "senlin")


class Case(NamedTuple):
    """One file, and what it is read with."""

    text: str
    parts: Mapping[str, str]
    """Texts of files that it may include, by their names."""
    environ: Mapping[str, str]


Way: TypeAlias = "Callable[[Material, Random], Case]"


def cases(material: Material, seed: int, number: int) -> Iterator[Case]:
    """The first cases of a seed. More of them begin with the same ones."""
    ways: tuple[Way, ...] = (
        *[thinned] * 9,
        *[faulty] * 4,
        *[with_pieces] * 4,
        *[with_keys] * 5,
        text_only,
        with_parts,
    )
    in_turn: list[Way] = [partial(with_pair, pair) for pair in material.pairs]
    in_turn += [partial(with_piece, piece) for piece in material.pieces]
    for at in range(number):
        random = Random(f"{seed}:{at}")
        way = random.choice(ways) if at % IN_TURN else in_turn[at // IN_TURN % len(in_turn)]
        case = way(material, random)
        environ = {name: text for name, text in material.variables.items() if random.random() < 0.98}
        if random.random() < 0.05:
            case = case._replace(text=random.choice(TEXT_FAULTS)(case.text, random))
        yield case._replace(environ=environ)


def write_cases(folder: Path, found: Iterator[Case]) -> Iterator[dict[str, object]]:
    """What the reader of each checkout is given; the files that cases include are written. Each case has a
    folder of its own for these, and all of them one for the rest."""
    for at, case in enumerate(found):
        text = case.text
        if case.parts:
            place = folder / f"parts-{at}"
            place.mkdir()
            for name, part in case.parts.items():
                (place / name).write_text(part, encoding="utf-8", errors="surrogatepass")
            text = text.replace("parts/", f"parts-{at}/")
        yield {"file": str(folder / "gateway.yaml"), "text": text, "environ": case.environ}


def small_file(random: Random) -> Map:
    """A short one without a fault."""
    name = random.choice(_DIALECTS)
    service: dict[str, object] = {"dialect": name, "backends": [{"url": "http://127.0.0.1:6385"}]}
    if name == "custom":
        learn = {"path": "/versions", "list": "$.versions[*]"}
        service["custom"] = {"places": [{"header": "Api-Version"}], "scheme": "integer", "learn": learn}
    elif name == "openstack":
        service["openstack"] = {"service_type": "placement"}
    return tree_of({"listen": "127.0.0.1:8080", "services": {"api": service}})


# --- ways to make a file ------------------------------------------------------------------------------------


def _case(text: str, parts: Mapping[str, str] | None = None) -> Case:
    return Case(text, parts or {}, {})


def _finished(tree: Map, faults: int, material: Material, random: Random) -> Case:
    return _case(written(with_faults(tree, faults, random, material.words), random))


def faulty(material: Material, random: Random) -> Case:
    """A whole file with some faults."""
    tree = random.choice(material.trees) if random.random() < 0.8 else material.trees[0]
    return _finished(tree, random.choice((0, 1, 1, 2, 3, 5)), material, random)


def thinned(material: Material, random: Random) -> Case:
    """The file with every key, without most of them, and with few faults: what is around them is right."""
    tree = copied(material.trees[0])
    assert isinstance(tree, Map)
    _thin(tree, ("listen", "services", "trusted_proxies"), random, 0.3)
    services = tree.get("services")
    assert isinstance(services, Map)
    services.pairs = random.sample(services.pairs, random.choice((1, 1, 2, 3)))
    for _, service in services.pairs:
        assert isinstance(service, Map)
        _thin(service, ("dialect", "backends", "match", "openstack", "custom"), random, 0.3)
        backends = service.get("backends")
        assert isinstance(backends, list)
        backends[:] = random.sample(backends, min(len(backends), random.choice((1, 2, 3))))
        for part, kept in (
            (service.get("custom"), ("places", "scheme", "names", "date_form", "match", "reply", "learn")),
            *((backend, ("url", "dns", "srv", "file", "tls")) for backend in backends),
        ):
            if isinstance(part, Map):
                _thin(part, kept, random, 0.6)
    return _finished(tree, random.choice((0, 1, 1, 1, 1, 1, 2)), material, random)


def _thin(tree: Map, kept: tuple[str, ...], random: Random, share: float) -> None:
    tree.pairs = [(key, value) for key, value in tree.pairs if key in kept or random.random() < share]


def with_pair(pair: Tree, material: Material, random: Random) -> Case:
    """A short file with one of the mistakes that two keys make together."""
    if not isinstance(pair, Map):
        return _case(written(pair, random))
    tree = small_file(random)
    _merge(tree, pair)
    parts = {"one.yaml": PART} if tree.get("include") is not None else None
    return Case(written(tree, random), parts or {}, {})


def _merge(tree: Map, over: Map) -> None:
    for key, value in over.pairs:
        below = tree.get(str(key))
        if isinstance(below, Map) and isinstance(value, Map):
            _merge(below, value)
        else:
            tree.set(str(key), copied(value))


def with_piece(piece: Map, material: Material, random: Random) -> Case:
    """A short file with a part of another one."""
    tree = small_file(random)
    _add_piece(tree, piece, material.words, random)
    return _finished(tree, random.choice((0, 0, 0, 0, 1)), material, random)


def with_pieces(material: Material, random: Random) -> Case:
    """A short file with parts of others."""
    tree = small_file(random)
    for _ in range(random.choice((2, 2, 3))):
        _add_piece(tree, random.choice(material.pieces), material.words, random)
    return _finished(tree, random.choice((0, 0, 1, 2)), material, random)


def _add_piece(tree: Map, piece: Map, words: Words, random: Random) -> None:
    """Add each key at the place where it belongs, mostly the highest. What is empty in a template for several
    tests gets any text."""
    for key, value in piece.pairs:
        if isinstance(value, Map) and not value.pairs and random.random() < 0.7:
            value = any_value(random, words.texts)
        paths = sorted((each for each in words.keys if each.path[-1] == key), key=_depth)
        if paths:
            place = paths[0] if random.random() < 0.7 else random.choice(paths)
            put(tree, place, copied(value), random, words)
        else:
            tree.pairs.append((key, copied(value)))


def _depth(key: Key) -> int:
    """A service has most keys, so its own come first."""
    return abs(len(key.path) - 3)


def with_keys(material: Material, random: Random) -> Case:
    """A short file in which further keys are set, most of them right but for one."""
    tree, words = small_file(random), material.words
    for _ in range(random.randrange(4)):
        key = random.choice(words.keys)
        put(tree, key, good_value(key, random), random, words)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        key = random.choice(words.keys)
        put(tree, key, value_for(key, random, words.texts), random, words)
    return _case(written(tree, random))


def text_only(material: Material, random: Random) -> Case:
    """A file as people write it, in which the text is wrong."""
    text = random.choice(material.texts)
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        text = random.choice(TEXT_FAULTS)(text, random)
    return _case(text)


def with_parts(material: Material, random: Random) -> Case:
    """A file with included ones, each perhaps with faults."""
    tree = small_file(random)
    include: object = {"files": "parts/*.yaml", "environment": ["NUMBER", "URL"], "folders": ["folder"]}
    if random.random() < 0.2:
        include = "parts/*.yaml"
    tree.pairs.insert(1, ("include", made_of(include)))
    parts = {}
    for at in range(random.randrange(1, 4)):
        part = read(PART)
        assert isinstance(part, Map)
        faults = random.choice((0, 0, 1, 1, 2))
        text = written(with_faults(part, faults, random, material.words), random)
        if at and random.random() < 0.8:
            text = text.replace("part", f"part{at}")
        parts[f"{at}.yaml"] = random.choice(TEXT_FAULTS)(text, random) if random.random() < 0.1 else text
    changed = with_faults(tree, random.choice((0, 0, 0, 1)), random, material.words)
    return _case(written(changed, random), parts)
