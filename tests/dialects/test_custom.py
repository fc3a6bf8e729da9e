"""The dialect `custom` as its options make it: endpoints, refusals, responses, documents and probes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.decision.operations import OperationRule, Operations, PathTemplate
from gateway.core.dialect import (
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    DefaultKind,
    DefaultVersion,
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
from gateway.core.http.message import as_mapping
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Scheme, Version
from gateway.dialects.custom.dialect import RESOURCE, UNVERSIONED, Custom
from gateway.dialects.custom.options import (
    CustomOptions,
    DocumentOptions,
    FailureOptions,
    LearnOptions,
    LocationOptions,
    RefusalOptions,
    ResponseOptions,
)
from tests.core.builders import explained, snapshot
from tests.dialects.custom_samples import AFTER_A_PREFIX, DATES, INTEGER, MEDIA_TYPE, NAMED, PATH, SEVERAL

NO_VERSIONS = as_mapping([])
LINKS = Links("http://10.0.0.5:80", "api.test", "https://api.test/x")
JSON = ("Content-Type", "application/json")


def custom(options: CustomOptions) -> Custom:
    return Custom.configured(options)


def offered(dialect: Custom, *texts: str) -> VersionSet:
    """From one version to another, or just these where an offer is a set."""
    versions = [dialect.scheme.require(text) for text in texts]
    if dialect.scheme.contiguous:
        return VersionSet.between(versions[0], versions[-1])
    return VersionSet.only(*versions)


def exact(scheme: Scheme, text: str) -> RequestedVersion:
    return RequestedVersion(RequestedKind.EXACT, scheme.require(text), text)


# --- endpoints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, target, endpoint",
    [
        (INTEGER, "/orders", RESOURCE),
        (PATH, "/_ping", UNVERSIONED),
        (PATH, "/_ping/x", UNVERSIONED),
        (PATH, "/_pings", Endpoint("resource")),
        (PATH, "/v1.43/info", Endpoint("resource", version_in_target="1.43")),
        (PATH, "/v1.043/info", Endpoint("resource", version_in_target="!v1.043")),
        (PATH, "/v" + "1" * 99, Endpoint("resource", version_in_target="!v" + "1" * 63)),
        (PATH, "/versions", Endpoint("document /versions", False, True, versioned_only=True)),
        (
            PATH,
            "/v1.43/versions",
            Endpoint("document /versions", document=True, versioned_only=True, version_in_target="1.43"),
        ),
        (AFTER_A_PREFIX, "/oauth", UNVERSIONED),
        (
            AFTER_A_PREFIX,
            "/Versions/2024-01",
            Endpoint("document /versions", document=True, versioned_only=True, version_in_target="2024-01"),
        ),
        (AFTER_A_PREFIX, "//versions/2024-01", Endpoint("resource", version_in_target="!2024-01")),
        (NAMED, "/x?version=newest", Endpoint("resource", version_in_target="newest")),
        (NAMED, "/x?version=v1&version=v2", Endpoint("resource", version_in_target="!v1, v2")),
        (SEVERAL, "/v1.2.3/x?api-version=1.2.3", Endpoint("resource", version_in_target="1.2.3")),
        (SEVERAL, "/v1.2.3/x?api-version=1.2.4", Endpoint("resource", version_in_target="!1.2.4, v1.2.3")),
    ],
)
def test_the_endpoint_of_a_target(options: CustomOptions, target: str, endpoint: Endpoint) -> None:
    path, _, query = target.partition("?")

    assert custom(options).endpoint("GET", path, query) == endpoint


ONLY_THE_PATH = CustomOptions(
    places=(LocationOptions(path="/api/{version}"), LocationOptions(query="v", sent=False)),
    reply=ResponseOptions(minimum="X-Min", maximum="X-Max"),
    unversioned=("/",),
)


def test_nothing_is_negotiated_where_the_version_cannot_be_sent() -> None:
    """A version in the query would be removed, and backends would see none."""
    dialect = custom(ONLY_THE_PATH)

    assert dialect.endpoint("GET", "/else", "v=3") == UNVERSIONED
    assert dialect.endpoint("GET", "/else", "v=x").version_in_target == "!x"
    assert dialect.endpoint("GET", "/api", "v=3").version_in_target == "3"
    assert dialect.endpoint("GET", "/", "") == UNVERSIONED
    assert dialect.write_target(RESOURCE, "/api/2/a?v=3&x=1", Version(2)) == "/api/2/a?x=1"


@pytest.mark.parametrize(
    "target, written",
    [
        ("/v1.2.3/a?api-version=1.2.3&b=1", "/a?api-version=1.9.0&b=1"),
        ("/a", "/a?api-version=1.9.0"),
        ("/v1.2.3", "/?api-version=1.9.0"),
    ],
)
def test_the_target_gets_the_negotiated_version_where_backends_read_it_and_loses_it_elsewhere(
    target: str, written: str
) -> None:
    assert custom(SEVERAL).write_target(RESOURCE, target, Version(1, 9, 0)) == written


@pytest.mark.parametrize("target, written", [("/v1.2/a?", "/v1.3/a?"), ("/a??v", "/v1.3/a??v")])
def test_a_question_mark_without_a_query_stays(target: str, written: str) -> None:
    assert custom(PATH).write_target(RESOURCE, target, Version(1, 3)) == written


def test_all_locations_that_hold_a_version_must_agree_and_the_first_is_quoted() -> None:
    dialect = custom(SEVERAL)
    line = ("api-version", "1.2.3")

    assert dialect.read_requested(RESOURCE, NO_VERSIONS) == NO_VERSION_REQUESTED
    assert dialect.read_requested(
        Endpoint("resource", version_in_target="1.2.3"), as_mapping([line])
    ).version == Version(1, 2, 3)
    assert (
        dialect.read_requested(Endpoint("resource", version_in_target="latest"), NO_VERSIONS).kind
        is RequestedKind.LATEST
    )
    differing = dialect.read_requested(Endpoint("resource", version_in_target="1.2.4"), as_mapping([line]))
    assert (differing.kind, differing.text) == (RequestedKind.MALFORMED, "1.2.4, 1.2.3")
    assert (
        dialect.read_requested(Endpoint("resource", version_in_target="!x"), as_mapping([line])).text == "x"
    )
    header_first = replace(SEVERAL, places=(SEVERAL.places[1], SEVERAL.places[0]))
    assert (
        custom(header_first)
        .read_requested(Endpoint("resource", version_in_target="1.2.4"), as_mapping([line]))
        .text
        == "1.2.3, 1.2.4"
    )


def test_every_header_that_backends_read_gets_the_version() -> None:
    dialect = custom(SEVERAL)
    accept = as_mapping([("accept", "a/b")])

    assert dialect.write_request(RESOURCE, Version(1, 2, 3), accept) == (
        ("API-Version", "1.2.3"),
        ("Accept", "a/b; version=1.2.3"),
    )
    assert dialect.without_version(as_mapping([("accept", "a/b;version=1;c=d")])) == (("Accept", "a/b; c=d"),)
    assert dialect.vary == ("API-Version", "Accept", "Content-Type")


def test_explain_shows_the_target_that_backends_get_and_finds_operations_without_the_version() -> None:
    dialect = custom(PATH)
    since = VersionSet.read_open(">=1.44", dialect.scheme)
    rules = [OperationRule(("GET",), PathTemplate.read("/new/{id}"), since)]
    advertisement = Advertisement(offered(dialect, "1.24", "1.45"))
    current = snapshot(
        {"a": advertisement},
        dialect=dialect,
        default_version=DefaultVersion(DefaultKind.MAXIMUM),
        operations=Operations.of(rules),
    )

    served = explained(current, "GET", "/new/7?x=1", [])
    missing = explained(current, "GET", "/v1.43/new/7", [])

    assert (served.decision, served.local_path) == ("forward", "/v1.45/new/7?x=1")
    assert (missing.decision, missing.status, missing.local_path) == ("refuse", 404, "/v1.43/new/7")
    assert missing.operation is not None
    assert not missing.operation.exists


# --- refusals ----------------------------------------------------------------------------------------------


def refused(
    options: CustomOptions,
    texts: tuple[str, ...],
    requested: RequestedVersion,
    version: Version | None = None,
) -> tuple[int, dict[str, str], str]:
    dialect = custom(options)
    offer = offered(dialect, *texts)
    version = version or requested.version
    below = version is not None and version < offer.lowest
    reason = (
        RefusalReason.MALFORMED
        if version is None
        else RefusalReason.BELOW_MIN
        if below
        else RefusalReason.ABOVE_MAX
    )
    response = dialect.refuse(Refusal(reason, requested, version, offer), RESOURCE, NO_VERSIONS)
    return response.status, dict(response.headers), response.body.decode()


def test_a_problem_document_with_the_range() -> None:
    status, headers, body = refused(
        INTEGER, ("2", "5"), RequestedVersion(RequestedKind.EXACT, Version(9), "9")
    )

    assert (status, headers) == (
        400,
        {"Content-Type": "application/problem+json", "X-Min-Version": "2", "X-Max-Version": "5"},
    )
    assert json.loads(body) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": "Version 9 is not supported. Supported: 2 to 5.",
        "minimum": "2",
        "maximum": "5",
    }


@pytest.mark.parametrize(
    "requested, version, detail",
    [
        (RequestedVersion(RequestedKind.MALFORMED, text='"x'), None, '"x is no version. Supported: 2.'),
        (RequestedVersion(RequestedKind.MALFORMED, text=""), None, "A version must be named. Supported: 2."),
        (NO_VERSION_REQUESTED, None, "A version must be named. Supported: 2."),
        (NO_VERSION_REQUESTED, Version(1), "Version 1 is not supported. Supported: 2."),
        (
            RequestedVersion(RequestedKind.MALFORMED, text="x" * 200),
            None,
            "x" * 100 + " is no version. Supported: 2.",
        ),
    ],
)
def test_the_sentence_of_a_refusal(requested: RequestedVersion, version: Version | None, detail: str) -> None:
    assert json.loads(refused(INTEGER, ("2", "2"), requested, version)[2])["detail"] == detail


def test_an_offer_that_is_a_set_is_listed_whole() -> None:
    _, _, body = refused(
        DATES, ("2022-11-28", "2024-01-01"), RequestedVersion(RequestedKind.MALFORMED, text="x")
    )

    assert json.loads(body)["versions"] == ["2022-11-28", "2024-01-01"]


OWN_BODIES = replace(
    INTEGER,
    reply=ResponseOptions(),
    refusal=RefusalOptions(
        status=499,
        malformed_status=404,
        content_type="text/plain",
        body="{title}: {asked} {unknown",
        too_old="{asked} < {minimum}",
        too_new="{asked} > {maximum}, {status}",
        malformed="<{asked}> {versions}",
    ),
)


@pytest.mark.parametrize(
    "content_type, requested, status, body",
    [
        ("text/plain", RequestedVersion(RequestedKind.EXACT, Version(1), "1"), 499, "1 < 2"),
        ("text/plain", RequestedVersion(RequestedKind.EXACT, Version(9), "9"), 499, "9 > 5, 499"),
        (
            "text/plain",
            RequestedVersion(RequestedKind.MALFORMED, text="<b>{minimum}"),
            404,
            "<<b>{minimum}> 2 to 5",
        ),
        ("text/html", RequestedVersion(RequestedKind.MALFORMED, text="<b>"), 404, "<&lt;b&gt;> 2 to 5"),
    ],
)
def test_an_api_may_have_its_own_bodies(
    content_type: str, requested: RequestedVersion, status: int, body: str
) -> None:
    options = replace(OWN_BODIES, refusal=replace(OWN_BODIES.refusal, content_type=content_type))

    assert refused(options, ("2", "5"), requested) == (status, {"Content-Type": content_type}, body)


def test_a_version_between_two_on_offer_is_neither_too_old_nor_too_new() -> None:
    options = replace(
        DATES, refusal=RefusalOptions(content_type="text/plain", body="{asked}?", too_new="no", too_old="no")
    )
    requested = exact(custom(DATES).scheme, "2023-01-01")

    assert refused(options, ("2022-11-28", "2024-01-01"), requested)[2] == "2023-01-01?"


def test_an_unknown_status_has_a_title_too() -> None:
    options = replace(OWN_BODIES, refusal=replace(OWN_BODIES.refusal, too_new=None))

    assert (
        refused(options, ("2", "5"), RequestedVersion(RequestedKind.EXACT, Version(9), "9"))[2]
        == "Client Error: 9 {unknown"
    )


def test_errors() -> None:
    error = GatewayError(503, 'try "later"', 2, offered(custom(INTEGER), "2", "5"))
    problem = custom(INTEGER).error_response(error)
    own = custom(replace(INTEGER, failure=FailureOptions("text/plain", "{status} {detail}"))).error_response(
        error
    )

    assert json.loads(problem.body) == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": 'try "later"',
    }
    assert dict(problem.headers)["X-Max-Version"] == "5"
    assert own.body == b'503 try "later"'
    assert dict(custom(INTEGER).error_response(replace(error, offered=None)).headers).keys() == {
        "Content-Type"
    }


# --- responses ----------------------------------------------------------------------------------------------

RANGE_LINES = [("x-version", "3"), ("x-min-version", "1"), ("x-max-version", "9")]


def read(
    options: CustomOptions, *lines: tuple[str, str], status: int = 200, endpoint: Endpoint = RESOURCE
) -> Served:
    return custom(options).read_response(endpoint, status, as_mapping(lines))


def test_the_versions_in_response_headers_are_read() -> None:
    advertisement = Advertisement(VersionSet.between(Version(1), Version(9)))

    assert read(INTEGER, *RANGE_LINES) == Served(Version(3), advertisement, VersionRefusal.NO, has_range=True)
    assert read(INTEGER) == Served()
    assert read(INTEGER, ("x-version", "03"), ("x-min-version", "9"), ("x-max-version", "1")) == Served(
        has_range=True
    )
    assert read(INTEGER, ("x-version", "3"), ("x-version", "4")).version is None
    several = read(SEVERAL, ("x-versions", "1.2.3, x ,1.2.5"), ("x-versions", "2.0.0"))
    assert several.advertisement == Advertisement(
        VersionSet.only(Version(1, 2, 3), Version(1, 2, 5), Version(2, 0, 0))
    )


def test_a_backend_refuses_with_its_range_and_without_a_served_version() -> None:
    assert read(INTEGER, *RANGE_LINES[1:], status=400).version_refusal is VersionRefusal.YES
    assert read(INTEGER, *RANGE_LINES, status=400).version_refusal is VersionRefusal.NO
    assert read(INTEGER, *RANGE_LINES[1:], status=404).version_refusal is VersionRefusal.NO
    assert (
        read(INTEGER, *RANGE_LINES[1:], status=400, endpoint=UNVERSIONED).version_refusal is VersionRefusal.NO
    )


def test_a_backend_refuses_with_its_versions_in_the_body() -> None:
    options = replace(DATES, refusal=RefusalOptions(list="$.supported[*]", spelling="v{version}"))
    dialect = custom(options)

    assert read(options, status=400).version_refusal is VersionRefusal.READ_BODY
    assert read(options, status=401).version_refusal is VersionRefusal.NO
    body = b'{"supported": ["v2022-11-28", "soon"]}'
    assert dialect.read_refusal(400, body) == Advertisement(VersionSet.only(Version(2022, 11, 28)))
    assert dialect.read_refusal(400, b'{"message": "Not Found"}') is None
    assert custom(DATES).read_refusal(400, body) is None


@pytest.mark.parametrize("always", [False, True])
def test_the_client_sees_the_offer(always: bool) -> None:
    dialect = custom(replace(INTEGER, reply=replace(INTEGER.reply, always=always)))
    offer = offered(dialect, "2", "5")
    full = (("X-Version", "3"), ("X-Min-Version", "2"), ("X-Max-Version", "5"))

    def write(served: Served, status: int = 200) -> tuple[tuple[str, str], ...]:
        return dialect.write_response(BackendResponse(RESOURCE, status, served, Version(3), offer))

    assert write(Served(Version(3), has_range=True)) == full
    assert write(Served()) == (full if always else ())
    assert write(Served(), 100) == ()


def test_a_client_that_requests_a_date_sees_which_one_was_served() -> None:
    dialect = custom(AFTER_A_PREFIX)
    offer = offered(dialect, "2024-01", "2024-04")

    lines = dialect.write_response(BackendResponse(RESOURCE, 200, Served(), Version(2024, 1), offer))

    assert lines == (("X-Shopify-API-Version", "2024-01"),)


def test_a_header_does_not_list_a_million_versions() -> None:
    dialect = custom(CustomOptions(reply=ResponseOptions(list="X-Versions")))

    lines = dialect.write_response(
        BackendResponse(RESOURCE, 200, Served(has_range=True), None, offered(dialect, "0", "999999"))
    )

    assert lines == (("X-Versions", "0, 999999"),)
    few = dialect.write_response(
        BackendResponse(RESOURCE, 200, Served(has_range=True), None, offered(dialect, "2", "4"))
    )
    assert few == (("X-Versions", "2, 3, 4"),)


# --- documents ---------------------------------------------------------------------------------------------


def rewritten(documents: tuple[DocumentOptions, ...], document: Any, *texts: str, **options: Any) -> Any:
    dialect = custom(replace(CustomOptions(documents=documents), **options))
    endpoint = dialect.endpoint("GET", "/versions", "")
    assert endpoint.document
    body = dialect.rewrite_document(endpoint, json.dumps(document).encode(), offered(dialect, *texts), LINKS)
    return None if body is None else json.loads(body)


ENDS = DocumentOptions(path="/versions", minimum="$.min", maximum="$.max")
LIST = DocumentOptions(path="/versions", list="$.all[*]")
OBJECTS = DocumentOptions(path="/versions", list="$.all[*].id", links="$.all[*].href", spelling="v{version}")
DAYS = {"scheme": "date"}


@pytest.mark.parametrize(
    "documents, document, becomes",
    [
        ((ENDS,), {"min": 1, "max": "9", "x": 1.5}, {"min": 2, "max": "4", "x": 1.5}),
        ((ENDS,), {"min": None, "max": "soon"}, {"min": None, "max": "soon"}),
        ((ENDS,), {"min": True, "max": 9}, {"min": True, "max": 4}),
        ((ENDS,), {"other": 1}, None),
        ((ENDS,), [], None),
        ((LIST,), {"all": [1, 2, 3, 9]}, {"all": [2, 3, 4]}),
        ((LIST,), {"all": ["9", "3", "2"]}, {"all": ["4", "3", "2"]}),
        ((LIST,), {"all": ["soon"]}, None),
        ((LIST,), {"all": {"a": 1}}, None),
        ((LIST,), {"all": []}, None),
        (
            (OBJECTS,),
            {"all": [{"id": "v3", "href": "http://10.0.0.5:80/v3"}, {"id": "v9", "href": 1}, {"id": "old"}]},
            {"all": [{"id": "v3", "href": "https://api.test/x/v3"}]},
        ),
        ((ENDS, LIST), {"min": 1, "max": 9, "all": [3]}, {"min": 2, "max": 4, "all": [2, 3, 4]}),
    ],
)
def test_a_document_shows_the_offer(
    documents: tuple[DocumentOptions, ...], document: Any, becomes: Any
) -> None:
    assert rewritten(documents, document, "2", "4") == becomes


def test_a_document_of_dates_lists_those_on_offer() -> None:
    document = {"all": ["2024-04-01", "2024-01-01"]}

    assert rewritten((LIST,), document, "2023-01-01", "2024-01-01", **DAYS) == {
        "all": ["2024-01-01", "2023-01-01"]
    }


def test_a_list_does_not_become_a_million_versions() -> None:
    assert rewritten((LIST,), {"all": [1, 5]}, "2", "999999") == {"all": [5]}


# --- probes ------------------------------------------------------------------------------------------------


def probed(options: CustomOptions, document: Any, *lines: tuple[str, str], status: int = 200) -> Any:
    """The versions that the probe finds, or the reason why it fails."""
    dialect = custom(options)
    answer = ProbeResponse(status, as_mapping(lines or [JSON]), json.dumps(document).encode())
    step = dialect.probe((answer,), None)
    if isinstance(step, Advertisement):
        return step.versions.format(dialect.scheme)
    assert isinstance(step, ProbeFault)
    return step.reason


@pytest.mark.parametrize(
    "options, document, learned",
    [
        (INTEGER, {"min_version": 1, "max_version": 9}, "1-9"),
        (INTEGER, {"min_version": "1", "max_version": "9"}, "1-9"),
        (INTEGER, {"min_version": 9, "max_version": 1}, "range"),
        (INTEGER, {"min_version": 1}, "range"),
        (INTEGER, {"min_version": 1.0, "max_version": True}, "range"),
        (INTEGER, ["html"], "range"),
        (PATH, {"MinAPIVersion": "1.24", "ApiVersion": "1.43"}, "1.24-1.43"),
        (PATH, {"MinAPIVersion": "1.24", "ApiVersion": "2.1"}, "range"),
        (DATES, ["2024-01-01", "2022-11-28", "preview"], "2022-11-28, 2024-01-01"),
        (DATES, ["preview"], "range"),
        (
            MEDIA_TYPE,
            {"version": {"number": "8.13.0", "minimum_index_compatibility_version": "7.0.0"}},
            "7-8",
        ),
        (NAMED, {"versions": [{"version": "v1"}, {"version": "v9"}]}, "v1"),
        (
            replace(NAMED, learn=LearnOptions(minimum="$.a", maximum="$.b")),
            {"a": "v1beta1", "b": "v2"},
            "v1beta1..v2",
        ),
    ],
)
def test_versions_are_learned_from_a_document(options: CustomOptions, document: Any, learned: str) -> None:
    assert probed(options, document) == learned


DOCUMENT = {"min_version": 1, "max_version": 9}


def test_status_and_type_must_be_right() -> None:
    charset = ("content-type", "Application/JSON; charset=utf-8")

    assert probed(INTEGER, DOCUMENT, charset) == "1-9"
    assert probed(INTEGER, DOCUMENT, status=404) == "status"
    assert probed(INTEGER, DOCUMENT, ("content-type", "text/html")) == "document"
    assert probed(INTEGER, DOCUMENT, ("x-a", "1")) == "document"
    lenient = replace(INTEGER, learn=replace(INTEGER.learn, statuses=(404,), content_type="text/html"))
    assert probed(lenient, DOCUMENT, ("content-type", "text/html"), status=404) == "1-9"


def test_versions_are_learned_from_headers_where_there_is_no_document() -> None:
    options = replace(INTEGER, learn=LearnOptions())

    assert not custom(options).configuration_rules.missing_option
    assert probed(options, None, *RANGE_LINES) == "1-9"
    assert probed(options, None, RANGE_LINES[0]) == "range"
    assert "learn" in custom(CustomOptions()).configuration_rules.missing_option


def test_the_request_of_a_probe() -> None:
    dialect = custom(PATH)

    assert dialect.probe((), None) == ProbeRequest("/version", (("Accept", "application/json"),))
    assert dialect.probe((), "/else") == ProbeRequest("/else", (("Accept", "application/json"),))


def test_an_endless_list_of_versions_is_not_believed() -> None:
    """Every refusal would list it, and every change of it would slow down all requests."""
    listed = replace(INTEGER, learn=LearnOptions(list="$[*]"), reply=ResponseOptions(list="X-Versions"))

    for count, learned in ((1000, "0-999"), (1001, "range")):
        versions = list(range(count))
        line = ("x-versions", ",".join(map(str, versions)))
        served = custom(listed).read_response(RESOURCE, 200, as_mapping([line]))

        assert probed(listed, [*versions, *versions]) == learned
        assert (served.advertisement is not None) is (learned != "range")
