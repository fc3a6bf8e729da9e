"""Chef on the wire: the golden examples C1 to C13, the traps of RFC 041, and what goiardi and chef-zero do.

The examples are what Chef Server (erchef, 0 to 2), goiardi 0.11.10 (0 to 1) and chef-zero (0 to 2) say.
"""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    ProbeStep,
    Reason,
    Refusal,
    Refused,
    Served,
    Silence,
    SilenceKind,
)
from gateway.core.message import Header, Reply, RequestHead, as_mapping, fold
from gateway.core.negotiation import settle
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects import discover
from gateway.dialects._chef_documents import OWN_DOCUMENT
from gateway.dialects._chef_object import read_integer, read_object
from gateway.dialects.chef import ASIDE, RESOURCE, Chef, ChefOptions

CHEF = Chef.configured(ChefOptions())
BY_THE_RFC = Chef.configured(ChefOptions(error_keys="rfc041"))

HEADER = "X-Ops-Server-API-Version"
JSON = ("Content-Type", "application/json")
SEALED = ("X-Ops-Sign", "algorithm=sha256;version=1.3;")


def between(low: int, high: int) -> VersionSet:
    return VersionSet.between(Version(low), Version(high))


OFFER = Bounds(between(0, 2))
NARROW = Bounds(between(1, 2))
"""An offer from which 0 has gone."""


def said(low: object, high: object, request: object, response: object) -> Header:
    """The object as servers write it, and as the gateway must."""
    texts = (json.dumps(each) for each in (low, high, request, response))
    names = ("min_version", "max_version", "request_version", "response_version")
    inner = ",".join(f'"{name}":{text}' for name, text in zip(names, texts, strict=True))
    return (HEADER, "{" + inner + "}")


def goiardi(version: str) -> Header:
    """The same with goiardi's blanks and spelling of the name (capture)."""
    both = f'"request_version": "{version}", "response_version": "{version}"'
    return ("X-Ops-Server-Api-Version", f'{{"min_version": "0", "max_version": "1", {both}}}')


def read(*lines: Header) -> Ask:
    return CHEF.read_ask(RESOURCE, as_mapping((fold(name), value) for name, value in lines))


def at(text: str) -> Ask:
    return read((HEADER, text))


def refuse(*texts: str, bounds: Bounds = OFFER, dialect: Chef = CHEF) -> Reply:
    """What the gateway says to the ask `texts`."""
    refusal = settle(read(*((HEADER, text) for text in texts)), bounds, CHEF.silence)
    assert isinstance(refusal, Refusal)
    return dialect.refuse(refusal, RESOURCE, as_mapping([]))


def heard(status: int, *lines: Header, place: Place = RESOURCE) -> Served:
    return CHEF.read_reply(place, status, as_mapping((fold(name), value) for name, value in lines))


def told(
    status: int,
    *lines: Header,
    settled: Version | None = Version(1),  # noqa: B008 -- a constant
    silent: bool = False,
) -> tuple[Header, ...]:
    """The version headers that the client gets for a backend's."""
    return CHEF.write_reply(RESOURCE, status, heard(status, *lines), settled, NARROW, silent=silent)


def own_document(method: str = "GET", *lines: Header, bounds: Bounds | None = OFFER) -> Reply:
    fields = tuple((fold(name), value) for name, value in lines)
    return CHEF.answer(OWN_DOCUMENT, RequestHead(method, "/server_api_version", "", fields), bounds)


def test_it_is_found_by_its_name_and_clients_sign_paths() -> None:
    assert discover()["chef"] is Chef
    assert CHEF.path_is_signed
    assert not CHEF.rewrites_target


# --- where a version means something -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/server_api_version", "/server_api_version/", "//server_api_version"])
def test_the_gateway_answers_server_api_version(path: str) -> None:
    assert CHEF.place("GET", path, "") == OWN_DOCUMENT
    assert OWN_DOCUMENT.answered


@pytest.mark.parametrize(
    "path", ["/_status", "/_stats", "/version", "/bookshelf/organization-0/checksum-1", "/_route/x"]
)
def test_what_passes_by_erchef_is_not_negotiated(path: str) -> None:
    """A presigned URL of the file store names no version, and must work when 0 is no longer on offer."""
    assert CHEF.place("GET", path, "") == ASIDE
    assert not ASIDE.negotiated
    assert CHEF.write_request(ASIDE, Version(1), ASK_SILENT, silent=False) == ()


