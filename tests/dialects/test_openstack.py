"""The dialect `openstack`: the golden examples P1 to P3 of Placement, and how each service with a preset
departs.

The examples are responses of real servers of Placement 1.1.0 (1.0 to 1.31) and 16.0.0 (1.0 to 1.39).
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
    Dialect,
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
from gateway.core.http.request_ids import PLAIN_IDS
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects import discover
from gateway.dialects.openstack.guideline import NEGOTIATED_ROOT, RESOURCE, ROOT, VERSION, OpenStack
from gateway.dialects.openstack.ironic import Ironic
from gateway.dialects.openstack.nova import Nova
from gateway.settings import load

STANDARD = "OpenStack-API-Version"
MANILA_HEADER = "X-OpenStack-Manila-API-Version"
INSPECTOR_HEADER = "X-OpenStack-Ironic-Inspector-API-Version"
JSON = ("Content-Type", "application/json")
NO_VERSIONS = as_mapping([])


def dialect_for(service_type: str, **options: Any) -> OpenStack:
    return OpenStack.configured(OpenStack.Options(service_type=service_type, **options))


PLACEMENT = dialect_for("placement")
CINDER = dialect_for("volume")
MANILA = dialect_for("shared-file-system")
MAGNUM = dialect_for("container-infra")
INSPECTOR = dialect_for("baremetal-introspection")
PLAIN = dialect_for("backup")
ALL = [PLACEMENT, CINDER, MANILA, MAGNUM, INSPECTOR, PLAIN]


def between(lowest: str, highest: str) -> VersionSet:
    return VersionSet.read(f"{lowest}-{highest}", PLAIN.scheme)


OFFER = between("1.0", "1.39")


def read(dialect: OpenStack, *lines: Header) -> RequestedVersion:
    return dialect.read_requested(
        RESOURCE, as_mapping((normalize_name(name), value) for name, value in lines)
    )


def refuse(dialect: OpenStack, text: str, offered: VersionSet = OFFER) -> Response:
    """The refusal of the requested version `text`, in the header where the service reads it."""
    names = {normalize_name(name): name for name in dialect.vary}
    value = f"{dialect.profile.service_types[0]} {text}" if normalize_name(STANDARD) in names else text
    requested = read(dialect, (dialect.vary[0], value))
    reason = RefusalReason.MALFORMED
    if requested.version is not None:
        reason = RefusalReason.BELOW_MIN if requested.version < offered.lowest else RefusalReason.ABOVE_MAX
    return dialect.refuse(Refusal(reason, requested, requested.version, offered), RESOURCE, NO_VERSIONS)


def read_response(dialect: OpenStack, status: int, *lines: Header) -> Served:
    return dialect.read_response(
        RESOURCE, status, as_mapping((normalize_name(name), value) for name, value in lines)
    )


def client_headers(
    dialect: OpenStack,
    status: int,
    *lines: Header,
    negotiated: Version | None = None,
    legacy: bool = False,
) -> tuple[Header, ...]:
    served = read_response(dialect, status, *lines)
    return dialect.write_response(BackendResponse(RESOURCE, status, served, negotiated, OFFER, legacy=legacy))


def backend_headers(dialect: OpenStack, text: str) -> tuple[Header, ...]:
    return dialect.write_request(RESOURCE, dialect.scheme.require(text))


# --- requested versions, and headers for backends ----------------------------------------------------------


@pytest.mark.parametrize(
    "dialect,value,version",
    [
        (PLACEMENT, "placement 1.10", "1.10"),
        (PLACEMENT, "PLACEMENT 1.10", "1.10"),
        (PLACEMENT, "compute 2.20, placement 1.10", "1.10"),
        (PLACEMENT, "placement 1.9, placement 1.10", "1.10"),
        (CINDER, "volume 3.50", "3.50"),
        (CINDER, "volume 3.50, volume 3.60", "3.50"),
        (CINDER, "compute 2.1, volume 3.50", "3.50"),
        (CINDER, "volumev3 3.50, volume 3.60", "3.50"),
        (CINDER, "volume, volume 3.60", "3.60"),
        (MAGNUM, "container-infra 1.5", "1.5"),
        (MAGNUM, "container-infrastructure 1.5", "1.5"),
        (MAGNUM, "container-infrastructure-management 1.5, compute 2.1", "1.5"),
        (PLAIN, "backup 1.5", "1.5"),
    ],
)
def test_each_service_reads_its_own_item(dialect: OpenStack, value: str, version: str) -> None:
    requested = read(dialect, (STANDARD, value))

    assert requested == RequestedVersion(RequestedKind.EXACT, dialect.scheme.require(version), version)


@pytest.mark.parametrize("dialect", [PLACEMENT, MAGNUM, PLAIN])
@pytest.mark.parametrize("value", ["compute 2.20", "1.10", "", "nonesuch 1.10"])
def test_a_header_for_other_services_is_ignored(dialect: OpenStack, value: str) -> None:
    assert read(dialect, (STANDARD, value)) == NO_VERSION_REQUESTED


def test_one_header_with_several_services_reaches_each_backend_with_its_own_item_alone() -> None:
    value = "compute 2.20, volume 3.50, placement 1.10, container-infra 1.5"
    leaving = {}
    for dialect in (CINDER, PLACEMENT, MAGNUM):
        requested = read(dialect, (STANDARD, value))
        assert requested.version is not None
        leaving[dialect] = dialect.write_request(RESOURCE, requested.version)

    assert leaving == {
        CINDER: ((STANDARD, "volume 3.50"),),
        PLACEMENT: ((STANDARD, "placement 1.10"),),
        MAGNUM: ((STANDARD, "container-infra 1.5"),),
    }


def test_cinder_always_gets_a_header_that_names_it() -> None:
    """Cinder answers 400 to a header without `volume`, so the client's header is always replaced."""
    assert normalize_name(STANDARD) in CINDER.owned_request
    assert backend_headers(CINDER, "3.0") == ((STANDARD, "volume 3.0"),)


