"""Nova on the wire: the golden examples N2 to N14, byte for byte, and the traps of the specifications.

The examples are what a real server of 34.0.0 (2.1 to 2.104) says; 17.0.13 (2.1 to 2.60) says the same with
its own range and other letter case in names. Documents have a file of their own.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.decision import vary_header
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
)
from gateway.core.message import Header, Reply, as_mapping, fold, render
from gateway.core.negotiation import settle
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects import discover
from gateway.dialects.nova import CHOICES, LEGACY, RESOURCE, ROOT, V1_1, V2, V2_1, Nova

NOVA = Nova.configured(Nova.Options())
OFFER = Bounds(VersionSet.between(Version(2, 1), Version(2, 104)))

OWN = "X-OpenStack-Nova-API-Version"
STANDARD = "OpenStack-API-Version"
FAULT = ("Content-Type", "application/json; charset=UTF-8")
AT_2_30 = Version(2, 30)
PLACES = [ROOT, V2_1, RESOURCE, V2, LEGACY, V1_1, CHOICES]
NEGOTIATED = [V2_1, RESOURCE]


def pair(text: str) -> tuple[Header, Header]:
    return ((STANDARD, f"compute {text}"), (OWN, text))


def folded(lines: tuple[Header, ...]) -> list[Header]:
    return [(fold(name), value) for name, value in lines]


def read(*lines: Header) -> Ask:
    return NOVA.read_ask(RESOURCE, as_mapping(folded(lines)))


def refuse(line: Header, bounds: Bounds = OFFER) -> Reply:
    """What the gateway says to an ask that it does not settle on."""
    refusal = settle(read(line), bounds, NOVA.silence)
    assert isinstance(refusal, Refusal)
    return NOVA.refuse(refusal, RESOURCE, as_mapping([]))


def heard(status: int, *lines: Header, place: Place = RESOURCE) -> Served:
    return NOVA.read_reply(place, status, as_mapping(folded(lines)))


def told(
    status: int, *lines: Header, place: Place = RESOURCE, settled: Version | None = AT_2_30
) -> tuple[Header, ...]:
    """The version headers that the client gets for a backend's."""
    served = heard(status, *lines, place=place)
    return NOVA.write_reply(place, status, served, settled, OFFER, silent=False)


# --- what a request says (N5 to N10) -------------------------------------------------------------------


def test_no_header_is_silence_and_silence_is_the_minimum_of_the_offer() -> None:
    assert read() == ASK_SILENT
    assert settle(read(), OFFER, NOVA.silence) == Version(2, 1)


def test_the_legacy_header_names_a_version() -> None:
    assert read((OWN, "2.60")) == Ask(AskKind.EXACT, Version(2, 60), "2.60")


def test_N5_the_standard_header_beats_the_legacy_one() -> None:
    assert read((STANDARD, "compute 2.30"), (OWN, "2.10")).version == Version(2, 30)
    assert read((OWN, "2.10"), (STANDARD, "Compute 2.30")).version == Version(2, 30)


def test_N5_a_garbled_standard_header_is_not_saved_by_a_good_legacy_one() -> None:
    assert read((STANDARD, "compute spam"), (OWN, "2.10")).kind is AskKind.GARBLED


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
    assert read(*((OWN, line) for line in lines)).version == Version(2, 6)


@pytest.mark.parametrize("text", ["baremetal 1.9", "2.5", "nova 2.6", "compute", "", "computes 2.6"])
def test_N7_a_standard_header_without_an_item_for_compute_is_none(text: str) -> None:
    assert read((STANDARD, text)) == ASK_SILENT
    assert read((STANDARD, text), (OWN, "2.10")).version == Version(2, 10)


def test_N8_blanks_between_the_words_do_not_matter() -> None:
    assert read((STANDARD, "Compute   2.5")).version == Version(2, 5)
    assert read((OWN, " 2.5\t")).version == Version(2, 5)


@pytest.mark.parametrize("text", ["LATEST", "Latest"])
def test_N9_latest_in_other_letters_is_malformed(text: str) -> None:
    assert read((STANDARD, f"compute {text}")).kind is AskKind.GARBLED
    assert read((OWN, text)).kind is AskKind.GARBLED


