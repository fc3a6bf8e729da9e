"""Mutations of targets: names of query parameters and paths that readers disagree about."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from tests.differential.apis import Query
from tests.differential.draft import Draft, Mutation, spellings
from tests.differential.header_mutations import any_case

_NAMES: Final = spellings("query_names")
"""Spellings of the parameter `{n}`."""

_VALUES: Final = spellings("query_values")

_ENDINGS: Final = spellings("path_endings")
_FOLDS: Final = {
    "i": ("%C4%B1", "%C4%B0", "i%CC%87", "%EF%BD%89", "I", "%69", "%49", "%2569"),
    "k": ("%E2%84%AA", "K", "%6b", "%4B"),
    "s": ("%C5%BF", "S", "%73", "%1E9E"),
    "ss": ("%C3%9F", "%E1%BA%9E", "%C5%BFs"),
    "ff": ("%EF%AC%80",),
    "fi": ("%EF%AC%81",),
    "ffi": ("%EF%AC%83",),
    "v": ("V", "%76", "%56", "%EF%BD%96", "%E2%85%B4"),
    "a": ("A", "%61", "%C3%A0", "a%CC%80", "%C2%AA"),
    "n": ("%6e", "%4E", "%6E"),
    "m": ("M", "%6D", "%256d"),
    "e": ("%65", "E", "%C3%A9"),
    "/": (
        "//",
        "///",
        "/./",
        "/%2e/",
        "/;/",
        "%2F",
        "/;x/",
        "/%20/",
        "\\",
        "/x/../",
        "/%20",
        "%20/",
        "/%C2%A0",
    ),
}
"""Letters, and what some readers take for them."""


def _insert(draft: Draft, random: Random, parameter: str) -> None:
    draft.query.insert(random.randint(0, len(draft.query)), parameter)


def _disguised(random: Random, name: str) -> str:
    """The name with one letter or separator written otherwise."""
    at = random.randrange(len(name))
    letter = name[at]
    if letter.isalnum():
        spellings: tuple[str, ...] = (f"%{ord(letter):02x}", f"%25{ord(letter):02X}", letter.upper())
        spellings += _FOLDS.get(letter, ())
    else:
        spellings = ("_", "-", ".", "+", "%20", "[", "%5B", "%2E", "%5F", "__", "~", "]")
    return name[:at] + random.choice(spellings) + name[at + 1 :]


def odd_query_name(draft: Draft, random: Random) -> None:
    name = draft.location(random, Query).name
    spelled = random.choice(_NAMES).replace("{n}", name)
    _insert(draft, random, f"{spelled}={random.choice((draft.other, draft.other, draft.version))}")


def disguised_query_name(draft: Draft, random: Random) -> None:
    name = _disguised(random, draft.location(random, Query).name)
    _insert(draft, random, f"{name}={random.choice((draft.other, draft.other, draft.version))}")


def duplicate_query(draft: Draft, random: Random) -> None:
    name = draft.location(random, Query).name
    name = any_case(random, name) if random.random() < 0.4 else name
    _insert(draft, random, f"{name}={random.choice((draft.other, draft.version))}")


def odd_query_value(draft: Draft, random: Random) -> None:
    name = draft.location(random, Query).name
    value = (
        random.choice(_VALUES).replace("{v}", draft.version).replace("{o}", draft.other).replace("{q}", name)
    )
    own = [at for at, parameter in enumerate(draft.query) if parameter.startswith(f"{name}=")]
    if own:
        draft.query[own[0]] = f"{name}={value}"
    else:
        _insert(draft, random, f"{name}={value}")


def other_query(draft: Draft, random: Random) -> None:
    others = (
        "a=1",
        "",
        "=",
        "a",
        "a[]=1",
        "a=b;c=d",
        "%",
        "%zz",
        "a=%FF",
        "a=%00",
        "q=x%26y",
        "a=1?b",
        "versions=9",
    )
    more = (
        "a=" + "x" * 300,
        "a[b][c]=1",
        "=9",
        "a%5B=1",
        "version2=9",
        "_method=DELETE",
        "format=json",
        "a=%2526",
    )
    _insert(draft, random, random.choice(others + more))


def semicolon(draft: Draft, random: Random) -> None:
    name = draft.location(random, Query).name
    if draft.query and random.random() < 0.6:
        at = random.randrange(len(draft.query))
        draft.query[at] += f";{name}={draft.other}"
    else:
        _insert(draft, random, f"a=1;{name}={draft.other};b=2")


def disguised_path(draft: Draft, random: Random) -> None:
    """Write some letters of the path as other readers would still read them."""
    for _ in range(random.choice((1, 1, 2))):
        found = [text for text in _FOLDS if text in draft.path]
        if not found:
            return
        text = random.choice(found)
        starts = [at for at in range(len(draft.path)) if draft.path.startswith(text, at)]
        at = random.choice(starts)
        draft.path = draft.path[:at] + random.choice(_FOLDS[text]) + draft.path[at + len(text) :]


def odd_path(draft: Draft, random: Random) -> None:
    starts = ("/", "//", "/.", "/%20", "/;", "/x/..", "/v{}", "/%2e", "/V{}", "/index.php")
    if random.random() < 0.6:
        draft.path += random.choice(_ENDINGS)
    else:
        draft.path = random.choice(starts).format(draft.other) + draft.path


def upper_path(draft: Draft, random: Random) -> None:
    draft.path = random.choice((any_case(random, draft.path), draft.path.upper(), draft.path.title()))


QUERY_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "odd query name": odd_query_name,
    "odd query name again": odd_query_name,
    "disguised query name": disguised_query_name,
    "duplicate query": duplicate_query,
    "odd query value": odd_query_value,
    "another query": other_query,
    "semicolon": semicolon,
}
"""For APIs with a version in the query."""

PATH_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "disguised path": disguised_path,
    "odd path": odd_path,
    "another case": upper_path,
}
"""For every API; most for those with a version in the path."""