@pytest.mark.parametrize("dialect,own", [(MANILA, MANILA_HEADER), (INSPECTOR, INSPECTOR_HEADER)])
def test_trap_24_services_with_a_header_of_their_own_ignore_the_standard_one(
    dialect: OpenStack, own: str
) -> None:
    assert read(dialect, (own, "2.5")).version == Version(2, 5)
    assert read(dialect, (own, "2.5, 2.6")).version == Version(2, 6)
    assert read(dialect, (own, "")) == NO_VERSION_REQUESTED
    assert read(dialect, (STANDARD, f"{dialect.service_type} 2.5")) == NO_VERSION_REQUESTED
    assert backend_headers(dialect, "2.5") == ((own, "2.5"),)
    assert normalize_name(STANDARD) in dialect.owned_request - dialect.reads
    assert dialect.vary == (own,)


def test_the_experimental_flag_of_manila_is_passed_on() -> None:
    assert "x-openstack-manila-api-experimental" not in MANILA.owned_request | MANILA.owned_response


@pytest.mark.parametrize(
    "dialect,exact,shouted",
    [
        (PLACEMENT, RequestedKind.LATEST, RequestedKind.MALFORMED),
        (CINDER, RequestedKind.LATEST, RequestedKind.MALFORMED),
        (MAGNUM, RequestedKind.LATEST, RequestedKind.LATEST),
        (PLAIN, RequestedKind.LATEST, RequestedKind.MALFORMED),
    ],
)
def test_latest_in_the_spelling_of_the_service(
    dialect: OpenStack, exact: RequestedKind, shouted: RequestedKind
) -> None:
    service = dialect.profile.service_types[0]
    assert read(dialect, (STANDARD, f"{service} latest")).kind is exact
    assert read(dialect, (STANDARD, f"{service} LATEST")).kind is shouted


def test_latest_is_malformed_for_manila_and_valid_for_the_inspector() -> None:
    assert read(MANILA, (MANILA_HEADER, "latest")).kind is RequestedKind.MALFORMED
    assert read(INSPECTOR, (INSPECTOR_HEADER, "Latest")).kind is RequestedKind.LATEST


def test_the_default_version_is_the_minimum_except_for_the_inspector() -> None:
    assert [dialect.default_version.kind for dialect in ALL] == [
        *[DefaultKind.MINIMUM] * 4,
        DefaultKind.MAXIMUM,
        DefaultKind.MINIMUM,
    ]


def test_0_9_is_too_old_for_placement_and_malformed_for_others() -> None:
    assert read(PLACEMENT, (STANDARD, "placement 0.9")).version == Version(0, 9)
    assert read(CINDER, (STANDARD, "volume 0.9")).kind is RequestedKind.MALFORMED
    assert read(PLAIN, (STANDARD, "backup 0.9")).kind is RequestedKind.MALFORMED


def test_no_version_is_sent_where_nothing_is_negotiated() -> None:
    assert CINDER.write_request(ROOT, Version(3, 0)) == ()


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "", "//", "/%2F"])
def test_the_root_is_negotiated_where_its_servers_do_that(path: str) -> None:
    negotiated = (PLACEMENT, CINDER, INSPECTOR)
    assert {dialect.endpoint("GET", path, "") for dialect in negotiated} == {NEGOTIATED_ROOT}
    assert {dialect.endpoint("GET", path, "") for dialect in (MANILA, MAGNUM, PLAIN)} == {ROOT}


@pytest.mark.parametrize("path", ["/v3", "/v3/", "/v2.0/", "/%763/"])
def test_a_version_with_and_without_a_slash_is_a_document(path: str) -> None:
    assert CINDER.endpoint("GET", path, "") == VERSION
    assert (VERSION.negotiated, VERSION.document, VERSION.versioned_only) == (True, True, True)


@pytest.mark.parametrize("path", ["/v3/abc/volumes", "/v", "/versions", "/resource_providers", "/v3//"])
def test_everything_else_is_a_resource(path: str) -> None:
    assert PLAIN.endpoint("GET", path, "") == RESOURCE


# --- refusals by the gateway -------------------------------------------------------------------------------


def test_P1_placement_out_of_range() -> None:
    assert refuse(PLACEMENT, "1.99") == Response(
        406,
        (JSON,),
        b'{"errors": [{"status": 406, "title": "Not Acceptable", "detail": "The resource could not be '
        b"generated that was acceptable to your browser (content of type application/json. \\n\\n Invalid "
        b'microversion: Unacceptable version header: 1.99", "max_version": "1.39", "min_version": "1.0"}]}',
    )
    assert b"Unacceptable version header: 0.9" in refuse(PLACEMENT, "0.9").body


