"""Senlin (service type `clustering`), Mitaka to 2023.2: one header, replies often without.

`OpenStack-API-Version: clustering X.Y` is all that Senlin reads. Only what a resource controller says carries
a served version: no error does, nor does `/v1` without a slash. So versions are learned from the document at
`/` and from the text of a refusal, never from the lack of a header.

What this must not do: take a 400 `MethodVersionNotFound` for a refusal of the version. It is the backend's
word about one method, which the version was accepted for, and is passed on as it was said.
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
from gateway.core.message import Header, Reply, all_values
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
    read_range,
    read_standard,
    read_text,
    release_table,
    tell_range,
)

SERVICE_TYPE = "clustering"
ACCEPT = "accept"

# The list of versions, whatever header comes along. 300 is its status.
ROOT = Place("root", negotiated=False, document=True, versioned_only=True)
# Without the slash the version document is made before any header is looked at; with it the request has gone
# through authentication and negotiation like one for a resource.
V1 = Place("v1", negotiated=False, document=True, versioned_only=True)
V1_SLASH = Place("v1/", document=True, versioned_only=True)
RESOURCE = Place("resource")

_PLACES = {"/v1": V1, "/v1.0": V1, "/v1/": V1_SLASH, "/v1.0/": V1_SLASH}

_DOUBLED = re.compile(r"/v1(?:\.0)?/v1/?\Z")
_REFUSED_RANGE = re.compile(r"Minimum is '([0-9.]{1,20})' and maximum is '([0-9.]{1,20})'", re.ASCII)
_UNWANTED = re.compile(r"q=0(?:\.0*)?\Z", re.IGNORECASE)

_EXPLANATION = (
    "The server could not comply with the request since it is either malformed or otherwise incorrect."
)
_NOT_FOUND = "The resource could not be found."
_JSON: Header = ("Content-Type", "application/json")
_TEXT: Header = ("Content-Type", "text/plain; charset=UTF-8")

RELEASES = release_table(
    {
        "1.2": "newton 2.0",
        "1.5": "ocata 3.0",
        "1.7": "pike 4.0",
        "1.9": "queens 5.0",
        "1.10": "rocky 6.0",
        "1.12": "stein 7.0 train 8.0",
        "1.14": "ussuri 9.0 victoria 10.0 wallaby 11.0 xena 12.0 yoga 13.0 zed 14.0 antelope 2023.1 15.0 "
        "bobcat 2023.2 16.0",
    }
)
"""What each release serves at most. Mitaka (1.0) knows no versions."""


class Senlin(Dialect):
    """OpenStack Clustering."""

    name = "senlin"

    scheme: Scheme = MICROVERSION
    reads = frozenset({STANDARD_FOLDED, ACCEPT})
    owned_request = frozenset({STANDARD_FOLDED})
    owned_reply = frozenset({STANDARD_FOLDED})
    vary: tuple[str, ...] = (STANDARD,)
    silence = Silence(SilenceKind.MINIMUM)
    silent_serves = VersionSet.only(Version(1, 0))
    releases = RELEASES

    # -- 1. the request

    def place(self, method: str, path: str, query: str) -> Place:
        """By the first segment: empty or `versions` is the list, `v1` and `v1.0` are the API."""
        plain = unquote(path) if "%" in path else path
        if plain[1:2] in ("", "/") or (plain[:9] == "/versions" and plain[9:10] in ("", "/")):
            return ROOT
        return _PLACES.get(plain, RESOURCE)

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """The last item that names `clustering`; a header of Senlin's own does not exist."""
        return read_text(
            read_standard(headers, frozenset({SERVICE_TYPE})), parse_microversion, Latest.ANY_CASE
        )

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """One line with Senlin's item alone."""
        return () if silent or not place.negotiated else (_marked(version),)

    # -- 2. replies made by the gateway

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """406 in Senlin's words; 400 from the layer before it for a text that is no version. Neither has
        version headers."""
        if refusal.version is None:
            return _garbled(refusal.ask.text, as_json=_names_json(headers))
        version, lowest, highest = (
            self.scheme.format(each)
            for each in (refusal.version, refusal.bounds.lowest, refusal.bounds.highest)
        )
        message = (
            f"Version '{version}' is not supported by the API. "
            f"Minimum is '{lowest}' and maximum is '{highest}'."
        )
        return _error(406, "Not Acceptable", message, "InvalidGlobalAPIVersion", _EXPLANATION)

    def fail(self, failure: Failure) -> Reply:
        """An error in Senlin's shape."""
        kind = failure.title.replace(" ", "")
        return _error(failure.status, failure.title, failure.detail, kind, failure.detail)

    def refuse_operation(self, absence: Absence, place: Place) -> Reply:
        """400 as Senlin says it, or 404 as its developer guide has it; no error of Senlin's has version
        headers."""
        message = f"API version '{self.scheme.format(absence.version)}' is not supported on this method."
        if absence.status == 404:
            return _error(404, "Not Found", message, "MethodVersionNotFound", _NOT_FOUND)
        return _error(400, "Bad Request", message, "MethodVersionNotFound", _EXPLANATION)

    # -- 3. the backend's reply

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """The served version, where a controller has said one. What a 406 is about only its body tells."""
        service, _, text = one_text(all_values(headers, STANDARD_FOLDED)).partition(" ")
        return Served(
            version=self.scheme.parse(text) if service.lower() == SERVICE_TYPE else None,
            refused=Refused.READ_BODY if status == 406 and place.negotiated else Refused.NO,
        )

    def read_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Advert | None:
        """A refusal of the version is an `InvalidGlobalAPIVersion`, which names the range in its message."""
        document = load_document(body)
        error = document.get("error") if document is not None else None
        if not isinstance(error, dict) or error.get("type") != "InvalidGlobalAPIVersion":
            return None
        message = error.get("message")
        found = _REFUSED_RANGE.search(message) if isinstance(message, str) else None
        return read_range(found[1], found[2]) if found is not None else None

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
        """The served version as the backend said it; of a silent one's replies those that succeeded get what
        a new one would have said. The range stands in no header, ever."""
        version = served.version
        if version is None and silent and 200 <= status < 400:
            version = settled
        return () if version is None else (_marked(version),)

    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        """The list at `/` and the version at `/v1`, whose self link from 9.0 on is `…/v1/v1`: clients that
        follow it find nothing."""
        document = load_document(body)
        entries = None if document is None else _entries(document)
        if document is None or entries is None:
            return None
        for entry in entries:
            tell_range(entry, bounds, highest=("max_version",))
            if place != ROOT:
                _mend_doubled(entry)
        mend_links(document, links)
        return dump_document(document)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """`GET /`: public and never negotiated. Its entry without a range is that of Mitaka, which is
        silent."""
        if not answers:
            return ProbeRequest(path or "/", (("Accept", "application/json"),))
        answer = answers[0]
        if answer.status not in (200, 300):
            return ProbeFault("status", f"answered {answer.status} where 300 was expected")
        document = load_document(answer.body)
        entries = _entries(document) if document is not None else None
        own = [each for each in entries or () if isinstance(each, dict) and each.get("id") == "1.0"]
        if not own:
            return ProbeFault("document", "not the list of versions of a Senlin API")
        lowest, highest = own[0].get("min_version"), own[0].get("max_version")
        if lowest is None and highest is None:
            return Advert(self.silent_serves, silent=True)
        told = isinstance(lowest, str) and isinstance(highest, str) and read_range(lowest, highest)
        return told or ProbeFault(
            "range", "the document does not tell a range from a minimum up to a maximum"
        )