@pytest.mark.parametrize(
    "path", ["/", "", "*", "/nodes", "/organizations/acme/nodes/version", "/versions", "/server_api_versions"]
)
def test_everything_else_is_a_resource(path: str) -> None:
    assert CHEF.place("GET", path, "") == RESOURCE


# --- what a request says -----------------------------------------------------------------------------------


def test_C1_CHEF_1_trap_15_no_header_is_the_constant_0() -> None:
    assert read() == ASK_SILENT
    assert (CHEF.silence.kind, CHEF.silence.constant) == (SilenceKind.CONSTANT, Version(0))
    assert settle(read(), OFFER, CHEF.silence) == Version(0)


@pytest.mark.parametrize(
    "text, number",
    [
        ("0", 0), ("1", 1), ("01", 1), ("+1", 1), ("-1", -1), ("-0", 0), ("-100", -100), ("007", 7),
        ("+0", 0), ("00", 0),
        ("0" * 500 + "2", 2), ("9" * 20, 99999999999999999999),
    ],
)  # fmt: skip
def test_C2_integers_are_read_as_erlang_reads_them(text: str, number: int) -> None:
    assert at(text) == Ask(AskKind.EXACT, Version(number), text)


@pytest.mark.parametrize(
    "text",
    [
        "", "+", "-", "--1", "+-1", "1.0", "1.", "1e3", "0x1", "1_0", " 1", "1 ", "1,1", "latest", "null",
        "pineapple", "\xb2", "\u0662", "1\n", "9" * 31, "9" * 5000,
    ],
)  # fmt: skip
def test_C5_trap_16_what_is_no_integer_is_garbled(text: str) -> None:
    """`null` among them, which the RFC takes for the minimum."""
    assert at(text) == Ask(AskKind.GARBLED, None, text)


@pytest.mark.parametrize("texts", [["0", "1"], ["1", "1"], ["", "1"]])
def test_repeated_lines_are_one_value_with_a_comma_and_no_integer(texts: list[str]) -> None:
    assert read(*((HEADER, text) for text in texts)) == Ask(AskKind.GARBLED, None, ", ".join(texts))


def test_V4_a_twin_with_underscores_is_the_same_header() -> None:
    assert read((HEADER, "1"), ("x_ops_server_api_version", "2")).kind is AskKind.GARBLED
    assert read(("X_OPS_SERVER_API_VERSION", "2")).version == Version(2)


@given(st.integers(-(10**12), 10**12))
def test_every_integer_survives_its_own_spelling(number: int) -> None:
    assert read_integer(str(number)) == number


# --- signatures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sign",
    [
        "algorithm=sha256;version=1.3;", "version=1.3", "algorithm=sha256; Version = 1.3", "version=1.3,x=1",
        "version=1.4", "version=2.0", "version=", "algorithm=sha1", "", "version=1.0;version=1.3",
        "xversion=1.0",
    ],
)  # fmt: skip
def test_a_signature_that_may_cover_the_version_seals_it(sign: str) -> None:
    """1.3 does; of one that is not known to leave the version out nothing else may be assumed."""
    line = ("X-Ops-Sign", sign)

    assert read((HEADER, "01"), line) == Ask(AskKind.EXACT, Version(1), "01", sealed=True)
    assert read((HEADER, "x"), line) == Ask(AskKind.GARBLED, None, "x", sealed=True)


@pytest.mark.parametrize(
    "sign", ["algorithm=sha1;version=1.0;", "version=1.0", "version=1.1", "algorithm=sha256;version=1.2"]
)
def test_a_signature_that_leaves_the_version_out_does_not_seal_it(sign: str) -> None:
    """pychef sends `version=1.0`, chef-client 1.1."""
    assert not read((HEADER, "1"), ("X-Ops-Sign", sign)).sealed
    assert read(("X-Ops-Sign", sign)) == ASK_SILENT


def test_a_signature_over_no_version_is_one_over_0_whatever_the_service_takes_silence_for() -> None:
    """No header is added to such a request, so the backend will execute it at 0."""
    ask = read(SEALED)

    assert ask == Ask(AskKind.EXACT, Version(0), "0", sealed=True)
    assert settle(ask, OFFER, Silence(SilenceKind.MAXIMUM)) == Version(0)


def test_two_lines_of_signatures_are_sealed_by_either() -> None:
    assert read(("X-Ops-Sign", "version=1.1"), SEALED).sealed