@pytest.mark.parametrize(
    "text,why",
    [
        ("spam", "invalid literal for int() with base 10: 'spam'"),
        ("1.2.3", "invalid literal for int() with base 10: '2.3'"),
        ("1", "Version.__new__() missing 1 required positional argument: 'minor'"),
    ],
)
def test_P2_placement_malformed(text: str, why: str) -> None:
    assert refuse(PLACEMENT, text) == Response(
        400,
        (JSON,),
        b'{"errors": [{"status": 400, "title": "Bad Request", "detail": "The server could not comply with '
        b"the request since it is either malformed or otherwise incorrect.\\n\\n Invalid microversion: "
        + f'invalid version string: {text}; {why}  "}}]}}'.encode(),
    )


@pytest.mark.parametrize(
    "dialect,text,echo",
    [(CINDER, "3.99", (STANDARD, "volume 3.99")), (MANILA, "3.99", (MANILA_HEADER, "3.99"))],
)
def test_cinder_and_manila_refuse_as_nova_does(dialect: OpenStack, text: str, echo: Header) -> None:
    assert refuse(dialect, text, between("3.0", "3.71")) == Response(
        406,
        (JSON, echo),
        b'{"computeFault": {"code": 406, "message": "Version 3.99 is not supported by the API. '
        b'Minimum is 3.0 and maximum is 3.71."}}',
    )


@pytest.mark.parametrize("dialect", [CINDER, MANILA])
def test_a_malformed_text_is_a_bad_request_for_cinder_and_manila(dialect: OpenStack) -> None:
    assert refuse(dialect, "spam") == Response(
        400,
        (JSON,),
        b'{"badRequest": {"code": 400, "message": "API Version String spam is of invalid format. '
        b'Must be of format MajorNum.MinorNum."}}',
    )


MAGNUM_RANGE = (("OpenStack-API-Minimum-Version", "1.0"), ("OpenStack-API-Maximum-Version", "1.39"))


def test_magnum_refuses_with_range_headers_and_a_malformed_text_with_406_and_without() -> None:
    response = refuse(MAGNUM, "1.99")
    assert (response.status, response.headers) == (406, (*MAGNUM_RANGE, JSON))
    assert json.loads(response.body) == {
        "errors": [
            {
                "code": "",
                "status": 406,
                "title": "Not Acceptable",
                "detail": "Version 1.99 was requested but the minor version is not supported by this "
                "service. The supported version range is: [1.0, 1.39].",
                "links": [],
                "max_version": "1.39",
                "min_version": "1.0",
            }
        ]
    }

    malformed = refuse(MAGNUM, "spam")
    assert (malformed.status, malformed.headers) == (406, (JSON,))
    assert (
        json.loads(malformed.body)["errors"][0]["detail"] == "Invalid value for OpenStack-API-Version header"
    )


INSPECTOR_RANGE = (
    ("X-OpenStack-Ironic-Inspector-API-Minimum-Version", "1.0"),
    ("X-OpenStack-Ironic-Inspector-API-Maximum-Version", "1.39"),
)


def test_the_inspector_has_its_range_on_every_refusal() -> None:
    assert refuse(INSPECTOR, "1.99") == Response(
        406,
        (*INSPECTOR_RANGE, JSON),
        b'{"error": {"message": "Unsupported API version 1.99, supported range is 1.0 to 1.39"}}',
    )
    assert refuse(INSPECTOR, "spam") == Response(
        400,
        (*INSPECTOR_RANGE, JSON),
        b'{"error": {"message": "Malformed API version: expected string in form of X.Y"}}',
    )


def test_a_service_without_a_preset_refuses_as_the_guideline_says() -> None:
    response = refuse(PLAIN, "1.99")
    assert (response.status, response.headers) == (406, (JSON,))
    assert json.loads(response.body) == {
        "errors": [
            {
                "code": "backup.microversion-unsupported",
                "status": 406,
                "title": "Requested microversion is unsupported",
                "detail": "Version 1.99 is not supported by the API. Minimum is 1.0 and maximum is 1.39.",
                "links": [],
                "max_version": "1.39",
                "min_version": "1.0",
            }
        ]
    }
    malformed = json.loads(refuse(PLAIN, "spam").body)["errors"][0]
    assert (malformed["status"], malformed["code"]) == (400, "backup.microversion-malformed")
    assert "max_version" not in malformed


@pytest.mark.parametrize("text", ["{", "{text}", "%s", '"', "\u00e9"])
def test_a_malformed_text_is_quoted_and_never_used_as_a_template(text: str) -> None:
    assert json.loads(refuse(PLAIN, text).body)["errors"][0]["detail"].startswith(
        f"API Version String {text} is"
    )


def test_an_error_has_the_shape_of_the_service_and_the_range_where_errors_carry_one() -> None:
    error = GatewayError(503, "None now.", offered=OFFER)

    assert json.loads(CINDER.error_response(error).body) == {
        "serviceUnavailable": {"code": 503, "message": "None now."}
    }
    assert json.loads(PLACEMENT.error_response(error).body) == {
        "errors": [{"status": 503, "title": "Service Unavailable", "detail": "None now."}]
    }
    assert json.loads(PLAIN.error_response(error).body)["errors"][0]["code"] == ""
    assert INSPECTOR.error_response(error) == Response(
        503, (*INSPECTOR_RANGE, JSON), b'{"error": {"message": "None now."}}'
    )
    assert INSPECTOR.error_response(GatewayError(502, "No.")).headers == (JSON,)
    assert b"computeFault" in CINDER.error_response(GatewayError(502, "No.")).body


