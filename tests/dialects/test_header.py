"""The `header` dialect as its options make it: places, refusals, replies, documents and probes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gateway.core.dialect import (
    ASK_SILENT,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Failure,
    Links,
    Place,
    ProbeAnswer,
    ProbeFault,
    ProbeRequest,
    Reason,
    Refusal,
    Refused,
    Served,
)
from gateway.core.explanation import explain
from gateway.core.message import as_mapping
from gateway.core.operations import Entry, Extent, Operations, PathTemplate
from gateway.core.ranges import VersionSet
from gateway.core.version import Scheme, Version
from gateway.dialects._header_options import FailureOptions, HeaderOptions, PlaceOptions, RefusalOptions
from gateway.dialects._header_telling_options import DocumentOptions, LearnOptions, ReplyOptions
from gateway.dialects.header import RESOURCE, UNVERSIONED, Header
from tests.core.stage import snapshot
from tests.dialects.header_samples import AFTER_A_PREFIX, DATES, INTEGER, MEDIA_TYPE, NAMED, PATH, SEVERAL

NOTHING = as_mapping([])
LINKS = Links("http://10.0.0.5:80", "api.test", "https://api.test/x")
JSON = ("Content-Type", "application/json")


def header(options: HeaderOptions) -> Header:
    return Header.configured(options)


def bounds(dialect: Header, *texts: str) -> Bounds:
    """From one version to another, or just these where an offer is a set."""
    versions = [dialect.scheme.require(text) for text in texts]
    if dialect.scheme.contiguous:
        return Bounds(VersionSet.between(versions[0], versions[-1]))
    return Bounds(VersionSet.only(*versions))


def exact(scheme: Scheme, text: str) -> Ask:
    return Ask(AskKind.EXACT, scheme.require(text), text)


# --- places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, target, place",
    [
        (INTEGER, "/orders", RESOURCE),
        (PATH, "/_ping", UNVERSIONED),
        (PATH, "/_ping/x", UNVERSIONED),
        (PATH, "/_pings", Place("resource")),
        (PATH, "/v1.43/info", Place("resource", carried="1.43")),
        (PATH, "/v1.043/info", Place("resource", carried="!v1.043")),
        (PATH, "/v" + "1" * 99, Place("resource", carried="!v" + "1" * 63)),
        (PATH, "/versions", Place("document /versions", False, True, versioned_only=True)),
        (
            PATH,
            "/v1.43/versions",
            Place("document /versions", document=True, versioned_only=True, carried="1.43"),
        ),
        (AFTER_A_PREFIX, "/oauth", UNVERSIONED),
        (AFTER_A_PREFIX, "/Versions/2024-01", Place("resource", carried="!2024-01")),
        (NAMED, "/x?version=newest", Place("resource", carried="newest")),
        (NAMED, "/x?version=v1&version=v2", Place("resource", carried="!v1, v2")),
        (SEVERAL, "/v1.2.3/x?api-version=1.2.3", Place("resource", carried="1.2.3")),
        (SEVERAL, "/v1.2.3/x?api-version=1.2.4", Place("resource", carried="!1.2.4, v1.2.3")),
    ],
)
def test_a_target_is_a_place(options: HeaderOptions, target: str, place: Place) -> None:
    path, _, query = target.partition("?")

    assert header(options).place("GET", path, query) == place


ONLY_THE_PATH = HeaderOptions(
    places=(PlaceOptions(path="/api/{version}"), PlaceOptions(query="v", sent=False)),
    reply=ReplyOptions(minimum="X-Min", maximum="X-Max"),
    unversioned=("/",),
)


def test_where_backends_could_not_be_told_nothing_is_negotiated() -> None:
    """A version in the query would be taken off, and stand nowhere."""
    dialect = header(ONLY_THE_PATH)

    assert dialect.place("GET", "/else", "v=3") == UNVERSIONED
    assert dialect.place("GET", "/else", "v=x").carried == "!x"
    assert dialect.place("GET", "/api", "v=3").carried == "3"
    assert dialect.place("GET", "/", "") == UNVERSIONED
    assert dialect.write_target(RESOURCE, "/api/2/a?v=3&x=1", Version(2)) == "/api/2/a?x=1"


@pytest.mark.parametrize(
    "target, written",
    [
        ("/v1.2.3/a?api-version=1.2.3&b=1", "/a?api-version=1.9.0&b=1"),
        ("/a", "/a?api-version=1.9.0"),
        ("/v1.2.3", "/?api-version=1.9.0"),
    ],
)
def test_the_target_gets_the_settled_version_where_it_is_read_and_loses_it_elsewhere(
    target: str, written: str
) -> None:
    assert header(SEVERAL).write_target(RESOURCE, target, Version(1, 9, 0)) == written


@pytest.mark.parametrize("target, written", [("/v1.2/a?", "/v1.3/a?"), ("/a??v", "/v1.3/a??v")])
def test_a_question_mark_stays(target: str, written: str) -> None:
    assert header(PATH).write_target(RESOURCE, target, Version(1, 3)) == written


def test_all_places_that_say_something_must_agree_and_the_first_is_quoted() -> None:
    dialect = header(SEVERAL)
    line = ("api-version", "1.2.3")

    assert dialect.read_ask(RESOURCE, NOTHING) == ASK_SILENT
    assert dialect.read_ask(Place("resource", carried="1.2.3"), as_mapping([line])).version == Version(
        1, 2, 3
    )
    assert dialect.read_ask(Place("resource", carried="latest"), NOTHING).kind is AskKind.LATEST
    odd = dialect.read_ask(Place("resource", carried="1.2.4"), as_mapping([line]))
    assert (odd.kind, odd.text) == (AskKind.GARBLED, "1.2.4, 1.2.3")
    assert dialect.read_ask(Place("resource", carried="!x"), as_mapping([line])).text == "x"
    first = replace(SEVERAL, places=(SEVERAL.places[1], SEVERAL.places[0]))
    assert (
        header(first).read_ask(Place("resource", carried="1.2.4"), as_mapping([line])).text == "1.2.3, 1.2.4"
    )


def test_every_header_that_backends_read_gets_the_version() -> None:
    dialect = header(SEVERAL)
    accept = as_mapping([("accept", "a/b")])

    assert dialect.write_request(RESOURCE, Version(1, 2, 3), ASK_SILENT, silent=False, headers=accept) == (
        ("API-Version", "1.2.3"),
        ("Accept", "a/b; version=1.2.3"),
    )
    assert dialect.write_request(RESOURCE, Version(1, 2, 3), ASK_SILENT, silent=True) == ()
    assert dialect.without_version(as_mapping([("accept", "a/b;version=1;c=d")])) == (("Accept", "a/b; c=d"),)
    assert dialect.vary == ("API-Version", "Accept", "Content-Type")


def test_explain_shows_the_target_that_backends_get_and_operations_are_found_without_the_version() -> None:
    dialect = header(PATH)
    entries = [Entry(("GET",), PathTemplate.read("/new/{id}"), Extent.read(">=1.44", dialect.scheme))]
    offered = Advert(bounds(dialect, "1.24", "1.45").versions)
    current = snapshot({"a": offered}, dialect=dialect, operations=Operations.of(entries))

    served = explain(current, "GET", "/new/7?x=1", [])
    absent = explain(current, "GET", "/v1.43/new/7", [])

    assert (served.decision, served.local_path) == ("forward", "/v1.45/new/7?x=1")
    assert (absent.decision, absent.status, absent.local_path) == ("refuse", 404, "/v1.43/new/7")
    assert absent.operation is not None
    assert not absent.operation.exists


# --- refusals ----------------------------------------------------------------------------------------------


def refused(
    options: HeaderOptions, texts: tuple[str, ...], ask: Ask, version: Version | None = None
) -> tuple[int, dict[str, str], str]:
    dialect = header(options)
    offer = bounds(dialect, *texts)
    version = version or ask.version
    below = version is not None and version < offer.lowest
    reason = Reason.MALFORMED if version is None else Reason.BELOW_MIN if below else Reason.ABOVE_MAX
    reply = dialect.refuse(Refusal(reason, ask, version, offer), RESOURCE, NOTHING)
    return reply.status, dict(reply.headers), reply.body.decode()


def test_a_problem_document_with_the_range() -> None:
    status, headers, body = refused(INTEGER, ("2", "5"), Ask(AskKind.EXACT, Version(9), "9"))

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
    "ask, version, detail",
    [
        (Ask(AskKind.GARBLED, text='"x'), None, '"x is no version. Supported: 2.'),
        (Ask(AskKind.GARBLED, text=""), None, "A version must be named. Supported: 2."),
        (ASK_SILENT, None, "A version must be named. Supported: 2."),
        (ASK_SILENT, Version(1), "Version 1 is not supported. Supported: 2."),
        (Ask(AskKind.GARBLED, text="x" * 200), None, "x" * 100 + " is no version. Supported: 2."),
    ],
)
def test_what_it_says(ask: Ask, version: Version | None, detail: str) -> None:
    assert json.loads(refused(INTEGER, ("2", "2"), ask, version)[2])["detail"] == detail


def test_where_an_offer_is_a_set_every_version_is_told() -> None:
    _, _, body = refused(DATES, ("2022-11-28", "2024-01-01"), Ask(AskKind.GARBLED, text="x"))

    assert json.loads(body)["versions"] == ["2022-11-28", "2024-01-01"]


WORDED = replace(
    INTEGER,
    reply=ReplyOptions(),
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
    "content_type, ask, status, body",
    [
        ("text/plain", Ask(AskKind.EXACT, Version(1), "1"), 499, "1 < 2"),
        ("text/plain", Ask(AskKind.EXACT, Version(9), "9"), 499, "9 > 5, 499"),
        ("text/plain", Ask(AskKind.GARBLED, text="<b>{minimum}"), 404, "<<b>{minimum}> 2 to 5"),
        ("text/html", Ask(AskKind.GARBLED, text="<b>"), 404, "<&lt;b&gt;> 2 to 5"),
    ],
)
def test_an_api_may_have_its_own_words(content_type: str, ask: Ask, status: int, body: str) -> None:
    options = replace(WORDED, refusal=replace(WORDED.refusal, content_type=content_type))

    assert refused(options, ("2", "5"), ask) == (status, {"Content-Type": content_type}, body)


def test_what_lies_between_two_versions_on_offer_is_neither_too_old_nor_too_new() -> None:
    options = replace(
        DATES, refusal=RefusalOptions(content_type="text/plain", body="{asked}?", too_new="no", too_old="no")
    )
    ask = exact(header(DATES).scheme, "2023-01-01")

    assert refused(options, ("2022-11-28", "2024-01-01"), ask)[2] == "2023-01-01?"


def test_an_unknown_status_has_a_title_all_the_same() -> None:
    options = replace(WORDED, refusal=replace(WORDED.refusal, too_new=None))

    assert refused(options, ("2", "5"), Ask(AskKind.EXACT, Version(9), "9"))[2] == "Client Error: 9 {unknown"


def test_failures() -> None:
    failure = Failure(503, "Service Unavailable", 'try "later"', 2, bounds(header(INTEGER), "2", "5"))
    problem = header(INTEGER).fail(failure)
    own = header(replace(INTEGER, failure=FailureOptions("text/plain", "{status} {detail}"))).fail(failure)

    assert json.loads(problem.body) == {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "detail": 'try "later"',
    }
    assert dict(problem.headers)["X-Max-Version"] == "5"
    assert own.body == b'503 try "later"'
    assert dict(header(INTEGER).fail(replace(failure, bounds=None)).headers).keys() == {"Content-Type"}


# --- replies -----------------------------------------------------------------------------------------------

OWN = [("x-version", "3"), ("x-min-version", "1"), ("x-max-version", "9")]


def read(
    options: HeaderOptions, *lines: tuple[str, str], status: int = 200, place: Place = RESOURCE
) -> Served:
    return header(options).read_reply(place, status, as_mapping(lines))


def test_what_a_reply_says_is_read() -> None:
    told = Advert(VersionSet.between(Version(1), Version(9)))

    assert read(INTEGER, *OWN) == Served(Version(3), told, Refused.NO, ranged=True)
    assert read(INTEGER) == Served()
    assert read(INTEGER, ("x-version", "03"), ("x-min-version", "9"), ("x-max-version", "1")) == Served(
        ranged=True
    )
    assert read(INTEGER, ("x-version", "3"), ("x-version", "4")).version is None
    several = read(SEVERAL, ("x-versions", "1.2.3, x ,1.2.5"), ("x-versions", "2.0.0"))
    assert several.advert == Advert(VersionSet.only(Version(1, 2, 3), Version(1, 2, 5), Version(2, 0, 0)))


def test_a_refusal_by_a_backend_tells_its_range_and_no_served_version() -> None:
    assert read(INTEGER, *OWN[1:], status=400).refused is Refused.YES
    assert read(INTEGER, *OWN, status=400).refused is Refused.NO
    assert read(INTEGER, *OWN[1:], status=404).refused is Refused.NO
    assert read(INTEGER, *OWN[1:], status=400, place=UNVERSIONED).refused is Refused.NO


def test_or_tells_it_in_its_body() -> None:
    options = replace(DATES, refusal=RefusalOptions(list="$.supported[*]", spelling="v{version}"))
    dialect = header(options)

    assert read(options, status=400).refused is Refused.READ_BODY
    assert read(options, status=401).refused is Refused.NO
    body = b'{"supported": ["v2022-11-28", "soon"]}'
    assert dialect.read_refusal(400, NOTHING, body) == Advert(VersionSet.only(Version(2022, 11, 28)))
    assert dialect.read_refusal(400, NOTHING, b'{"message": "Not Found"}') is None
    assert header(DATES).read_refusal(400, NOTHING, body) is None


@pytest.mark.parametrize("always", [False, True])
def test_the_client_is_told_the_offer(always: bool) -> None:
    dialect = header(replace(INTEGER, reply=replace(INTEGER.reply, always=always)))
    offer = bounds(dialect, "2", "5")
    full = (("X-Version", "3"), ("X-Min-Version", "2"), ("X-Max-Version", "5"))

    def write(served: Served, status: int = 200) -> tuple[tuple[str, str], ...]:
        return dialect.write_reply(RESOURCE, status, served, Version(3), offer, silent=False)

    assert write(Served(Version(3), ranged=True)) == full
    assert write(Served()) == (full if always else ())
    assert write(Served(), 100) == ()


def test_who_asks_for_a_date_is_told_which_one_was_served() -> None:
    dialect = header(AFTER_A_PREFIX)
    offer = bounds(dialect, "2024-01", "2024-04")

    lines = dialect.write_reply(RESOURCE, 200, Served(), Version(2024, 1), offer, silent=False)

    assert lines == (("X-Shopify-API-Version", "2024-01"),)


def test_a_header_does_not_list_a_million_versions() -> None:
    dialect = header(HeaderOptions(reply=ReplyOptions(list="X-Versions")))

    lines = dialect.write_reply(
        RESOURCE, 200, Served(ranged=True), None, bounds(dialect, "0", "999999"), silent=False
    )

    assert lines == (("X-Versions", "0, 999999"),)
    few = dialect.write_reply(
        RESOURCE, 200, Served(ranged=True), None, bounds(dialect, "2", "4"), silent=False
    )
    assert few == (("X-Versions", "2, 3, 4"),)


# --- documents ---------------------------------------------------------------------------------------------


def rewritten(documents: tuple[DocumentOptions, ...], told: Any, *texts: str, **options: Any) -> Any:
    dialect = header(replace(HeaderOptions(documents=documents), **options))
    place = dialect.place("GET", "/versions", "")
    assert place.document
    body = dialect.rewrite_document(place, json.dumps(told).encode(), bounds(dialect, *texts), LINKS)
    return None if body is None else json.loads(body)


ENDS = DocumentOptions(path="/versions", minimum="$.min", maximum="$.max")
LIST = DocumentOptions(path="/versions", list="$.all[*]")
OBJECTS = DocumentOptions(path="/versions", list="$.all[*].id", links="$.all[*].href", spelling="v{version}")
DAYS = {"scheme": "date"}


@pytest.mark.parametrize(
    "documents, told, becomes",
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
def test_a_document_tells_the_offer(documents: tuple[DocumentOptions, ...], told: Any, becomes: Any) -> None:
    assert rewritten(documents, told, "2", "4") == becomes


def test_dates_are_just_those_on_offer() -> None:
    told = {"all": ["2024-04-01", "2024-01-01"]}

    assert rewritten((LIST,), told, "2023-01-01", "2024-01-01", **DAYS) == {
        "all": ["2024-01-01", "2023-01-01"]
    }


def test_a_list_does_not_become_a_million_versions() -> None:
    assert rewritten((LIST,), {"all": [1, 5]}, "2", "999999") == {"all": [5]}


# --- probes ------------------------------------------------------------------------------------------------


def probed(options: HeaderOptions, told: Any, *lines: tuple[str, str], status: int = 200) -> Any:
    dialect = header(options)
    answer = ProbeAnswer(status, as_mapping(lines or [JSON]), json.dumps(told).encode())
    step = dialect.probe((answer,), None)
    if isinstance(step, Advert):
        return step.versions.format(dialect.scheme)
    assert isinstance(step, ProbeFault)
    return step.reason


@pytest.mark.parametrize(
    "options, told, learned",
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
def test_what_a_document_says_is_learned(options: HeaderOptions, told: Any, learned: str) -> None:
    assert probed(options, told) == learned


TOLD = {"min_version": 1, "max_version": 9}


def test_status_and_type_must_be_right() -> None:
    charset = ("content-type", "Application/JSON; charset=utf-8")

    assert probed(INTEGER, TOLD, charset) == "1-9"
    assert probed(INTEGER, TOLD, status=404) == "status"
    assert probed(INTEGER, TOLD, ("content-type", "text/html")) == "document"
    assert probed(INTEGER, TOLD, ("x-a", "1")) == "document"
    lenient = replace(INTEGER, learn=replace(INTEGER.learn, statuses=(404,), content_type="text/html"))
    assert probed(lenient, TOLD, ("content-type", "text/html"), status=404) == "1-9"


def test_headers_tell_where_no_document_does() -> None:
    options = replace(INTEGER, learn=LearnOptions())

    assert header(options).can_be_asked
    assert probed(options, None, *OWN) == "1-9"
    assert probed(options, None, OWN[0]) == "range"
    assert not header(HeaderOptions()).can_be_asked


def test_the_question() -> None:
    dialect = header(PATH)

    assert dialect.probe((), None) == ProbeRequest("/version", (("Accept", "application/json"),))
    assert dialect.probe((), "/else") == ProbeRequest("/else", (("Accept", "application/json"),))


def test_an_endless_list_of_versions_is_not_believed() -> None:
    """Every refusal would list it, and every change of it cost all requests their time."""
    listed = replace(INTEGER, learn=LearnOptions(list="$[*]"), reply=ReplyOptions(list="X-Versions"))

    for count, learned in ((1000, "0-999"), (1001, "range")):
        versions = list(range(count))
        line = ("x-versions", ",".join(map(str, versions)))
        served = header(listed).read_reply(RESOURCE, 200, as_mapping([line]))

        assert probed(listed, [*versions, *versions]) == learned
        assert (served.advert is not None) is (learned != "range")
