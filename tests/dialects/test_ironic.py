"""Ironic on the wire: the golden examples I1 to I18, byte for byte, and the traps of the specifications.

The examples are what real servers of 21.4.0 (range 1.1 to 1.82) and 39.0.0 (1.1 to 1.115) say. Where releases
differ, the gateway speaks as 25.0 and later do.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json

import pytest

from gateway.core.dialect import (
    ASK_SILENT,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Failure,
    Place,
    ProbeAnswer,
    ProbeFault,
    ProbeRequest,
    Reason,
    Refusal,
    Refused,
    Served,
    SilenceKind,
)
from gateway.core.message import Header, Reply, as_mapping, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects import discover
from gateway.dialects.ironic import RESOURCE, ROOT, V1, Ironic

IRONIC = Ironic.configured(Ironic.Options())
OFFER = Bounds(VersionSet.between(Version(1, 1), Version(1, 82)))
ADVERT = Advert(OFFER.versions)

LEGACY = "X-OpenStack-Ironic-API-Version"
STANDARD = "OpenStack-API-Version"
MIN = ("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
MAX = ("X-OpenStack-Ironic-API-Maximum-Version", "1.82")
JSON = ("Content-Type", "application/json")
AT_1_31 = Version(1, 31)

# What stands before and after the text of an error.
HEAD = rb'{"error_message": "{\"code\": 406, \"title\": \"Not Acceptable\", \"description\": \"'
TAIL = rb'\"}"}'
SUPPORTED = b"The supported version range is: [1.1, 1.82]."


def served_at(text: str) -> Header:
    return (LEGACY, text)


def read(*lines: Header) -> Ask:
    return IRONIC.read_ask(RESOURCE, as_mapping((fold(name), value) for name, value in lines))


def refuse(text: str, bounds: Bounds = OFFER) -> Reply:
    """What the gateway says to the ask `text`."""
    ask = read((LEGACY, text))
    assert ask.kind in {AskKind.EXACT, AskKind.GARBLED}
    if ask.version is None:
        reason = Reason.MALFORMED
    else:
        reason = Reason.BELOW_MIN if ask.version < bounds.lowest else Reason.ABOVE_MAX
    return IRONIC.refuse(Refusal(reason, ask, ask.version, bounds), RESOURCE, as_mapping([]))


def heard(status: int, *lines: Header) -> Served:
    return IRONIC.read_reply(RESOURCE, status, as_mapping((fold(name), value) for name, value in lines))


def told(
    status: int, *lines: Header, settled: Version | None = AT_1_31, silent: bool = False
) -> tuple[Header, ...]:
    """The version headers that the client gets for a backend's."""
    return IRONIC.write_reply(RESOURCE, status, heard(status, *lines), settled, OFFER, silent=silent)


# --- what a request says (I1 to I3, I8 to I10) ---------------------------------------------------------


def test_I1_trap_1_no_header_is_silence_and_silence_is_the_minimum() -> None:
    assert read() == ASK_SILENT
    assert IRONIC.silence.kind is SilenceKind.MINIMUM


def test_I2_the_legacy_header_names_a_version() -> None:
    assert read((LEGACY, "1.31")) == Ask(AskKind.EXACT, Version(1, 31), "1.31")


@pytest.mark.parametrize("text", ["latest", "LATEST", "Latest"])
def test_I3_latest_in_any_case(text: str) -> None:
    assert read((LEGACY, text)).kind is AskKind.LATEST
    assert read((STANDARD, f"baremetal {text}")).kind is AskKind.LATEST


def test_I8_the_standard_header_counts_and_beats_the_legacy_one() -> None:
    assert read((STANDARD, "baremetal 1.31")).version == Version(1, 31)
    assert read((STANDARD, "baremetal 1.31"), (LEGACY, "1.9")).version == Version(1, 31)
    assert read((LEGACY, "1.9"), (STANDARD, "compute 2.1, BareMetal 1.31")).version == Version(1, 31)


@pytest.mark.parametrize("text", ["1.31", "compute 2.20", "bare-metal 1.31", "ironic 1.31", "baremetal", ""])
def test_I8_a_standard_header_that_does_not_name_baremetal_is_none(text: str) -> None:
    assert read((STANDARD, text)) == ASK_SILENT
    assert read((STANDARD, text), (LEGACY, "1.9")).version == Version(1, 9)