# --- responses of backends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect,line,version",
    [
        (PLACEMENT, ("openstack-api-version", "placement 1.10"), Version(1, 10)),
        (CINDER, (STANDARD, "volume 3.50"), Version(3, 50)),
        (MANILA, (MANILA_HEADER, "2.50"), Version(2, 50)),
        (MAGNUM, (STANDARD, "container-infra 1.5"), Version(1, 5)),
        (PLAIN, (STANDARD, "backup 1.5"), Version(1, 5)),
    ],
)
def test_P3_the_served_version_is_passed_on_with_the_spelling_of_its_header(
    dialect: OpenStack, line: Header, version: Version
) -> None:
    """Placement writes its names in lower case, and so does the gateway in front of it."""
    assert read_response(dialect, 200, line) == Served(version)
    assert client_headers(dialect, 200, line, negotiated=Version(1, 1)) == (line,)


@pytest.mark.parametrize("value", ["compute 2.1", "1.5", "placement spam", ""])
def test_V8_a_text_that_is_not_a_version_of_the_service_is_not_passed_on(value: str) -> None:
    assert client_headers(PLACEMENT, 200, (STANDARD, value)) == ()


@pytest.mark.parametrize("dialect", ALL)
def test_a_response_without_version_headers_gets_none(dialect: OpenStack) -> None:
    assert read_response(dialect, 404) == Served()
    assert client_headers(dialect, 404, negotiated=Version(1, 1)) == ()


def test_the_offer_replaces_the_range_of_the_backend() -> None:
    own = tuple((name, value) for (name, _), value in zip(MAGNUM_RANGE, ("1.1", "1.14"), strict=True))

    assert read_response(MAGNUM, 200, *own).advertisement == Advertisement(between("1.1", "1.14"))
    assert client_headers(MAGNUM, 200, *own, (STANDARD, "container-infra 1.5")) == (
        *MAGNUM_RANGE,
        (STANDARD, "container-infra 1.5"),
    )


def test_the_inspector_has_no_echo() -> None:
    own = tuple((name, value) for (name, _), value in zip(INSPECTOR_RANGE, ("1.0", "1.18"), strict=True))

    assert client_headers(INSPECTOR, 200, *own, negotiated=Version(1, 5)) == INSPECTOR_RANGE


@pytest.mark.parametrize("status,lines", [(200, 1), (204, 1), (300, 1), (404, 0), (503, 0)])
def test_a_success_of_a_legacy_backend_gets_what_a_newer_one_would_have_sent(status: int, lines: int) -> None:
    headers = client_headers(PLACEMENT, status, negotiated=Version(1, 0), legacy=True)

    assert headers == (("openstack-api-version", "placement 1.0"),) * lines
    assert client_headers(PLACEMENT, status, negotiated=None, legacy=True) == ()


@pytest.mark.parametrize("dialect", ALL)
def test_a_refusal_by_a_backend_is_known_by_its_body(dialect: OpenStack) -> None:
    """The round trip: the refusal that each service writes is read as a refusal."""
    assert read_response(dialect, 406).version_refusal is VersionRefusal.READ_BODY
    assert read_response(dialect, 400).version_refusal is VersionRefusal.NO
    assert dialect.read_response(ROOT, 406, NO_VERSIONS).version_refusal is VersionRefusal.NO
    assert dialect.read_refusal(406, refuse(dialect, "9.99").body) == Advertisement(OFFER)


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"errors": [{"status": 406, "detail": "No JSON here."}]}',
        b'{"errors": ["x"], "error": 7}',
        b'{"computeFault": {"message": 7, "detail": null}}',
        b'{"computeFault": {"message": "Minimum is 3.9 and maximum is 3.1."}}',
    ],
)
def test_a_406_that_names_no_range_is_no_version_refusal(dialect: OpenStack, body: bytes) -> None:
    assert dialect.read_refusal(406, body) is None


# --- documents ---------------------------------------------------------------------------------------------

LINKS = Links(backend="http://10.0.0.5:80", host="api.test", public="https://api.test/p")


def rewritten(dialect: OpenStack, document: object, offered: VersionSet) -> Any:
    body = dialect.rewrite_document(ROOT, json.dumps(document).encode(), offered, LINKS)
    return None if body is None else json.loads(body)


def entry(name: str, key: str, lowest: str, highest: str, link: str) -> dict[str, Any]:
    links = [{"rel": "self", "href": link}]
    return {"id": name, key: highest, "min_version": lowest, "status": "CURRENT", "links": links}


def test_the_empty_link_in_the_document_of_placement_stays() -> None:
    document = {"versions": [entry("v1.0", "max_version", "1.0", "1.39", "")]}

    assert rewritten(PLACEMENT, document, between("1.0", "1.31")) == {
        "versions": [entry("v1.0", "max_version", "1.0", "1.31", "")]
    }


def test_the_document_of_cinder_has_the_offer_under_the_key_version() -> None:
    older = {"id": "v2.0", "status": "DEPRECATED", "version": "", "min_version": "", "links": []}
    document = {"versions": [older, entry("v3.0", "version", "3.0", "3.71", "http://api.test/v3/")]}

    assert rewritten(CINDER, document, between("3.0", "3.60")) == {
        "versions": [older, entry("v3.0", "version", "3.0", "3.60", "https://api.test/p/v3/")]
    }