@pytest.mark.parametrize("line", [(STANDARD, "compute latest"), (OWN, "latest")])
def test_N10_latest_is_the_maximum_of_the_offer(line: Header) -> None:
    assert read(line).kind is AskKind.LATEST
    assert settle(read(line), OFFER, NOVA.silence) == Version(2, 104)


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
def test_NOVA_UC4_trap_7_what_the_servers_pattern_does_not_match_is_malformed(text: str) -> None:
    """The seed text's pattern lost its backslashes, and `2.latest` is for the client's side only."""
    assert read((OWN, text)).kind is AskKind.GARBLED


def test_V4_a_twin_with_underscores_is_the_same_header() -> None:
    assert read((OWN, "2.5"), ("X_OpenStack_Nova_API_Version", "2.6")).version == Version(2, 6)
    assert fold("OPENSTACK_API_VERSION") in NOVA.owned_request


# --- what a backend is sent ----------------------------------------------------------------------------


@pytest.mark.parametrize("place", NEGOTIATED)
def test_N5_a_backend_is_sent_both_headers_with_one_number(place: Place) -> None:
    """Kilo to Mitaka read their own alone."""
    assert NOVA.write_request(place, Version(2, 30), ASK_SILENT, silent=False) == pair("2.30")


@pytest.mark.parametrize("place", [ROOT, V2, LEGACY, V1_1, CHOICES])
def test_N1_N14_outside_v2_1_no_version_is_sent(place: Place) -> None:
    assert not place.negotiated
    assert NOVA.write_request(place, Version(2, 30), ASK_SILENT, silent=False) == ()


def test_a_silent_backend_is_sent_no_version_and_stands_for_none() -> None:
    assert NOVA.write_request(RESOURCE, Version(2, 1), ASK_SILENT, silent=True) == ()
    assert not NOVA.silent_serves


# --- places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "paths, place",
    [
        (["/", "", "//"], ROOT),
        (["/v2.1", "/v2.1/", "/v2.1//", "//v2.1", "/v2%2E1", "/%76%32.1/"], V2_1),
        (["/v2.1/servers", "/v2.1/p/servers/x", "/v2.1//servers", "//v2.1/x", "/v2%2e1/servers"], RESOURCE),
        (["/v2", "/v2/", "/%762", "/v2//"], V2),
        (["/v2/servers", "/v2/p/servers/x", "/v2/v2.1/servers", "//v2/x"], LEGACY),
        (["/v1.1", "/v1.1/", "/v1.1/p/servers"], V1_1),
        (
            ["/servers", "/v3/flavors", "/V2.1/servers", "/v2.1x/s", "/v2.10/s", "/v2.json", "/v2.1;a/s"],
            CHOICES,
        ),
    ],
    ids=lambda each: each.name if isinstance(each, Place) else "",
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_place_is_known_by_its_first_segment(method: str, paths: list[str], place: Place) -> None:
    assert {NOVA.place(method, path, "limit=1") for path in paths} == {place}


def test_v2_1_is_for_members_that_have_it_and_v2_is_for_all() -> None:
    assert {place for place in PLACES if place.versioned_only} == {ROOT, V2_1, RESOURCE, CHOICES}
    assert {place for place in PLACES if place.negotiated} == {V2_1, RESOURCE}
    assert {place for place in PLACES if place.document} == {ROOT, V2_1, V2, V1_1, CHOICES}


# --- refusals made by the gateway (N3, N4, N9) ---------------------------------------------------------


def test_N3_trap_9_too_new_echoes_what_it_rejects() -> None:
    reply = refuse((STANDARD, "compute 2.999"))

    assert reply == Reply(
        406,
        (*pair("2.999"), FAULT),
        b'{"computeFault": {"code": 406, "message": "Version 2.999 is not supported by the API. '
        b'Minimum is 2.1 and maximum is 2.104."}}',
    )
    assert len(reply.body) == 125


