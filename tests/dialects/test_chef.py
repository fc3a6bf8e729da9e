"""Chef on the wire: the golden examples C1 to C13, the traps of RFC 041, and what goiardi and chef-zero do.

The examples are responses of Chef Server (erchef, 0 to 2), goiardi 0.11.10 (0 to 1) and chef-zero (0 to 2).
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.negotiation import negotiate
from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    DefaultKind,
    DefaultVersion,
    Endpoint,
    GatewayError,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    Served,
    VersionRefusal,
)
from gateway.core.http.message import Header, RequestHead, Response, as_mapping, normalize_name
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects import discover
from gateway.dialects.chef.dialect import RESOURCE, UNVERSIONED, VERSION_DOCUMENT, Chef, ChefOptions
from gateway.dialects.chef.version_object import read_integer, read_object

CHEF = Chef.configured(ChefOptions())
WITH_RFC_KEYS = Chef.configured(ChefOptions(error_keys="rfc041"))

HEADER = "X-Ops-Server-API-Version"
JSON = ("Content-Type", "application/json")
SIGNED = ("X-Ops-Sign", "algorithm=sha256;version=1.3;")


def between(low: int, high: int) -> VersionSet:
    return VersionSet.between(Version(low), Version(high))


OFFER = between(0, 2)
WITHOUT_0 = between(1, 2)
"""An offer without 0."""


def version_object(low: object, high: object, request: object, response: object) -> Header:
    """The object as servers write it, and as the gateway must."""
    texts = map(json.dumps, (low, high, request, response))
    names = ("min_version", "max_version", "request_version", "response_version")
    members = ",".join(f'"{name}":{text}' for name, text in zip(names, texts, strict=True))
    return (HEADER, "{" + members + "}")


def goiardi_object(version: str) -> Header:
    """The same with the blanks of goiardi and its spelling of the name (recorded)."""
    both = f'"request_version": "{version}", "response_version": "{version}"'
    return ("X-Ops-Server-Api-Version", f'{{"min_version": "0", "max_version": "1", {both}}}')


def read(*lines: Header) -> RequestedVersion:
    return CHEF.read_requested(RESOURCE, as_mapping((normalize_name(name), value) for name, value in lines))


def read_text(text: str) -> RequestedVersion:
    return read((HEADER, text))


def refuse(*texts: str, offered: VersionSet = OFFER, dialect: Chef = CHEF) -> Response:
    """The refusal of a request with these version headers."""
    refusal = negotiate(read(*((HEADER, text) for text in texts)), offered, CHEF.default_version)
    assert isinstance(refusal, Refusal)
    return dialect.refuse(refusal, RESOURCE, as_mapping([]))


def read_response(status: int, *lines: Header, endpoint: Endpoint = RESOURCE) -> Served:
    return CHEF.read_response(
        endpoint, status, as_mapping((normalize_name(name), value) for name, value in lines)
    )


def client_headers(
    status: int,
    *lines: Header,
    negotiated: Version | None = Version(1),  # noqa: B008 -- a constant
    legacy: bool = False,
) -> tuple[Header, ...]:
    """The version headers that the client gets for those of a backend."""
    return CHEF.write_response(
        BackendResponse(RESOURCE, status, read_response(status, *lines), negotiated, WITHOUT_0, legacy=legacy)
    )


def version_document(method: str = "GET", *lines: Header, offered: VersionSet | None = OFFER) -> Response:
    fields = tuple((normalize_name(name), value) for name, value in lines)
    return CHEF.answer(VERSION_DOCUMENT, RequestHead(method, "/server_api_version", "", fields), offered)


def test_it_is_found_by_its_name_and_clients_sign_paths() -> None:
    assert discover()["chef"] is Chef
    assert CHEF.configuration_rules.path_is_signed
    assert not CHEF.target_has_version


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/server_api_version", "/server_api_version/", "//server_api_version"])
def test_the_gateway_answers_server_api_version(path: str) -> None:
    assert CHEF.endpoint("GET", path, "") == VERSION_DOCUMENT
    assert VERSION_DOCUMENT.answered


@pytest.mark.parametrize(
    "path", ["/_status", "/_stats", "/version", "/bookshelf/organization-0/checksum-1", "/_route/x"]
)
def test_what_nginx_serves_without_erchef_is_not_negotiated(path: str) -> None:
    """A presigned URL of the file store names no version, and must work when 0 is no longer on offer."""
    assert CHEF.endpoint("GET", path, "") == UNVERSIONED
    assert not UNVERSIONED.negotiated
    assert CHEF.write_request(UNVERSIONED, Version(1)) == ()


@pytest.mark.parametrize(
    "path", ["/", "", "*", "/nodes", "/organizations/acme/nodes/version", "/versions", "/server_api_versions"]
)
def test_everything_else_is_a_resource(path: str) -> None:
    assert CHEF.endpoint("GET", path, "") == RESOURCE


# --- requested versions ------------------------------------------------------------------------------------


def test_C1_CHEF_1_trap_15_no_header_is_the_constant_0() -> None:
    assert read() == NO_VERSION_REQUESTED
    assert (CHEF.default_version.kind, CHEF.default_version.constant) == (DefaultKind.CONSTANT, Version(0))
    assert negotiate(read(), OFFER, CHEF.default_version) == Version(0)


@pytest.mark.parametrize(
    "text, number",
    [
        ("0", 0), ("1", 1), ("01", 1), ("+1", 1), ("-1", -1), ("-0", 0), ("-100", -100), ("007", 7),
        ("+0", 0), ("00", 0),
        ("0" * 500 + "2", 2), ("9" * 20, 99999999999999999999),
    ],
)  # fmt: skip
def test_C2_integers_are_read_as_erlang_reads_them(text: str, number: int) -> None:
    assert read_text(text) == RequestedVersion(RequestedKind.EXACT, Version(number), text)


@pytest.mark.parametrize(
    "text",
    [
        "", "+", "-", "--1", "+-1", "1.0", "1.", "1e3", "0x1", "1_0", " 1", "1 ", "1,1", "latest", "null",
        "pineapple", "\xb2", "\u0662", "1\n", "9" * 31, "9" * 5000,
    ],
)  # fmt: skip
def test_C5_trap_16_a_text_that_is_not_an_integer_is_malformed(text: str) -> None:
    """One of them is `null`, which means the minimum in the RFC."""
    assert read_text(text) == RequestedVersion(RequestedKind.MALFORMED, None, text)


@pytest.mark.parametrize("texts", [["0", "1"], ["1", "1"], ["", "1"]])
def test_repeated_lines_are_one_value_with_a_comma_and_no_integer(texts: list[str]) -> None:
    assert read(*((HEADER, text) for text in texts)) == RequestedVersion(
        RequestedKind.MALFORMED, None, ", ".join(texts)
    )


def test_V4_an_alias_with_underscores_is_the_same_header() -> None:
    assert read((HEADER, "1"), ("x_ops_server_api_version", "2")).kind is RequestedKind.MALFORMED
    assert read(("X_OPS_SERVER_API_VERSION", "2")).version == Version(2)


@given(st.integers(-(10**12), 10**12))
def test_every_integer_is_read_from_its_own_spelling(number: int) -> None:
    assert read_integer(str(number)) == number


# --- signatures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sign",
    [
        "algorithm=sha256;version=1.3;", "version=1.3", "algorithm=sha256; Version = 1.3", "version=1.3,x=1",
        "version=1.4", "version=2.0", "version=1.0;version=1.3",
    ],
)  # fmt: skip
def test_a_signature_that_may_cover_the_version_makes_it_signed(sign: str) -> None:
    """1.3 covers it. Any other protocol is assumed to, unless it is known to leave the version out."""
    line = ("X-Ops-Sign", sign)

    assert read((HEADER, "1"), line) == RequestedVersion(RequestedKind.EXACT, Version(1), "1", signed=True)
    assert read((HEADER, "x"), line) == RequestedVersion(RequestedKind.MALFORMED, None, "x", signed=True)


@pytest.mark.parametrize(
    "sign", ["algorithm=sha1;version=1.0;", "version=1.0", "version=1.1", "algorithm=sha256;version=1.2"]
)
def test_a_signature_that_leaves_the_version_out_does_not(sign: str) -> None:
    """pychef sends `version=1.0`, chef-client 1.1."""
    assert not read((HEADER, "1"), ("X-Ops-Sign", sign)).signed
    assert read(("X-Ops-Sign", sign)) == NO_VERSION_REQUESTED


def test_a_signature_without_a_version_covers_0_whatever_the_default_version_is() -> None:
    """No header is added to such a request, so the backend will execute it at 0."""
    requested = read(SIGNED)

    assert requested == RequestedVersion(RequestedKind.EXACT, Version(0), "0", signed=True)
    assert negotiate(requested, OFFER, DefaultVersion(DefaultKind.MAXIMUM)) == Version(0)


def test_of_two_signature_lines_one_is_enough() -> None:
    assert read(("X-Ops-Sign", "version=1.1"), SIGNED).signed


def test_the_signature_is_read_and_never_removed() -> None:
    assert CHEF.reads == {"x-ops-server-api-version", "x-ops-sign"}
    assert CHEF.owned_request == {"x-ops-server-api-version"}


# --- headers for backends ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_backend_is_sent_the_shortest_spelling(version: int) -> None:
    """goiardi ignores `01` (recorded), and sends no object when the header is absent."""
    assert CHEF.write_request(RESOURCE, Version(version)) == ((HEADER, str(version)),)


# --- local responses ---------------------------------------------------------------------------------------


def test_C4_trap_14_CHEF_2_above_the_offer() -> None:
    assert refuse("7") == Response(
        406,
        (version_object("0", "2", "7", "-1"), JSON),
        b'{"error":"invalid-x-ops-server-api-version","message":"Specified version 7 not supported",'
        b'"min_version":0,"max_version":2}',
    )


@pytest.mark.parametrize("text", ["pineapple", "nope", "latest", "null", "1.0", ""])
def test_C5_a_text_that_is_not_an_integer(text: str) -> None:
    response = refuse(text)

    assert (response.status, response.headers) == (406, (version_object("0", "2", "-1", "-1"), JSON))
    assert json.loads(response.body)["message"] == f"Specified version {text} not supported"


def test_C6_below_the_offer() -> None:
    response = refuse("-100")

    assert response.headers[0] == version_object("0", "2", "-100", "-1")
    assert json.loads(response.body)["message"] == "Specified version -100 not supported"


def test_the_text_of_a_refusal_quotes_the_client_and_the_header_has_the_number() -> None:
    response = refuse("+07")

    assert response.headers[0] == version_object("0", "2", "7", "-1")
    assert json.loads(response.body)["message"] == "Specified version +07 not supported"


def test_CHEF_1_trap_15_no_version_is_refused_when_0_is_no_longer_on_offer() -> None:
    response = refuse(offered=WITHOUT_0)

    assert response.headers[0] == version_object("1", "2", "0", "-1")
    assert json.loads(response.body) == {
        "error": "invalid-x-ops-server-api-version",
        "message": "Specified version 0 not supported",
        "min_version": 1,
        "max_version": 2,
    }


def test_several_lines_are_refused_as_one_value() -> None:
    assert json.loads(refuse("0", "1").body)["message"] == "Specified version 0, 1 not supported"


def test_trap_14_an_option_selects_the_keys_of_the_rfc() -> None:
    assert refuse("7", dialect=WITH_RFC_KEYS) == Response(
        406,
        (version_object("0", "2", "7", "-1"), JSON),
        b'{"error":"invalid-x-ops-server-api-version","message":"Specified version 7 not supported",'
        b'"min_api_version":0,"max_api_version":2}',
    )


def test_trap_17_a_refusal_has_the_body_of_an_error_and_a_clean_header() -> None:
    response = refuse("<script>\xe9", dialect=CHEF)

    assert json.loads(response.body)["error"] == "invalid-x-ops-server-api-version"
    assert dict(response.headers)["Content-Type"] == "application/json"
    assert not response.headers[0][1].endswith(",")
    assert response.body.isascii()


@pytest.mark.parametrize("status", [404, 405, 413, 500, 502, 503, 504])
@pytest.mark.parametrize(
    "requested, request_version",
    [
        (RequestedVersion(RequestedKind.EXACT, Version(1), "1"), "1"),
        (NO_VERSION_REQUESTED, "0"),
        (None, "0"),
        (RequestedVersion(RequestedKind.MALFORMED, None, "x"), "-1"),
    ],
)
def test_CHEF_4_errors_of_the_gateway_have_the_object_once_there_is_a_range(
    status: int, requested: RequestedVersion | None, request_version: str
) -> None:
    error = GatewayError(status, "Detail.", offered=OFFER, requested=requested)

    assert CHEF.error_response(error) == Response(
        status, (version_object("0", "2", request_version, request_version), JSON), b'{"error":["Detail."]}'
    )


def test_an_error_has_no_object_before_there_is_a_range() -> None:
    """Clients keep the first range that they get for the life of their process."""
    requested = RequestedVersion(RequestedKind.EXACT, Version(1), "1")

    assert CHEF.error_response(GatewayError(503, "Detail.", requested=requested)) == Response(
        503, (JSON,), b'{"error":["Detail."]}'
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("requested", [None, "0", "01", "2"])
def test_C8_CHEF_5_trap_20_server_api_version_signed_or_not(method: str, requested: str | None) -> None:
    response = version_document(method, *(() if requested is None else ((HEADER, requested),)))

    number = str(int(requested or 0))
    assert response == Response(
        200, (version_object("0", "2", number, number), JSON), b'{"min_api_version":0,"max_api_version":2}'
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_C9_CHEF_5_server_api_version_can_only_be_read(method: str) -> None:
    response = version_document(method, (HEADER, "1"))

    assert (response.status, response.headers[0]) == (405, version_object("0", "2", "1", "1"))
    assert ("Allow", "GET, HEAD") in response.headers


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "text, request_version",
    [("7", "7"), ("-1", "-1"), ("x", "-1"), ("", "-1")],
    ids=["7", "-1", "x", "empty"],
)
def test_C7_a_bad_version_is_refused_before_the_method(method: str, text: str, request_version: str) -> None:
    assert version_document(method, (HEADER, text)).status == 406
    assert version_document(method, (HEADER, text)).headers[0] == version_object(
        "0", "2", request_version, "-1"
    )
    assert version_document(method, (HEADER, text)) == refuse(text)


def test_trap_15_a_request_without_a_version_gets_the_versions_although_0_is_gone() -> None:
    """Real servers do not compare a missing version with the minimum, and here it does no harm."""
    for lines in ((), (SIGNED,)):
        response = version_document("GET", *lines, offered=WITHOUT_0)

        assert (response.status, response.body) == (200, b'{"min_api_version":1,"max_api_version":2}')
        assert response.headers[0] == version_object("1", "2", "0", "0")


def test_before_anything_is_offered_server_api_version_is_503_without_the_object() -> None:
    response = version_document(offered=None)

    assert (response.status, response.headers) == (503, (JSON,))


def test_CHEF_7_trap_18_responses_vary_by_the_header() -> None:
    """No server sends `Vary`. It is the one addition to their responses."""
    assert CHEF.vary == (HEADER,)


def test_CHEF_9_releases_are_ranges() -> None:
    assert {
        name: CHEF.releases[name][0] for name in ("12.0", "12.1", "12.17.33", "12.17.60", "12.18", "15.10")
    } == {"12.0": 0, "12.1": 1, "12.17.33": 1, "12.17.60": 2, "12.18": 2, "15.10": 2}
    assert "12.17" not in CHEF.releases


# --- responses of backends ---------------------------------------------------------------------------------


def test_C2_the_object_has_the_served_version_and_the_range_of_the_backend() -> None:
    line = version_object("0", "2", "1", "1")

    assert read_response(200, line) == Served(
        version=Version(1),
        advertisement=Advertisement(between(0, 2)),
        has_range=True,
        text=line[1],
        repeated=Version(1),
    )


@pytest.mark.parametrize("status", [200, 201, 302, 400, 401, 403, 404, 405, 409, 413, 500])
def test_C3_CHEF_4_trap_21_the_range_is_the_offer_and_the_rest_is_passed_on(status: int) -> None:
    assert client_headers(status, version_object("0", "2", "1", "1")) == (version_object("1", "2", "1", "1"),)
    assert client_headers(status, version_object("0", "2", "0", "0"), negotiated=None) == (
        version_object("1", "2", "0", "0"),
    )


def test_C12_clients_get_the_object_of_goiardi_as_chef_server_writes_it() -> None:
    assert read_response(200, goiardi_object("1")).advertisement == Advertisement(between(0, 1))
    assert client_headers(200, goiardi_object("1")) == (version_object("1", "2", "1", "1"),)


def test_C13_chef_zero_writes_numbers_and_always_serves_0() -> None:
    """Its values are passed on as strings. The mismatch is counted (threats V9)."""
    assert client_headers(406, version_object(0, 2, 7, -1)) == (version_object("1", "2", "7", "-1"),)
    assert client_headers(200, version_object("0", "2", "0", "0")) == (version_object("1", "2", "0", "0"),)
    assert read_response(200, version_object("0", "2", "0", "0")).version == Version(0)


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("status", [200, 401, 404, 500, 502])
def test_C10_C11_CHEF_4_trap_22_a_response_without_the_object_gets_one(status: int, legacy: bool) -> None:
    """Legacy servers, the nginx in front of erchef, goiardi. Without it a client would assume only 0."""
    assert client_headers(status, legacy=legacy) == (version_object("1", "2", "1", "1"),)
    assert client_headers(status, legacy=legacy, negotiated=None) == (version_object("1", "2", "0", "0"),)


def test_a_406_without_the_object_gets_the_object_of_a_406() -> None:
    assert client_headers(406, legacy=True) == (version_object("1", "2", "1", "-1"),)


@pytest.mark.parametrize("status", [100, 103])
def test_an_interim_response_gets_nothing(status: int) -> None:
    assert client_headers(status) == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "1", "null", "{}", '{"min_version":"0"},', "[" * 5000, "9" * 5000,
        '{"request_version":true,"response_version":null}', '{"request_version":1.5,"response_version":[]}',
        '{"request_version":"latest","response_version":"1\\r\\nX: y"}',
    ],
)  # fmt: skip
def test_an_invalid_object_is_ignored_and_never_reaches_the_client(text: str) -> None:
    assert read_object(text) == (None, None, VersionSet())
    assert client_headers(200, (HEADER, text)) == (version_object("1", "2", "1", "1"),)
    assert read_response(200, (HEADER, text)).version is None
    assert read_response(200, (HEADER, text)).has_range


def test_a_number_that_is_too_long_to_print_is_ignored() -> None:
    assert read_object('{"request_version":1' + "0" * 4299 + "}").request is None
    assert read_object('{"request_version":1' + "0" * 9000 + "}").request is None


@pytest.mark.parametrize(
    "low, high",
    [("2", "0"), ("-1", "2"), ("0", "x"), (None, "2"), ("0", None), (True, "2"), ("0", "9999999")],
)
def test_an_invalid_range_is_no_advertisement(low: object, high: object) -> None:
    served = read_response(200, version_object(low, high, "1", "1"))

    assert (served.advertisement, served.version) == (None, Version(1))


def test_lines_that_differ_are_ignored() -> None:
    assert read_response(
        200, version_object("0", "2", "1", "1"), version_object("0", "1", "1", "1")
    ) == Served(has_range=True)
    assert read_response(
        200, version_object("0", "2", "1", "1"), version_object("0", "2", "1", "1")
    ).version == Version(1)


# --- refusals by a backend ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [version_object("0", "1", "2", "-1"), version_object("0", "2", "-1", "-1"), version_object(0, 1, 2, -1)],
    ids=["2", "-1", "zero"],
)
def test_K8_C4_a_406_with_a_request_version_outside_its_own_range_is_a_version_refusal(line: Header) -> None:
    assert read_response(406, line).version_refusal is VersionRefusal.YES


def test_trap_23_a_406_about_accept_is_no_version_refusal() -> None:
    """erchef writes -1 for it, too, but the request version is in its range."""
    assert read_response(406, version_object("0", "2", "1", "-1")).version_refusal is VersionRefusal.NO
    assert client_headers(406, version_object("0", "2", "1", "-1")) == (version_object("1", "2", "1", "-1"),)


def test_a_406_with_a_response_version_is_no_version_refusal() -> None:
    assert read_response(406, version_object("0", "1", "2", "2")).version_refusal is VersionRefusal.NO


@pytest.mark.parametrize(
    "lines",
    [[], [(HEADER, "x")], [version_object("2", "0", "7", "-1")], [version_object("0", "2", "x", "-1")]],
)
def test_a_406_without_a_usable_object_is_known_by_its_body(lines: list[Header]) -> None:
    assert read_response(406, *lines).version_refusal is VersionRefusal.READ_BODY
    assert read_response(406, *lines, endpoint=UNVERSIONED).version_refusal is VersionRefusal.NO


@pytest.mark.parametrize("status", [200, 400, 401, 404, 500])
def test_only_a_406_refuses_a_version(status: int) -> None:
    assert read_response(status, version_object("0", "1", "2", "-1")).version_refusal is VersionRefusal.NO
    assert read_response(status).version_refusal is VersionRefusal.NO


@pytest.mark.parametrize("infix", ["", "api_"])
def test_trap_14_the_body_of_a_refusal_is_read_with_the_keys_of_either_kind(infix: str) -> None:
    body = {
        "error": "invalid-x-ops-server-api-version",
        "message": "Specified version 2 not supported",
        f"min_{infix}version": 0,
        f"max_{infix}version": 1,
    }

    assert CHEF.read_refusal(406, json.dumps(body).encode()) == Advertisement(between(0, 1))


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b'{"username":"bob"}', b"\xff",
        b'{"error":["Not Acceptable"],"min_version":0}',
        b'{"error":"invalid-x-ops-server-api-version"}',
        b'{"error":"invalid-x-ops-server-api-version","min_version":2,"max_version":0}',
        b'{"error":"other","min_version":0,"max_version":2}',
    ],
)  # fmt: skip
def test_C13_trap_17_any_other_body_is_no_version_refusal(body: bytes) -> None:
    assert CHEF.read_refusal(406, body) is None


# --- probes ------------------------------------------------------------------------------------------------


def answer(status: int, *lines: Header, body: bytes = b"") -> ProbeResponse:
    return ProbeResponse(status, as_mapping(lines), body)


def probe(*answers: ProbeResponse) -> ProbeStep:
    return CHEF.probe(answers, None)


LEGACY_SERVER = Advertisement(VersionSet.only(Version(0)), legacy=True)
GOIARDI_HEADER = ("X-Goiardi", "yes")
API_ERROR = b'{"error":["missing required authentication header(s) \'X-Ops-Sign\'"]}'


@pytest.mark.parametrize("path, probed", [(None, "/users"), ("/organizations/acme/users", None)])
def test_a_probe_is_unsigned_and_requests_a_version_that_no_server_has(
    path: str | None, probed: str | None
) -> None:
    assert CHEF.probe((), path) == ProbeRequest(
        probed or path or "",
        (
            ("X-Chef-Version", "12.0.0"),
            ("X-Ops-Userid", "probe"),
            ("Accept", "application/json"),
            (HEADER, "-1"),
        ),
    )


@pytest.mark.parametrize("status, requested", [(406, "-1"), (400, "0"), (401, "0"), (200, "0"), (404, "0")])
def test_any_answer_with_the_object_has_the_range(status: int, requested: str) -> None:
    assert probe(answer(status, version_object("0", "2", requested, "-1"))) == Advertisement(between(0, 2))


def test_C13_chef_zero_writes_the_range_as_numbers() -> None:
    assert probe(answer(406, version_object(0, 2, -1, -1), body=b'{"username":"probe"}')) == Advertisement(
        between(0, 2)
    )


@pytest.mark.parametrize(
    "line", [(HEADER, "x"), version_object("2", "0", "-1", "-1"), version_object("0", None, "-1", "-1")]
)
def test_an_object_without_a_range_is_a_failed_probe(line: Header) -> None:
    step = probe(answer(406, line))

    assert isinstance(step, ProbeFault)
    assert step.reason == "range"


@pytest.mark.parametrize("status", [400, 401, 404])
def test_C11_an_old_server_is_a_legacy_server(status: int) -> None:
    assert probe(answer(status, JSON, body=API_ERROR)) == LEGACY_SERVER


@pytest.mark.parametrize("status", [200, 401, 404])
def test_C12_goiardi_gets_a_second_request_with_0(status: int) -> None:
    first = answer(status, GOIARDI_HEADER)

    step = probe(first)

    assert isinstance(step, ProbeRequest)
    assert (step.path, step.headers[-1]) == ("/users", (HEADER, "0"))
    assert probe(first, answer(status, GOIARDI_HEADER, goiardi_object("0"))) == Advertisement(between(0, 1))
    assert probe(first, answer(status, GOIARDI_HEADER, JSON, body=API_ERROR)) == LEGACY_SERVER


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_an_overloaded_or_broken_server_is_a_failed_probe(status: int) -> None:
    """It does not become a legacy server, even when the response has headers of goiardi or erchef."""
    for lines in ((), (GOIARDI_HEADER,), (version_object("0", "2", "0", "0"),)):
        step = probe(answer(status, *lines))
        assert isinstance(step, ProbeFault)
        assert step.reason == "status"


def test_C10_trap_22_a_welcome_page_is_no_old_server() -> None:
    step = probe(answer(200, ("Content-Type", "text/html"), body=b"<html>"))

    assert isinstance(step, ProbeFault)
    assert step.reason == "document"


def test_a_refusal_without_its_header_is_read_by_its_body() -> None:
    body = refuse("-1").body

    assert probe(answer(406, body=body)) == Advertisement(between(0, 2))


@pytest.mark.parametrize("status", [204, 302, 403, 406, 410])
def test_any_other_answer_is_a_failed_probe(status: int) -> None:
    step = probe(answer(status))

    assert isinstance(step, ProbeFault)
    assert step.reason == "status"


# --- the table of the RFC ----------------------------------------------------------------------------------

TABLE = {
    (10, 14): {None: None, "10": 10, "14": 14, "15": None, "22": None, "30": None, "x": None},
    (12, 20): {None: None, "10": None, "14": 14, "15": 15, "22": None, "30": None, "x": None},
    (15, 22): {None: None, "10": None, "14": None, "15": 15, "22": 22, "30": None, "x": None},
}
"""By range of a uniform fleet and requested version: the version that is served, None for 406."""


@pytest.mark.parametrize(
    "served, requested, expected",
    [(served, requested, expected) for served, row in TABLE.items() for requested, expected in row.items()],
)
def test_CHEF_3_trap_17_the_worked_example(
    served: tuple[int, int], requested: str | None, expected: int | None
) -> None:
    """A request for 22 is served by 22; the 15 in the RFC is a mistake."""
    offered = between(*served)
    negotiated = negotiate(
        read(*(() if requested is None else ((HEADER, requested),))), offered, CHEF.default_version
    )

    if expected is not None:
        assert negotiated == Version(expected)
        return
    assert isinstance(negotiated, Refusal)
    assert (negotiated.reason is RefusalReason.MALFORMED) == (requested == "x")
    request_version = {None: "0", "x": "-1"}.get(requested, requested)
    header = CHEF.refuse(negotiated, RESOURCE, as_mapping([])).headers[0]
    assert header == version_object(str(served[0]), str(served[1]), request_version, "-1")


# --- found by strangers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["01", "+1", "001", "-0", "+0"])
def test_R_A7_a_signed_version_that_is_not_canonical_is_malformed(text: str) -> None:
    requested = read((HEADER, text), SIGNED)

    assert requested == RequestedVersion(RequestedKind.MALFORMED, None, text, signed=True)


@pytest.mark.parametrize(
    "sign", ["", ";", "version=", "algorithm=sha1", "xversion=1.0", "version=;algorithm=sha256"]
)
@pytest.mark.parametrize("lines", [(), ((HEADER, "1"),)])
def test_R_A7_a_signature_that_names_no_protocol_is_malformed(sign: str, lines: tuple[Header, ...]) -> None:
    """Nobody can say what such a signature covers."""
    assert read(*lines, ("X-Ops-Sign", sign)).kind is RequestedKind.MALFORMED
    assert read(*lines, SIGNED, ("X-Ops-Sign", sign)).kind is RequestedKind.MALFORMED


@pytest.mark.parametrize("status", [400, 401, 404])
@pytest.mark.parametrize(
    "lines, body",
    [
        ((), b""),
        ((("Content-Type", "text/html"),), b"<html>not found</html>"),
        ((("Content-Type", "text/html"),), b'{"error":["not found"]}'),
        ((JSON,), b"<html>not found</html>"),
        ((JSON,), b"{}"),
        ((JSON,), b'["error"]'),
    ],
)
def test_R_A11_an_error_page_is_a_failed_probe(status: int, lines: tuple[Header, ...], body: bytes) -> None:
    step = probe(answer(status, *lines, body=body))

    assert isinstance(step, ProbeFault)
    assert step.reason == "document"


def test_R_A11_an_html_page_with_the_object_is_a_failed_probe() -> None:
    html = answer(404, ("Content-Type", "text/html"), version_object("0", "9", "-1", "-1"), body=b"<html>")

    assert isinstance(probe(html), ProbeFault)


def test_R_A12_a_response_says_which_request_it_is_about() -> None:
    """Chef-zero writes `0` and `0`, whatever was requested: that says nothing about a request at 1."""
    served = read_response(200, version_object("0", "2", "0", "0"))

    assert (served.version, served.repeated) == (Version(0), Version(0))
    assert read_response(200, version_object("0", "2", "1", "1")).repeated == Version(1)


def test_R_A17_json_at_the_end_of_a_path_is_the_same_operation() -> None:
    assert CHEF.operation_path("/users.json") == CHEF.operation_path("/users") == "/users"
    assert CHEF.operation_path("/organizations/acme/users/a.json") == "/organizations/acme/users/a"