def test_a_document_may_be_one_version_or_have_it_under_another_key() -> None:
    """Magnum's `/v1` is the version itself. Keystone has its list in `values`."""
    bare = entry("v1", "max_version", "1.1", "1.14", "http://10.0.0.5:80/v1")
    expected = entry("v1", "max_version", "1.1", "1.9", "https://api.test/p/v1")
    offer = between("1.1", "1.9")

    assert rewritten(MAGNUM, bare, offer) == expected
    assert rewritten(MAGNUM, {"version": bare}, offer) == {"version": expected}
    assert rewritten(MAGNUM, {"versions": {"values": [bare]}}, offer) == {"versions": {"values": [expected]}}


def test_the_id_in_a_document_of_the_inspector_is_its_maximum() -> None:
    document = {"versions": [{"id": "1.18", "status": "CURRENT", "links": [{"href": "http://api.test/v1"}]}]}

    assert rewritten(INSPECTOR, document, between("1.0", "1.9")) == {
        "versions": [{"id": "1.9", "status": "CURRENT", "links": [{"href": "https://api.test/p/v1"}]}]
    }
    assert rewritten(INSPECTOR, {"versions": [{"id": "v1"}]}, OFFER) == {"versions": [{"id": "v1"}]}


@pytest.mark.parametrize(
    "document", [[], {}, {"versions": "v1"}, {"version": 1}, {"versions": [None]}, {"id": "x"}, {"links": []}]
)
def test_any_other_body_is_not_such_a_document(document: object) -> None:
    assert rewritten(PLAIN, document, OFFER) is None


# --- probes ------------------------------------------------------------------------------------------------


def probe_result(dialect: OpenStack, status: int, document: object, *lines: Header) -> object:
    headers = as_mapping((normalize_name(name), value) for name, value in (*lines, JSON))
    return dialect.probe((ProbeResponse(status, headers, json.dumps(document).encode()),), None)


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_requests_the_root_without_a_version() -> None:
    accept = (("Accept", "application/json"),)

    assert PLACEMENT.probe((), None) == ProbeRequest("/", accept)
    assert PLACEMENT.probe((), "/placement") == ProbeRequest("/placement", accept)


@pytest.mark.parametrize("status", [200, 300])
def test_a_probe_reads_the_newest_range_of_a_list(status: int) -> None:
    document = {
        "versions": [
            {"id": "v1", "status": "DEPRECATED"},
            entry("v1.0", "version", "1.0", "1.0", ""),
            entry("v2.0", "version", "2.0", "2.99", ""),
            {"id": "v0", "min_version": "x", "version": "y"},
        ]
    }

    mounts = frozenset({"v1"})
    assert probe_result(MANILA, status, document) == Advertisement(between("2.0", "2.99"), mounts=mounts)


def test_of_two_keys_for_the_maximum_that_of_the_guideline_counts() -> None:
    document = {"version": {"id": "v1", "min_version": "1.0", "max_version": "1.9", "version": "1.0"}}

    assert probe_result(PLAIN, 200, document) == Advertisement(between("1.0", "1.9"))


def test_range_headers_count_where_the_service_has_them() -> None:
    document = {"versions": [{"id": "1.18"}]}

    assert probe_result(INSPECTOR, 200, document, *INSPECTOR_RANGE) == Advertisement(OFFER)
    assert reason(probe_result(INSPECTOR, 200, document, INSPECTOR_RANGE[0])) == "range"


def test_entries_without_a_range_are_those_of_a_legacy_server_without_a_version() -> None:
    document = {"versions": [{"id": "v2.0", "version": "", "min_version": "", "links": []}]}

    assert probe_result(CINDER, 300, document) == Advertisement(
        VersionSet(), legacy=True, mounts=frozenset({"v2"})
    )


@pytest.mark.parametrize("status", [204, 302, 401, 403, 404, 406, 429, 500, 503])
def test_trap_22_an_error_status_is_a_failed_probe(status: int) -> None:
    assert reason(probe_result(CINDER, status, {"versions": [{"id": "v3.0"}]})) == "status"


@pytest.mark.parametrize("document", [[], {}, {"versions": []}, {"errors": []}])
def test_another_document_is_a_failed_probe(document: object) -> None:
    assert reason(probe_result(CINDER, 200, document)) == "document"


@pytest.mark.parametrize(
    "entry_range", [{"min_version": "1.0"}, {"version": "1.9"}, {"min_version": "1.9", "version": "1.1"}]
)
def test_a_probe_rejects_an_impossible_range(entry_range: dict[str, str]) -> None:
    assert reason(probe_result(CINDER, 200, {"versions": [{"id": "v3.0", **entry_range}]})) == "range"


# --- options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alias,dialect",
    [
        ("cinder", CINDER),
        ("volumev3", CINDER),
        ("manila", MANILA),
        ("sharev2", MANILA),
        ("magnum", MAGNUM),
        ("ironic-inspector", INSPECTOR),
    ],
)
def test_a_preset_is_found_by_its_other_names(alias: str, dialect: OpenStack) -> None:
    assert (dialect_for(alias).service_type, dialect_for(alias).profile) == (
        dialect.service_type,
        dialect.profile,
    )