def test_the_signature_is_read_and_never_taken_off() -> None:
    assert CHEF.reads == {"x-ops-server-api-version", "x-ops-sign"}
    assert CHEF.owned_request == {"x-ops-server-api-version"}


# --- what a backend is sent --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_backend_is_sent_the_shortest_spelling(version: int) -> None:
    """goiardi takes `01` for nothing at all (capture), and answers silence without the header."""
    ask = Ask(AskKind.EXACT, Version(version), f"+0{version}")

    assert CHEF.write_request(RESOURCE, Version(version), ask, silent=False) == ((HEADER, str(version)),)
    assert CHEF.write_request(RESOURCE, Version(version), ask, silent=True) == ()


# --- what the gateway says ---------------------------------------------------------------------------------


def test_C4_trap_14_CHEF_2_above_the_offer() -> None:
    assert refuse("7") == Reply(
        406,
        (said("0", "2", "7", "-1"), JSON),
        b'{"error":"invalid-x-ops-server-api-version","message":"Specified version 7 not supported",'
        b'"min_version":0,"max_version":2}',
    )


@pytest.mark.parametrize("text", ["pineapple", "nope", "latest", "null", "1.0", ""])
def test_C5_no_integer(text: str) -> None:
    reply = refuse(text)

    assert (reply.status, reply.headers) == (406, (said("0", "2", "-1", "-1"), JSON))
    assert json.loads(reply.body)["message"] == f"Specified version {text} not supported"


def test_C6_below_the_offer() -> None:
    reply = refuse("-100")

    assert reply.headers[0] == said("0", "2", "-100", "-1")
    assert json.loads(reply.body)["message"] == "Specified version -100 not supported"


def test_the_text_of_a_refusal_is_the_clients_and_the_header_holds_the_number() -> None:
    reply = refuse("+07")

    assert reply.headers[0] == said("0", "2", "7", "-1")
    assert json.loads(reply.body)["message"] == "Specified version +07 not supported"


def test_CHEF_1_trap_15_silence_is_refused_when_0_is_no_longer_on_offer() -> None:
    reply = refuse(bounds=NARROW)

    assert reply.headers[0] == said("1", "2", "0", "-1")
    assert json.loads(reply.body) == {
        "error": "invalid-x-ops-server-api-version",
        "message": "Specified version 0 not supported",
        "min_version": 1,
        "max_version": 2,
    }


def test_several_lines_are_refused_as_one_value() -> None:
    assert json.loads(refuse("0", "1").body)["message"] == "Specified version 0, 1 not supported"


def test_trap_14_the_rfcs_keys_by_setting() -> None:
    assert refuse("7", dialect=BY_THE_RFC) == Reply(
        406,
        (said("0", "2", "7", "-1"), JSON),
        b'{"error":"invalid-x-ops-server-api-version","message":"Specified version 7 not supported",'
        b'"min_api_version":0,"max_api_version":2}',
    )


def test_trap_17_a_refusal_has_the_errors_body_and_nothing_after_its_header() -> None:
    reply = refuse("<script>\xe9", dialect=CHEF)

    assert json.loads(reply.body)["error"] == "invalid-x-ops-server-api-version"
    assert dict(reply.headers)["Content-Type"] == "application/json"
    assert not reply.headers[0][1].endswith(",")
    assert reply.body.isascii()


@pytest.mark.parametrize("status", [404, 405, 413, 500, 502, 503, 504])
@pytest.mark.parametrize(
    "ask, request_version",
    [
        (Ask(AskKind.EXACT, Version(1), "1"), "1"),
        (ASK_SILENT, "0"),
        (None, "0"),
        (Ask(AskKind.GARBLED, None, "x"), "-1"),
    ],
)
def test_CHEF_4_the_gateways_errors_carry_the_object_once_there_is_a_range(
    status: int, ask: Ask | None, request_version: str
) -> None:
    failure = Failure(status, "Title", "Detail.", bounds=OFFER, ask=ask)

    assert CHEF.fail(failure) == Reply(
        status, (said("0", "2", request_version, request_version), JSON), b'{"error":["Detail."]}'
    )