@pytest.mark.parametrize("text, length", [("2.0", 123), ("3.0", 123), ("99.99", 125), ("1.9", 123)])
def test_N3_too_old_and_another_major_are_no_different(text: str, length: int) -> None:
    reply = refuse((OWN, text))

    message = f"Version {text} is not supported by the API. Minimum is 2.1 and maximum is 2.104."
    assert (reply.status, reply.headers) == (406, (*pair(text), FAULT))
    assert json.loads(reply.body) == {"computeFault": {"code": 406, "message": message}}
    assert len(reply.body) == length


@pytest.mark.parametrize(
    "text, length", [("spam", 126), ("2.1.3", 127), ("2", 123), ("2.01", 126), ("", 122), ("LATEST", 128)]
)
def test_N4_N9_trap_10_malformed_is_400_without_any_version(text: str, length: int) -> None:
    """The specification says 406."""
    reply = refuse((OWN, text))

    assert reply == Reply(
        400,
        (FAULT,),
        b'{"badRequest": {"code": 400, "message": "API Version String %s is of invalid format. '
        b'Must be of format MajorNum.MinorNum."}}' % text.encode(),
    )
    assert len(reply.body) == length


def test_N4_what_is_quoted_cannot_break_out_of_the_json() -> None:
    reply = refuse((OWN, '"}\xe9<b>'))

    assert reply.body.isascii()
    assert json.loads(reply.body)["badRequest"]["message"].startswith('API Version String "}\xe9<b> is of')


def test_a_minimum_that_silence_stands_for_but_is_not_offered_is_refused_as_if_it_was_asked_for() -> None:
    refusal = Refusal(Reason.BELOW_MIN, ASK_SILENT, Version(2, 1), Bounds(VersionSet.only(Version(2, 5))))

    reply = NOVA.refuse(refusal, RESOURCE, as_mapping([]))

    assert reply.headers == (*pair("2.1"), FAULT)
    assert b"Version 2.1 is not supported by the API. Minimum is 2.5 and maximum is 2.5." in reply.body


@pytest.mark.parametrize(
    "status, key",
    [(404, "itemNotFound"), (413, "overLimit"), (501, "notImplemented"), (502, "computeFault"),
     (503, "serviceUnavailable"), (504, "computeFault")],
)  # fmt: skip
def test_a_failure_has_novas_shape_and_no_range(status: int, key: str) -> None:
    reply = NOVA.fail(Failure(status, "Title", 'No "server" now.', retry_after=2, bounds=OFFER))

    assert (reply.status, reply.headers) == (status, (FAULT,))
    assert json.loads(reply.body) == {key: {"code": status, "message": 'No "server" now.'}}


# --- replies of a backend (N2, N11, N12, N14) ----------------------------------------------------------


@pytest.mark.parametrize("place", NEGOTIATED)
@pytest.mark.parametrize("status", [200, 202, 204, 400, 404, 410, 500])
def test_N2_N5_N11_the_pair_crosses_as_it_was_said(place: Place, status: int) -> None:
    assert heard(status, *pair("2.30"), place=place) == Served(Version(2, 30), said="2.30")
    assert told(status, *pair("2.30"), place=place) == pair("2.30")


def test_N2_names_are_canonical_whatever_servers_behind_eventlet_write() -> None:
    assert told(
        200, ("Openstack-Api-Version", "compute 2.30"), ("X-Openstack-Nova-Api-Version", "2.30")
    ) == pair("2.30")


@pytest.mark.parametrize("lines", [((OWN, "2.12"),), ((STANDARD, "compute 2.12"),)])
def test_a_server_before_newton_says_half_of_it_and_the_client_gets_the_pair(
    lines: tuple[Header, ...],
) -> None:
    assert told(200, *lines, settled=Version(2, 12)) == pair("2.12")


def test_there_is_never_a_range_in_headers() -> None:
    served = heard(200, *pair("2.30"))

    assert served.advert is None
    assert not served.ranged
    assert NOVA.owned_reply == {fold(STANDARD), fold(OWN)}


@pytest.mark.parametrize("status", [200, 400, 401, 404, 413, 503])
def test_N4_N12_trap_22_a_reply_without_versions_gets_none_and_is_no_silence(status: int) -> None:
    assert heard(status) == Served()
    assert told(status) == ()