def test_every_value_of_a_preset_may_be_replaced() -> None:
    dialect = dialect_for(
        "backup",
        legacy_headers=("X-Backup-Version", "X-Old-Version"),
        duplicates="first",
        latest="any_case",
        malformed="not_acceptable",
        errors="message",
        echo_headers=("X-Backup-Version", STANDARD),
        range_headers=("X-Backup-Minimum", "X-Backup-Maximum"),
    )

    assert read(dialect, (STANDARD, "backup 1.5, backup 1.6")).version == Version(1, 5)
    assert read(dialect, ("X-Old-Version", "LATEST")).kind is RequestedKind.LATEST
    assert read(dialect, ("X-Old-Version", "1.5"), ("X-Backup-Version", "1.6")).version == Version(1, 6)
    assert backend_headers(dialect, "1.5") == (
        ("X-Backup-Version", "1.5"),
        ("X-Old-Version", "1.5"),
        (STANDARD, "backup 1.5"),
    )
    assert dialect.vary == (STANDARD, "X-Backup-Version", "X-Old-Version")
    assert refuse(dialect, "spam").status == 406
    assert refuse(dialect, "1.99").headers[:2] == (("X-Backup-Minimum", "1.0"), ("X-Backup-Maximum", "1.39"))
    assert client_headers(dialect, 200, ("X-Backup-Version", "x"), (STANDARD, "backup 1.5")) == (
        ("X-Backup-Version", "1.5"),
        (STANDARD, "backup 1.5"),
    )


def test_without_the_standard_header_the_service_is_not_named() -> None:
    dialect = dialect_for(
        "backup", standard_header=False, legacy_headers=("X-Backup-Version",), echo_headers=(STANDARD,)
    )

    assert read(dialect, (STANDARD, "backup 1.5")) == NO_VERSION_REQUESTED
    assert backend_headers(dialect, "1.5") == (("X-Backup-Version", "1.5"),)
    assert client_headers(dialect, 200, (STANDARD, "backup 1.5")) == ((STANDARD, "backup 1.5"),)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"service_type": "Volume"}, "a service type is"),
        ({"service_type": "two words"}, "a service type is"),
        ({"legacy_headers": ("No Name",)}, "is not a valid header name"),
        ({"echo_headers": ("Content-Length",)}, "is not a header for versions"),
        ({"legacy_headers": ("host",)}, "is not a header for versions"),
        ({"range_headers": ("One",)}, "needs two names"),
        ({"standard_header": False}, "needs legacy_headers"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenStack.configured(OpenStack.Options(**{"service_type": "backup", **options}))


CONFIGURATION = """
listen: 127.0.0.1:0
services:
  block:
    dialect: openstack
    openstack: {%s}
    backends: [{url: "http://127.0.0.1:1"}]
"""


def test_options_come_from_the_configuration() -> None:
    options = "service_type: volume, latest: any_case, legacy_headers: [X-Own], standard_header: true"
    loaded = load(CONFIGURATION % options, filename="x", environ={}).require()

    dialect = loaded.services[0].dialect
    assert isinstance(dialect, OpenStack)
    assert dialect.service_type == "volume"
    assert read(dialect, ("X-Own", "LATEST")).kind is RequestedKind.LATEST


@pytest.mark.parametrize(
    "options",
    ["service_type: Volume", "latest: sometimes", "service_type: volume, legacy_headers: [a b]"],
)
def test_a_mistake_in_a_configuration_is_a_problem_with_a_position(options: str) -> None:
    (problem,) = load(CONFIGURATION % options, filename="x", environ={}).errors

    assert problem.code == "bad-value"


def test_a_ceiling_may_name_a_release_of_the_service() -> None:
    assert CINDER.releases["yoga"] == Version(3, 68)
    assert MANILA.releases["train"] == Version(2, 51)
    assert PLACEMENT.releases["rocky"] == Version(1, 30)  # a part of Nova then
    assert PLAIN.releases == {}


@pytest.mark.parametrize(
    "dialect",
    [CINDER, MANILA, PLACEMENT, Ironic(), Nova()],
    ids=["cinder", "manila", "placement", "ironic", "nova"],
)
def test_no_release_is_left_out_between_two_that_are_known(dialect: Dialect) -> None:
    """A gap hides how far apart two releases are."""
    order, releases = dialect.release_order, dialect.releases
    known = order[next(at for at, name in enumerate(order) if name in releases) : -1]
    assert [name for name in known if name not in releases] == []
    assert sorted(known, key=lambda name: releases[name]) == list(known)


def test_the_dialect_is_found_by_the_name_of_its_folder() -> None:
    assert discover()["openstack"] is OpenStack


@pytest.mark.parametrize("dialect", ALL)
def test_every_name_that_is_read_is_owned_and_folded(dialect: OpenStack) -> None:
    assert dialect.reads <= dialect.owned_request
    assert {normalize_name(name) for name in dialect.vary} == dialect.reads
    assert all(normalize_name(name) == name for name in dialect.owned_request | dialect.owned_response)


# --- mounts without versions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect,path,document",
    [
        (MANILA, "/v1/tenant/shares", False),
        (MANILA, "/v1", True),
        (MANILA, "/v1/", True),
        (MANILA, "/%761/tenant/shares", False),
        (CINDER, "/v1/tenant/volumes", False),
        (CINDER, "/v2/tenant/volumes", False),
        (CINDER, "/v2/", True),
    ],
)
def test_R_D1_a_mount_without_versions_is_not_negotiated(
    dialect: OpenStack, path: str, document: bool
) -> None:
    endpoint = dialect.endpoint("GET", path, "")

    assert (endpoint.negotiated, endpoint.document, endpoint.versioned_only) == (False, document, False)
    assert dialect.write_request(endpoint, Version(2, 5)) == ()


def test_R_D1_what_is_said_below_such_a_mount_is_neither_read_nor_passed_on() -> None:
    endpoint = MANILA.endpoint("GET", "/v1/tenant/shares", "")
    headers = as_mapping([(normalize_name(MANILA_HEADER), "1.0")])

    served = MANILA.read_response(endpoint, 200, headers)

    assert served == Served()
    assert MANILA.write_response(BackendResponse(endpoint, 200, served, None, OFFER)) == ()