def test_before_there_is_a_range_an_error_names_none() -> None:
    """Clients keep the first that they are shown for ever."""
    ask = Ask(AskKind.EXACT, Version(1), "1")

    assert CHEF.fail(Failure(503, "T", "Detail.", ask=ask)) == Reply(503, (JSON,), b'{"error":["Detail."]}')


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("ask", [None, "0", "01", "2"])
def test_C8_CHEF_5_trap_20_server_api_version_signed_or_not(method: str, ask: str | None) -> None:
    reply = own_document(method, *(() if ask is None else ((HEADER, ask),)))

    number = str(int(ask or 0))
    assert reply == Reply(
        200, (said("0", "2", number, number), JSON), b'{"min_api_version":0,"max_api_version":2}'
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_C9_CHEF_5_server_api_version_can_only_be_read(method: str) -> None:
    reply = own_document(method, (HEADER, "1"))

    assert (reply.status, reply.headers[0]) == (405, said("0", "2", "1", "1"))
    assert ("Allow", "GET, HEAD") in reply.headers


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize(
    "text, request_version",
    [("7", "7"), ("-1", "-1"), ("x", "-1"), ("", "-1")],
    ids=["7", "-1", "x", "empty"],
)
def test_C7_a_bad_version_is_refused_before_the_method_is(
    method: str, text: str, request_version: str
) -> None:
    assert own_document(method, (HEADER, text)).status == 406
    assert own_document(method, (HEADER, text)).headers[0] == said("0", "2", request_version, "-1")
    assert own_document(method, (HEADER, text)) == refuse(text)


def test_trap_15_who_names_no_version_may_ask_which_there_are_though_0_is_gone() -> None:
    """Silence is not checked against the minimum by real servers, and here it does no harm."""
    for lines in ((), (SEALED,)):
        reply = own_document("GET", *lines, bounds=NARROW)

        assert (reply.status, reply.body) == (200, b'{"min_api_version":1,"max_api_version":2}')
        assert reply.headers[0] == said("1", "2", "0", "0")


def test_before_anything_is_offered_server_api_version_is_503_without_the_object() -> None:
    reply = own_document(bounds=None)

    assert (reply.status, reply.headers) == (503, (JSON,))


def test_CHEF_7_trap_18_replies_vary_by_the_header() -> None:
    """No server says so; it is the one addition to what they send."""
    assert CHEF.vary == (HEADER,)


def test_CHEF_9_releases_are_ranges() -> None:
    assert {
        name: CHEF.releases[name][0] for name in ("12.0", "12.1", "12.17.33", "12.17.60", "12.18", "15.10")
    } == {"12.0": 0, "12.1": 1, "12.17.33": 1, "12.17.60": 2, "12.18": 2, "15.10": 2}
    assert "12.17" not in CHEF.releases


# --- what a backend says -----------------------------------------------------------------------------------


def test_C2_the_object_tells_what_was_served_and_the_backends_range() -> None:
    line = said("0", "2", "1", "1")

    assert heard(200, line) == Served(
        version=Version(1), advert=Advert(between(0, 2)), ranged=True, said=line[1]
    )


@pytest.mark.parametrize("status", [200, 201, 302, 400, 401, 403, 404, 405, 409, 413, 500])
def test_C3_CHEF_4_trap_21_the_range_is_the_offers_and_the_rest_the_backends(status: int) -> None:
    assert told(status, said("0", "2", "1", "1")) == (said("1", "2", "1", "1"),)
    assert told(status, said("0", "2", "0", "0"), settled=None) == (said("1", "2", "0", "0"),)


def test_C12_goiardi_is_told_as_chef_server_is() -> None:
    assert heard(200, goiardi("1")).advert == Advert(between(0, 1))
    assert told(200, goiardi("1")) == (said("1", "2", "1", "1"),)


def test_C13_chef_zero_writes_numbers_and_always_serves_0() -> None:
    """What it says is passed on, with strings; V9 counts the contradiction."""
    assert told(406, said(0, 2, 7, -1)) == (said("1", "2", "7", "-1"),)
    assert told(200, said("0", "2", "0", "0")) == (said("1", "2", "0", "0"),)
    assert heard(200, said("0", "2", "0", "0")).version == Version(0)


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("status", [200, 401, 404, 500, 502])
def test_C10_C11_CHEF_4_trap_22_a_reply_without_the_object_gets_one(status: int, silent: bool) -> None:
    """Silent servers, the nginx before erchef, goiardi: without it a client would take us for 0 to 0."""
    assert told(status, silent=silent) == (said("1", "2", "1", "1"),)
    assert told(status, silent=silent, settled=None) == (said("1", "2", "0", "0"),)


def test_a_406_without_the_object_gets_that_of_a_406() -> None:
    assert told(406, silent=True) == (said("1", "2", "1", "-1"),)


@pytest.mark.parametrize("status", [100, 103])
def test_an_interim_reply_gets_nothing(status: int) -> None:
    assert told(status) == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "1", "null", "{}", '{"min_version":"0"},', "[" * 5000, "9" * 5000,
        '{"request_version":true,"response_version":null}', '{"request_version":1.5,"response_version":[]}',
        '{"request_version":"latest","response_version":"1\\r\\nX: y"}',
    ],
)  # fmt: skip
def test_nonsense_is_no_object_and_never_reaches_the_client(text: str) -> None:
    assert read_object(text) == (None, None, VersionSet())
    assert told(200, (HEADER, text)) == (said("1", "2", "1", "1"),)
    assert heard(200, (HEADER, text)).version is None
    assert heard(200, (HEADER, text)).ranged