@pytest.mark.parametrize("place", [V2, LEGACY])
def test_N14_below_v2_no_version_reaches_the_client(place: Place) -> None:
    assert told(200, *pair("2.30"), place=place, settled=None) == ()


@pytest.mark.parametrize("place", [CHOICES, ROOT, V1_1])
def test_what_a_media_type_made_a_server_execute_is_told(place: Place) -> None:
    """`Accept: application/json;version=2.1` on a path without a mount: no version was sent, so it is 2.1."""
    assert told(200, *pair("2.1"), place=place, settled=None) == pair("2.1")


def test_a_backend_that_served_another_version_is_told_as_it_said() -> None:
    assert told(200, *pair("2.1")) == pair("2.1")


@pytest.mark.parametrize(
    "lines",
    [
        ((OWN, "spam"),),
        ((OWN, "2.5, 2.6"),),
        ((OWN, "2.5"), (OWN, "2.6")),
        ((STANDARD, "compute 2.5"), (OWN, "2.6")),
        ((STANDARD, "compute 2.5"), (STANDARD, "compute 2.6")),
        ((STANDARD, "volume 2.5"),),
        ((STANDARD, "volume 2.5"), (OWN, "2.5")),
        ((STANDARD, "compute spam"), (OWN, "2.5")),
        ((STANDARD, "2.5"),),
        ((STANDARD, "compute"),),
        ((OWN, "2.05"),),
        ((OWN, "2.5\xa0"),),
    ],
)
def test_V8_V9_echoes_that_are_no_version_or_two_are_none(lines: tuple[Header, ...]) -> None:
    assert heard(200, *lines) == Served()
    assert told(200, *lines) == ()


# --- refusals by a backend -----------------------------------------------------------------------------

REJECTED = b'{"computeFault": {"code": 406, "message": "Version %s is not supported by the API. %s"}}'
RANGE = b"Minimum is 2.1 and maximum is 2.60."


def test_N3_of_a_backend_is_read_from_its_body() -> None:
    assert heard(406, *pair("2.90")).refused is Refused.READ_BODY
    assert NOVA.read_refusal(406, as_mapping([]), REJECTED % (b"2.90", RANGE)) == Advert(
        VersionSet.between(Version(2, 1), Version(2, 60))
    )


def test_N3_trap_9_the_echo_of_a_406_is_not_what_was_executed_and_stands_all_the_same() -> None:
    served = heard(406, *pair("2.90"))

    assert (served.version, served.said) == (None, "2.90")
    assert told(406, *pair("2.90")) == pair("2.90")


@pytest.mark.parametrize("place", [ROOT, V2, LEGACY, V1_1, CHOICES])
def test_a_406_where_nothing_was_negotiated_refuses_no_version(place: Place) -> None:
    assert heard(406, place=place).refused is Refused.NO


@pytest.mark.parametrize("status", [200, 400, 404, 409, 500])
def test_no_other_status_refuses_a_version(status: int) -> None:
    assert heard(status, *pair("2.30")).refused is Refused.NO
    assert NOVA.read_refusal(status, as_mapping([]), REJECTED % (b"2.90", RANGE)) is None


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
        REJECTED % (b"2.90", b"Minimum is 2.60 and maximum is 2.1."),
        REJECTED % (b"2.90", b"Minimum is 1.1 and maximum is 2.60."),
        REJECTED % (b"2.90", b"Minimum is 2.1 and maximum is 2.060."),
        REJECTED % (b"2.30", RANGE),
        REJECTED % (b"02.90", RANGE),
        REJECTED % (b"2.90", RANGE + b" Sorry."),
    ],
)
def test_a_406_about_other_things_is_passed_on(body: bytes) -> None:
    assert NOVA.read_refusal(406, as_mapping([]), body) is None


# --- probes --------------------------------------------------------------------------------------------

JSON: tuple[Header, ...] = (("Accept", "application/json"),)
V2_0_ENTRY = {"id": "v2.0", "status": "DEPRECATED", "version": "", "min_version": "", "links": []}


def v2_1_entry(**changed: object) -> dict[str, object]:
    return {"id": "v2.1", "status": "CURRENT", "version": "2.104", "min_version": "2.1", **changed}


