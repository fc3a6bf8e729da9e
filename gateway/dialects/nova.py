"""Nova (service type `compute`), Kilo to 2026.2, and before it: two request headers in, the same two out.

The gateway speaks as releases from 14 (Newton) do: the last of several wins, the standard header beats Nova's
own, `latest` in lower case only, an empty value is malformed. To backends it always writes both headers with
a number: those before 14 read only their own and take nothing but a single value there.

Versions mean something below `/v2.1` alone. Everywhere else Nova drops them, and so does the gateway, in both
directions. There are no range headers: a range is told by documents and by the text of a 406.

What this must not do: take an echo for what was executed (a 406 echoes what it rejects), or take its absence
for silence (400, 401 and routing's 404 have none on new servers either).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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
    SilenceKind,
)
from gateway.core.message import Header, Reply, all_values, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import Scheme, Version
from gateway.dialects._openstack import (
    MICROVERSION,
    STANDARD,
    STANDARD_FOLDED,
    Document,
    Latest,
    dump_document,
    load_document,
    mend_links,
    one_text,
    parse_microversion,
    read_legacy,
    read_range,
    read_standard,
    read_text,
    release_table,
    tell_range,
)

SERVICE_TYPE = "compute"
OWN = "X-OpenStack-Nova-API-Version"
OWN_FOLDED = fold(OWN)
_FAULT: Header = ("Content-Type", "application/json; charset=UTF-8")
_ASK_JSON: tuple[Header, ...] = (("Accept", "application/json"),)

ROOT = Place("root", negotiated=False, document=True, versioned_only=True)
V2_1 = Place("v2.1", document=True, versioned_only=True)
RESOURCE = Place("resource", versioned_only=True)
# What predates microversions: the one part of the API that silent members have, and new ones have it too.
V2 = Place("v2", negotiated=False, document=True)
LEGACY = Place("legacy", negotiated=False)
# `/v1.1` is a mount only until Kilo; later servers answer 300 below it, with links to be mended.
V1_1 = Place("v1.1", negotiated=False, document=True)
# Whatever is below no mount is answered 300, unless a media type's `;version=2.1` selects the API after all.
# Headers do not decide places, so a version is dropped there; what was executed then is told (`write_reply`).
CHOICES = Place("choices", negotiated=False, document=True, versioned_only=True)

# By the first segment: the mount's own document, and everything below it.
_MOUNTS = {"v2.1": (V2_1, RESOURCE), "v2": (V2, LEGACY), "v1.1": (V1_1, V1_1), "": (ROOT, ROOT)}

_REJECTED = re.compile(
    r"Version ([0-9]{1,6}\.[0-9]{1,6}) is not supported by the API\. "
    r"Minimum is ([0-9]{1,6}\.[0-9]{1,6}) and maximum is ([0-9]{1,6}\.[0-9]{1,6})\."
)

_FAULT_NAMES: Mapping[int, str] = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}
"""The key of a fault's body by status; 406 and every other one is a `computeFault`."""

_ABSENT: Mapping[int, str] = {
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    404: "The resource could not be found.",
}

# Answers to a probe of `/` that say it is not to be had there, and nothing about versions: Nova may live
# behind a prefix under which only the mounts are.
_NOT_HERE = frozenset({401, 403, 404, 405, 410})

RELEASES = release_table(
    {
        "2.3": "kilo 2015.1",
        "2.12": "liberty 12",
        "2.25": "mitaka 13",
        "2.38": "newton 14",
        "2.42": "ocata 15",
        "2.53": "pike 16",
        "2.60": "queens 17",
        "2.65": "rocky 18",
        "2.72": "stein 19",
        "2.79": "train 20",
        "2.87": "ussuri 21 victoria 22",
        "2.88": "wallaby 23",
        "2.90": "xena 24 yoga 25",
        "2.93": "zed 26",
        "2.95": "antelope 2023.1 27 bobcat 2023.2 28",
        "2.96": "caracal 2024.1 29 dalmatian 2024.2 30",
        "2.100": "epoxy 2025.1 31 flamingo 2025.2 32",
        "2.103": "gazpacho 2026.1 33",
        "2.104": "2026.2 34",
    }
)
"""What each release serves at most. No Nova can be pinned by itself; the gateway can pin a fleet of them."""


