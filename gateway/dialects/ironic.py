"""Ironic (service type `baremetal`), Juno to 2026.2: two request headers in, three reply headers out.

The gateway speaks as releases from 25.0 do: an empty value is absence, the last of several wins, the standard
header beats Ironic's own, `latest` in any case. To backends it always writes both headers: those before 25.0
do not read the standard one and would silently execute at 1.1. It always writes a number, never `latest`, on
which releases from 25.0 crash when the path ends in `.json`.

What this must not do: take a 406 for a version refusal because it is a 406. Ironic also refuses features that
are newer than the request with 406, after it has accepted the version; the served version on the reply tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

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
    Latest,
    dump_document,
    load_document,
    mend_links,
    one_text,
    read_legacy,
    read_range,
    read_standard,
    read_text,
    release_table,
    tell_range,
    without_json,
)

SERVICE_TYPE = "baremetal"
SERVED = "X-OpenStack-Ironic-API-Version"
LOWEST = "X-OpenStack-Ironic-API-Minimum-Version"
HIGHEST = "X-OpenStack-Ironic-API-Maximum-Version"
SERVED_FOLDED, LOWEST_FOLDED, HIGHEST_FOLDED = fold(SERVED), fold(LOWEST), fold(HIGHEST)
_JSON: Header = ("Content-Type", "application/json")

# `/` was not negotiated before 26.1.0, and a version header there can only hurt: it is dropped.
ROOT = Place("root", negotiated=False, document=True, versioned_only=True)
V1 = Place("v1", document=True, versioned_only=True)
RESOURCE = Place("resource")

# Keyed by the path without trailing slashes, which Ironic ignores, and without the `.json` that it takes off.
_PLACES = {"": ROOT, "/v1": V1}

# Statuses of which a new server's reply has no version headers: made by keystonemiddleware (401), by routing
# (405), by the JSON guard (413), or by something in front of the API (502, 504). 400 and 404 come with and
# without; those that the API's own logic makes are by far the more frequent, so they count as with.
_BARE_STATUSES = frozenset({401, 405, 413, 502, 504})

RELEASES = release_table(
    {
        "1.6": "kilo 2015.1",
        "1.11": "4.0 4.1",
        "1.14": "liberty 4.2 4.3",
        "1.16": "mitaka 5.0 5.1",
        "1.17": "6.0",
        "1.22": "newton 6.1 6.2 6.3",
        "1.31": "ocata 7.0 8.0",
        "1.34": "pike 9.0 9.1",
        "1.35": "9.2",
        "1.36": "10.0",
        "1.38": "queens 10.1",
        "1.43": "11.0",
        "1.46": "rocky 11.1",
        "1.49": "12.0",
        "1.56": "stein 12.1",
        "1.58": "train 12.2 13.0",
        "1.61": "14.0",
        "1.65": "ussuri 15.0",
        "1.67": "15.1 15.2",
        "1.68": "victoria 16.0 16.1",
        "1.69": "16.2",
        "1.72": "wallaby 17.0 17.1",
        "1.74": "18.0",
        "1.75": "18.1",
        "1.78": "xena 18.2 yoga 19.0 20.0 20.1 20.2",
        "1.79": "21.0",
        "1.80": "zed 21.1 21.2",
        "1.81": "21.3",
        "1.82": "antelope 2023.1 21.4",
        "1.83": "22.0",
        "1.86": "22.1",
        "1.87": "bobcat 2023.2 23.0",
        "1.88": "23.1",
        "1.89": "24.0",
        "1.90": "caracal 2024.1 24.1",
        "1.91": "25.0 26.0",
        "1.93": "dalmatian 2024.2 26.1",
        "1.94": "27.0",
        "1.95": "28.0",
        "1.96": "epoxy 2025.1 29.0",
        "1.99": "30.0 31.0",
        "1.101": "flamingo 2025.2 32.0",
        "1.104": "33.0",
        "1.109": "34.0",
        "1.111": "gazpacho 2026.1 35.0",
        "1.112": "36.0 37.0",
        "1.113": "38.0",
        "1.115": "2026.2 39.0",
    }
)
"""What each release serves at most. Releases before 10.0 could not be pinned themselves; the gateway can."""


class Ironic(Dialect):
    """OpenStack Bare Metal."""

    name = "ironic"

    scheme: Scheme = MICROVERSION
    reads = frozenset({STANDARD_FOLDED, SERVED_FOLDED})
    owned_request = reads
    owned_reply = frozenset({SERVED_FOLDED, LOWEST_FOLDED, HIGHEST_FOLDED})
    vary: tuple[str, ...] = (STANDARD, SERVED)
    silence = Silence(SilenceKind.MINIMUM)
    silent_serves = VersionSet.only(Version(1, 1))
    releases = RELEASES

    # -- 1. the request

    def place(self, method: str, path: str, query: str) -> Place:
        """`/`, `/v1`, or a resource: any other first segment is one that Ironic looks up below `/v1`."""
        return _PLACES.get(without_json(path), RESOURCE)

    def plain_path(self, path: str) -> str:
        """Without `.json`, and below `/v1`, where Ironic looks up whatever begins otherwise."""
        plain = without_json(path).replace("%", "%25")
        first = plain.lstrip("/").partition("/")[0]
        return plain or "/" if first in {"", "v1"} else f"/v1{plain}"

    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        """The standard header if it names `baremetal`, else Ironic's own."""
        text = read_standard(headers, frozenset({SERVICE_TYPE}))
        if text is None:
            text = read_legacy(headers, (SERVED_FOLDED,)) or None
        return read_text(text, self.scheme.parse, Latest.ANY_CASE)

    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        """Both headers, Ironic's own first: it is the one that every release reads."""
        if silent or not place.negotiated:
            return ()
        text = self.scheme.format(version)
        return ((SERVED, text), (STANDARD, f"{SERVICE_TYPE} {text}"))

    # -- 2. replies made by the gateway

    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        """406 in Ironic's words, with the range in headers and text unless the ask was no version at all."""
        if refusal.version is None:
            return _error(406, "Not Acceptable", f"Invalid value for {SERVED} header", None)
        version = self.scheme.format(refusal.version)
        bounds = refusal.bounds
        if refusal.version.major == bounds.lowest.major:
            fault = f"Version {version} was requested but the minor version is not supported by this service."
        else:
            fault = (
                f"Mutually exclusive versions requested. Version {version} requested "
                "but not supported by this service."
            )
        lowest, highest = self.scheme.format(bounds.lowest), self.scheme.format(bounds.highest)
        supported = f"The supported version range is: [{lowest}, {highest}]."
        return _error(406, "Not Acceptable", f"{fault} {supported}", bounds)

    def fail(self, failure: Failure) -> Reply:
        """An error in Ironic's shape, with the range once there is one."""
        return _error(failure.status, failure.title, failure.detail, failure.bounds)

    def refuse_operation(self, absence: Absence, place: Place) -> Reply:
        """404 from inside the API, which accepted the version: all three headers, and the form of errors
        there, in the words of the newest release."""
        status = absence.status or 404
        inner = {
            "faultcode": "Client",
            "faultstring": "The API is not supported for this version",
            "debuginfo": None,
        }
        served = (SERVED, self.scheme.format(absence.version))
        return _wrapped(status, inner, (*_range_headers(absence.bounds), served))

    # -- 3. the backend's reply

    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        """A version refusal is a 406 with the range and *without* a served version."""
        served = all_values(headers, SERVED_FOLDED)
        lowest = all_values(headers, LOWEST_FOLDED)
        highest = all_values(headers, HIGHEST_FOLDED)
        refused = status == 406 and place.negotiated and bool(lowest and highest) and not served
        return Served(
            version=self.scheme.parse(one_text(served)),
            advert=read_range(one_text(lowest), one_text(highest)),
            refused=Refused.YES if refused else Refused.NO,
            ranged=bool(lowest or highest),
        )

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
        """The served version as the backend said it, the offer where it told its range.

        A silent backend's reply gets all three, unless a new one's would have none at that status. When one
        that was silent has just begun to speak, its own word counts.
        """
        version, ranged = served.version, served.ranged
        if silent and version is None and not ranged:
            if settled is None or status < 200 or status in _BARE_STATUSES:
                return ()
            version, ranged = settled, True
        said = () if version is None else ((SERVED, self.scheme.format(version)),)
        return (*_range_headers(bounds), *said) if ranged else said

    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        """`/` and `/v1`. Before 4.3 and 12.0 they tell no range; such documents keep their shape."""
        document = load_document(body)
        if document is None:
            return None
        default, versions = document.get("default_version"), document.get("versions")
        if place == ROOT and (isinstance(versions, list) or isinstance(default, dict)):
            entries = [default, *(versions if isinstance(versions, list) else ())]
        elif place == V1 and document.get("id") == "v1":
            entries = [document.get("version")]
        else:
            return None
        for entry in entries:
            tell_range(entry, bounds)
        mend_links(document, links)
        return dump_document(document)

    # -- 4. probes

    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        """`GET /v1`: public, and with the range in its headers since Kilo.

        Only there does the lack of headers mean silence (Juno and older); on `/` they came with 26.1.0.
        """
        if not answers:
            return ProbeRequest(path or "/v1", (("Accept", "application/json"),))
        answer = answers[0]
        if answer.status != 200:
            return ProbeFault("status", f"answered {answer.status} where 200 was expected")
        lowest = all_values(answer.headers, LOWEST_FOLDED)
        highest = all_values(answer.headers, HIGHEST_FOLDED)
        if lowest or highest:
            return read_range(one_text(lowest), one_text(highest)) or ProbeFault(
                "range", "the version headers do not make a range from a minimum up to a maximum"
            )
        document = load_document(answer.body)
        if document is None or document.get("id") != "v1":
            return ProbeFault("document", "neither version headers nor the document of Ironic's v1")
        if "version" in document:
            # Releases from 12.0 on say their range twice; believing in silence would hold the offer at 1.1.
            return ProbeFault(
                "range", "the document tells a range but no header does: something removes them"
            )
        return Advert(self.silent_serves, silent=True)


def _range_headers(bounds: Bounds) -> tuple[Header, Header]:
    return ((LOWEST, MICROVERSION.format(bounds.lowest)), (HIGHEST, MICROVERSION.format(bounds.highest)))


def _error(status: int, title: str, description: str, bounds: Bounds | None) -> Reply:
    """An error as Ironic's routing makes it."""
    inner = {"code": status, "title": title, "description": description}
    return _wrapped(status, inner, () if bounds is None else _range_headers(bounds))


def _wrapped(status: int, inner: Mapping[str, object], headers: tuple[Header, ...]) -> Reply:
    """Ironic's error: a JSON object in a JSON string in a JSON object."""
    body = json.dumps({"error_message": json.dumps(inner)})
    return Reply(status, (*headers, _JSON), body.encode("ascii"))