def test_a_number_that_nobody_could_print_is_none() -> None:
    assert read_object('{"request_version":1' + "0" * 4299 + "}").request is None
    assert read_object('{"request_version":1' + "0" * 9000 + "}").request is None


@pytest.mark.parametrize(
    "low, high",
    [("2", "0"), ("-1", "2"), ("0", "x"), (None, "2"), ("0", None), (True, "2"), ("0", "9999999")],
)
def test_what_is_no_range_is_no_advert(low: object, high: object) -> None:
    served = heard(200, said(low, high, "1", "1"))

    assert (served.advert, served.version) == (None, Version(1))


def test_lines_that_disagree_say_nothing() -> None:
    assert heard(200, said("0", "2", "1", "1"), said("0", "1", "1", "1")) == Served(ranged=True)
    assert heard(200, said("0", "2", "1", "1"), said("0", "2", "1", "1")).version == Version(1)


# --- refusals by a backend ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [said("0", "1", "2", "-1"), said("0", "2", "-1", "-1"), said(0, 1, 2, -1)],
    ids=["2", "-1", "zero"],
)
def test_K8_C4_a_406_whose_ask_is_outside_its_own_range_is_a_version_refusal(line: Header) -> None:
    assert heard(406, line).refused is Refused.YES


def test_trap_23_a_406_about_accept_is_no_version_refusal() -> None:
    """erchef marks it with -1, too, but what it was asked for is in its range."""
    assert heard(406, said("0", "2", "1", "-1")).refused is Refused.NO
    assert told(406, said("0", "2", "1", "-1")) == (said("1", "2", "1", "-1"),)


def test_a_406_that_claims_to_have_served_is_no_version_refusal() -> None:
    assert heard(406, said("0", "1", "2", "2")).refused is Refused.NO


@pytest.mark.parametrize(
    "lines", [[], [(HEADER, "x")], [said("2", "0", "7", "-1")], [said("0", "2", "x", "-1")]]
)
def test_a_406_without_a_usable_object_is_for_the_body_to_tell(lines: list[Header]) -> None:
    assert heard(406, *lines).refused is Refused.READ_BODY
    assert heard(406, *lines, place=ASIDE).refused is Refused.NO


@pytest.mark.parametrize("status", [200, 400, 401, 404, 500])
def test_only_a_406_refuses_a_version(status: int) -> None:
    assert heard(status, said("0", "1", "2", "-1")).refused is Refused.NO
    assert heard(status).refused is Refused.NO


@pytest.mark.parametrize("infix", ["", "api_"])
def test_trap_14_a_refusals_body_is_read_by_either_keys(infix: str) -> None:
    body = {
        "error": "invalid-x-ops-server-api-version",
        "message": "Specified version 2 not supported",
        f"min_{infix}version": 0,
        f"max_{infix}version": 1,
    }

    assert CHEF.read_refusal(406, {}, json.dumps(body).encode()) == Advert(between(0, 1))


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
def test_C13_trap_17_any_other_body_is_about_something_else(body: bytes) -> None:
    assert CHEF.read_refusal(406, {}, body) is None


# --- probes ------------------------------------------------------------------------------------------------


def answer(status: int, *lines: Header, body: bytes = b"") -> ProbeAnswer:
    return ProbeAnswer(status, as_mapping(lines), body)


def probe(*answers: ProbeAnswer) -> ProbeStep:
    return CHEF.probe(answers, None)


SILENT = Advert(VersionSet.only(Version(0)), silent=True)
IS_GOIARDI = ("X-Goiardi", "yes")