def _marked(version: Version) -> Header:
    return (STANDARD, f"{SERVICE_TYPE} {MICROVERSION.format(version)}")


def _entries(document: Document) -> list[object] | None:
    """The versions that a document tells of; None when it is none of Senlin's."""
    versions, version = document.get("versions"), document.get("version")
    if isinstance(versions, list):
        return versions
    return [version] if isinstance(version, dict) else None


def _mend_doubled(entry: object) -> None:
    """Take the second `/v1` off the self links of `entry`; in place."""
    links = entry.get("links") if isinstance(entry, dict) else None
    for link in links if isinstance(links, list) else ():
        if isinstance(link, dict) and link.get("rel") == "self" and isinstance(link.get("href"), str):
            link["href"] = _DOUBLED.sub("/v1", link["href"])


def _names_json(headers: Mapping[str, str]) -> bool:
    """Whether `Accept` names JSON; `*/*` does not, and neither does its absence."""
    for line in all_values(headers, ACCEPT):
        for item in line.split(","):
            kind, *parameters = (part.strip() for part in item.split(";"))
            if kind.lower() == "application/json" and not any(map(_UNWANTED.match, parameters)):
                return True
    return False


def _garbled(text: str, *, as_json: bool) -> Reply:
    """400, made by the framework below Senlin: in two shapes of its own."""
    fault = f"API Version String '{text}' is of invalid format. It must be of format 'major.minor'."
    if as_json:
        told = {
            "message": f"{_EXPLANATION}<br /><br />\n{fault}\n\n",
            "code": "400 Bad Request",
            "title": "Bad Request",
        }
        return Reply(400, (_JSON,), json.dumps(told).encode("ascii"))
    return Reply(400, (_TEXT,), f"400 Bad Request\n\n{_EXPLANATION}\n\n {fault}  ".encode())


def _error(status: int, title: str, message: str, kind: str, explanation: str) -> Reply:
    """An error as Senlin's outer layer makes all of them."""
    told = {
        "code": status,
        "error": {"code": status, "message": message, "type": kind},
        "explanation": explanation,
        "title": title,
    }
    return Reply(status, (_JSON,), json.dumps(told).encode("ascii"))
