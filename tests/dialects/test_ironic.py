"""Ironic on the wire: the golden examples I1 to I18, byte for byte, and the traps of the specifications.

The examples are responses of real servers of 21.4.0 (range 1.1 to 1.82) and 39.0.0 (1.1 to 1.115). Where
releases differ, the gateway behaves like 25.0 and later.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json

import pytest

from gateway.core.decision.decision import resolve
from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    DefaultKind,
    Endpoint,
    GatewayError,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    Served,
    VersionRefusal,
)
from gateway.core.http.message import Header, RequestHead, Response, as_mapping, normalize_name, render
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects import discover
from gateway.dialects.openstack.ironic import RESOURCE, ROOT, UNCERTAIN, V1, Ironic
from tests.core.builders import snapshot

IRONIC = Ironic.configured(Ironic.Options())
OFFER = VersionSet.between(Version(1, 1), Version(1, 82))
ADVERTISEMENT = Advertisement(OFFER)

LEGACY = "X-OpenStack-Ironic-API-Version"
STANDARD = "OpenStack-API-Version"
MIN = ("X-OpenStack-Ironic-API-Minimum-Version", "1.1")
MAX = ("X-OpenStack-Ironic-API-Maximum-Version", "1.82")
JSON = ("Content-Type", "application/json")
AT_1_31 = Version(1, 31)

# What precedes and follows the text of an error.
HEAD = rb'{"error_message": "{\"code\": 406, \"title\": \"Not Acceptable\", \"description\": \"'
TAIL = rb'\"}"}'
SUPPORTED = b"The supported version range is: [1.1, 1.82]."


def served_at(text: str) -> Header:
    return (LEGACY, text)


def read(*lines: Header) -> RequestedVersion:
    return IRONIC.read_requested(RESOURCE, as_mapping((normalize_name(name), value) for name, value in lines))


def refuse(text: str, offered: VersionSet = OFFER) -> Response:
    """The refusal of the requested version `text`."""
    requested = read((LEGACY, text))
    assert requested.kind in {RequestedKind.EXACT, RequestedKind.MALFORMED}
    if requested.version is None:
        reason = RefusalReason.MALFORMED
    else:
        reason = RefusalReason.BELOW_MIN if requested.version < offered.lowest else RefusalReason.ABOVE_MAX
    return IRONIC.refuse(Refusal(reason, requested, requested.version, offered), RESOURCE, as_mapping([]))


def read_response(status: int, *lines: Header) -> Served:
    return IRONIC.read_response(
        RESOURCE, status, as_mapping((normalize_name(name), value) for name, value in lines)
    )


def client_headers(
    status: int, *lines: Header, negotiated: Version | None = AT_1_31, legacy: bool = False
) -> tuple[Header, ...]:
    """The version headers that the client gets for those of a backend."""
    return IRONIC.write_response(
        BackendResponse(RESOURCE, status, read_response(status, *lines), negotiated, OFFER, legacy=legacy)
    )


# --- requested versions (I1 to I3, I8 to I10) --------------------------------------------------------------


def test_I1_trap_1_a_request_without_a_version_gets_the_minimum() -> None:
    assert read() == NO_VERSION_REQUESTED
    assert IRONIC.default_version.kind is DefaultKind.MINIMUM


def test_I2_the_legacy_header_names_a_version() -> None:
    assert read((LEGACY, "1.31")) == RequestedVersion(RequestedKind.EXACT, Version(1, 31), "1.31")


@pytest.mark.parametrize("text", ["latest", "LATEST", "Latest"])
def test_I3_latest_in_any_case(text: str) -> None:
    assert read((LEGACY, text)).kind is RequestedKind.LATEST
    assert read((STANDARD, f"baremetal {text}")).kind is RequestedKind.LATEST


def test_I8_the_standard_header_counts_and_beats_the_legacy_one() -> None:
    assert read((STANDARD, "baremetal 1.31")).version == Version(1, 31)
    assert read((STANDARD, "baremetal 1.31"), (LEGACY, "1.9")).version == Version(1, 31)
    assert read((LEGACY, "1.9"), (STANDARD, "compute 2.1, BareMetal 1.31")).version == Version(1, 31)


@pytest.mark.parametrize("text", ["1.31", "compute 2.20", "bare-metal 1.31", "ironic 1.31", "baremetal", ""])
def test_I8_a_standard_header_that_does_not_name_baremetal_is_ignored(text: str) -> None:
    assert read((STANDARD, text)) == NO_VERSION_REQUESTED
    assert read((STANDARD, text), (LEGACY, "1.9")).version == Version(1, 9)


def test_I8_a_malformed_standard_header_counts_although_the_legacy_one_is_valid() -> None:
    assert read((STANDARD, "baremetal spam"), (LEGACY, "1.9")).kind is RequestedKind.MALFORMED


@pytest.mark.parametrize("lines", [[""], [" "], ["1.5,"], ["1.5", ""]])
def test_I9_an_empty_value_counts_as_absent(lines: list[str]) -> None:
    assert read(*((LEGACY, line) for line in lines)) == NO_VERSION_REQUESTED


@pytest.mark.parametrize(
    "lines", [["1.58, 1.60"], ["1.58", "1.60"], ["spam,1.60"], ["", "1.60"], ["latest", "1.60"]]
)
def test_I10_the_last_of_several_wins(lines: list[str]) -> None:
    assert read(*((LEGACY, line) for line in lines)).version == Version(1, 60)


def test_V4_an_alias_with_underscores_is_the_same_header() -> None:
    """Servers fold both into one name, so an alias must be read and removed like the name itself."""
    assert read((LEGACY, "1.5"), ("X_OpenStack_Ironic_API_Version", "1.6")).version == Version(1, 6)
    assert normalize_name("OPENSTACK_API_VERSION") in IRONIC.owned_request


@pytest.mark.parametrize(
    "text", ["1.05", "+1.5", "-1.5", "1. 5", "1_0.5", "1.5.0", "1", "1.latest", "\u0662.1", "1.5\xa0"]
)
def test_a_number_in_another_spelling_is_malformed(text: str) -> None:
    assert read((LEGACY, text)).kind is RequestedKind.MALFORMED


# --- headers for backends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [RESOURCE, V1])
def test_trap_24_a_backend_always_gets_both_headers_because_old_servers_ignore_the_standard_one(
    endpoint: Endpoint,
) -> None:
    written = IRONIC.write_request(endpoint, Version(1, 31))

    assert written == ((LEGACY, "1.31"), (STANDARD, "baremetal 1.31"))


def test_a_backend_gets_a_number_and_never_latest() -> None:
    """`latest` together with a path that ends in `.json` crashes releases from 25.0 on."""
    view = snapshot({"api-1": ADVERTISEMENT}, dialect=IRONIC).views["toy"]
    head = RequestHead("GET", "/v1/nodes.json", "", ((normalize_name(LEGACY), "latest"),))

    resolution = resolve(view, RESOURCE, head, head.path)

    assert resolution.request_field_lines == render(((LEGACY, "1.82"), (STANDARD, "baremetal 1.82")))


def test_a_legacy_backend_counts_as_1_1() -> None:
    assert IRONIC.legacy_versions == VersionSet.only(Version(1, 1))


def test_the_root_is_sent_no_version() -> None:
    assert IRONIC.write_request(ROOT, Version(1, 1)) == ()


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "", "//", "/.json", "/%2Ejson"])
def test_the_root_is_a_document_that_is_not_negotiated(path: str) -> None:
    endpoint = IRONIC.endpoint("GET", path, "")

    assert endpoint == ROOT
    assert (endpoint.negotiated, endpoint.document, endpoint.versioned_only) == (False, True, True)


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/", "/v1//", "/v1.json", "/v1.json/", "/v1/.json", "/%761", "/v%31/"]
)
def test_v1_in_every_spelling_that_servers_accept_is_a_negotiated_document(path: str) -> None:
    endpoint = IRONIC.endpoint("GET", path, "")

    assert endpoint == V1
    assert (endpoint.negotiated, endpoint.document, endpoint.versioned_only) == (True, True, True)


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
def test_everything_else_is_a_resource_that_legacy_backends_may_serve(path: str) -> None:
    endpoint = IRONIC.endpoint("GET", path, "limit=1")

    assert endpoint == (RESOURCE if path.startswith("/v1/") else UNCERTAIN)
    assert (endpoint.negotiated, endpoint.document, endpoint.versioned_only) == (True, False, False)


# --- refusals by the gateway (I4 to I7, I14, I15, I17) -----------------------------------------------------


def test_I4_too_new() -> None:
    assert refuse("1.999") == Response(
        406,
        (MIN, MAX, JSON),
        rb'{"error_message": "{\"code\": 406, \"title\": \"Not Acceptable\", \"description\": \"Version 1.999'
        rb" was requested but the minor version is not supported by this service. The supported version range"
        rb' is: [1.1, 1.82].\"}"}',
    )
    assert len(refuse("1.999").body) == 218


def test_I5_trap_1_too_old_although_the_specification_calls_1_0_the_default() -> None:
    response = refuse("1.0")

    fault = b"Version 1.0 was requested but the minor version is not supported by this service. "
    assert response == Response(406, (MIN, MAX, JSON), HEAD + fault + SUPPORTED + TAIL)
    assert len(response.body) == 216


@pytest.mark.parametrize("text,length", [("2.1", 230), ("2.0", 230), ("0.9", 230), ("99.99", 232)])
def test_I6_another_major(text: str, length: int) -> None:
    response = refuse(text)

    fault = b"Mutually exclusive versions requested. Version %s requested but not supported by this service. "
    assert response == Response(406, (MIN, MAX, JSON), HEAD + fault % text.encode() + SUPPORTED + TAIL)
    assert len(response.body) == length


@pytest.mark.parametrize("text", ["spam", "l33t", "1.2.3.4.5"])
def test_I7_trap_2_malformed_has_no_range(text: str) -> None:
    response = refuse(text)

    fault = b"Invalid value for X-OpenStack-Ironic-API-Version header"
    assert response == Response(406, (JSON,), HEAD + fault + TAIL)
    assert len(response.body) == 145


def test_I15_a_refusal_names_a_lower_offer_as_a_pinned_server_names_its_pin() -> None:
    capped = VersionSet.between(Version(1, 1), Version(1, 96))

    response = refuse("1.97", capped)

    assert response.headers == (MIN, (MAX[0], "1.96"), JSON)
    assert b"[1.1, 1.96]." in response.body


def test_I17_the_inner_object_is_json_whatever_accept_says() -> None:
    requested = read((LEGACY, "1.999"))
    refusal = Refusal(RefusalReason.ABOVE_MAX, requested, requested.version, OFFER)

    html = IRONIC.refuse(refusal, RESOURCE, as_mapping([("accept", "text/html")]))

    assert html == refuse("1.999")


def test_I14_a_version_on_the_root_is_dropped_so_nothing_is_refused_there() -> None:
    assert not IRONIC.endpoint("GET", "/", "").negotiated
    assert {normalize_name(LEGACY), normalize_name(STANDARD)} <= IRONIC.owned_request


def test_an_error_has_the_shape_of_ironic_and_the_range_once_it_is_known() -> None:
    error = GatewayError(503, 'No "server" now.', retry_after=2)

    assert IRONIC.error_response(error) == Response(
        503,
        (JSON,),
        rb'{"error_message": "{\"code\": 503, \"title\": \"Service Unavailable\", \"description\": '
        rb'\"No \\\"server\\\" now.\"}"}',
    )
    assert IRONIC.error_response(GatewayError(503, "No.", offered=OFFER)).headers == (
        MIN,
        MAX,
        JSON,
    )


@pytest.mark.parametrize("text", ["1.999", "2.1", "1.0", "spam"])
def test_the_real_client_finds_the_text_of_an_error(text: str) -> None:
    """python-ironicclient reads `error_message`, parses it as JSON, takes `faultstring` or `description`."""
    inner = json.loads(json.loads(refuse(text).body)["error_message"])

    assert list(inner) == ["code", "title", "description"]
    assert inner["code"] == 406


# --- responses of backends (I1 to I3, I11, I12, I16, I18) --------------------------------------------------

OLD_MAX = ("X-Openstack-Ironic-Api-Maximum-Version", "1.56")
"""The spelling of servers behind eventlet, and a range that is not the offer."""


@pytest.mark.parametrize("status", [200, 201, 204, 301, 400, 404, 409, 500])
def test_I1_I2_I3_I11_I16_the_served_version_is_passed_on_and_the_range_is_the_offer(status: int) -> None:
    lines = (MIN, OLD_MAX, served_at("1.31"))

    assert read_response(status, *lines) == Served(
        Version(1, 31),
        Advertisement(VersionSet.between(Version(1, 1), Version(1, 56))),
        VersionRefusal.NO,
        has_range=True,
    )
    assert client_headers(status, *lines) == (MIN, MAX, served_at("1.31"))


def test_I12_a_response_without_version_headers_gets_none() -> None:
    assert read_response(404) == Served()
    assert client_headers(404) == ()


def test_I15_the_pin_of_a_backend_is_learned_from_its_responses() -> None:
    assert read_response(200, MIN, (MAX[0], "1.96"), served_at("1.1")).advertisement == Advertisement(
        VersionSet.between(Version(1, 1), Version(1, 96))
    )


def test_I18_trap_23_a_406_with_a_served_version_refuses_a_feature_and_is_passed_on() -> None:
    lines = (MIN, OLD_MAX, served_at("1.31"))

    assert read_response(406, *lines).version_refusal is VersionRefusal.NO
    assert client_headers(406, *lines) == (MIN, MAX, served_at("1.31"))


def test_I4_from_a_backend_is_a_version_refusal_and_names_its_range() -> None:
    served = read_response(406, MIN, OLD_MAX)

    assert served.version_refusal is VersionRefusal.YES
    assert served.advertisement == Advertisement(VersionSet.between(Version(1, 1), Version(1, 56)))
    assert served.version is None


@pytest.mark.parametrize("lines", [(), (MIN,), (MAX,), (served_at("spam"), MIN, MAX)])
def test_trap_2_trap_22_a_406_that_lacks_a_range_header_or_has_a_served_version_is_no_version_refusal(
    lines: tuple[Header, ...],
) -> None:
    assert read_response(406, *lines).version_refusal is VersionRefusal.NO


def test_a_406_on_the_root_is_no_version_refusal() -> None:
    headers = as_mapping([(normalize_name(name), value) for name, value in (MIN, MAX)])

    assert IRONIC.read_response(ROOT, 406, headers).version_refusal is VersionRefusal.NO


def test_another_version_than_the_negotiated_one_is_passed_on() -> None:
    assert client_headers(200, MIN, MAX, served_at("1.1"), negotiated=Version(1, 31)) == (
        MIN,
        MAX,
        served_at("1.1"),
    )


@pytest.mark.parametrize("text", ["spam", "1.05", "1.5, 1.6", "", "1.31\xa0"])
def test_V8_a_text_of_a_backend_that_is_not_a_version_is_not_passed_on(text: str) -> None:
    assert read_response(200, served_at(text)).version is None
    assert client_headers(200, MIN, MAX, served_at(text)) == (MIN, MAX)


def test_V9_two_served_versions_in_one_response_count_as_none() -> None:
    assert read_response(200, served_at("1.5"), served_at("1.6")).version is None
    assert read_response(200, served_at("1.5"), served_at("1.5")).version == Version(1, 5)


@pytest.mark.parametrize("low,high", [("1.9", "1.1"), ("1.1", "2.5"), ("x", "1.5"), ("1.1", "")])
def test_an_impossible_range_is_not_learned_but_replaced(low: str, high: str) -> None:
    lines = ((MIN[0], low), (MAX[0], high), served_at("1.31"))

    assert read_response(200, *lines).advertisement is None
    assert client_headers(200, *lines) == (MIN, MAX, served_at("1.31"))


def test_both_range_headers_are_written_where_the_backend_sent_one() -> None:
    assert client_headers(200, OLD_MAX) == (MIN, MAX)
    assert read_response(200, OLD_MAX).advertisement is None


# --- legacy backends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 302, 400, 403, 404, 406, 409, 500, 503])
def test_a_response_of_a_legacy_backend_gets_what_a_newer_one_would_have_sent(status: int) -> None:
    assert client_headers(status, negotiated=Version(1, 1), legacy=True) == (MIN, MAX, served_at("1.1"))


@pytest.mark.parametrize("status", [100, 401, 405, 413, 502, 504])
def test_trap_22_nothing_is_added_at_statuses_where_newer_servers_send_no_versions(status: int) -> None:
    assert client_headers(status, negotiated=Version(1, 1), legacy=True) == ()


def test_nothing_is_added_where_nothing_was_negotiated() -> None:
    assert client_headers(200, negotiated=None, legacy=True) == ()


def test_the_headers_of_a_legacy_backend_count_once_it_sends_them() -> None:
    assert client_headers(200, MIN, OLD_MAX, served_at("1.31"), negotiated=Version(1, 1), legacy=True) == (
        MIN,
        MAX,
        served_at("1.31"),
    )


# --- probes ------------------------------------------------------------------------------------------------

V1_DOCUMENT = b'{"id": "v1", "links": [], "media_types": [], "nodes": []}'


def probe_result(status: int, *lines: Header, body: bytes = V1_DOCUMENT, path: str | None = None) -> object:
    headers = as_mapping((normalize_name(name), value) for name, value in (*lines, JSON))
    return IRONIC.probe((ProbeResponse(status, headers, body),), path)


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_requests_v1_without_a_version() -> None:
    assert IRONIC.probe((), None) == ProbeRequest("/v1", (("Accept", "application/json"),))
    assert IRONIC.probe((), "/baremetal/v1/") == ProbeRequest(
        "/baremetal/v1/", (("Accept", "application/json"),)
    )


def test_a_probe_reads_the_range_from_the_headers() -> None:
    assert probe_result(200, MIN, MAX, served_at("1.1")) == ADVERTISEMENT


def test_trap_6_a_pinned_server_serves_the_range_that_it_names() -> None:
    assert probe_result(200, MIN, (MAX[0], "1.58")) == Advertisement(
        VersionSet.between(Version(1, 1), Version(1, 58))
    )


def test_v1_without_headers_is_a_legacy_server_from_juno_or_before() -> None:
    assert probe_result(200) == Advertisement(VersionSet.only(Version(1, 1)), legacy=True)


@pytest.mark.parametrize("status", [204, 300, 301, 302, 401, 403, 404, 406, 429, 500, 503])
def test_trap_22_an_error_status_is_a_failed_probe(status: int) -> None:
    assert reason(probe_result(status)) == "status"
    assert reason(probe_result(status, MIN, MAX)) == "status"


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
def test_another_document_is_a_failed_probe_and_not_a_legacy_server(body: bytes) -> None:
    assert reason(probe_result(200, body=body)) == "document"


def test_trap_22_the_root_without_headers_is_not_a_legacy_server() -> None:
    root = (
        b'{"default_version": {"id": "v1", "version": "1.82"}, "versions": [{"id": "v1", "version": "1.82"}]}'
    )

    assert reason(probe_result(200, body=root, path="/")) == "document"


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
def test_a_probe_rejects_an_impossible_range(lines: tuple[Header, ...]) -> None:
    assert reason(probe_result(200, *lines)) == "range"


def test_version_headers_that_are_removed_on_the_way_do_not_make_a_legacy_server() -> None:
    """A document with a range comes from 12.0 or later, which also sends headers."""
    body = b'{"id": "v1", "version": {"id": "v1", "min_version": "1.1", "version": "1.82"}}'

    assert reason(probe_result(200, body=body)) == "range"


# --- declarations ------------------------------------------------------------------------------------------


def test_the_dialect_is_found_by_the_name_of_its_module() -> None:
    assert discover()["ironic"] is Ironic


def test_every_name_that_is_read_or_written_is_owned_and_folded() -> None:
    written = IRONIC.write_request(RESOURCE, Version(1, 1))

    assert IRONIC.reads == IRONIC.owned_request == {normalize_name(name) for name, _ in written}
    assert IRONIC.owned_response == {normalize_name(name) for name, _ in (MIN, MAX, served_at("1.1"))}


def test_V10_vary_names_every_header_that_is_read() -> None:
    assert {normalize_name(name) for name in IRONIC.vary} == IRONIC.reads


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


# --- where the served version is never missing -------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/nodes/x/states/power", "/v1/lookup", "/%761/nodes.json"])
def test_R_A2_below_v1_every_successful_response_names_the_served_version(path: str) -> None:
    assert all(
        IRONIC.endpoint(method, path, "").served_always
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
    )


@pytest.mark.parametrize(
    "method,path",
    [
        ("GET", "/healthcheck"),  # a layer in front of the API
        ("GET", "/nodes"),  # the API, but `healthcheck.path` may be anything that is not below /v1
        ("GET", "/"),
        ("OPTIONS", "/v1/nodes"),  # CORS answers that before the API
    ],
)
def test_R_A2_elsewhere_a_healthy_server_may_name_none(method: str, path: str) -> None:
    assert not IRONIC.endpoint(method, path, "").served_always


# --- probes that must not be believed ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "text/html", "text/html; charset=utf-8", "application/jsonx", ""])
def test_R_A11_range_headers_count_on_json_alone(kind: str | None) -> None:
    lines = () if kind is None else (("content-type", kind),)
    page = ProbeResponse(200, as_mapping([*folded_range(), *lines]), b"<html>It works!</html>")

    assert reason(IRONIC.probe((page,), None)) == "document"


def folded_range() -> list[Header]:
    return [(normalize_name(name), value) for name, value in (MIN, MAX)]


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=UTF-8"])
def test_R_A11_range_headers_count_on_json(kind: str) -> None:
    answer = ProbeResponse(200, as_mapping([*folded_range(), ("content-type", kind)]), V1_DOCUMENT)

    assert IRONIC.probe((answer,), None) == ADVERTISEMENT


def test_R_A11_a_document_that_is_not_said_to_be_json_is_not_from_a_legacy_server() -> None:
    page = ProbeResponse(200, as_mapping([("content-type", "text/html")]), V1_DOCUMENT)

    assert reason(IRONIC.probe((page,), None)) == "document"


# --- errors of the gateway ---------------------------------------------------------------------------------


def test_R_D2_a_503_has_no_retry_after() -> None:
    assert IRONIC.retry_after is False


def test_R_D6_request_ids_are_in_the_two_headers_of_real_servers() -> None:
    ids = IRONIC.request_ids
    assert ids is not None

    named = IRONIC.write_request_id(refuse("1.999"), "req-1")

    assert ids.request_header == "X-Openstack-Request-Id"
    assert named.headers[-2:] == (("X-Openstack-Request-Id", "req-1"), ("Openstack-Request-Id", "req-1"))
    assert named.body == refuse("1.999").body


# --- where servers differ, and the gateway is like one of them ----------------------------------------------


def test_R_D8_v1_json_without_a_version_is_the_document() -> None:
    """Until 24 it is; from 25 on without a version it is 404. The gateway always names one to a backend."""
    endpoint = IRONIC.endpoint("GET", "/v1.json", "")

    assert endpoint == V1
    assert IRONIC.read_requested(endpoint, as_mapping([])) == NO_VERSION_REQUESTED
    written = IRONIC.write_request(endpoint, Version(1, 1))
    assert (LEGACY, "1.1") in written


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/nodes.json", "/nodes", "/nodes.json/", "/%6eodes"])
def test_R_A17_one_operation_in_every_spelling_that_servers_accept(path: str) -> None:
    assert IRONIC.operation_path(path) == "/v1/nodes"
