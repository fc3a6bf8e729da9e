"""Nova on the wire: the golden examples N2 to N14, byte for byte, and the traps of the specifications.

The examples are responses of a real server of 34.0.0 (2.1 to 2.104). 17.0.13 (2.1 to 2.60) sends the same
with its own range and another case in names. Documents have a file of their own.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.decision.local_responses import vary_header
from gateway.core.decision.negotiation import negotiate
from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
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
from gateway.core.http.message import Header, Response, as_mapping, normalize_name, render
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects import discover
from gateway.dialects.openstack.nova import BELOW_V1_1, CHOICES, LEGACY, RESOURCE, ROOT, V1_1, V2, V2_1, Nova

NOVA = Nova.configured(Nova.Options())
OFFER = VersionSet.between(Version(2, 1), Version(2, 104))

NOVA_HEADER = "X-OpenStack-Nova-API-Version"
STANDARD = "OpenStack-API-Version"
FAULT = ("Content-Type", "application/json; charset=UTF-8")
AT_2_30 = Version(2, 30)
ENDPOINTS = [ROOT, V2_1, RESOURCE, V2, LEGACY, V1_1, CHOICES]
NEGOTIATED = [V2_1, RESOURCE]


def both_headers(text: str) -> tuple[Header, Header]:
    return ((STANDARD, f"compute {text}"), (NOVA_HEADER, text))


def folded(lines: tuple[Header, ...]) -> list[Header]:
    return [(normalize_name(name), value) for name, value in lines]


def read(*lines: Header) -> RequestedVersion:
    return NOVA.read_requested(RESOURCE, as_mapping(folded(lines)))


def refuse(line: Header, offered: VersionSet = OFFER) -> Response:
    """The refusal of a version that is not on offer."""
    refusal = negotiate(read(line), offered, NOVA.default_version)
    assert isinstance(refusal, Refusal)
    return NOVA.refuse(refusal, RESOURCE, as_mapping([]))


def read_response(status: int, *lines: Header, endpoint: Endpoint = RESOURCE) -> Served:
    return NOVA.read_response(endpoint, status, as_mapping(folded(lines)))


def client_headers(
    status: int, *lines: Header, endpoint: Endpoint = RESOURCE, negotiated: Version | None = AT_2_30
) -> tuple[Header, ...]:
    """The version headers that the client gets for those of a backend."""
    served = read_response(status, *lines, endpoint=endpoint)
    return NOVA.write_response(BackendResponse(endpoint, status, served, negotiated, OFFER))


# --- requested versions (N5 to N10) ------------------------------------------------------------------------


def test_a_request_without_a_version_gets_the_minimum_of_the_offer() -> None:
    assert read() == NO_VERSION_REQUESTED
    assert negotiate(read(), OFFER, NOVA.default_version) == Version(2, 1)


def test_the_legacy_header_names_a_version() -> None:
    assert read((NOVA_HEADER, "2.60")) == RequestedVersion(RequestedKind.EXACT, Version(2, 60), "2.60")


def test_N5_the_standard_header_beats_the_legacy_one() -> None:
    assert read((STANDARD, "compute 2.30"), (NOVA_HEADER, "2.10")).version == Version(2, 30)
    assert read((NOVA_HEADER, "2.10"), (STANDARD, "Compute 2.30")).version == Version(2, 30)


def test_N5_a_malformed_standard_header_counts_although_the_legacy_one_is_valid() -> None:
    assert read((STANDARD, "compute spam"), (NOVA_HEADER, "2.10")).kind is RequestedKind.MALFORMED


@pytest.mark.parametrize(
    "lines",
    [
        ["compute 2.5, baremetal 1.9, compute 2.6"],
        ["compute 2.5", "compute 2.6"],
        ["compute 2.5", "baremetal 1.9,compute 2.6", "volume 3.1"],
        ["compute spam, compute 2.6, compute"],
    ],
)
def test_N6_the_last_item_for_compute_wins(lines: list[str]) -> None:
    assert read(*((STANDARD, line) for line in lines)).version == Version(2, 6)


@pytest.mark.parametrize("lines", [["2.5, 2.6"], ["2.5", "2.6"], ["spam", "2.6"]])
def test_N6_the_last_of_several_legacy_values_wins(lines: list[str]) -> None:
    assert read(*((NOVA_HEADER, line) for line in lines)).version == Version(2, 6)


@pytest.mark.parametrize("text", ["baremetal 1.9", "2.5", "nova 2.6", "compute", "", "computes 2.6"])
def test_N7_a_standard_header_without_an_item_for_compute_is_ignored(text: str) -> None:
    assert read((STANDARD, text)) == NO_VERSION_REQUESTED
    assert read((STANDARD, text), (NOVA_HEADER, "2.10")).version == Version(2, 10)


def test_N8_blanks_between_the_words_do_not_matter() -> None:
    assert read((STANDARD, "Compute   2.5")).version == Version(2, 5)
    assert read((NOVA_HEADER, " 2.5\t")).version == Version(2, 5)


@pytest.mark.parametrize("text", ["LATEST", "Latest"])
def test_N9_latest_in_another_case_is_malformed(text: str) -> None:
    assert read((STANDARD, f"compute {text}")).kind is RequestedKind.MALFORMED
    assert read((NOVA_HEADER, text)).kind is RequestedKind.MALFORMED


@pytest.mark.parametrize("line", [(STANDARD, "compute latest"), (NOVA_HEADER, "latest")])
def test_N10_latest_is_the_maximum_of_the_offer(line: Header) -> None:
    assert read(line).kind is RequestedKind.LATEST
    assert negotiate(read(line), OFFER, NOVA.default_version) == Version(2, 104)


@pytest.mark.parametrize(
    "text",
    [
        "spam",
        "1.2.3.4.5",
        "2.",
        "02.1",
        "2",
        "2.01",
        "",
        "2.latest",
        "0.9",
        "+2.5",
        "2.-5",
        "2_0.5",
        "2.5\xa0",
    ],
)
def test_NOVA_UC4_trap_7_a_text_that_does_not_match_the_pattern_of_servers_is_malformed(text: str) -> None:
    """The pattern in the first specification lost its backslashes, and `2.latest` is only for clients."""
    assert read((NOVA_HEADER, text)).kind is RequestedKind.MALFORMED


def test_V4_an_alias_with_underscores_is_the_same_header() -> None:
    assert read((NOVA_HEADER, "2.5"), ("X_OpenStack_Nova_API_Version", "2.6")).version == Version(2, 6)
    assert normalize_name("OPENSTACK_API_VERSION") in NOVA.owned_request


# --- headers for backends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", NEGOTIATED)
def test_N5_a_backend_is_sent_both_headers_with_one_number(endpoint: Endpoint) -> None:
    """Kilo to Mitaka read only their own."""
    assert NOVA.write_request(endpoint, Version(2, 30)) == both_headers("2.30")


@pytest.mark.parametrize("endpoint", [ROOT, V2, LEGACY, V1_1, CHOICES])
def test_N1_N14_outside_v2_1_no_version_is_sent(endpoint: Endpoint) -> None:
    assert not endpoint.negotiated
    assert NOVA.write_request(endpoint, Version(2, 30)) == ()


def test_a_legacy_backend_adds_no_version_to_the_offer() -> None:
    assert not NOVA.legacy_versions


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "paths, endpoint",
    [
        (["/", "", "//"], ROOT),
        (["/v2.1", "/v2.1/", "/v2.1//", "//v2.1", "/v2%2E1", "/%76%32.1/"], V2_1),
        (["/v2.1/servers", "/v2.1/p/servers/x", "/v2.1//servers", "//v2.1/x", "/v2%2e1/servers"], RESOURCE),
        (["/v2", "/v2/", "/%762", "/v2//"], V2),
        (["/v2/servers", "/v2/p/servers/x", "/v2/v2.1/servers", "//v2/x"], LEGACY),
        (["/v1.1", "/v1.1/"], V1_1),
        (["/v1.1/p/servers", "//v1.1/x"], BELOW_V1_1),
        (
            ["/servers", "/v3/flavors", "/V2.1/servers", "/v2.1x/s", "/v2.10/s", "/v2.json", "/v2.1;a/s"],
            CHOICES,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Endpoint) else "",
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_an_endpoint_is_known_by_its_first_segment(method: str, paths: list[str], endpoint: Endpoint) -> None:
    assert {NOVA.endpoint(method, path, "limit=1") for path in paths} == {endpoint}


def test_v2_1_is_for_members_that_have_it_and_v2_is_for_all() -> None:
    assert {endpoint for endpoint in ENDPOINTS if endpoint.versioned_only} == {ROOT, V2_1, RESOURCE, CHOICES}
    assert {endpoint for endpoint in ENDPOINTS if endpoint.negotiated} == {V2_1, RESOURCE}
    assert {endpoint for endpoint in ENDPOINTS if endpoint.document} == {ROOT, V2_1, V2, V1_1, CHOICES}


# --- refusals by the gateway (N3, N4, N9) ------------------------------------------------------------------


def test_N3_trap_9_too_new_echoes_the_refused_version() -> None:
    response = refuse((STANDARD, "compute 2.999"))

    assert response == Response(
        406,
        (*both_headers("2.999"), FAULT),
        b'{"computeFault": {"code": 406, "message": "Version 2.999 is not supported by the API. '
        b'Minimum is 2.1 and maximum is 2.104."}}',
    )
    assert len(response.body) == 125


@pytest.mark.parametrize("text, length", [("2.0", 123), ("3.0", 123), ("99.99", 125), ("1.9", 123)])
def test_N3_too_old_and_another_major_are_refused_in_the_same_way(text: str, length: int) -> None:
    response = refuse((NOVA_HEADER, text))

    message = f"Version {text} is not supported by the API. Minimum is 2.1 and maximum is 2.104."
    assert (response.status, response.headers) == (406, (*both_headers(text), FAULT))
    assert json.loads(response.body) == {"computeFault": {"code": 406, "message": message}}
    assert len(response.body) == length


@pytest.mark.parametrize(
    "text, length", [("spam", 126), ("2.1.3", 127), ("2", 123), ("2.01", 126), ("", 122), ("LATEST", 128)]
)
def test_N4_N9_trap_10_malformed_is_400_without_any_version(text: str, length: int) -> None:
    """The specification says 406."""
    response = refuse((NOVA_HEADER, text))

    assert response == Response(
        400,
        (FAULT,),
        b'{"badRequest": {"code": 400, "message": "API Version String %s is of invalid format. '
        b'Must be of format MajorNum.MinorNum."}}' % text.encode(),
    )
    assert len(response.body) == length


def test_N4_a_quoted_text_is_escaped_in_the_json() -> None:
    response = refuse((NOVA_HEADER, '"}\xe9<b>'))

    assert response.body.isascii()
    assert json.loads(response.body)["badRequest"]["message"].startswith('API Version String "}\xe9<b> is of')


def test_a_default_version_that_is_not_on_offer_is_refused_like_a_requested_one() -> None:
    refusal = Refusal(
        RefusalReason.BELOW_MIN,
        NO_VERSION_REQUESTED,
        Version(2, 1),
        VersionSet.only(Version(2, 5)),
    )

    response = NOVA.refuse(refusal, RESOURCE, as_mapping([]))

    assert response.headers == (*both_headers("2.1"), FAULT)
    assert b"Version 2.1 is not supported by the API. Minimum is 2.5 and maximum is 2.5." in response.body


@pytest.mark.parametrize(
    "status, key",
    [
        (404, "itemNotFound"),
        (413, "overLimit"),
        (501, "notImplemented"),
        (502, "computeFault"),
        (503, "serviceUnavailable"),
        (504, "computeFault"),
    ],
)
def test_an_error_has_the_shape_of_nova_and_no_range(status: int, key: str) -> None:
    response = NOVA.error_response(GatewayError(status, 'No "server" now.', retry_after=2, offered=OFFER))

    assert (response.status, response.headers) == (status, (FAULT,))
    assert json.loads(response.body) == {key: {"code": status, "message": 'No "server" now.'}}


# --- responses of backends (N2, N11, N12, N14) -------------------------------------------------------------


@pytest.mark.parametrize("endpoint", NEGOTIATED)
@pytest.mark.parametrize("status", [200, 202, 204, 400, 404, 410, 500])
def test_N2_N5_N11_both_headers_are_passed_on(endpoint: Endpoint, status: int) -> None:
    assert read_response(status, *both_headers("2.30"), endpoint=endpoint) == Served(
        Version(2, 30), text="2.30"
    )
    assert client_headers(status, *both_headers("2.30"), endpoint=endpoint) == both_headers("2.30")


def test_N2_names_are_canonical_whatever_servers_behind_eventlet_write() -> None:
    assert client_headers(
        200, ("Openstack-Api-Version", "compute 2.30"), ("X-Openstack-Nova-Api-Version", "2.30")
    ) == both_headers("2.30")


@pytest.mark.parametrize("lines", [((NOVA_HEADER, "2.12"),), ((STANDARD, "compute 2.12"),)])
def test_a_server_before_newton_sends_one_header_and_the_client_gets_both(
    lines: tuple[Header, ...],
) -> None:
    assert client_headers(200, *lines, negotiated=Version(2, 12)) == both_headers("2.12")


def test_there_is_never_a_range_in_headers() -> None:
    served = read_response(200, *both_headers("2.30"))

    assert served.advertisement is None
    assert not served.has_range
    assert NOVA.owned_response == {normalize_name(STANDARD), normalize_name(NOVA_HEADER)}


@pytest.mark.parametrize("status", [200, 400, 401, 404, 413, 503])
def test_N4_N12_trap_22_a_response_without_versions_gets_none_and_is_not_from_a_legacy_server(
    status: int,
) -> None:
    assert read_response(status) == Served()
    assert client_headers(status) == ()


@pytest.mark.parametrize("endpoint", [V2, LEGACY])
def test_N14_below_v2_no_version_reaches_the_client(endpoint: Endpoint) -> None:
    assert client_headers(200, *both_headers("2.30"), endpoint=endpoint, negotiated=None) == ()


@pytest.mark.parametrize("endpoint", [CHOICES, ROOT, V1_1])
def test_a_version_that_a_media_type_selected_is_passed_on(endpoint: Endpoint) -> None:
    """`Accept: application/json;version=2.1` on a path without a mount: no version was sent, so it is 2.1."""
    assert client_headers(200, *both_headers("2.1"), endpoint=endpoint, negotiated=None) == both_headers(
        "2.1"
    )


def test_another_version_than_the_negotiated_one_is_passed_on() -> None:
    assert client_headers(200, *both_headers("2.1")) == both_headers("2.1")


@pytest.mark.parametrize(
    "lines",
    [
        ((NOVA_HEADER, "spam"),),
        ((NOVA_HEADER, "2.5, 2.6"),),
        ((NOVA_HEADER, "2.5"), (NOVA_HEADER, "2.6")),
        ((STANDARD, "compute 2.5"), (NOVA_HEADER, "2.6")),
        ((STANDARD, "compute 2.5"), (STANDARD, "compute 2.6")),
        ((STANDARD, "volume 2.5"),),
        ((STANDARD, "volume 2.5"), (NOVA_HEADER, "2.5")),
        ((STANDARD, "compute spam"), (NOVA_HEADER, "2.5")),
        ((STANDARD, "2.5"),),
        ((STANDARD, "compute"),),
        ((NOVA_HEADER, "2.05"),),
        ((NOVA_HEADER, "2.5\xa0"),),
    ],
)
def test_V8_V9_echoes_without_one_valid_version_count_as_none(lines: tuple[Header, ...]) -> None:
    assert read_response(200, *lines) == Served()
    assert client_headers(200, *lines) == ()


# --- refusals by a backend ---------------------------------------------------------------------------------

REFUSED = b'{"computeFault": {"code": 406, "message": "Version %s is not supported by the API. %s"}}'
RANGE = b"Minimum is 2.1 and maximum is 2.60."


def test_N3_from_a_backend_is_read_from_its_body() -> None:
    assert read_response(406, *both_headers("2.90")).version_refusal is VersionRefusal.READ_BODY
    assert NOVA.read_refusal(406, REFUSED % (b"2.90", RANGE)) == Advertisement(
        VersionSet.between(Version(2, 1), Version(2, 60))
    )


def test_N3_trap_9_the_echo_of_a_406_is_no_served_version_but_is_passed_on() -> None:
    served = read_response(406, *both_headers("2.90"))

    assert (served.version, served.text) == (None, "2.90")
    assert client_headers(406, *both_headers("2.90")) == both_headers("2.90")


@pytest.mark.parametrize("endpoint", [ROOT, V2, LEGACY, V1_1, CHOICES])
def test_a_406_where_nothing_was_negotiated_refuses_no_version(endpoint: Endpoint) -> None:
    assert read_response(406, endpoint=endpoint).version_refusal is VersionRefusal.NO


@pytest.mark.parametrize("status", [200, 400, 404, 409, 500])
def test_no_other_status_refuses_a_version(status: int) -> None:
    assert read_response(status, *both_headers("2.30")).version_refusal is VersionRefusal.NO
    assert NOVA.read_refusal(status, REFUSED % (b"2.90", RANGE)) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>406 Not Acceptable</html>",
        b"[]",
        b"{}",
        b'{"computeFault": "Version 2.90"}',
        b'{"computeFault": {"code": 406}}',
        b'{"computeFault": {"code": 406, "message": ["Version 2.90"]}}',
        b'{"computeFault": {"code": 406, "message": "The requested media type is not acceptable."}}',
        b'{"badRequest": {"code": 406, "message": "Version 2.90 is not supported by the API. %s"}}' % RANGE,
        REFUSED % (b"2.90", b"Minimum is 2.60 and maximum is 2.1."),
        REFUSED % (b"2.90", b"Minimum is 1.1 and maximum is 2.60."),
        REFUSED % (b"2.90", b"Minimum is 2.1 and maximum is 2.060."),
        REFUSED % (b"2.30", RANGE),
        REFUSED % (b"02.90", RANGE),
        REFUSED % (b"2.90", RANGE + b" Sorry."),
    ],
)
def test_a_406_without_a_version_refusal_is_passed_on(body: bytes) -> None:
    assert NOVA.read_refusal(406, body) is None


# --- probes ------------------------------------------------------------------------------------------------

JSON: tuple[Header, ...] = (("Accept", "application/json"),)
V2_0_ENTRY = {"id": "v2.0", "status": "DEPRECATED", "version": "", "min_version": "", "links": []}


def v2_1_entry(**changed: object) -> dict[str, object]:
    return {"id": "v2.1", "status": "CURRENT", "version": "2.104", "min_version": "2.1", **changed}


JSON_TYPE = ("content-type", "application/json")


def answer(status: int, document: object) -> ProbeResponse:
    return ProbeResponse(status, as_mapping([JSON_TYPE]), json.dumps(document).encode())


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_requests_the_root_without_a_version() -> None:
    assert NOVA.probe((), None) == ProbeRequest("/", JSON)
    assert NOVA.probe((), "/compute/v2.1/") == ProbeRequest("/compute/v2.1/", JSON)


def test_N1_a_probe_reads_the_entry_v2_1() -> None:
    document = {"versions": [V2_0_ENTRY, v2_1_entry()]}

    assert NOVA.probe((answer(200, document),), None) == Advertisement(OFFER)


@pytest.mark.parametrize(
    "entries",
    [
        [V2_0_ENTRY],
        [{"id": "v2.0", "status": "CURRENT", "updated": "2011-01-21T11:33:21Z", "links": []}],
        [V2_0_ENTRY, {"id": "v2.1", "status": "EXPERIMENTAL", "links": []}],
        [V2_0_ENTRY, v2_1_entry(version="", min_version="")],
        [V2_0_ENTRY, v2_1_entry(version=None, min_version=None)],
    ],
    ids=["hidden", "Icehouse", "Juno", "empty", "null"],
)
def test_no_v2_1_or_one_without_a_range_is_a_legacy_server(entries: list[object]) -> None:
    assert NOVA.probe((answer(200, {"versions": entries}),), None) == Advertisement(VersionSet(), legacy=True)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_where_the_root_is_not_available_v2_1_is_probed(status: int) -> None:
    missing = answer(status, {})

    assert NOVA.probe((missing,), None) == ProbeRequest("/v2.1/", JSON)
    assert NOVA.probe((missing, answer(200, {"version": v2_1_entry()})), None) == Advertisement(OFFER)


def test_v2_1_until_train_needs_a_token_and_that_is_neither_down_nor_legacy() -> None:
    step = NOVA.probe((answer(404, {}), answer(401, {})), None)

    assert isinstance(step, ProbeFault)
    assert step.reason == "unauthorized"
    assert "probe.headers" in step.detail


def test_a_configured_path_is_the_only_one_that_is_probed() -> None:
    assert reason(NOVA.probe((answer(404, {}),), "/compute/")) == "status"
    assert reason(NOVA.probe((answer(401, {}),), "/compute/v2.1/")) == "unauthorized"
    assert NOVA.probe((answer(200, {"version": v2_1_entry()}),), "/compute/v2.1/") == Advertisement(OFFER)


@pytest.mark.parametrize("status", [204, 300, 301, 400, 406, 429, 500, 502, 503])
def test_trap_22_an_error_status_is_a_failed_probe(status: int) -> None:
    document = {"versions": [V2_0_ENTRY]}

    assert reason(NOVA.probe((answer(status, document),), None)) == "status"
    assert reason(NOVA.probe((answer(404, {}), answer(status, document)), None)) == "status"


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"versions": []},
        {"versions": {"values": [v2_1_entry()]}},
        {"versions": "v2.1"},
        {"versions": [None, "v2.1"]},
        {"versions": [{"id": "v1", "version": "1.82", "min_version": "1.1"}]},
        {"versions": [v2_1_entry(), v2_1_entry(version="2.60")]},
        {"version": {"id": "v3.14"}},
        {"version": "2.104"},
        {"choices": [v2_1_entry()]},
    ],
)
def test_another_document_is_a_failed_probe_and_not_a_legacy_server(document: object) -> None:
    assert reason(NOVA.probe((answer(200, document),), None)) == "document"


def test_html_is_a_failed_probe() -> None:
    page = ProbeResponse(200, as_mapping([]), b"<html>It works!</html>")

    assert reason(NOVA.probe((page,), None)) == "document"


@pytest.mark.parametrize(
    "changed",
    [
        {"version": ""},
        {"min_version": ""},
        {"version": "2.104", "min_version": "2.200"},
        {"version": "x"},
        {"version": 2.104},
        {"min_version": ["2.1"]},
        {"min_version": "1.1"},
    ],
)
def test_a_probe_rejects_an_impossible_range(changed: dict[str, object]) -> None:
    assert reason(NOVA.probe((answer(200, {"versions": [v2_1_entry(**changed)]}),), None)) == "range"


# --- random input ------------------------------------------------------------------------------------------

VERSIONS = st.builds(Version, st.integers(1, 3), st.integers(0, 200))
TEXTS = (
    st.text(st.characters(max_codepoint=255), max_size=20)
    | st.sampled_from(["2.30", "latest", "LATEST", "spam", "", "2.05", "compute 2.9", "2.5,2.6", "compute"])
    | VERSIONS.map(NOVA.scheme.format)
    | VERSIONS.map(lambda version: f"compute {NOVA.scheme.format(version)}")
)
LINES = st.lists(st.tuples(st.sampled_from(sorted(NOVA.reads)), TEXTS), max_size=5)


@given(LINES)
@example([("openstack-api-version", "baremetal 1.5"), ("x-openstack-nova-api-version", "2.5, 2.6")])
def test_V2_V3_several_lines_are_one_list(lines: list[Header]) -> None:
    joined = {name: ",".join(value for other, value in lines if other == name) for name, _ in lines}
    requested = NOVA.read_requested(RESOURCE, as_mapping(lines))

    assert NOVA.read_requested(RESOURCE, as_mapping(joined.items())) == requested
    assert (requested.version is not None) == (requested.kind is RequestedKind.EXACT)


@given(VERSIONS, st.sampled_from(NEGOTIATED))
def test_what_is_written_for_a_backend_is_read_as_the_same_version(
    version: Version, endpoint: Endpoint
) -> None:
    written = folded(NOVA.write_request(endpoint, version))

    for lines in (written, *([line] for line in written)):
        assert NOVA.read_requested(endpoint, as_mapping(lines)).version == version


@given(LINES, st.integers(100, 599), st.sampled_from(ENDPOINTS), st.booleans())
def test_no_response_makes_it_raise_and_clients_get_only_the_versions_of_the_backend(
    lines: list[Header], status: int, endpoint: Endpoint, legacy: bool
) -> None:
    served = NOVA.read_response(endpoint, status, as_mapping(lines))
    written = NOVA.write_response(
        BackendResponse(endpoint, status, served, Version(2, 30), OFFER, legacy=legacy)
    )

    assert written in ((), both_headers(served.text))
    assert served.version in (None, NOVA.scheme.parse(served.text))
    assert lines or not written


@given(LINES)
def test_a_refusal_names_the_range_or_quotes_the_text_that_is_not_a_version(lines: list[Header]) -> None:
    requested = NOVA.read_requested(RESOURCE, as_mapping(lines))

    response = NOVA.refuse(
        Refusal(RefusalReason.ABOVE_MAX, requested, requested.version, OFFER), RESOURCE, as_mapping(lines)
    )

    ((key, fault),) = json.loads(response.body).items()
    if requested.version is None:
        assert (response.status, key, response.headers) == (400, "badRequest", (FAULT,))
        assert requested.text in fault["message"]
    else:
        assert (response.status, key, len(response.headers)) == (406, "computeFault", 3)
        assert fault["message"].endswith(" Minimum is 2.1 and maximum is 2.104.")
    render(response.headers)


@given(st.lists(st.tuples(st.integers(100, 599), st.binary(max_size=60)), min_size=1, max_size=2))
def test_a_probe_ends_after_two_requests(responses: list[tuple[int, bytes]]) -> None:
    answers = tuple(ProbeResponse(status, as_mapping([JSON_TYPE]), body) for status, body in responses)
    step = NOVA.probe(answers, None)

    assert isinstance(step, Advertisement | ProbeFault) or len(answers) == 1
    assert NOVA.read_refusal(406, answers[0].body) is None


@given(st.text(max_size=30), st.text(max_size=10))
@example("/v2.1/%", "")
@example("/%ff%fe", "")
def test_every_target_has_an_endpoint(path: str, query: str) -> None:
    assert NOVA.endpoint("GET", path, query) in ENDPOINTS


# --- declarations ------------------------------------------------------------------------------------------


def test_the_dialect_is_found_by_the_name_of_its_module() -> None:
    assert discover()["nova"] is Nova


def test_every_name_that_is_read_or_written_is_owned_and_folded() -> None:
    written = {normalize_name(name) for name, _ in NOVA.write_request(RESOURCE, Version(2, 1))}

    assert NOVA.reads == NOVA.owned_request == NOVA.owned_response == written


def test_V10_vary_names_every_header_that_is_read() -> None:
    assert {normalize_name(name) for name in NOVA.vary} == NOVA.reads


PINS = """
kilo 2.3, 2015.1 2.3, liberty 2.12, 12 2.12, mitaka 2.25, 13 2.25, newton 2.38, 14 2.38, ocata 2.42, 15 2.42,
pike 2.53, 16 2.53, queens 2.60, 17 2.60, rocky 2.65, 18 2.65, stein 2.72, 19 2.72, train 2.79, 20 2.79,
ussuri 2.87, 21 2.87, victoria 2.87, 22 2.87, wallaby 2.88, 23 2.88, xena 2.90, 24 2.90, yoga 2.90, 25 2.90,
zed 2.93, 26 2.93, 2023.1 2.95, 27 2.95, 2023.2 2.95, 28 2.95, 2024.1 2.96, 29 2.96, 2024.2 2.96, 30 2.96,
2025.1 2.100, 31 2.100, 2025.2 2.100, 32 2.100, 2026.1 2.103, 33 2.103, 2026.2 2.104, 34 2.104
"""


@pytest.mark.parametrize("release, highest", [pin.split() for pin in PINS.split(",")])
def test_a_release_names_the_highest_version_of_its_servers(release: str, highest: str) -> None:
    assert NOVA.scheme.format(NOVA.releases[release]) == highest


def test_numbered_releases_never_serve_less_than_the_one_before() -> None:
    numbered = sorted((int(name), highest) for name, highest in NOVA.releases.items() if name.isdigit())

    assert [number for number, _ in numbered] == list(range(12, 35))
    assert [highest for _, highest in numbered] == sorted(highest for _, highest in numbered)


def test_N3_each_name_has_a_vary_line_of_its_own() -> None:
    assert vary_header(Nova.vary, separately=Nova.vary_separately) == (
        ("Vary", "OpenStack-API-Version"),
        ("Vary", "X-OpenStack-Nova-API-Version"),
    )


# --- where the served version is never missing --------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v2.1/servers", "/v2.1/abc/servers/detail", "//v2.1/servers"])
def test_R_A2_below_v2_1_every_successful_response_names_the_served_version(path: str) -> None:
    assert all(NOVA.endpoint(method, path, "").served_always for method in ("GET", "POST", "PUT", "DELETE"))


@pytest.mark.parametrize(
    "method,path",
    [
        ("GET", "/"),
        ("GET", "/v2/servers"),
        ("GET", "/v1.1/servers"),
        ("GET", "/x"),
        ("OPTIONS", "/v2.1/servers"),
    ],
)
def test_R_A2_elsewhere_a_healthy_server_names_none(method: str, path: str) -> None:
    assert not NOVA.endpoint(method, path, "").served_always


def test_R_A2_a_preflight_is_negotiated_like_any_request() -> None:
    assert NOVA.endpoint("OPTIONS", "/v2.1/servers", "") == RESOURCE._replace(served_always=False)


# --- operations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v2.1/servers.json", "/v2.1/servers.xml", "/v2.1/servers.json/", "/v2.1/servers%2Ejson"]
)
def test_R_A17_a_format_at_the_end_of_a_path_is_the_same_operation(path: str) -> None:
    assert NOVA.operation_path(path) == NOVA.operation_path("/v2.1/servers") == "/v2.1/servers"


def test_R_A17_another_suffix_is_a_part_of_the_name() -> None:
    assert NOVA.operation_path("/v2.1/servers/a.txt") == "/v2.1/servers/a.txt"
    assert NOVA.operation_path("/v2.1/servers/a%25b") == "/v2.1/servers/a%25b"


# --- errors of the gateway ---------------------------------------------------------------------------------


def test_R_D2_a_503_has_retry_after() -> None:
    assert NOVA.retry_after is True


def test_R_D6_request_ids_are_in_the_two_headers_of_real_servers() -> None:
    ids = NOVA.request_ids
    assert ids is not None

    named = NOVA.write_request_id(refuse((NOVA_HEADER, "2.999")), "req-1")

    assert ids.request_header == "X-Openstack-Request-Id"
    assert named.headers[-2:] == (("X-Openstack-Request-Id", "req-1"), ("X-Compute-Request-Id", "req-1"))


# --- where servers differ, and the gateway is like one of them ----------------------------------------------


def test_R_D8_a_malformed_version_at_v2_1_is_400_as_from_21_on() -> None:
    """Until 20 a server redirects to `/v2.1/` before it looks at any version, and is 400 there."""
    endpoint = NOVA.endpoint("GET", "/v2.1", "")

    assert endpoint == V2_1 == NOVA.endpoint("GET", "/v2.1/", "")
    assert read((NOVA_HEADER, "spam")).kind is RequestedKind.MALFORMED
    assert refuse((NOVA_HEADER, "spam")).status == 400


# --- probes that must not be believed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {"version": {"id": "v2.1", "version": "", "min_version": ""}},
        {"versions": [{"id": "v2.1", "status": "EXPERIMENTAL", "links": []}]},
    ],
)
def test_R_A11_without_v2_0_no_document_is_that_of_a_legacy_server(document: object) -> None:
    answer = ProbeResponse(
        200, as_mapping([("content-type", "application/json")]), json.dumps(document).encode()
    )

    assert reason(NOVA.probe((answer,), None)) == "document"


@pytest.mark.parametrize("kind", ["text/html", "text/plain", None])
def test_R_A11_a_list_that_is_not_said_to_be_json_is_a_failed_probe(kind: str | None) -> None:
    lines = [] if kind is None else [("content-type", kind)]
    body = json.dumps({"versions": [V2_0_ENTRY]}).encode()

    assert reason(NOVA.probe((ProbeResponse(200, as_mapping(lines), body),), None)) == "document"


@pytest.mark.parametrize("value", [0, [], False, {}])
def test_R_A11_a_range_of_another_type_is_not_a_missing_one(value: object) -> None:
    document = {"versions": [V2_0_ENTRY, v2_1_entry(version=value, min_version=value)]}
    answer = ProbeResponse(
        200, as_mapping([("content-type", "application/json")]), json.dumps(document).encode()
    )

    assert reason(NOVA.probe((answer,), None)) == "range"


def test_R_A9_outside_the_mounts_only_choices_are_a_document() -> None:
    assert {endpoint for endpoint in (*ENDPOINTS, BELOW_V1_1) if endpoint.choices} == {CHOICES, BELOW_V1_1}
