"""Senlin on the wire: the golden examples S1 to S7, byte for byte, and the traps of its guide.

The examples are what real servers of 16.0.0 (range 1.0 to 1.14) and 5.0.1 (1.0 to 1.9) say.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json
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
    SilenceKind,
)
from gateway.core.message import Header, Reply, as_mapping, fold
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects import discover
from gateway.dialects.senlin import RESOURCE, ROOT, V1, V1_SLASH, Senlin

SENLIN = Senlin.configured(Senlin.Options())
OFFER = Bounds(VersionSet.between(Version(1, 0), Version(1, 14)))
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


def read(*values: str, name: str = STANDARD) -> Ask:
    return SENLIN.read_ask(RESOURCE, as_mapping((fold(name), value) for value in values))


def refuse(text: str, *accept: str, bounds: Bounds = OFFER) -> Reply:
    """What the gateway says to the ask `clustering TEXT`."""
    ask = read(f"clustering {text}")
    if ask.version is None:
        assert ask.kind is AskKind.GARBLED
        reason = Reason.MALFORMED
    else:
        reason = Reason.BELOW_MIN if ask.version < bounds.lowest else Reason.ABOVE_MAX
    headers = as_mapping(("accept", value) for value in accept)
    return SENLIN.refuse(Refusal(reason, ask, ask.version, bounds), RESOURCE, headers)


def heard(status: int, *values: str, place: Place = RESOURCE) -> Served:
    return SENLIN.read_reply(place, status, as_mapping((fold(STANDARD), value) for value in values))


def told(
    status: int, *values: str, settled: Version | None = AT_1_5, silent: bool = False
) -> tuple[Header, ...]:
    return SENLIN.write_reply(RESOURCE, status, heard(status, *values), settled, OFFER, silent=silent)


# --- what a request says -------------------------------------------------------------------------------


def test_SENLIN_1_no_header_is_silence_and_silence_is_the_minimum() -> None:
    assert read() == ASK_SILENT
    assert SENLIN.silence.kind is SilenceKind.MINIMUM


@pytest.mark.parametrize("text", ["latest", "LATEST", "Latest"])
def test_SENLIN_1_latest_in_any_case(text: str) -> None:
    assert read(f"clustering {text}").kind is AskKind.LATEST


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
def test_a_header_that_does_not_name_clustering_is_none(value: str) -> None:
    assert read(value) == ASK_SILENT


def test_a_header_of_its_own_does_not_exist() -> None:
    assert read("1.2", name="X-OpenStack-Senlin-API-Version") == ASK_SILENT
    assert SENLIN.owned_request == {fold(STANDARD)}


def test_SENLIN_3_a_version_is_a_pair_of_whole_numbers() -> None:
    assert read("clustering 1.10") == Ask(AskKind.EXACT, Version(1, 10), "1.10")
    assert Version(1, 10) > Version(1, 9)


@pytest.mark.parametrize("text", ["0.9", "1", "1.02", "1.2.3", "spam", "+1.2", "1_0.5", "1.latest"])
def test_a_text_outside_the_grammar_is_malformed(text: str) -> None:
    assert read(f"clustering {text}").kind is AskKind.GARBLED


# --- what a backend is sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", [RESOURCE, V1_SLASH])
def test_SENLIN_1_one_line_with_its_own_item_alone(place: Place) -> None:
    ask = read("compute 2.20, clustering 1.5")

    assert SENLIN.write_request(place, Version(1, 5), ask, silent=False) == ((STANDARD, "clustering 1.5"),)


@pytest.mark.parametrize("place", [ROOT, V1])
def test_documents_that_ignore_the_header_are_sent_none(place: Place) -> None:
    assert SENLIN.write_request(place, Version(1, 5), ASK_SILENT, silent=False) == ()


def test_a_silent_backend_of_Mitaka_serves_1_0_and_is_sent_no_version() -> None:
    assert SENLIN.write_request(RESOURCE, Version(1, 0), ASK_SILENT, silent=True) == ()
    assert SENLIN.silent_serves == VersionSet.only(Version(1, 0))


# --- places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path,place",
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
        ("/v1/", V1_SLASH),
        ("/v1.0/", V1_SLASH),
        ("/v1/clusters", RESOURCE),
        ("/v1//", RESOURCE),
        ("/clusters", RESOURCE),
        ("/v2/", RESOURCE),
        ("/versionsx", RESOURCE),
        ("/v1/versions", RESOURCE),
    ],
)
def test_a_place_is_what_the_first_segment_says(path: str, place: Place) -> None:
    assert SENLIN.place("GET", path, "") == place


def test_the_list_and_v1_are_documents_that_are_not_negotiated() -> None:
    for place in (ROOT, V1):
        assert (place.negotiated, place.document, place.versioned_only) == (False, True, True)
    assert (V1_SLASH.negotiated, V1_SLASH.document, V1_SLASH.versioned_only) == (True, True, True)
    assert (RESOURCE.negotiated, RESOURCE.document, RESOURCE.versioned_only) == (True, False, False)


# --- refusals made by the gateway ----------------------------------------------------------------------


def test_S4_out_of_range_byte_for_byte_and_without_version_headers() -> None:
    assert refuse("1.99") == Reply(406, (JSON,), S4)


@pytest.mark.parametrize("text,length", [("99.99", 314), ("1.15", 313), ("2.0", 312)])
def test_S4_has_the_length_that_real_servers_send(text: str, length: int) -> None:
    assert len(refuse(text).body) == length


def test_S4_a_lower_offer_is_told() -> None:
    lower = Bounds(VersionSet.between(Version(1, 2), Version(1, 9)))

    assert b"Minimum is '1.2' and maximum is '1.9'." in refuse("1.1", bounds=lower).body


@pytest.mark.parametrize(
    "accept", ["application/json", "text/html, Application/JSON;q=0.9", "application/json; q=0.1"]
)
def test_S5_malformed_is_JSON_for_those_who_name_it(accept: str) -> None:
    assert refuse("spam", accept) == Reply(
        400,
        (JSON,),
        b'{"message": "' + EXPLANATION + b"<br /><br />\\nAPI Version String 'spam' is of invalid format. "
        b"It must be of format 'major.minor'.\\n\\n\", "
        b'"code": "400 Bad Request", "title": "Bad Request"}',
    )


@pytest.mark.parametrize(
    "accept", [(), ("",), ("*/*",), ("text/html",), ("application/json;q=0",), ("application/json; Q=0.00",)]
)
def test_S5_malformed_is_text_for_all_others(accept: tuple[str, ...]) -> None:
    reply = refuse("spam", *accept)

    assert reply == Reply(
        400,
        (("Content-Type", "text/plain; charset=UTF-8"),),
        b"400 Bad Request\n\n" + EXPLANATION + b"\n\n API Version String 'spam' is of invalid format. "
        b"It must be of format 'major.minor'.  ",
    )
    assert len(reply.body) == 202


@pytest.mark.parametrize("text,length", [("0.9", 201), ("1.2.3", 203), ("1", 199), ("1.02", 202)])
def test_S5_has_the_length_that_real_servers_send(text: str, length: int) -> None:
    assert len(refuse(text).body) == length


def test_a_failure_has_senlins_shape() -> None:
    reply = SENLIN.fail(Failure(503, "Service Unavailable", 'No "server" now.', bounds=OFFER))

    assert (reply.status, reply.headers) == (503, (JSON,))
    assert json.loads(reply.body) == {
        "code": 503,
        "error": {"code": 503, "message": 'No "server" now.', "type": "ServiceUnavailable"},
        "explanation": 'No "server" now.',
        "title": "Service Unavailable",
    }


# --- replies of a backend ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 300])
def test_S3_served_stands_as_it_was_said(status: int) -> None:
    assert heard(status, "clustering 1.5") == Served(Version(1, 5))
    assert told(status, "clustering 1.5", settled=Version(1, 9)) == ((STANDARD, "clustering 1.5"),)


@pytest.mark.parametrize("status", [200, 400, 404, 406, 500])
def test_trap_22_a_reply_without_the_header_gets_none(status: int) -> None:
    assert heard(status).version is None
    assert told(status) == ()


@pytest.mark.parametrize("values", [["compute 2.1"], ["1.5"], ["clustering spam"], ["clustering 1.5"] * 2])
def test_V8_V9_only_one_version_of_clustering_is_passed_on(values: list[str]) -> None:
    assert heard(200, *values).version == (Version(1, 5) if len(values) == 2 else None)
    assert heard(200, "clustering 1.5", "clustering 1.6").version is None


@pytest.mark.parametrize("status,lines", [(200, 1), (202, 1), (302, 1), (404, 0), (500, 0), (100, 0)])
def test_a_silent_backends_success_gets_what_a_new_one_would_have_said(status: int, lines: int) -> None:
    assert told(status, settled=Version(1, 0), silent=True) == ((STANDARD, "clustering 1.0"),) * lines


def test_nothing_is_invented_where_nothing_was_negotiated() -> None:
    assert told(200, settled=None, silent=True) == ()


def test_S4_of_a_backend_is_told_by_its_body() -> None:
    assert heard(406).refused is Refused.READ_BODY
    assert heard(406, place=V1).refused is Refused.NO
    assert SENLIN.read_refusal(406, as_mapping([]), S4) == Advert(OFFER.versions)


def test_S6_trap_11_a_method_outside_its_range_is_no_version_refusal() -> None:
    """The guide says 404. It is 400 in every release with versions, and goes on as it came."""
    assert heard(400).refused is Refused.NO
    assert SENLIN.read_refusal(400, as_mapping([]), S6) is None


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
def test_a_406_that_names_no_range_is_about_other_things(body: bytes) -> None:
    assert SENLIN.read_refusal(406, as_mapping([]), body) is None


# --- documents -----------------------------------------------------------------------------------------


def entry(link: str, highest: str | None = "1.14") -> dict[str, Any]:
    told = {} if highest is None else {"min_version": "1.0", "max_version": highest}
    return {
        "id": "1.0",
        "status": "CURRENT",
        "updated": "2016-01-18T00:00:00Z",
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.clustering-v1+json"}],
        "links": [
            {"href": link, "rel": "self"},
            {"rel": "help", "href": "https://docs.openstack.org/api-ref/clustering"},
        ],
        **told,
    }


LINKS = Links(backend="http://10.0.0.5:8777", host="api.test", public="https://api.test/clustering")
LOWER = Bounds(VersionSet.between(Version(1, 0), Version(1, 9)))
PUBLIC = "https://api.test/clustering/v1"


def rewritten(place: Place, document: object) -> Any:
    body = SENLIN.rewrite_document(place, json.dumps(document).encode(), LOWER, LINKS)
    assert body is not None
    return json.loads(body)


def test_S1_trap_13_the_list_tells_the_offer_under_the_key_max_version() -> None:
    assert rewritten(ROOT, {"versions": [entry("http://api.test/v1")]}) == {
        "versions": [entry(PUBLIC, "1.9")]
    }


def test_S1_the_list_of_Mitaka_tells_no_range_and_keeps_its_shape() -> None:
    assert rewritten(ROOT, {"versions": [entry("http://api.test/v1", None)]}) == {
        "versions": [entry(PUBLIC, None)]
    }


@pytest.mark.parametrize("place", [V1, V1_SLASH])
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
def test_S2_K7_trap_13_the_doubled_self_link_is_mended(place: Place, link: str) -> None:
    assert rewritten(place, {"version": entry(link)}) == {"version": entry(PUBLIC, "1.9")}


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
def test_any_other_body_is_passed_on_untouched(document: object) -> None:
    assert SENLIN.rewrite_document(V1, json.dumps(document).encode(), OFFER, LINKS) is None


def test_junk_inside_a_document_stays_and_does_no_harm() -> None:
    junk = {
        "versions": [
            None,
            7,
            {"links": "x"},
            {"links": [None, {"rel": "self", "href": 7}, {"rel": "help", "href": "x/v1/v1"}]},
        ]
    }

    assert rewritten(V1, junk) == junk


# --- probes --------------------------------------------------------------------------------------------


def probed(status: int, document: object, path: str | None = None) -> object:
    return SENLIN.probe((ProbeAnswer(status, as_mapping([]), json.dumps(document).encode()),), path)


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_asks_the_root_without_a_version() -> None:
    assert SENLIN.probe((), None) == ProbeRequest("/", (("Accept", "application/json"),))
    assert SENLIN.probe((), "/v1").path == "/v1"  # type: ignore[union-attr]  # the first step is a question


@pytest.mark.parametrize("status", [300, 200])
def test_S1_a_probe_reads_the_range_from_the_list(status: int) -> None:
    assert probed(status, {"versions": [entry("/v1")]}) == Advert(OFFER.versions)
    assert probed(status, {"version": entry("/v1")}, "/v1") == Advert(OFFER.versions)


def test_a_list_without_a_range_is_a_silent_server_of_Mitaka() -> None:
    assert probed(300, {"versions": [entry("/v1", None)]}) == Advert(
        VersionSet.only(Version(1, 0)), silent=True
    )


@pytest.mark.parametrize("status", [204, 302, 401, 403, 404, 406, 429, 500, 503])
def test_trap_22_an_error_says_nothing_about_versions(status: int) -> None:
    assert reason(probed(status, {"versions": [entry("/v1")]})) == "status"


@pytest.mark.parametrize("document", [[], {}, {"versions": []}, {"versions": [{"id": "v2.1"}, None]}])
def test_a_foreign_document_is_nonsense_and_not_silence(document: object) -> None:
    assert reason(probed(300, document)) == "document"


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
def test_a_probe_does_not_believe_an_impossible_range(range_: dict[str, object]) -> None:
    assert reason(probed(300, {"versions": [{"id": "1.0", **range_}]})) == "range"


# --- what the rest of the house is told ----------------------------------------------------------------


def test_the_dialect_is_found_by_its_file() -> None:
    assert discover()["senlin"] is Senlin


def test_the_names_are_folded_and_Accept_is_read_but_never_taken_off() -> None:
    assert SENLIN.reads == SENLIN.owned_request | {"accept"}
    assert SENLIN.owned_reply == {fold(STANDARD)}
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
def test_trap_12_a_release_names_the_version_that_its_servers_serve_at_most(
    release: str, highest: str
) -> None:
    """Senlin's guide names modules that hold no version. These are the maxima of `api/openstack/v1/version`
    in each release."""
    assert SENLIN.scheme.format(SENLIN.releases[release]) == highest