def answer(status: int, document: object) -> ProbeAnswer:
    return ProbeAnswer(status, as_mapping([]), json.dumps(document).encode())


def reason(step: object) -> str:
    assert isinstance(step, ProbeFault)
    assert step.detail
    return step.reason


def test_a_probe_asks_the_root_without_a_version() -> None:
    assert NOVA.probe((), None) == ProbeRequest("/", JSON)
    assert NOVA.probe((), "/compute/v2.1/") == ProbeRequest("/compute/v2.1/", JSON)


def test_N1_a_probe_reads_the_entry_v2_1() -> None:
    document = {"versions": [V2_0_ENTRY, v2_1_entry()]}

    assert NOVA.probe((answer(200, document),), None) == Advert(OFFER.versions)


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
def test_4_6_no_v2_1_or_one_without_a_range_is_a_silent_server(entries: list[object]) -> None:
    assert NOVA.probe((answer(200, {"versions": entries}),), None) == Advert(VersionSet(), silent=True)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_where_the_root_is_not_to_be_had_v2_1_is_asked(status: int) -> None:
    missing = answer(status, {})

    assert NOVA.probe((missing,), None) == ProbeRequest("/v2.1/", JSON)
    assert NOVA.probe((missing, answer(200, {"version": v2_1_entry()})), None) == Advert(OFFER.versions)


def test_v2_1_until_train_wants_a_token_and_that_is_neither_down_nor_silent() -> None:
    assert reason(NOVA.probe((answer(404, {}), answer(401, {})), None)) == "unauthorized"
    assert "probe.headers" in NOVA.probe((answer(404, {}), answer(401, {})), None).detail  # type: ignore[union-attr]  # a ProbeFault


def test_a_configured_path_is_the_only_one_that_is_asked() -> None:
    assert reason(NOVA.probe((answer(404, {}),), "/compute/")) == "status"
    assert reason(NOVA.probe((answer(401, {}),), "/compute/v2.1/")) == "unauthorized"
    assert NOVA.probe((answer(200, {"version": v2_1_entry()}),), "/compute/v2.1/") == Advert(OFFER.versions)


@pytest.mark.parametrize("status", [204, 300, 301, 400, 406, 429, 500, 502, 503])
def test_trap_22_an_error_says_nothing_about_versions(status: int) -> None:
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
def test_a_foreign_document_is_nonsense_and_not_silence(document: object) -> None:
    assert reason(NOVA.probe((answer(200, document),), None)) == "document"


def test_html_is_nonsense() -> None:
    page = ProbeAnswer(200, as_mapping([]), b"<html>It works!</html>")

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
def test_an_impossible_range_is_not_believed(changed: dict[str, object]) -> None:
    assert reason(NOVA.probe((answer(200, {"versions": [v2_1_entry(**changed)]}),), None)) == "range"


# --- whatever comes ------------------------------------------------------------------------------------

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
    joined = {name: ",".join(value for each, value in lines if each == name) for name, _ in lines}
    ask = NOVA.read_ask(RESOURCE, as_mapping(lines))

    assert NOVA.read_ask(RESOURCE, as_mapping(joined.items())) == ask
    assert (ask.version is not None) == (ask.kind is AskKind.EXACT)


@given(VERSIONS, st.sampled_from(NEGOTIATED))
def test_what_is_written_for_a_backend_is_read_as_the_same_version(version: Version, place: Place) -> None:
    written = folded(NOVA.write_request(place, version, ASK_SILENT, silent=False))

    for lines in (written, *([line] for line in written)):
        assert NOVA.read_ask(place, as_mapping(lines)).version == version


@given(LINES, st.integers(100, 599), st.sampled_from(PLACES), st.booleans())
def test_no_reply_makes_it_raise_or_tells_a_client_what_the_backend_did_not_say(
    lines: list[Header], status: int, place: Place, silent: bool
) -> None:
    served = NOVA.read_reply(place, status, as_mapping(lines))
    written = NOVA.write_reply(place, status, served, Version(2, 30), OFFER, silent=silent)

    assert written in ((), pair(served.said))
    assert served.version in (None, NOVA.scheme.parse(served.said))
    assert lines or not written


