"""Mutations of media types: what readers of `Accept` and `Content-Type` disagree about."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from tests.differential.apis import Parameter
from tests.differential.draft import Draft, Mutation, spellings
from tests.differential.header_mutations import alias_of, any_case

_PIECES: Final = spellings("parameters")
"""What follows a media type. `{n}` is the parameter, `{v}` the requested version, `{o}` another one."""

_ODD_TYPES: Final = spellings("media_types")
_TYPES: Final = (
    "application/json",
    "text/html",
    "*/*",
    "application/*",
    "application/vnd.example+json",
    "text/csv",
)


def media_type(draft: Draft, random: Random, parameter: Parameter) -> str:
    """A type that may carry the version."""
    own = parameter.types or ("application/json",)
    return random.choice((*own, *own, *own, *_TYPES))


def _field(random: Random) -> str:
    return random.choice(("Accept", "Accept", "Content-Type"))


def _append(draft: Draft, random: Random, name: str, piece: str) -> None:
    """Append to the field, or send a media type with `piece`."""
    parameter = draft.location(random, Parameter)
    texts = {
        "{n}": parameter.name,
        "{N}": any_case(random, parameter.name),
        "{v}": draft.version,
        "{o}": draft.other,
    }
    for key, text in texts.items():
        piece = piece.replace(key, text)
    at = draft.find(name)
    if at < 0:
        version = f";{parameter.name}={draft.version}" if random.random() < 0.4 else ""
        draft.add(random, f"{name}: {media_type(draft, random, parameter)}{version}{piece}")
    else:
        draft.lines[at] += piece


def odd_parameter(draft: Draft, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2))):
        _append(draft, random, _field(random), random.choice(_PIECES))


def plain_parameter(draft: Draft, random: Random) -> None:
    pieces = (
        ";q=0.5",
        ';charset="utf-8"',
        ";profile=x",
        "; q=0",
        ';title="a b"',
        ";q=0.001",
        ";level=1; q=1.0",
    )
    _append(draft, random, _field(random), random.choice(pieces))


def further_type(draft: Draft, random: Random) -> None:
    parameter = draft.location(random, Parameter)
    piece = random.choice(("", "", ";{n}={v}", ";{n}={o}", ";q=0.2", '; {n}="{v}"', ";q=0.3;{n}={o}"))
    _append(
        draft,
        random,
        "Accept",
        random.choice((", ", ",", " ,\t", ",,")) + media_type(draft, random, parameter) + piece,
    )


def second_line(draft: Draft, random: Random) -> None:
    parameter = draft.location(random, Parameter)
    name = random.choice((_field(random), "content_type", "Content.Type", alias_of(random, "Content-Type")))
    text = f"{parameter.name}={random.choice((draft.other, draft.version))}"
    draft.add(random, f"{name}: {media_type(draft, random, parameter)};{text}")


def odd_type(draft: Draft, random: Random) -> None:
    parameter, name = draft.location(random, Parameter), _field(random)
    version = random.choice((draft.version, draft.other))
    draft.replace(random, name, f"{name}: {random.choice(_ODD_TYPES)};{parameter.name}={version}")


MEDIA_TYPE_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "odd parameter": odd_parameter,
    "odd parameter again": odd_parameter,
    "plain parameter": plain_parameter,
    "further type": further_type,
    "second line": second_line,
    "odd type": odd_type,
}
"""For APIs with a version in a media type."""