@pytest.mark.parametrize("path, asked", [(None, "/users"), ("/organizations/acme/users", None)])
def test_a_probe_asks_unsigned_for_a_version_that_nobody_serves(path: str | None, asked: str | None) -> None:
    assert CHEF.probe((), path) == ProbeRequest(
        asked or path or "",
        (
            ("X-Chef-Version", "12.0.0"),
            ("X-Ops-Userid", "probe"),
            ("Accept", "application/json"),
            (HEADER, "-1"),
        ),
    )


@pytest.mark.parametrize("status, ask", [(406, "-1"), (400, "0"), (401, "0"), (200, "0"), (404, "0")])
def test_any_answer_with_the_object_tells_the_range(status: int, ask: str) -> None:
    assert probe(answer(status, said("0", "2", ask, "-1"))) == Advert(between(0, 2))


def test_C13_chef_zero_tells_it_in_numbers() -> None:
    assert probe(answer(406, said(0, 2, -1, -1), body=b'{"username":"probe"}')) == Advert(between(0, 2))


@pytest.mark.parametrize("line", [(HEADER, "x"), said("2", "0", "-1", "-1"), said("0", None, "-1", "-1")])
def test_an_object_without_a_range_is_a_fault(line: Header) -> None:
    step = probe(answer(406, line))

    assert isinstance(step, ProbeFault)
    assert step.reason == "range"


@pytest.mark.parametrize("status", [400, 401, 404])
def test_C11_an_old_server_is_silent(status: int) -> None:
    assert probe(answer(status)) == SILENT


@pytest.mark.parametrize("status", [200, 401, 404])
def test_C12_goiardi_is_asked_again_at_0(status: int) -> None:
    first = answer(status, IS_GOIARDI)

    step = probe(first)

    assert isinstance(step, ProbeRequest)
    assert (step.path, step.headers[-1]) == ("/users", (HEADER, "0"))
    assert probe(first, answer(status, IS_GOIARDI, goiardi("0"))) == Advert(between(0, 1))
    assert probe(first, answer(status, IS_GOIARDI)) == SILENT


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_in_trouble_tells_nothing(status: int) -> None:
    """Not that it is old, even when the goiardi or the erchef in it can still be heard."""
    for lines in ((), (IS_GOIARDI,), (said("0", "2", "0", "0"),)):
        step = probe(answer(status, *lines))
        assert isinstance(step, ProbeFault)
        assert step.reason == "status"


def test_C10_trap_22_a_welcome_page_is_no_old_server() -> None:
    step = probe(answer(200, ("Content-Type", "text/html"), body=b"<html>"))

    assert isinstance(step, ProbeFault)
    assert step.reason == "document"


def test_a_refusal_whose_header_was_lost_is_read_by_its_body() -> None:
    body = refuse("-1").body

    assert probe(answer(406, body=body)) == Advert(between(0, 2))


@pytest.mark.parametrize("status", [204, 302, 403, 406, 410])
def test_other_answers_say_nothing_that_can_be_believed(status: int) -> None:
    step = probe(answer(status))

    assert isinstance(step, ProbeFault)
    assert step.reason == "status"


# --- the table of the RFC ----------------------------------------------------------------------------------

TABLE = {
    (10, 14): {None: None, "10": 10, "14": 14, "15": None, "22": None, "30": None, "x": None},
    (12, 20): {None: None, "10": None, "14": 14, "15": 15, "22": None, "30": None, "x": None},
    (15, 22): {None: None, "10": None, "14": None, "15": 15, "22": 22, "30": None, "x": None},
}
"""By the range of a uniform fleet and the ask: the version that answers, None for 406."""


@pytest.mark.parametrize(
    "served, ask, expected",
    [(served, ask, expected) for served, row in TABLE.items() for ask, expected in row.items()],
)
def test_CHEF_3_trap_17_the_worked_example(
    served: tuple[int, int], ask: str | None, expected: int | None
) -> None:
    """A request for 22 is answered by 22; the RFC's 15 is a slip."""
    bounds = Bounds(between(*served))
    settled = settle(read(*(() if ask is None else ((HEADER, ask),))), bounds, CHEF.silence)

    if expected is not None:
        assert settled == Version(expected)
        return
    assert isinstance(settled, Refusal)
    assert (settled.reason is Reason.MALFORMED) == (ask == "x")
    asked = {None: "0", "x": "-1"}.get(ask, ask)
    header = CHEF.refuse(settled, RESOURCE, as_mapping([])).headers[0]
    assert header == said(str(served[0]), str(served[1]), asked, "-1")