def test_I8_a_garbled_standard_header_is_not_saved_by_a_good_legacy_one() -> None:
    assert read((STANDARD, "baremetal spam"), (LEGACY, "1.9")).kind is AskKind.GARBLED


@pytest.mark.parametrize("lines", [[""], [" "], ["1.5,"], ["1.5", ""]])
def test_I9_an_empty_value_is_absence(lines: list[str]) -> None:
    assert read(*((LEGACY, line) for line in lines)) == ASK_SILENT


@pytest.mark.parametrize(
    "lines", [["1.58, 1.60"], ["1.58", "1.60"], ["spam,1.60"], ["", "1.60"], ["latest", "1.60"]]
)
def test_I10_the_last_of_several_wins(lines: list[str]) -> None:
    assert read(*((LEGACY, line) for line in lines)).version == Version(1, 60)


def test_V4_a_twin_with_underscores_is_the_same_header() -> None:
    """Servers fold both into one name, so a twin must count, and be taken off, like the name itself."""
    assert read((LEGACY, "1.5"), ("X_OpenStack_Ironic_API_Version", "1.6")).version == Version(1, 6)
    assert fold("OPENSTACK_API_VERSION") in IRONIC.owned_request


@pytest.mark.parametrize(
    "text", ["1.05", "+1.5", "-1.5", "1. 5", "1_0.5", "1.5.0", "1", "1.latest", "\u0662.1", "1.5\xa0"]
)
def test_a_lax_number_is_malformed(text: str) -> None:
    assert read((LEGACY, text)).kind is AskKind.GARBLED


# --- what a backend is sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", [RESOURCE, V1])
def test_trap_24_old_servers_ignore_the_standard_header_so_the_legacy_one_always_goes_along(
    place: Place,
) -> None:
    written = IRONIC.write_request(place, Version(1, 31), ASK_SILENT, silent=False)

    assert written == ((LEGACY, "1.31"), (STANDARD, "baremetal 1.31"))


def test_latest_leaves_as_a_number() -> None:
    """`latest` together with a path that ends in `.json` crashes releases from 25.0 on."""
    ask = read((LEGACY, "latest"))

    written = IRONIC.write_request(RESOURCE, OFFER.highest, ask, silent=False)

    assert {value.split()[-1] for _, value in written} == {"1.82"}


def test_a_silent_backend_is_sent_no_version() -> None:
    assert IRONIC.write_request(RESOURCE, Version(1, 1), ASK_SILENT, silent=True) == ()
    assert IRONIC.silent_serves == VersionSet.only(Version(1, 1))


def test_the_root_is_sent_no_version() -> None:
    assert IRONIC.write_request(ROOT, Version(1, 1), ASK_SILENT, silent=False) == ()


# --- places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "", "//", "/.json", "/%2Ejson"])
def test_the_root_is_a_document_that_is_not_negotiated(path: str) -> None:
    place = IRONIC.place("GET", path, "")

    assert place == ROOT
    assert (place.negotiated, place.document, place.versioned_only) == (False, True, True)


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1//", "/v1.json", "/v1.json/", "/v1/.json", "/%761", "/v%31/"]
)
def test_v1_in_every_spelling_that_servers_take_is_a_negotiated_document(path: str) -> None:
    place = IRONIC.place("GET", path, "")

    assert place == V1
    assert (place.negotiated, place.document, place.versioned_only) == (True, True, True)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nodes",
        "/nodes",
        "/v2/nodes",
        "/v2",
        "/V1",
        "/v1x",
        "/v1.json.json",
        "/v1.xml",
        "/healthcheck",
        "/%2Fv1x",
    ],
)
def test_everything_else_is_a_resource_that_silent_backends_may_serve(path: str) -> None:
    place = IRONIC.place("GET", path, "limit=1")

    assert place == RESOURCE
    assert (place.negotiated, place.document, place.versioned_only) == (True, False, False)


# --- refusals made by the gateway (I4 to I7, I14, I15, I17) --------------------------------------------


def test_I4_too_new() -> None:
    assert refuse("1.999") == Reply(
        406,
        (MIN, MAX, JSON),
        rb'{"error_message": "{\"code\": 406, \"title\": \"Not Acceptable\", \"description\": \"Version 1.999'
        rb" was requested but the minor version is not supported by this service. The supported version range"
        rb' is: [1.1, 1.82].\"}"}',
    )
    assert len(refuse("1.999").body) == 218


