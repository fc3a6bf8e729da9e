"""Places of a version, from an operator's words to the places themselves; what is wrong with them is noted.

A brick of the `header` dialect.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from gateway.core.message import fold
from gateway.dialects._header_complaints import MEDIA_TYPE, PATH, PLAIN, TOKEN, VERSION, At, Complaints
from gateway.dialects._header_media_types import MediaTypePlace
from gateway.dialects._header_options import PlaceOptions
from gateway.dialects._header_places import (
    HeaderPlace,
    PathPlace,
    QueryPlace,
    Spelling,
    Words,
)

FieldPlace: TypeAlias = HeaderPlace | MediaTypePlace
TargetPlace: TypeAlias = QueryPlace | PathPlace

_KINDS: Final = ("header", "query", "path", "parameter")
_NOT_A_PARAMETER: Final = frozenset({"q", "charset", "boundary"})


def read_places(
    written: tuple[PlaceOptions, ...], words: Words, complaints: Complaints
) -> tuple[FieldPlace | TargetPlace, ...]:
    """The places, in their order, without those that are none."""
    made = [_place(("places", at), each, words, complaints) for at, each in enumerate(written)]
    places = tuple(each for each in made if each is not None)
    _check_together(written, places, complaints)
    return places


def _place(
    at: At, place: PlaceOptions, words: Words, complaints: Complaints
) -> FieldPlace | TargetPlace | None:
    kinds = [kind for kind in _KINDS if getattr(place, kind) is not None]
    if len(kinds) != 1:
        said = "a place has one of: header, query, path, parameter"
        complaints.wrong(
            (*at, kinds[1]) if kinds else at,
            said,
            "write two places, one below the other" if kinds else "",
        )
        return None
    if place.media_types and place.parameter is None:
        complaints.wrong(
            (*at, "media_types"), "media types belong to a parameter", "name it: parameter: NAME"
        )
    spelling = complaints.spelling((*at, "spelling"), place.spelling)
    if place.header is not None:
        complaints.header_name((*at, "header"), place.header)
        return HeaderPlace(place.header, words, spelling, place.sent)
    if place.query is not None:
        if not place.query or PLAIN.fullmatch(place.query) is None:
            complaints.wrong((*at, "query"), "a parameter's name is letters, digits, `.`, `_`, `~` or `-`")
        return QueryPlace(place.query, words, spelling, place.sent)
    if place.parameter is not None:
        return _parameter(at, place, words, spelling, complaints)
    return _path_place(at, place, words, complaints)


def _parameter(
    at: At, place: PlaceOptions, words: Words, spelling: Spelling, complaints: Complaints
) -> MediaTypePlace:
    name = (place.parameter or "").lower()
    if TOKEN.fullmatch(name) is None or name in _NOT_A_PARAMETER:
        complaints.wrong(
            (*at, "parameter"), "this is no parameter that could tell a version", "a name, like version"
        )
    types = tuple(each.lower() for each in place.media_types)
    for index, each in enumerate(types):
        if MEDIA_TYPE.fullmatch(each) is None:
            complaints.wrong(
                (*at, "media_types", index),
                "this is no media type",
                "write TYPE/SUBTYPE, without parameters",
            )
    return MediaTypePlace(name, types, words, spelling, place.sent)


def _path_place(at: At, place: PlaceOptions, words: Words, complaints: Complaints) -> PathPlace:
    path = place.path or ""
    at = (*at, "path")
    if place.spelling != VERSION:
        complaints.wrong((*at[:-1], "spelling"), "a path says itself what stands around its version")
    prefix, _, segment = path.rpartition("/")
    if VERSION in prefix:
        complaints.wrong(at, "the version stands in the last segment", "whatever follows it is left out")
        return PathPlace(prefix, words, Spelling(), place.sent)
    if not path.startswith("/") or (prefix and PATH.fullmatch(prefix) is None):
        complaints.wrong(at, "this is no path", "write /v{version} or /admin/api/{version}")
    return PathPlace(prefix, words, complaints.spelling(at, segment), place.sent)


def _check_together(
    written: tuple[PlaceOptions, ...], places: tuple[FieldPlace | TargetPlace, ...], complaints: Complaints
) -> None:
    if not written:
        complaints.wrong(("places",), "the version stands nowhere", "name a place")
    elif places and not any(each.sent for each in places):
        complaints.wrong(
            ("places",), "backends would never see a version", "remove `sent: false` from one place"
        )
    seen: set[tuple[str, ...]] = set()
    for at, place in enumerate(written):
        for kind in _KINDS:
            name = getattr(place, kind)
            # One path, one parameter; any number of headers and query parameters.
            key = (kind, fold(name)) if kind in {"header", "query"} and name is not None else (kind,)
            if name is not None and key in seen:
                complaints.wrong(("places", at, kind), "there is another place like this", "remove one")
            elif name is not None:
                seen.add(key)
