"""Senlin on the wire: the golden examples S1 to S7, byte for byte, and the traps of its guide.

The examples are responses of real servers of 16.0.0 (range 1.0 to 1.14) and 5.0.1 (1.0 to 1.9).
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    DefaultKind,
    Endpoint,
    GatewayError,
    Links,
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
from gateway.core.http.message import Header, Response, as_mapping, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects import discover
from gateway.dialects.openstack.senlin import CHOICES, RESOURCE, ROOT, UNCERTAIN, V1, Senlin

SENLIN = Senlin.configured(Senlin.Options())
OFFER = VersionSet.between(Version(1, 0), Version(1, 14))
STANDARD = "OpenStack-API-Version"
AT_1_5 = Version(1, 5)
JSON = ("Content-Type", "application/json")
EXPLANATION = (
    b"The server could not comply with the request since it is either malformed or otherwise incorrect."
)
S4 = (
    b'{"code": 406, "error": {"code": 406, "message": "Version \'1.99\' is not supported by the API. '
    b'Minimum is \'1.0\' and maximum is \'1.14\'.", "type": "InvalidGlobalAPIVersion"}, "explanation": "'
    + EXPLANATION
    + b'", "title": "Not Acceptable"}'
)
S6 = (
    b'{"code": 400, "error": {"code": 400, "message": "API version \'1.1\' is not supported on this method."'
    b', "type": "MethodVersionNotFound"}, "explanation": "' + EXPLANATION + b'", "title": "Bad Request"}'
)


def read(*values: str, name: str = STANDARD) -> RequestedVersion:
    return SENLIN.read_requested(RESOURCE, as_mapping((normalize_name(name), value) for value in values))


def refuse(text: str, *accept: str, offered: VersionSet = OFFER) -> Response:
    """The refusal of the requested version `clustering TEXT`."""
    requested = read(f"clustering {text}")
    if requested.version is None:
        assert requested.kind is RequestedKind.MALFORMED
        reason = RefusalReason.MALFORMED
    else:
        reason = RefusalReason.BELOW_MIN if requested.version < offered.lowest else RefusalReason.ABOVE_MAX
    headers = as_mapping(("accept", value) for value in accept)
    return SENLIN.refuse(Refusal(reason, requested, requested.version, offered), RESOURCE, headers)


def read_response(status: int, *values: str, endpoint: Endpoint = RESOURCE) -> Served:
    return SENLIN.read_response(
        endpoint, status, as_mapping((normalize_name(STANDARD), value) for value in values)
    )


def client_headers(
    status: int, *values: str, negotiated: Version | None = AT_1_5, legacy: bool = False
) -> tuple[Header, ...]:
    return SENLIN.write_response(
        BackendResponse(RESOURCE, status, read_response(status, *values), negotiated, OFFER, legacy=legacy)
    )


# --- requested versions ------------------------------------------------------------------------------------


def test_SENLIN_1_a_request_without_a_version_gets_the_minimum() -> None:
    assert read() == NO_VERSION_REQUESTED
    assert SENLIN.default_version.kind is DefaultKind.MINIMUM


@pytest.mark.parametrize("text", ["latest", "LATEST", "Latest"])
def test_SENLIN_1_latest_in_any_case(text: str) -> None:
    assert read(f"clustering {text}").kind is RequestedKind.LATEST


@pytest.mark.parametrize(
    "values,version",
    [
        (["clustering 1.5"], Version(1, 5)),
        (["CLUSTERING 1.2"], Version(1, 2)),
        (["compute 2.20, clustering 1.2"], Version(1, 2)),
        (["compute 2.20", "clustering 1.2"], Version(1, 2)),
        (["clustering 1.2", "clustering 1.3"], Version(1, 3)),
        (["clustering 1.2, clustering 1.3, compute 2.1"], Version(1, 3)),
    ],
)
def test_the_last_item_that_names_clustering_counts(values: list[str], version: Version) -> None:
    assert read(*values).version == version


@pytest.mark.parametrize("value", ["1.2", "", "compute 2.20", "senlin 1.2", "clustering"])
def test_a_header_that_does_not_name_clustering_is_ignored(value: str) -> None:
    assert read(value) == NO_VERSION_REQUESTED


def test_senlin_has_no_header_of_its_own() -> None:
    assert read("1.2", name="X-OpenStack-Senlin-API-Version") == NO_VERSION_REQUESTED
    assert SENLIN.owned_request == {normalize_name(STANDARD)}


def test_SENLIN_3_a_version_is_a_pair_of_whole_numbers() -> None:
    assert read("clustering 1.10") == RequestedVersion(RequestedKind.EXACT, Version(1, 10), "1.10")
    assert Version(1, 10) > Version(1, 9)


@pytest.mark.parametrize("text", ["0.9", "1", "1.02", "1.2.3", "spam", "+1.2", "1_0.5", "1.latest"])
def test_a_text_outside_the_grammar_is_malformed(text: str) -> None:
    assert read(f"clustering {text}").kind is RequestedKind.MALFORMED


# --- headers for backends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", [RESOURCE, UNCERTAIN, V1])
def test_SENLIN_1_one_line_with_its_own_item_alone(endpoint: Endpoint) -> None:
    assert SENLIN.write_request(endpoint, Version(1, 5)) == ((STANDARD, "clustering 1.5"),)


@pytest.mark.parametrize("endpoint", [ROOT])
def test_documents_that_ignore_the_header_are_sent_none(endpoint: Endpoint) -> None:
    assert SENLIN.write_request(endpoint, Version(1, 5)) == ()


def test_a_legacy_backend_of_Mitaka_serves_1_0() -> None:
    assert SENLIN.legacy_versions == VersionSet.only(Version(1, 0))


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, endpoint",
    [
        ("/", ROOT),
        ("", ROOT),
        ("//", ROOT),
        ("//v1/clusters", ROOT),
        ("/versions", ROOT),
        ("/versions/", ROOT),
        ("/%76ersions", ROOT),
        ("/v1", V1),
        ("/v1.0", V1),
        ("/%761", V1),
        ("/v1/", V1),
        ("/v1.0/", V1),
        ("/v1/clusters", RESOURCE),
        ("/v1//", RESOURCE),
        ("/clusters", CHOICES),
        ("/v2/", CHOICES),
        ("/versionsx", CHOICES),
        ("/v1/versions", RESOURCE),
    ],
)
def test_an_endpoint_is_known_by_its_first_segment(path: str, endpoint: Endpoint) -> None:
    assert SENLIN.endpoint("GET", path, "") == endpoint


def test_the_list_is_a_document_that_is_not_negotiated() -> None:
    assert (ROOT.negotiated, ROOT.document, ROOT.versioned_only) == (False, True, True)
    assert (V1.negotiated, V1.document, V1.versioned_only) == (True, True, True)
    assert (RESOURCE.negotiated, RESOURCE.document, RESOURCE.versioned_only) == (True, False, False)


# --- refusals by the gateway -------------------------------------------------------------------------------


def test_S4_out_of_range_byte_for_byte_and_without_version_headers() -> None:
    assert refuse("1.99") == Response(406, (JSON,), S4)


@pytest.mark.parametrize("text,length", [("99.99", 314), ("1.15", 313), ("2.0", 312)])
def test_S4_has_the_length_that_real_servers_send(text: str, length: int) -> None:
    assert len(refuse(text).body) == length


def test_S4_a_refusal_names_a_lower_offer() -> None:
    lower = VersionSet.between(Version(1, 2), Version(1, 9))

    assert b"Minimum is '1.2' and maximum is '1.9'." in refuse("1.1", offered=lower).body


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html, Application/JSON;q=0.9", "application/json; q=0.1"]
)
def test_S5_malformed_is_JSON_for_clients_that_name_it(accept: str) -> None:
    assert refuse("spam", accept) == Response(
        400,
        (JSON,),
        b'{"message": "' + EXPLANATION + b"<br /><br />\\nAPI Version String 'spam' is of invalid format. "
        b"It must be of format 'major.minor'.\\n\\n\", "
        b'"code": "400 Bad Request", "title": "Bad Request"}',
    )


@pytest.mark.parametrize(
    "accept", [(), ("",), ("*/*",), ("text/html",), ("application/json;q=0",), ("application/json; Q=0.00",)]
)
def test_S5_malformed_is_text_for_all_other_clients(accept: tuple[str, ...]) -> None:
    response = refuse("spam", *accept)

    assert response == Response(
        400,
        (("Content-Type", "text/plain; charset=UTF-8"),),
        b"400 Bad Request\n\n" + EXPLANATION + b"\n\n API Version String 'spam' is of invalid format. "
        b"It must be of format 'major.minor'.  ",
    )
    assert len(response.body) == 202


@pytest.mark.parametrize("text,length", [("0.9", 201), ("1.2.3", 203), ("1", 199), ("1.02", 202)])
def test_S5_has_the_length_that_real_servers_send(text: str, length: int) -> None:
    assert len(refuse(text).body) == length


def test_an_error_has_the_shape_of_senlin() -> None:
    response = SENLIN.error_response(GatewayError(503, 'No "server" now.', offered=OFFER))

    assert (response.status, response.headers) == (503, (JSON,))
    assert json.loads(response.body) == {
        "code": 503,
        "error": {"code": 503, "message": 'No "server" now.', "type": "ServiceUnavailable"},
        "explanation": 'No "server" now.',
        "title": "Service Unavailable",
    }


# --- responses of backends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 300])
def test_S3_the_served_version_is_passed_on(status: int) -> None:
    assert read_response(status, "clustering 1.5") == Served(Version(1, 5))
    assert client_headers(status, "clustering 1.5", negotiated=Version(1, 9)) == (
        (STANDARD, "clustering 1.5"),
    )


@pytest.mark.parametrize("status", [200, 400, 404, 406, 500])
def test_trap_22_a_response_without_the_header_gets_none(status: int) -> None:
    assert read_response(status).version is None
    assert client_headers(status) == ()


@pytest.mark.parametrize("values", [["compute 2.1"], ["1.5"], ["clustering spam"], ["clustering 1.5"] * 2])
def test_V8_V9_only_one_version_of_clustering_is_passed_on(values: list[str]) -> None:
    assert read_response(200, *values).version == (Version(1, 5) if len(values) == 2 else None)
    assert read_response(200, "clustering 1.5", "clustering 1.6").version is None


@pytest.mark.parametrize("status,lines", [(200, 1), (202, 1), (302, 1), (404, 0), (500, 0), (100, 0)])
def test_a_success_of_a_legacy_backend_gets_what_a_newer_one_would_have_sent(status: int, lines: int) -> None:
    assert (
        client_headers(status, negotiated=Version(1, 0), legacy=True)
        == ((STANDARD, "clustering 1.0"),) * lines
    )


def test_nothing_is_added_where_nothing_was_negotiated() -> None:
    assert client_headers(200, negotiated=None, legacy=True) == ()


def test_S4_from_a_backend_is_known_by_its_body() -> None:
    assert read_response(406).version_refusal is VersionRefusal.READ_BODY
    assert read_response(406, endpoint=V1).version_refusal is VersionRefusal.READ_BODY
    assert read_response(406, endpoint=ROOT).version_refusal is VersionRefusal.NO
    assert SENLIN.read_refusal(406, S4) == Advertisement(OFFER)


def test_S6_trap_11_a_method_outside_its_range_is_no_version_refusal() -> None:
    """The guide says 404. It is 400 in every release with versions, and is passed on unchanged."""
    assert read_response(400).version_refusal is VersionRefusal.NO
    assert SENLIN.read_refusal(400, S6) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"error": "no"}',
        b'{"error": {"type": "InvalidGlobalAPIVersion"}}',
        b'{"error": {"type": "InvalidGlobalAPIVersion", "message": "Too new."}}',
        S4.replace(b"'1.0'", b"'1.20'"),
    ],
)
def test_a_406_that_names_no_range_is_no_version_refusal(body: bytes) -> None:
    assert SENLIN.read_refusal(406, body) is None


# --- documents ---------------------------------------------------------------------------------------------


def entry(link: str, highest: str | None = "1.14") -> dict[str, Any]:
    version_range = {} if highest is None else {"min_version": "1.0", "max_version": highest}
    return {
        "id": "1.0",
        "status": "CURRENT",
        "updated": "2016-01-18T00:00:00Z",
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.clustering-v1+json"}],
        "links": [
            {"href": link, "rel": "self"},
            {"rel": "help", "href": "https://docs.openstack.org/api-ref/clustering"},
        ],
        **version_range,
    }


LINKS = Links(backend="http://10.0.0.5:8777", host="api.test", public="https://api.test/clustering")
LOWER = VersionSet.between(Version(1, 0), Version(1, 9))
PUBLIC = "https://api.test/clustering/v1"


def rewritten(endpoint: Endpoint, document: object) -> Any:
    body = SENLIN.rewrite_document(endpoint, json.dumps(document).encode(), LOWER, LINKS)
    assert body is not None
    return json.loads(body)


def test_S1_trap_13_the_list_has_the_offer_under_the_key_max_version() -> None:
    assert rewritten(ROOT, {"versions": [entry("http://api.test/v1")]}) == {
        "versions": [entry(PUBLIC, "1.9")]
    }


def test_S1_the_list_of_Mitaka_has_no_range_and_keeps_its_shape() -> None:
    assert rewritten(ROOT, {"versions": [entry("http://api.test/v1", None)]}) == {
        "versions": [entry(PUBLIC, None)]
    }


@pytest.mark.parametrize(
    "link",
    [
        "http://api.test/v1/v1",
        "http://api.test/v1/v1/",
        "http://10.0.0.5:8777/v1.0/v1",
        "http://api.test/v1",
        "http://api.test/clustering/v1/v1",
    ],
)
def test_S2_K7_trap_13_the_doubled_self_link_is_corrected(link: str) -> None:
    assert rewritten(V1, {"version": entry(link)}) == {"version": entry(PUBLIC, "1.9")}


def test_S2_relative_links_of_the_releases_until_8_get_the_prefix() -> None:
    assert rewritten(V1, {"version": entry("/v1")}) == {"version": entry("/clustering/v1", "1.9")}


def test_the_list_of_an_API_that_is_mounted_below_v1_is_not_shortened() -> None:
    links = Links(backend="http://10.0.0.5:8777", host="api.test", public="https://api.test/v1")
    body = json.dumps({"versions": [entry("http://10.0.0.5:8777/v1")]}).encode()

    once = SENLIN.rewrite_document(ROOT, body, OFFER, links)

    assert once is not None
    assert b'"https://api.test/v1' in once


@pytest.mark.parametrize(
    "document", [[], {}, {"versions": "1.0"}, {"version": "1.0"}, {"code": 404, "title": "Not Found"}]
)
def test_any_other_body_is_not_such_a_document(document: object) -> None:
    assert SENLIN.rewrite_document(V1, json.dumps(document).encode(), OFFER, LINKS) is None


def test_unexpected_values_in_a_document_stay_and_do_no_harm() -> None:
    unexpected = {
        "versions": [
            {"links": "x"},
            {"links": [None, {"rel": "self", "href": 7}, {"rel": "help", "href": "x/v1/v1"}]},
        ]
    }

    assert rewritten(V1, unexpected) == unexpected


# --- probes ------------------------------------------------------------------------------------------------


JSON_TYPE = ("content-type", "application/json")


def probe_result(status: int, document: object, path: str | None = None) -> object:
    return SENLIN.probe(
        (ProbeResponse(status, as_mapping([JSON_TYPE]), json.dumps(document).encode()),), path
    )


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_requests_the_root_without_a_version() -> None:
    assert SENLIN.probe((), None) == ProbeRequest("/", (("Accept", "application/json"),))
    assert SENLIN.probe((), "/v1") == ProbeRequest("/v1", (("Accept", "application/json"),))


@pytest.mark.parametrize("status", [300, 200])
def test_S1_a_probe_reads_the_range_from_the_list(status: int) -> None:
    assert probe_result(status, {"versions": [entry("/v1")]}) == Advertisement(OFFER)
    assert probe_result(status, {"version": entry("/v1")}, "/v1") == Advertisement(OFFER)


def test_a_list_without_a_range_is_a_legacy_server_of_Mitaka() -> None:
    assert probe_result(300, {"versions": [entry("/v1", None)]}) == Advertisement(
        VersionSet.only(Version(1, 0)), legacy=True
    )


@pytest.mark.parametrize("status", [204, 302, 401, 403, 404, 406, 429, 500, 503])
def test_trap_22_an_error_status_is_a_failed_probe(status: int) -> None:
    assert reason(probe_result(status, {"versions": [entry("/v1")]})) == "status"


@pytest.mark.parametrize("document", [[], {}, {"versions": []}, {"versions": [{"id": "v2.1"}, None]}])
def test_another_document_is_a_failed_probe_and_not_a_legacy_server(document: object) -> None:
    assert reason(probe_result(300, document)) == "document"


@pytest.mark.parametrize(
    "range_",
    [
        {"min_version": "1.0"},
        {"max_version": "1.14"},
        {"min_version": 1.0, "max_version": "1.14"},
        {"min_version": "1.0", "max_version": 1.14},
        {"min_version": "1.9", "max_version": "1.1"},
        {"min_version": "", "max_version": ""},
    ],
)
def test_a_probe_rejects_an_impossible_range(range_: dict[str, object]) -> None:
    assert reason(probe_result(300, {"versions": [{"id": "1.0", **range_}]})) == "range"


# --- declarations ------------------------------------------------------------------------------------------


def test_the_dialect_is_found_by_the_name_of_its_module() -> None:
    assert discover()["senlin"] is Senlin


def test_the_names_are_folded_and_Accept_is_read_but_never_removed() -> None:
    assert SENLIN.reads == SENLIN.owned_request | {"accept"}
    assert SENLIN.owned_response == {normalize_name(STANDARD)}
    assert SENLIN.vary == (STANDARD,)


@pytest.mark.parametrize(
    "release,highest",
    [
        ("newton", "1.2"),
        ("3.0", "1.5"),
        ("pike", "1.7"),
        ("5.0", "1.9"),
        ("rocky", "1.10"),
        ("train", "1.12"),
        ("9.0", "1.14"),
        ("2023.2", "1.14"),
    ],
)
def test_trap_12_a_release_names_the_highest_version_of_its_servers(release: str, highest: str) -> None:
    """Senlin's guide names modules that hold no version. These are the maxima of `api/openstack/v1/version`
    in each release."""
    assert SENLIN.scheme.format(SENLIN.releases[release]) == highest


# --- v1 is negotiated --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1", "/v1.0", "/v1/", "/v1.0/", "/v1.", "/%761"])
def test_R_D4_the_document_of_v1_is_negotiated_with_and_without_a_slash(path: str) -> None:
    endpoint = SENLIN.endpoint("GET", path, "")

    assert endpoint == V1
    assert (endpoint.negotiated, endpoint.document, endpoint.versioned_only) == (True, True, True)


# --- where the served version is never missing --------------------------------------------------------------


@pytest.mark.parametrize(
    "method,path",
    [
        ("GET", "/v1/clusters"),
        ("GET", "/v1.0/receivers/x"),
        ("GET", "/v1/build-info/build-info"),
        ("POST", "/v1/clusters"),
        ("PATCH", "/v1/nodes/x"),
        ("POST", "/v1/clusters/x/actions"),
    ],
)
def test_R_A2_a_success_of_a_controller_names_the_served_version(method: str, path: str) -> None:
    assert SENLIN.endpoint(method, path, "limit=1").served_always


@pytest.mark.parametrize(
    "method,path,query",
    [
        ("DELETE", "/v1/profiles/x", ""),  # 204, raised like an error
        ("DELETE", "/v1/policies/x", ""),
        ("DELETE", "/v1/receivers/x", ""),
        ("POST", "/v1/receivers/x/notify", ""),
        ("PATCH", "/v1/actions/x", ""),
        ("GET", "/v1/profiles/x", "_method=DELETE"),
        ("POST", "/v1/profiles/x", "a=b&_method=delete"),
        ("OPTIONS", "/v1/clusters", ""),
        ("GET", "/clusters", ""),
        ("GET", "/versions", ""),
    ],
)
def test_R_A2_elsewhere_a_healthy_server_names_none(method: str, path: str, query: str) -> None:
    assert not SENLIN.endpoint(method, path, query).served_always


# --- operations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/clusters.json", "/v1/clusters%2ejson/", "/v1.0/clusters", "/v1./clusters", "/%761.0/clusters"),
        "/clusters",  # a media type of `Accept` selects the API
    ],
)
def test_R_A17_one_operation_in_every_spelling_that_servers_accept(path: str) -> None:
    assert SENLIN.operation_path(path) == SENLIN.operation_path("/v1/clusters") == "/v1/clusters"


def test_R_A17_an_escaped_percent_sign_stays_escaped() -> None:
    assert SENLIN.operation_path("/v1/clusters/a%25b") == "/v1/clusters/a%25b"


# --- errors of the gateway ---------------------------------------------------------------------------------


def test_R_D2_a_503_has_retry_after() -> None:
    assert SENLIN.retry_after is True


def test_R_D6_request_ids_are_in_the_header_of_real_servers() -> None:
    ids = SENLIN.request_ids
    assert ids is not None

    named = SENLIN.write_request_id(refuse("1.99"), "req-1")

    assert ids.request_header == "X-Openstack-Request-Id"
    assert named.headers[-1] == ("X-Openstack-Request-Id", "req-1")


# --- documents and probes that must not be believed ---------------------------------------------------------


@pytest.mark.parametrize(
    "document",
    [
        {"versions": [{"id": "1.0", "min_version": 1.0, "max_version": 1.14}]},
        {"versions": [{"id": "1.0", "max_version": "v1.14"}]},
        {"versions": ["1.14"]},
        {"version": {"id": "1.0", "max_version": ["1.14"]}},
    ],
)
def test_R_A9_a_range_in_another_shape_is_not_such_a_document(document: object) -> None:
    assert SENLIN.rewrite_document(ROOT, json.dumps(document).encode(), LOWER, LINKS) is None


def test_R_A9_a_range_gets_the_offer_wherever_it_stands() -> None:
    assert rewritten(ROOT, {"versions": [{"id": "1.0", "version": "1.14"}]}) == {
        "versions": [{"id": "1.0", "version": "1.9"}]
    }


def json_answer(document: object, kind: str = "application/json") -> ProbeResponse:
    return ProbeResponse(300, as_mapping([("content-type", kind)]), json.dumps(document).encode())


@pytest.mark.parametrize(
    "range_", [{"min_version": None, "max_version": None}, {"max_version": None}, {"min_version": None}]
)
def test_R_A11_only_an_entry_without_both_keys_is_that_of_Mitaka(range_: dict[str, object]) -> None:
    assert reason(SENLIN.probe((json_answer({"versions": [{"id": "1.0", **range_}]}),), None)) == "range"


def test_R_A11_a_list_that_is_not_said_to_be_json_is_a_failed_probe() -> None:
    assert (
        reason(SENLIN.probe((json_answer({"versions": [{"id": "1.0"}]}, "text/html"),), None)) == "document"
    )


@pytest.mark.parametrize("path", ["/clusters", "/v2/", "/v1x"])
def test_R_A9_the_list_with_which_other_paths_are_answered_is_a_document(path: str) -> None:
    """300 for a client that accepts `*/*`."""
    endpoint = SENLIN.endpoint("GET", path, "")

    assert endpoint.document
    assert rewritten(endpoint, {"versions": [entry("http://api.test/v1")]}) == {
        "versions": [entry(PUBLIC, "1.9")]
    }


def test_R_A9_any_other_response_there_is_that_of_the_api() -> None:
    assert CHOICES.choices
    assert not ROOT.choices
    assert not V1.choices