def test_I5_trap_1_too_old_although_the_specification_calls_1_0_the_default() -> None:
    reply = refuse("1.0")

    fault = b"Version 1.0 was requested but the minor version is not supported by this service. "
    assert reply == Reply(406, (MIN, MAX, JSON), HEAD + fault + SUPPORTED + TAIL)
    assert len(reply.body) == 216


@pytest.mark.parametrize("text,length", [("2.1", 230), ("2.0", 230), ("0.9", 230), ("99.99", 232)])
def test_I6_another_major(text: str, length: int) -> None:
    reply = refuse(text)

    fault = b"Mutually exclusive versions requested. Version %s requested but not supported by this service. "
    assert reply == Reply(406, (MIN, MAX, JSON), HEAD + fault % text.encode() + SUPPORTED + TAIL)
    assert len(reply.body) == length


@pytest.mark.parametrize("text", ["spam", "l33t", "1.2.3.4.5"])
def test_I7_trap_2_malformed_has_no_range(text: str) -> None:
    reply = refuse(text)

    fault = b"Invalid value for X-OpenStack-Ironic-API-Version header"
    assert reply == Reply(406, (JSON,), HEAD + fault + TAIL)
    assert len(reply.body) == 145


def test_I15_a_lower_offer_is_told_as_a_pinned_server_tells_its_pin() -> None:
    capped = Bounds(VersionSet.between(Version(1, 1), Version(1, 96)))

    reply = refuse("1.97", capped)

    assert reply.headers == (MIN, (MAX[0], "1.96"), JSON)
    assert b"[1.1, 1.96]." in reply.body


def test_I17_the_inner_form_is_json_whatever_accept_says() -> None:
    ask = read((LEGACY, "1.999"))
    refusal = Refusal(Reason.ABOVE_MAX, ask, ask.version, OFFER)

    html = IRONIC.refuse(refusal, RESOURCE, as_mapping([("accept", "text/html")]))

    assert html == refuse("1.999")


def test_I14_a_version_on_the_root_is_dropped_so_nothing_is_refused_there() -> None:
    assert not IRONIC.place("GET", "/", "").negotiated
    assert {fold(LEGACY), fold(STANDARD)} <= IRONIC.owned_request


def test_a_failure_has_ironics_shape_and_the_range_once_there_is_one() -> None:
    failure = Failure(503, "Service Unavailable", 'No "server" now.', retry_after=2)

    assert IRONIC.fail(failure) == Reply(
        503,
        (JSON,),
        rb'{"error_message": "{\"code\": 503, \"title\": \"Service Unavailable\", \"description\": '
        rb'\"No \\\"server\\\" now.\"}"}',
    )
    assert IRONIC.fail(Failure(503, "Service Unavailable", "No.", bounds=OFFER)).headers == (MIN, MAX, JSON)


@pytest.mark.parametrize("text", ["1.999", "2.1", "1.0", "spam"])
def test_the_real_client_finds_the_text_of_an_error(text: str) -> None:
    """python-ironicclient reads `error_message`, parses it as JSON, takes `faultstring` or `description`."""
    inner = json.loads(json.loads(refuse(text).body)["error_message"])

    assert list(inner) == ["code", "title", "description"]
    assert inner["code"] == 406


# --- replies of a backend (I1 to I3, I11, I12, I16, I18) -----------------------------------------------

OLD_MAX = ("X-Openstack-Ironic-Api-Maximum-Version", "1.56")
"""The spelling of servers behind eventlet, and a range that is not the offer."""


@pytest.mark.parametrize("status", [200, 201, 204, 301, 400, 404, 409, 500])
def test_I1_I2_I3_I11_I16_served_stands_as_it_was_said_and_the_range_is_the_offer(status: int) -> None:
    lines = (MIN, OLD_MAX, served_at("1.31"))

    assert heard(status, *lines) == Served(
        Version(1, 31), Advert(VersionSet.between(Version(1, 1), Version(1, 56))), Refused.NO, ranged=True
    )
    assert told(status, *lines) == (MIN, MAX, served_at("1.31"))


def test_I12_a_reply_without_version_headers_gets_none() -> None:
    assert heard(404) == Served()
    assert told(404) == ()


def test_I15_the_backends_own_pin_is_heard_in_band() -> None:
    assert heard(200, MIN, (MAX[0], "1.96"), served_at("1.1")).advert == Advert(
        VersionSet.between(Version(1, 1), Version(1, 96))
    )