@pytest.mark.parametrize(
    "dialect,path",
    [(MANILA, "/v2/shares"), (CINDER, "/v3/tenant/volumes"), (PLACEMENT, "/v1/x"), (PLAIN, "/v1/x")],
)
def test_R_D1_every_other_path_is_negotiated(dialect: OpenStack, path: str) -> None:
    assert dialect.endpoint("GET", path, "").negotiated


# --- the root of Cinder ------------------------------------------------------------------------------------


def test_R_D4_the_root_of_cinder_is_negotiated() -> None:
    assert CINDER.endpoint("GET", "/", "") == NEGOTIATED_ROOT


def test_R_D4_the_constant_at_the_root_of_older_cinder_contradicts_nothing() -> None:
    """Until 18 the header there is always 3.0."""
    headers = as_mapping([(normalize_name(STANDARD), "volume 3.0")])
    served = CINDER.read_response(CINDER.endpoint("GET", "/", ""), 300, headers)

    assert getattr(served, "repeated", None) in (None, Version(3, 0))
    assert CINDER.write_response(BackendResponse(NEGOTIATED_ROOT, 300, served, Version(3, 50), OFFER)) == (
        (STANDARD, "volume 3.0"),
    )


# --- a header that does not name Cinder --------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["3.20", "block-storage 3.20", "compute 2.1", "", "VOLUME 3.20", "volume", "compute 2.1, volume"]
)
def test_R_D5_a_header_without_an_item_for_cinder_is_malformed(value: str) -> None:
    requested = read(CINDER, (STANDARD, value))

    assert requested == RequestedVersion(RequestedKind.MALFORMED)
    assert CINDER.refuse(
        Refusal(RefusalReason.MALFORMED, requested, None, between("3.0", "3.70")), RESOURCE, NO_VERSIONS
    ) == Response(
        400,
        (JSON,),
        b'{"badRequest": {"code": 400, "message": "The server could not comply with the request since it is '
        b'either malformed or otherwise incorrect."}}',
    )


def test_R_D5_without_the_header_cinder_serves_its_minimum() -> None:
    assert read(CINDER) == NO_VERSION_REQUESTED


def test_R_D5_a_header_of_its_own_makes_up_for_the_missing_item() -> None:
    own = dialect_for("volume", legacy_headers=("X-OpenStack-Volume-API-Version",))

    assert read(own, (STANDARD, "compute 2.1"), (own.vary[1], "3.20")).version == Version(3, 20)


# --- where the served version is never missing --------------------------------------------------------------


@pytest.mark.parametrize(
    "dialect,path",
    [
        (CINDER, "/v3/tenant/volumes"),
        (MANILA, "/v2/shares"),
        (PLACEMENT, "/resource_providers/x/inventories"),
        (MAGNUM, "/v1/clusters"),
    ],
)
def test_R_A2_below_these_paths_every_success_names_the_served_version(dialect: OpenStack, path: str) -> None:
    assert dialect.endpoint("DELETE", path, "").served_always
    assert not dialect.endpoint("OPTIONS", path, "").served_always


@pytest.mark.parametrize(
    "dialect,path",
    [
        *((dialect, "/healthcheck") for dialect in ALL),
        *((dialect, "/") for dialect in ALL),
        (INSPECTOR, "/v1/introspection"),
        (PLAIN, "/v1/x"),
        (CINDER, "/v2/tenant/volumes"),
        (MANILA, "/v1/tenant/shares"),
    ],
)
def test_R_A2_elsewhere_a_healthy_server_may_name_none(dialect: OpenStack, path: str) -> None:
    assert not dialect.endpoint("GET", path, "").served_always


# --- errors of the gateway ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [MANILA, INSPECTOR])
def test_R_D2_a_503_of_manila_or_the_inspector_has_no_retry_after(dialect: OpenStack) -> None:
    assert dialect.retry_after is False


@pytest.mark.parametrize("dialect", [PLACEMENT, CINDER, MAGNUM, PLAIN])
def test_R_D2_a_503_of_another_service_has_retry_after(dialect: OpenStack) -> None:
    assert dialect.retry_after is True


@pytest.mark.parametrize(
    "dialect,names",
    [
        (CINDER, ("X-Openstack-Request-Id", "X-Compute-Request-Id")),
        (MANILA, ("X-Openstack-Request-Id", "X-Compute-Request-Id")),
        (PLACEMENT, ("X-Openstack-Request-Id",)),
        (MAGNUM, ("X-Openstack-Request-Id",)),
        (PLAIN, ("X-Openstack-Request-Id",)),
    ],
)
def test_R_D6_request_ids_are_in_the_headers_of_real_servers(
    dialect: OpenStack, names: tuple[str, ...]
) -> None:
    ids = dialect.request_ids
    assert ids is not None

    named = dialect.write_request_id(refuse(dialect, "9.99"), "req-1")

    assert ids.request_header == "X-Openstack-Request-Id"
    assert named.headers[-len(names) :] == tuple((name, "req-1") for name in names)


def test_R_D6_the_inspector_has_no_request_ids_of_its_own() -> None:
    assert INSPECTOR.request_ids is PLAIN_IDS


