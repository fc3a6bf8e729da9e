"""Every other OpenStack service with microversions: the API-SIG guideline, and how services depart from it.

What differs is data in `_openstack_services`: the habits of a service, on which this one dialect acts. A
service type without a preset speaks as the guideline says. Options replace single habits.

A request may name several services in one header. Each gateway service reads its own item, and one line with
that item alone goes to its backend: Cinder answers 400 to a header in which it is not named, so it is always
named.

What this must not do: know a service outside the data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import ClassVar, Self
from urllib.parse import unquote

from gateway.core.dialect import (
    NO_HEADERS,
    Absence,
    Advert,
    Ask,
    Bounds,
    Dialect,
    Failure,
    Links,
    Place,
    ProbeAnswer,
    ProbeFault,
    ProbeRequest,
    ProbeStep,
    Refusal,
    Refused,
    Served,
    Silence,
)
from gateway.core.message import Header, Reply, all_values, fold
from gateway.core.version import Scheme, Version
from gateway.dialects._openstack import (
    MICROVERSION,
    STANDARD,
    STANDARD_FOLDED,
    Document,
    dump_document,
    load_document,
    mend_links,
    one_text,
    parse_microversion,
    read_legacy,
    read_range,
    read_standard,
    read_text,
    tell_range,
    without_json,
)
from gateway.dialects._openstack_services import Habits, OpenStackOptions, chosen

ROOT = Place("root", negotiated=False, document=True, versioned_only=True)
NEGOTIATED_ROOT = Place("root", document=True, versioned_only=True)
VERSION = Place("version", document=True, versioned_only=True)
RESOURCE = Place("resource")

_VERSION_PATH = re.compile(r"/v[0-9]{1,3}(?:\.[0-9]{1,3})?/?", re.ASCII)
_TOLD_RANGE = re.compile(
    r"(?:Minimum is |supported range is |supported version range is: \[)'?([0-9]{1,6}\.[0-9]{1,6})'?"
    r"(?: and maximum is | to |, )'?([0-9]{1,6}\.[0-9]{1,6})",
    re.ASCII,
)
_FAULTS = {400: "badRequest", 404: "itemNotFound", 413: "overLimit", 503: "serviceUnavailable"}
_ABSENT = {
    400: ("Bad Request", "This operation does not exist in the requested API version."),
    404: ("Not Found", "The resource could not be found."),
}
_JSON: Header = ("Content-Type", "application/json")


class OpenStack(Dialect):
    """Any OpenStack service with microversions."""

    name = "openstack"
    Options: ClassVar[type] = OpenStackOptions

    scheme: Scheme = MICROVERSION

    def __init__(self, service_type: str, habits: Habits) -> None:
        self.service_type = service_type
        self.habits = habits
        self._types = frozenset(habits.types)
        self._legacy = tuple(fold(name) for name in habits.legacy)
        self._echoes = tuple(fold(name) for name in habits.echoes)
        self._range = tuple(fold(name) for name in habits.range_headers or ())
        self._parse = self.scheme.parse if habits.zero_major else parse_microversion
        self.reads = frozenset({*self._legacy, *((STANDARD_FOLDED,) if habits.types else ())})
        # The standard header is removed even where it is not read: what it says is for other services.
        self.owned_request = self.reads | {STANDARD_FOLDED}
        self.owned_reply = frozenset({*self._echoes, *self._range})
        self.vary = (*((STANDARD,) if habits.types else ()), *habits.legacy)
        self.silence = Silence(habits.silence)
        self.releases = habits.releases

    @classmethod
    def configured(cls, options: object) -> Self:
        """The dialect of one service. Raises `ValueError` where the options make none."""
        assert isinstance(options, OpenStackOptions)
        return cls(*chosen(options))

    # -- the request

    def place(self, method: str, path: str, query: str) -> Place:
        """`/`, `/vN` with and without a slash, or a resource."""
        plain = unquote(path) if "%" in path else path
        if not plain.strip("/"):
            return NEGOTIATED_ROOT if self.habits.root_negotiated else ROOT
        return VERSION if _VERSION_PATH.fullmatch(plain) else RESOURCE

    def plain_path(self, path: str) -> str:
        """Without `.json`."""
        return without_json(path).replace("%", "%25") or "/"

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """The standard header if it names the service, else the first of its own that says something."""
        text = None
        if self._types:
            text = self._first(headers) if self.habits.first_wins else read_standard(headers, self._types)
        if text is None:
            text = read_legacy(headers, self._legacy) or None
        return read_text(text, self._parse, self.habits.latest)

    def _first(self, headers: Mapping[str, str]) -> str | None:
        """Cinder's rule: the first item that contains the type, and what follows its first word."""
        for line in all_values(headers, STANDARD_FOLDED):
            for item in line.split(","):
                words = item.split(maxsplit=1)
                if len(words) == 2 and any(each in item.lower() for each in self._types):
                    return item.strip()[len(words[0]) :].strip(" \t")
        return None

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """Its own headers, and one standard line with its item alone."""
        if silent or not place.negotiated:
            return ()
        text = self.scheme.format(version)
        own = tuple((name, text) for name in self.habits.legacy)
        return (*own, (STANDARD, f"{self.habits.types[0]} {text}")) if self._types else own

    # -- replies made by the gateway

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """406 with the range, or what the service says to a text that is no version; always as JSON."""
        habits, bounds = self.habits, refusal.bounds
        if refusal.version is None:
            text = refusal.ask.text
            detail = habits.garbled.format(text=text, why=_why_garbled(text))
            told = bounds if habits.range_on_garbled else None
            return self._error(habits.malformed, habits.titles[1], detail, headed=told, code=1)
        version, lowest, highest = map(self.scheme.format, (refusal.version, bounds.lowest, bounds.highest))
        detail = habits.refused.format(version=version, lowest=lowest, highest=highest)
        reply = self._error(406, habits.titles[0], detail, headed=bounds, within=bounds, code=0)
        return reply.with_headers(*self._echoed(refusal.version)) if habits.echoes_refused else reply

    def fail(self, failure: Failure) -> Reply:
        """An error in the service's shape, with the range where its errors carry one."""
        return self._error(failure.status, failure.title, failure.detail, headed=failure.bounds)

    def refuse_operation(self, absence: Absence, place: Place) -> Reply:
        """404 as for any unknown resource, with the served version: the request was accepted at it."""
        status = absence.status or 404
        title, detail = _ABSENT[status]
        reply = self._error(status, title, detail, headed=absence.bounds)
        return reply.with_headers(*self._echoed(absence.version))

    def _error(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        headed: Bounds | None,
        within: Bounds | None = None,
        code: int | None = None,
    ) -> Reply:
        """`headed`: the range for headers, `within`: for the body; `code`: which of the habit's codes."""
        told: dict[str, object]
        if self.habits.body == "fault":
            told = {_FAULTS.get(status, "computeFault"): {"code": status, "message": detail}}
        elif self.habits.body == "message":
            told = {"error": {"message": detail}}
        else:
            told = {"status": status, "title": title, "detail": detail}
            if self.habits.codes is not None:
                word = "" if code is None else self.habits.codes[code]
                told |= {"code": f"{self.service_type}.{word}" if word else "", "links": []}
            if within is not None:
                told["max_version"] = self.scheme.format(within.highest)
                told["min_version"] = self.scheme.format(within.lowest)
            told = {"errors": [told]}
        headers = (*self._ranged(headed), _JSON)
        return Reply(status, headers, json.dumps(told).encode("ascii"))

    def _ranged(self, bounds: Bounds | None) -> tuple[Header, ...]:
        names = self.habits.range_headers
        if names is None or bounds is None:
            return ()
        lowest, highest = names
        return (lowest, self.scheme.format(bounds.lowest)), (highest, self.scheme.format(bounds.highest))

    def _echoed(self, version: Version) -> tuple[Header, ...]:
        text = self.scheme.format(version)
        named = f"{(*self.habits.types, self.service_type)[0]} {text}"
        return tuple((name, named if fold(name) == STANDARD_FOLDED else text) for name in self.habits.echoes)

    # -- the backend's reply

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """Served version and range, where its servers say them. What a 406 is about its body tells."""
        lowest, highest = self._told_bounds(headers)
        return Served(
            version=self._served(headers),
            advert=read_range(one_text(lowest), one_text(highest)),
            refused=Refused.READ_BODY if status == 406 and place.negotiated else Refused.NO,
            ranged=bool(lowest or highest),
        )

    def _told_bounds(self, headers: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Every line of the two headers that tell minimum and maximum."""
        if not self._range:
            return (), ()
        lowest, highest = self._range
        return all_values(headers, lowest), all_values(headers, highest)

    def _served(self, headers: Mapping[str, str]) -> Version | None:
        """What the first echo that is a version says. An item for somebody else is none."""
        for name in self._echoes:
            text = one_text(all_values(headers, name))
            if name == STANDARD_FOLDED:
                service, _, text = text.partition(" ")
                if service.lower() not in (self._types or {self.service_type}):
                    continue
            version = self.scheme.parse(text)
            if version is not None:
                return version
        return None

    def read_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Advert | None:
        """An error that names a range, in the keys of the guideline or in its text."""
        for error in _errors(load_document(body) or {}):
            told = _told_range(error, ("max_version",))
            if told is not None:
                return told
            for key in ("message", "detail"):
                text = error.get(key)
                found = _TOLD_RANGE.search(text) if isinstance(text, str) else None
                if found is not None:
                    return read_range(found[1], found[2])
        return None

    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[Header, ...]:
        """The served version as the backend said it, the offer where it told its range. Of a silent one's
        replies those that succeeded get what a new one would have said."""
        version, ranged = served.version, served.ranged
        if silent and version is None and settled is not None and 200 <= status < 400:
            version, ranged = settled, True
        said = () if version is None else self._echoed(version)
        return (*self._ranged(bounds), *said) if ranged else said

    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        """The list of versions, one version in `version`, or one as the whole document (Magnum's `/v1`)."""
        document = load_document(body)
        entries = [] if document is None else _entries(document)
        if document is None or not entries:
            return None
        for entry in entries:
            tell_range(entry, bounds, highest=self.habits.range_keys)
            told = entry.get("id")
            if self.habits.id_is_highest and isinstance(told, str) and self.scheme.parse(told):
                entry["id"] = self.scheme.format(bounds.highest)
        mend_links(document, links)
        return dump_document(document)

    # -- probes

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """`GET /`: public everywhere. Range headers where the service has them, else its newest entry with a
        range; entries without any are those of a silent server, for which nothing stands."""
        if not answers:
            return ProbeRequest(path or "/", (("Accept", "application/json"),))
        answer = answers[0]
        if answer.status not in (200, 300):
            return ProbeFault("status", f"answered {answer.status} where 200 or 300 was expected")
        served = self.read_reply(RESOURCE, answer.status, answer.headers)
        if served.ranged:
            return served.advert or ProbeFault(
                "range", "the version headers do not make a range from a minimum up to a maximum"
            )
        entries = _entries(load_document(answer.body) or {})
        if not entries:
            return ProbeFault("document", "not a list of versions of an OpenStack API")
        told = [each for each in (_told_range(entry, self.habits.range_keys) for entry in entries) if each]
        if told:
            return max(told, key=lambda each: each.versions.highest)
        if any(entry.get(key) for entry in entries for key in ("min_version", *self.habits.range_keys)):
            return ProbeFault("range", "no version in the document tells a range from a minimum upwards")
        return Advert(self.silent_serves, silent=True)


def _why_garbled(text: str) -> str:
    """Placement's servers say what Python says about the first part that is no number."""
    parts = text.split(".", 1)
    for part in parts:
        if re.fullmatch(r"0|[1-9][0-9]{0,5}", part, re.ASCII) is None:
            return f"invalid literal for int() with base 10: {part!r}"
    return "Version.__new__() missing 1 required positional argument: 'minor'"


def _entries(document: Document) -> list[Document]:
    """The versions that a discovery document tells of; empty when it is none."""
    versions, version = document.get("versions"), document.get("version")
    if isinstance(versions, dict):
        versions = versions.get("values")
    if isinstance(versions, list):
        return [each for each in versions if isinstance(each, dict)]
    if isinstance(version, dict):
        return [version]
    return [document] if isinstance(document.get("id"), str) and "links" in document else []


def _errors(document: Document) -> list[Document]:
    """What an error says, in whichever shape: a list of errors, or one under any name."""
    listed = document.get("errors")
    candidates = listed if isinstance(listed, list) else document.values()
    return [each for each in candidates if isinstance(each, dict)]


def _told_range(entry: Document, highest_keys: tuple[str, ...]) -> Advert | None:
    """The range that stands in the keys of `entry`; of the maximum's keys the first that says something."""
    lowest = entry.get("min_version")
    highest = next((entry[key] for key in highest_keys if entry.get(key)), None)
    if not isinstance(lowest, str) or not isinstance(highest, str):
        return None
    return read_range(lowest, highest)