def test_I18_trap_23_a_406_with_a_served_version_refuses_a_feature_and_is_passed_on() -> None:
    lines = (MIN, OLD_MAX, served_at("1.31"))

    assert heard(406, *lines).refused is Refused.NO
    assert told(406, *lines) == (MIN, MAX, served_at("1.31"))


def test_I4_of_a_backend_is_a_stale_map_and_names_the_true_range() -> None:
    answer = heard(406, MIN, OLD_MAX)

    assert answer.refused is Refused.YES
    assert answer.advert == Advert(VersionSet.between(Version(1, 1), Version(1, 56)))
    assert answer.version is None


@pytest.mark.parametrize("lines", [(), (MIN,), (MAX,), (served_at("spam"), MIN, MAX)])
def test_trap_2_trap_22_a_406_that_lacks_a_bound_or_names_a_version_is_no_version_refusal(
    lines: tuple[Header, ...],
) -> None:
    assert heard(406, *lines).refused is Refused.NO


def test_a_406_on_the_root_is_no_version_refusal() -> None:
    headers = as_mapping([(fold(name), value) for name, value in (MIN, MAX)])

    assert IRONIC.read_reply(ROOT, 406, headers).refused is Refused.NO


def test_a_backend_that_serves_another_version_is_told_as_it_said() -> None:
    assert told(200, MIN, MAX, served_at("1.1"), settled=Version(1, 31)) == (MIN, MAX, served_at("1.1"))


@pytest.mark.parametrize("text", ["spam", "1.05", "1.5, 1.6", "", "1.31\xa0"])
def test_V8_a_backends_text_that_is_no_version_is_not_passed_on(text: str) -> None:
    assert heard(200, served_at(text)).version is None
    assert told(200, MIN, MAX, served_at(text)) == (MIN, MAX)


def test_V9_two_versions_on_one_reply_are_none() -> None:
    assert heard(200, served_at("1.5"), served_at("1.6")).version is None
    assert heard(200, served_at("1.5"), served_at("1.5")).version == Version(1, 5)


@pytest.mark.parametrize("low,high", [("1.9", "1.1"), ("1.1", "2.5"), ("x", "1.5"), ("1.1", "")])
def test_an_impossible_range_is_not_learned_and_still_replaced(low: str, high: str) -> None:
    lines = ((MIN[0], low), (MAX[0], high), served_at("1.31"))

    assert heard(200, *lines).advert is None
    assert told(200, *lines) == (MIN, MAX, served_at("1.31"))


def test_both_bounds_stand_where_the_backend_sent_one() -> None:
    assert told(200, OLD_MAX) == (MIN, MAX)
    assert heard(200, OLD_MAX).advert is None


# --- silent backends -----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 302, 400, 403, 404, 406, 409, 500, 503])
def test_a_silent_backends_reply_gets_what_a_new_one_would_have_sent(status: int) -> None:
    assert told(status, settled=Version(1, 1), silent=True) == (MIN, MAX, served_at("1.1"))


@pytest.mark.parametrize("status", [100, 401, 405, 413, 502, 504])
def test_trap_22_statuses_that_new_servers_leave_bare_stay_bare(status: int) -> None:
    assert told(status, settled=Version(1, 1), silent=True) == ()


def test_nothing_is_invented_where_nothing_was_negotiated() -> None:
    assert told(200, settled=None, silent=True) == ()


def test_a_backend_that_was_silent_and_now_speaks_is_believed() -> None:
    assert told(200, MIN, OLD_MAX, served_at("1.31"), settled=Version(1, 1), silent=True) == (
        MIN,
        MAX,
        served_at("1.31"),
    )


# --- probes --------------------------------------------------------------------------------------------

V1_DOCUMENT = b'{"id": "v1", "links": [], "media_types": [], "nodes": []}'


def probed(status: int, *lines: Header, body: bytes = V1_DOCUMENT, path: str | None = None) -> object:
    headers = as_mapping((fold(name), value) for name, value in lines)
    return IRONIC.probe((ProbeAnswer(status, headers, body),), path)


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_asks_v1_without_a_version() -> None:
    assert IRONIC.probe((), None) == ProbeRequest("/v1", (("Accept", "application/json"),))
    assert IRONIC.probe((), "/baremetal/v1/") == ProbeRequest(
        "/baremetal/v1/", (("Accept", "application/json"),)
    )