@given(LINES)
def test_a_refusal_names_the_range_or_quotes_what_was_no_version(lines: list[Header]) -> None:
    ask = NOVA.read_ask(RESOURCE, as_mapping(lines))

    reply = NOVA.refuse(Refusal(Reason.ABOVE_MAX, ask, ask.version, OFFER), RESOURCE, as_mapping(lines))

    ((key, fault),) = json.loads(reply.body).items()
    if ask.version is None:
        assert (reply.status, key, reply.headers) == (400, "badRequest", (FAULT,))
        assert ask.text in fault["message"]
    else:
        assert (reply.status, key, len(reply.headers)) == (406, "computeFault", 3)
        assert fault["message"].endswith(" Minimum is 2.1 and maximum is 2.104.")
    render(reply.headers)


@given(st.lists(st.tuples(st.integers(100, 599), st.binary(max_size=60)), min_size=1, max_size=2))
def test_a_probe_ends_after_two_questions(given_answers: list[tuple[int, bytes]]) -> None:
    answers = tuple(ProbeAnswer(status, as_mapping([]), body) for status, body in given_answers)
    step = NOVA.probe(answers, None)

    assert isinstance(step, Advert | ProbeFault) or len(answers) == 1
    assert NOVA.read_refusal(406, as_mapping([]), answers[0].body) is None


@given(st.text(max_size=30), st.text(max_size=10))
@example("/v2.1/%", "")
@example("/%ff%fe", "")
def test_every_target_is_a_place(path: str, query: str) -> None:
    assert NOVA.place("GET", path, query) in PLACES


# --- what the rest of the house is told ----------------------------------------------------------------


def test_the_dialect_is_found_by_its_file() -> None:
    assert discover()["nova"] is Nova


def test_every_name_that_is_read_or_written_is_owned_and_folded() -> None:
    written = {
        fold(name) for name, _ in NOVA.write_request(RESOURCE, Version(2, 1), ASK_SILENT, silent=False)
    }

    assert NOVA.reads == NOVA.owned_request == NOVA.owned_reply == written


def test_V10_vary_names_what_is_negotiated_on() -> None:
    assert {fold(name) for name in NOVA.vary} == NOVA.reads


PINS = """
kilo 2.3, 2015.1 2.3, liberty 2.12, 12 2.12, mitaka 2.25, 13 2.25, newton 2.38, 14 2.38, ocata 2.42, 15 2.42,
pike 2.53, 16 2.53, queens 2.60, 17 2.60, rocky 2.65, 18 2.65, stein 2.72, 19 2.72, train 2.79, 20 2.79,
ussuri 2.87, 21 2.87, victoria 2.87, 22 2.87, wallaby 2.88, 23 2.88, xena 2.90, 24 2.90, yoga 2.90, 25 2.90,
zed 2.93, 26 2.93, 2023.1 2.95, 27 2.95, 2023.2 2.95, 28 2.95, 2024.1 2.96, 29 2.96, 2024.2 2.96, 30 2.96,
2025.1 2.100, 31 2.100, 2025.2 2.100, 32 2.100, 2026.1 2.103, 33 2.103, 2026.2 2.104, 34 2.104
"""


@pytest.mark.parametrize("release, highest", [pin.split() for pin in PINS.split(",")])
def test_10_3_a_release_names_the_highest_version_of_its_servers(release: str, highest: str) -> None:
    assert NOVA.scheme.format(NOVA.releases[release]) == highest


def test_numbered_releases_never_serve_less_than_the_one_before() -> None:
    numbered = sorted((int(name), highest) for name, highest in NOVA.releases.items() if name.isdigit())

    assert [number for number, _ in numbered] == list(range(12, 35))
    assert [highest for _, highest in numbered] == sorted(highest for _, highest in numbered)


def test_N3_each_name_has_a_vary_line_of_its_own() -> None:
    assert vary_header(Nova.vary, apart=Nova.vary_apart) == (
        ("Vary", "OpenStack-API-Version"),
        ("Vary", "X-OpenStack-Nova-API-Version"),
    )