def test_R_D6_an_error_of_placement_names_the_id_before_its_range() -> None:
    ids = PLACEMENT.request_ids
    assert ids is not None

    refused, failed = (
        json.loads(PLACEMENT.write_request_id(response, "req-1").body)["errors"]
        for response in (refuse(PLACEMENT, "1.40"), PLACEMENT.error_response(GatewayError(503, "y")))
    )

    assert [list(error) for error in refused] == [
        ["status", "title", "detail", "request_id", "max_version", "min_version"]
    ]
    assert [list(error) for error in failed] == [["status", "title", "detail", "request_id"]]
    assert refused[0]["request_id"] == failed[0]["request_id"] == "req-1"


def test_R_D6_a_body_without_errors_stays() -> None:
    response = Response(200, (JSON,), b"{}")

    assert PLACEMENT.write_request_id(response, "req-1").body == b"{}"
    assert CINDER.write_request_id(refuse(CINDER, "9.99"), "req-1").body == refuse(CINDER, "9.99").body


# --- documents and probes that must not be believed ---------------------------------------------------------


@pytest.mark.parametrize(
    "dialect,document",
    [
        (CINDER, {"versions": [{"id": "v3.0", "min_version": 3.0, "version": 3.71}]}),
        (CINDER, {"versions": [{"id": "v3.0", "version": "3.71 "}]}),
        (PLACEMENT, {"versions": [{"id": "v1.0", "max_version": "v1.39"}]}),
        (PLACEMENT, {"versions": ["1.39", {"id": "v1.0"}]}),
        (PLAIN, {"versions": {"values": ["1.39", {"id": "v1.0"}]}}),
        (INSPECTOR, {"versions": [{"id": 1.18}]}),
    ],
)
def test_R_A9_a_range_in_another_shape_is_not_such_a_document(dialect: OpenStack, document: object) -> None:
    assert rewritten(dialect, document, OFFER) is None


def test_R_A9_a_range_gets_the_offer_wherever_it_stands() -> None:
    document = {"versions": [], "version": {"id": "v1.0", "max_version": "1.39"}, "max_version": "1.39"}

    assert rewritten(PLACEMENT, document | {"versions": [{"id": "v1.0"}]}, between("1.0", "1.31")) == {
        "versions": [{"id": "v1.0"}],
        "version": {"id": "v1.0", "max_version": "1.31"},
        "max_version": "1.31",
    }


def test_R_A9_the_inspector_lists_resources_at_v1() -> None:
    body = b'{"resources": [{"name": "introspection", "links": [{"href": "http://10.0.0.5:80/v1/introspection"}]}]}'

    document = INSPECTOR.rewrite_document(VERSION, body, OFFER, LINKS)

    assert document is not None
    assert b'"https://api.test/p/v1/introspection"' in document
    assert INSPECTOR.rewrite_document(NEGOTIATED_ROOT, body, OFFER, LINKS) is None
    assert PLAIN.rewrite_document(VERSION, body, OFFER, LINKS) is None


def typed(kind: str | None, document: object, *lines: Header) -> ProbeResponse:
    types = [] if kind is None else [("content-type", kind)]
    folded = [(normalize_name(name), value) for name, value in lines]
    return ProbeResponse(200, as_mapping([*folded, *types]), json.dumps(document).encode())


@pytest.mark.parametrize("kind", ["text/html", None])
def test_R_A11_what_is_not_said_to_be_json_is_a_failed_probe(kind: str | None) -> None:
    ranged = typed(kind, {"versions": []}, *INSPECTOR_RANGE)
    legacy = typed(kind, {"versions": [{"id": "v2.0", "version": "", "min_version": "", "links": []}]})

    assert reason(INSPECTOR.probe((ranged,), None)) == "document"
    assert reason(CINDER.probe((legacy,), None)) == "document"


@pytest.mark.parametrize(
    "document,expected",
    [
        ({"versions": [{}]}, "document"),
        ({"versions": [{"id": 7}]}, "document"),
        ({"versions": [{"id": "v3.0", "min_version": 0, "version": 0}]}, "range"),
        ({"versions": [{"id": "v3.0", "min_version": [], "version": {}}]}, "range"),
    ],
)
def test_R_A11_only_named_versions_without_ranges_are_those_of_a_legacy_server(
    document: object, expected: str
) -> None:
    assert reason(CINDER.probe((typed("application/json", document),), None)) == expected


@pytest.mark.parametrize(
    "dialect, ids, path, expected",
    [
        (CINDER, ("v2.0", "v3.0"), None, {"v2"}),
        (CINDER, ("v1.0", "v2.0", "v3.0"), "/", {"v1", "v2"}),
        (CINDER, ("v3.0",), None, set()),
        (MANILA, ("v1.0", "v2.0"), None, {"v1"}),
        (CINDER, ("v3.0",), "/v3/", None),
        (PLAIN, ("v1.0", "v2.0"), None, None),
    ],
)
def test_R3_V17_the_list_of_versions_says_which_old_mounts_a_server_has(
    dialect: OpenStack, ids: tuple[str, ...], path: str | None, expected: set[str] | None
) -> None:
    """Only the list at the root says it; other APIs have no such mounts."""
    low, high = ("2.0", "2.60") if dialect is MANILA else ("3.0", "3.60")
    entries = [{"id": name, "links": []} for name in ids]
    entries[-1] |= {"min_version": low, "version": high}
    headers = as_mapping((("Content-Type", "application/json"),))
    answer = ProbeResponse(300, headers, json.dumps({"versions": entries}).encode())

    found = dialect.probe((answer,), path)

    assert isinstance(found, Advertisement)
    assert found.mounts == expected