class Nova(Dialect):
    """OpenStack Compute."""

    name = "nova"

    scheme: Scheme = MICROVERSION
    reads = frozenset({STANDARD_FOLDED, OWN_FOLDED})
    owned_request = reads
    owned_reply = reads
    vary: tuple[str, ...] = (STANDARD, OWN)
    vary_apart = True
    silence = Silence(SilenceKind.MINIMUM)
    # v2.0 is another API beside the microversions, not the lowest of them: no version stands for it.
    silent_serves = VersionSet()
    releases = RELEASES

    # -- 1. the request

    def place(self, method: str, path: str, query: str) -> Place:
        """By the first segment. The method does not count: documents answer even POST.

        Repeated slashes count as one: some servers in front of Nova merge them, and where none does the
        answer is 300, which no version harms.
        """
        plain = unquote(path) if "%" in path else path
        first, _, below = plain.lstrip("/").partition("/")
        mount = _MOUNTS.get(first)
        if mount is None:
            return CHOICES
        return mount[1] if below.strip("/") else mount[0]

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """The standard header if it names `compute`, else Nova's own, of which an empty one is malformed."""
        text = read_standard(headers, frozenset({SERVICE_TYPE}))
        if text is None:
            text = read_legacy(headers, (OWN_FOLDED,))
        return read_text(text, parse_microversion, Latest.EXACT)

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """Both headers below `/v2.1`, none elsewhere."""
        return () if silent or not place.negotiated else _pair(self.scheme.format(version))

    # -- 2. replies made by the gateway

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """406 that echoes what it rejects and names the range; 400 without any version for what is none."""
        if refusal.version is None:
            text = refusal.ask.text
            return _fault(
                400, f"API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum."
            )
        version = self.scheme.format(refusal.version)
        lowest, highest = map(self.scheme.format, (refusal.bounds.lowest, refusal.bounds.highest))
        message = (
            f"Version {version} is not supported by the API. Minimum is {lowest} and maximum is {highest}."
        )
        return _fault(406, message, _pair(version))

    def fail(self, failure: Failure) -> Reply:
        """An error in Nova's shape. It names no range: Nova has no headers for one."""
        return _fault(failure.status, failure.detail)

    def refuse_operation(self, absence: Absence, place: Place) -> Reply:
        """404 as for any unknown resource: nothing but the echo tells that a version was read."""
        status = absence.status or 404
        return _fault(status, _ABSENT[status], _pair(self.scheme.format(absence.version)))

    # -- 3. the backend's reply

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """The echo, which on a 406 is no version that was executed; whether that refuses, its body tells."""
        version = _echoed(headers)
        return Served(
            version=None if status == 406 else version,
            refused=Refused.READ_BODY if status == 406 and place.negotiated else Refused.NO,
            said="" if version is None else self.scheme.format(version),
        )

    def read_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Advert | None:
        """The range in the text of a version refusal. One that names a range which holds what it rejects is
        none."""
        fault = (load_document(body) or {}).get("computeFault")
        message = fault.get("message") if isinstance(fault, dict) else None
        match = _REJECTED.fullmatch(message) if isinstance(message, str) else None
        if status != 406 or match is None:
            return None
        advert, rejected = read_range(match[2], match[3]), self.scheme.parse(match[1])
        if advert is None or rejected is None or rejected in advert.versions:
            return None
        return advert

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
        """The pair where the backend sent either (before 14 it sent one) and never below `/v2`.

        Nothing is made up for one that said nothing: it may have executed nothing. No silent one is asked
        where versions are told.
        """
        return _pair(served.said) if served.said and place not in (V2, LEGACY) else ()

    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        """The list of versions, one version, or 300 choices. Of all entries only v2.1 tells a range."""
        document = load_document(body) if place.document else None
        entries = None if document is None else _entries(document)
        if document is None or (entries is None and not isinstance(document.get("choices"), list)):
            return None
        for entry in entries or ():
            if _is(entry, "v2.1"):
                tell_range(entry, bounds)
        mend_links(document, links)
        return dump_document(document)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """`GET /`, which nobody needs a token for; where it is not to be had, `GET /v2.1/`.

        Until 20 (Train) the latter wants a token, which `probe.headers` may carry.
        """
        if not answers:
            return ProbeRequest(path or "/", _ASK_JSON)
        answer = answers[-1]
        if path is None and len(answers) == 1 and answer.status in _NOT_HERE:
            return ProbeRequest("/v2.1/", _ASK_JSON)
        if answer.status == 401:
            return ProbeFault("unauthorized", "wants a token before it tells its versions: see probe.headers")
        if answer.status != 200:
            return ProbeFault("status", f"answered {answer.status} where 200 was expected")
        entries = _entries(load_document(answer.body) or {}) or []
        current = [entry for entry in entries if _is(entry, "v2.1")]
        if len(current) == 1:
            return self._advert(current[0])
        if current or not any(_is(entry, "v2.0") for entry in entries):
            return ProbeFault("document", "not a document in which Nova tells its versions")
        return Advert(self.silent_serves, silent=True)

    def _advert(self, entry: Document) -> Advert | ProbeFault:
        """What the entry v2.1 says. Before Kilo it is there as an experiment, without a range."""
        lowest, highest = entry.get("min_version") or "", entry.get("version") or ""
        if not lowest and not highest:
            return Advert(self.silent_serves, silent=True)
        advert = read_range(lowest, highest) if isinstance(lowest, str) and isinstance(highest, str) else None
        return advert or ProbeFault(
            "range", "the versions of v2.1 do not make a range from a minimum up to a maximum"
        )


def _pair(version: str) -> tuple[Header, Header]:
    return ((STANDARD, f"{SERVICE_TYPE} {version}"), (OWN, version))


def _echoed(headers: Mapping[str, str]) -> Version | None:
    """The version that all echoes of a reply agree on; None without one, and when they do not."""
    standard, own = all_values(headers, STANDARD_FOLDED), all_values(headers, OWN_FOLDED)
    told = {parse_microversion(one_text(own))} if own else set()
    if standard:
        service, _, text = one_text(standard).partition(" ")
        told.add(parse_microversion(text) if service == SERVICE_TYPE else None)
    return told.pop() if len(told) == 1 else None


def _entries(document: Document) -> list[Document] | None:
    """The versions of a document: those of a list, or the one of `/v2.1/`. None: it is no such document."""
    versions, version = document.get("versions"), document.get("version")
    if isinstance(versions, list):
        return [entry for entry in versions if isinstance(entry, dict)]
    return [version] if isinstance(version, dict) else None


def _is(entry: Document, name: str) -> bool:
    return entry.get("id") == name


def _fault(status: int, message: str, headers: tuple[Header, ...] = ()) -> Reply:
    body = {_FAULT_NAMES.get(status, "computeFault"): {"code": status, "message": message}}
    return Reply(status, (*headers, _FAULT), json.dumps(body).encode("ascii"))