def test_a_probe_reads_the_range_from_the_headers() -> None:
    assert probed(200, MIN, MAX, served_at("1.1")) == ADVERT


def test_trap_6_a_pinned_server_is_what_it_says() -> None:
    assert probed(200, MIN, (MAX[0], "1.58")) == Advert(VersionSet.between(Version(1, 1), Version(1, 58)))


def test_v1_without_headers_is_a_silent_server_of_the_juno_age() -> None:
    assert probed(200) == Advert(VersionSet.only(Version(1, 1)), silent=True)


@pytest.mark.parametrize("status", [204, 300, 301, 302, 401, 403, 404, 406, 429, 500, 503])
def test_trap_22_an_error_says_nothing_about_versions(status: int) -> None:
    assert reason(probed(status)) == "status"
    assert reason(probed(status, MIN, MAX)) == "status"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>It works!</html>",
        b"[]",
        b'{"versions": []}',
        b'{"id": "v2.1"}',
        b'{"id": ["v1"]}',
        b"\xff" * 9,
    ],
)
def test_a_foreign_document_is_nonsense_and_not_silence(body: bytes) -> None:
    assert reason(probed(200, body=body)) == "document"


def test_trap_22_the_root_without_headers_is_not_silence() -> None:
    root = (
        b'{"default_version": {"id": "v1", "version": "1.82"}, "versions": [{"id": "v1", "version": "1.82"}]}'
    )

    assert reason(probed(200, body=root, path="/")) == "document"


@pytest.mark.parametrize(
    "lines",
    [
        (MIN,),
        (MAX,),
        ((MIN[0], "1.9"), (MAX[0], "1.1")),
        (MIN, (MAX[0], "2.5")),
        (MIN, (MAX[0], "x")),
        (MIN, MAX, MAX, OLD_MAX),
    ],
)
def test_a_probe_does_not_believe_an_impossible_range(lines: tuple[Header, ...]) -> None:
    assert reason(probed(200, *lines)) == "range"


def test_headers_that_something_removes_on_the_way_are_not_silence() -> None:
    """A document that tells a range comes from 12.0 or later, which also sends headers."""
    body = b'{"id": "v1", "version": {"id": "v1", "min_version": "1.1", "version": "1.82"}}'

    assert reason(probed(200, body=body)) == "range"


# --- what the rest of the house is told ----------------------------------------------------------------


def test_the_dialect_is_found_by_its_file() -> None:
    assert discover()["ironic"] is Ironic


def test_every_name_that_is_read_or_written_is_owned_and_folded() -> None:
    written = IRONIC.write_request(RESOURCE, Version(1, 1), ASK_SILENT, silent=False)

    assert IRONIC.reads == IRONIC.owned_request == {fold(name) for name, _ in written}
    assert IRONIC.owned_reply == {fold(name) for name, _ in (MIN, MAX, served_at("1.1"))}


def test_V10_vary_names_what_is_negotiated_on() -> None:
    assert {fold(name) for name in IRONIC.vary} == IRONIC.reads


PINS = """
kilo 1.6, liberty 1.14, mitaka 1.16, newton 1.22, ocata 1.31, 8.0 1.31, pike 1.34, 9.2 1.35, 10.0 1.36,
queens 1.38, rocky 1.46, stein 1.56, train 1.58, ussuri 1.65, victoria 1.68, wallaby 1.72, xena 1.78,
yoga 1.78, zed 1.80, antelope 1.82, 2023.1 1.82, 21.4 1.82, 2023.2 1.87, 2024.1 1.90, 2024.2 1.93,
2025.1 1.96, 29.0 1.96, 2025.2 1.101, 2026.1 1.111, 37.0 1.112, 38.0 1.113, 2026.2 1.115, 39.0 1.115
"""


@pytest.mark.parametrize("release,highest", [pin.split() for pin in PINS.split(",")])
def test_I15_a_release_names_the_version_that_its_servers_are_pinned_to(release: str, highest: str) -> None:
    assert IRONIC.scheme.format(IRONIC.releases[release]) == highest


def test_numbered_releases_never_serve_less_than_the_one_before() -> None:
    numbered = sorted(
        (tuple(map(int, name.split("."))), highest)
        for name, highest in IRONIC.releases.items()
        if name[0].isdigit() and int(name.split(".")[0]) < 2000
    )

    highest = [version for _, version in numbered]
    assert highest == sorted(highest)
    assert len(numbered) > 50
