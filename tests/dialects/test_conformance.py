"""What the gateway relies on from every dialect, tried on each that `discover` finds, option by option.

Nothing here knows what a dialect speaks: a client's lines are those that `write_request` writes, a backend's
those that `write_reply` writes for one that speaks. So a new dialect is held to all of it from its first
day. What its servers say byte for byte stands in tests of its own beside this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.decision import Resolution, Verdict, resolve
from gateway.core.dialect import (
    Absence,
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
    SilenceKind,
)
from gateway.core.explanation import explain
from gateway.core.message import Header, Reply, RequestHead, as_mapping, fold, render
from gateway.core.negotiation import settle
from gateway.core.operations import Entry, Extent, Operations, PathTemplate, Status, Stretch
from gateway.core.ranges import VersionSet
from gateway.core.snapshot import ServiceView
from gateway.core.version import Version
from gateway.dataplane.http1 import RequestReader
from gateway.dataplane.names import NameTable
from gateway.dialects import discover
from gateway.settings import Limits, load
from gateway.telemetry.book import PROBE_FAILURES
from tests.dialects.speeches import (
    BODIES,
    METHODS,
    SPECIMENS,
    SPEECHES,
    STATUSES,
    TARGETS,
    Speech,
    Watched,
    folded,
    negotiated,
    places,
    reply_lines,
    request_lines,
    targets,
    tricked,
    values,
)

every_speech = pytest.mark.parametrize("speech", SPEECHES, ids=lambda each: each.label)
narrow = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
"""Many dialects share these tests, so that each of them gets fewer examples than a test of its own would."""

# --- what it declares --------------------------------------------------------------------------------------


def test_there_is_something_to_try() -> None:
    assert {speech.dialect.name for speech in SPEECHES} == set(discover())
    assert len({speech.label for speech in SPEECHES}) == len(SPEECHES)


@every_speech
def test_names_are_folded_or_canonical_and_vary_lists_only_what_is_read_or_owned(speech: Speech) -> None:
    dialect = speech.dialect

    for names in (dialect.reads, dialect.owned_request, dialect.owned_reply):
        assert names == {fold(name) for name in names}
    assert {fold(name) for name in dialect.vary} <= dialect.reads & dialect.owned_request
    assert len({fold(name) for name in dialect.vary}) == len(dialect.vary)
    assert not dialect.owned_request & {"host", "content-length", "transfer-encoding", "connection", "vary"}
    assert not dialect.owned_reply & {"content-length", "transfer-encoding", "connection", "vary"}


@every_speech
def test_a_silent_rule_with_a_constant_has_one_and_no_other(speech: Speech) -> None:
    silence = speech.dialect.silence

    assert (silence.constant is not None) == (silence.kind is SilenceKind.CONSTANT)


@every_speech
def test_a_service_can_be_configured_to_speak_it(speech: Speech) -> None:
    """In JSON, which is YAML, too; an empty list is the same as none."""
    options = written(asdict(speech.options))
    service = {
        "dialect": speech.dialect.name,
        "backends": [{"url": "http://127.0.0.1:9"}],
        **({speech.dialect.name: options} if options else {}),
    }
    text = json.dumps({"listen": "127.0.0.1:8080", "services": {"api": service}}, indent=1)

    loaded = load(text, filename="test", environ={})

    assert not loaded.problems, loaded.render()
    dialect = loaded.require().services[0].dialect
    assert type(dialect) is type(speech.dialect)
    assert (dialect.reads, dialect.vary, dialect.releases) == (
        speech.dialect.reads,
        speech.dialect.vary,
        speech.dialect.releases,
    )


def written(options: Any) -> Any:
    """Options as they stand in a file: what is none, or an empty list, is left out."""
    if isinstance(options, dict):
        return {name: written(value) for name, value in options.items() if value not in ((), None)}
    return [written(each) for each in options] if isinstance(options, tuple) else options


@every_speech
def test_explain_tells_of_every_place_what_would_happen(speech: Speech) -> None:
    """The request itself would come to the same: it is the same decision."""
    current = speech.snapshot(speech.offer)
    for place, (method, path) in targets(speech.dialect).items():
        for version in speech.ladder:
            lines = speech.lines(version, place) if place.negotiated and not place.answered else ()
            told = explain(current, method, path or "/", lines).to_json()
            json.dumps(told)
            assert told["dialect"] == speech.dialect.name
            if lines and place.carried is None:
                offered = version in speech.offer.versions
                assert told["decision"] == ("forward" if offered else "refuse")
                assert told["ask"]["kind"] == "exact"
                assert told["version"] == (speech.text(version) if offered else None)
            if place.answered:
                assert told["decision"] == "answer"


# --- places ------------------------------------------------------------------------------------------------


@every_speech
def test_any_target_is_a_place_and_the_same_one_each_time(speech: Speech) -> None:
    @narrow
    @given(
        st.sampled_from(METHODS) | st.text(max_size=8),
        st.sampled_from(TARGETS)
        | st.text(max_size=30)
        | st.sampled_from(TARGETS).map(lambda path: path + "/%"),
        st.text(max_size=20),
    )
    def holds(method: str, path: str, query: str) -> None:
        place = speech.dialect.place(method, path, query)

        assert isinstance(place, Place)
        assert place == speech.dialect.place(method, path, query)
        assert hash(place) == hash(speech.dialect.place(method, path, query))

    holds()


@every_speech
def test_no_silent_backend_is_asked_for_a_document(speech: Speech) -> None:
    assert all(place.versioned_only for place in places(speech) if place.document and place.negotiated)


# --- asks --------------------------------------------------------------------------------------------------


@every_speech
@pytest.mark.parametrize("offered", ["a part", "all"])
def test_silence_means_what_the_dialect_says(speech: Speech, offered: str) -> None:
    dialect, silence = speech.dialect, speech.dialect.silence
    bounds = speech.offer if offered == "a part" else speech.own
    if offered == "all" and silence.constant is not None and dialect.scheme.contiguous:
        bounds = Bounds(VersionSet.between(silence.constant, speech.ladder[-1]))
    expected = {
        SilenceKind.MINIMUM: bounds.lowest,
        SilenceKind.MAXIMUM: bounds.highest,
        SilenceKind.CONSTANT: silence.constant,
        SilenceKind.REFUSED: None,
    }[silence.kind]
    view = speech.view(bounds)

    for place in negotiated(speech):
        assert speech.ask(place, []).kind is AskKind.SILENT
        resolution = resolve(view, place, RequestHead(*targets(dialect)[place]), "/")
        if expected is not None and expected in bounds.versions:
            assert (resolution.verdict, resolution.version) == (Verdict.SERVED, expected)
            assert speech.ask(speech.at(place, expected), lines_of(resolution.marks)).version == expected
        else:
            assert resolution.reply is not None
            assert resolution.reply.status >= 400
            assert resolution.verdict is not Verdict.SERVED


@every_speech
def test_what_is_written_for_a_backend_is_read_as_the_same_version(speech: Speech) -> None:
    """All lines together, and each line alone that says anything: backends of some ages read only one."""
    dialect = speech.dialect
    for place in negotiated(speech):
        for version in speech.ladder:
            written = speech.lines(version, place)
            alone = [speech.ask(place, [line]) for line in written]
            assert speech.ask(speech.at(place, version), written).version == version
            said = {ask.version for ask in alone if ask.kind is not AskKind.SILENT}
            assert said == ({version} if written or not dialect.rewrites_target else set())


@every_speech
def test_any_headers_make_one_of_four_asks(speech: Speech) -> None:
    @narrow
    @given(request_lines(speech), st.sampled_from(negotiated(speech)))
    def holds(lines: list[Header], place: Place) -> None:
        ask = speech.ask(place, lines)

        assert (ask.version is not None) == (ask.kind is AskKind.EXACT)
        # None: what cannot be on offer may be asked for (Chef -1), but is never read as another version.
        assert ask.version is None or speech.dialect.scheme.parse(speech.text(ask.version)) in {
            None,
            ask.version,
        }

    holds()


@every_speech
def test_asks_and_refusals_depend_on_what_the_dialect_says_it_reads_and_on_nothing_else(
    speech: Speech,
) -> None:
    """The data plane remembers what came of an ask by these headers and the place."""
    dialect = speech.dialect
    strangers = [("x-request-id", "2.7"), ("user-agent", "1.9"), ("x-forwarded-for", "10.0.0.1")]

    @narrow
    @given(request_lines(speech), st.sampled_from(negotiated(speech)))
    def holds(lines: list[Header], place: Place) -> None:
        read = [line for line in lines if line[0] in dialect.reads]
        bare, watched = folded(read), Watched([*lines, *strangers])
        ask = dialect.read_ask(place, watched)
        assert ask == dialect.read_ask(place, bare) == dialect.read_ask(place, bare)
        refusal = refusal_of(speech, ask)
        if refusal is not None:
            assert dialect.refuse(refusal, place, watched) == dialect.refuse(refusal, place, bare)
        if ask.version is not None:
            written = dialect.write_request(place, ask.version, ask, silent=False, headers=watched)
            assert written == dialect.write_request(place, ask.version, ask, silent=False, headers=bare)
        assert watched.seen <= dialect.reads

    holds()


# --- what goes out -----------------------------------------------------------------------------------------


@every_speech
def test_every_name_written_is_owned_canonical_and_written_once(speech: Speech) -> None:
    dialect = speech.dialect
    asking: dict[str, set[str]] = {fold(name): {name} for name in dialect.vary}
    telling: dict[str, set[str]] = {}

    def look(written: Sequence[Header], owned: frozenset[str], spellings: dict[str, set[str]]) -> None:
        render(written)
        names = [fold(name) for name, _ in written]
        assert set(names) <= owned
        assert len(set(names)) == len(names)
        for name, value in written:
            assert re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", name)
            assert not re.search(r"[\x00-\x1f\x7f]|^ | $", value)
            spellings.setdefault(fold(name), set()).add(name)

    for place in places(speech):
        for version in speech.ladder:
            if place.negotiated and not place.answered:
                look(speech.lines(version, place), dialect.owned_request, asking)
            for status in (100, 200, 204, 300, 400, 401, 404, 406, 500, 503):
                look(reply_lines(speech, place, version, status), dialect.owned_reply, telling)
    assert all(len(found) == 1 for found in (*asking.values(), *telling.values()))


@every_speech
def test_a_silent_backend_is_never_sent_an_owned_header(speech: Speech) -> None:
    dialect = speech.dialect
    view = speech.view(speech.offer)

    @narrow
    @given(request_lines(speech), st.sampled_from(negotiated(speech)), st.sampled_from(speech.ladder))
    def holds(lines: list[Header], place: Place, version: Version) -> None:
        ask = Ask(AskKind.EXACT, version, speech.text(version))
        assert dialect.write_request(place, version, ask, silent=True, headers=folded(lines)) == ()
        resolution = resolve(view, place, RequestHead("GET", "/x", "", tuple(lines)), "/x")
        if resolution.ask is None or not resolution.ask.sealed:
            sent = {fold(name) for name, _ in lines_of(resolution.silent_marks)}
            assert not sent & dialect.owned_request

    holds()


@every_speech
def test_where_nothing_is_negotiated_no_version_goes_out(speech: Speech) -> None:
    """What is left of an owned header there says other things than a version, and says them once."""
    dialect = speech.dialect

    @narrow
    @given(request_lines(speech), st.sampled_from(negotiated(speech)))
    def holds(lines: list[Header], place: Place) -> None:
        left = dialect.without_version(folded(lines))
        names = [fold(name) for name, _ in left]
        assert len(set(names)) == len(names)
        assert set(names) <= dialect.owned_request
        render(left)
        if speech.ask(place, lines).kind is not AskKind.GARBLED:
            assert speech.ask(place, left).kind is AskKind.SILENT

    holds()


def lines_of(marks: bytes) -> list[Header]:
    """Rendered header lines, taken apart."""
    found = (line.partition(": ") for line in marks.decode("latin-1").split("\r\n") if line)
    return [(name, value) for name, _, value in found]


def through_the_reader(
    view: ServiceView, place: Place, lines: Sequence[Header]
) -> tuple[RequestReader, Resolution]:
    """A request's head from its bytes to what comes of it, by the data plane's own reader."""
    head = b"GET /x HTTP/1.1\r\nHost: api.test\r\n" + render(lines) + b"\r\n"
    dialect = view.service.dialect
    reader = RequestReader()
    reader.read(head, NameTable.for_requests(dialect.reads | dialect.owned_request), Limits())
    return reader, resolve(view, place, reader, reader.path)


@every_speech
def test_duplicates_and_tricks_with_names_end_in_one_version_and_one_spelling(speech: Speech) -> None:
    """V1 to V4: whatever a client repeats or disguises, a backend reads what the gateway has settled on."""
    dialect = speech.dialect
    view = speech.view(speech.own)
    read_only = dialect.reads - dialect.owned_request

    @narrow
    @given(
        st.lists(st.sampled_from(speech.ladder), min_size=1, max_size=3),
        request_lines(speech),
        st.sampled_from(negotiated(speech)),
        st.randoms(use_true_random=False),
        st.booleans(),
    )
    def holds(asked: list[Version], odd: list[Header], place: Place, chance: Random, honest: bool) -> None:
        lines = [line for version in asked for line in speech.lines(version, place)]
        lines = lines if honest else [*odd, *lines]
        chance.shuffle(lines)
        disguised = [(tricked(name, chance), value) for name, value in lines]
        # A twin with `_` counts as if it were not there: it is neither read nor passed on.
        seen = [line for line, (name, _) in zip(lines, disguised, strict=True) if "_" not in name]
        _, plain = through_the_reader(view, place, seen)
        reader, resolution = through_the_reader(view, place, disguised)

        assert (resolution.verdict, resolution.version) == (plain.verdict, plain.version)
        assert resolution.marks == plain.marks
        kept = {fold(name) for name, _ in lines_of(reader.block.kept)}
        assert not kept & (dialect.owned_request | dialect.reads)
        if resolution.verdict is not Verdict.SERVED:
            assert resolution.marks == b""
            return
        assert resolution.ask is not None
        if resolution.ask.sealed:
            assert resolution.marks == render(reader.fields)
            return
        if honest and seen and not dialect.rewrites_target:
            assert resolution.version in asked
        sent = lines_of(resolution.marks)
        assert resolution.version is not None
        assert [line for line in sent if fold(line[0]) not in read_only] == list(
            dialect.write_request(
                place, resolution.version, resolution.ask, silent=False, headers=as_mapping(reader.fields)
            )
        )
        assert speech.ask(speech.at(place, resolution.version), sent).version == resolution.version

    holds()


# --- refusals and failures ---------------------------------------------------------------------------------


def refusal_of(speech: Speech, ask: Ask, bounds: Bounds | None = None) -> Refusal | None:
    """Why the gateway would refuse `ask`, if it would."""
    settled = settle(ask, bounds or speech.offer, speech.dialect.silence, speech.dialect.match)
    return settled if isinstance(settled, Refusal) else None


def refusals(speech: Speech, bounds: Bounds) -> Iterator[tuple[Place, Reply]]:
    """Every refusal of a step of the ladder outside `bounds`."""
    for place in negotiated(speech):
        for version in speech.ladder:
            lines = speech.lines(version, place)
            refusal = refusal_of(speech, speech.ask(speech.at(place, version), lines), bounds)
            if refusal is not None:
                yield place, speech.dialect.refuse(refusal, place, folded(lines))


def said_by(reply: Reply) -> str:
    """All that a reply tells, as one text."""
    return "\n".join([*(value for _, value in reply.headers), reply.body.decode("utf-8")])


def check_body(reply: Reply) -> None:
    """A body is what its `Content-Type` says, which is said once."""
    render(reply.headers)
    kinds = [value.lower() for name, value in reply.headers if fold(name) == "content-type"]
    assert len(kinds) == (1 if reply.body else len(kinds)) <= 1
    # These are for the caller to add, once.
    added = {"content-length", "transfer-encoding", "vary", "retry-after"}
    assert not added & {fold(name) for name, _ in reply.headers}
    if kinds and "json" in kinds[0]:
        json.loads(reply.body)
    elif kinds:
        assert kinds[0].startswith("text/")
        reply.body.decode("utf-8")


@every_speech
def test_a_refusal_names_the_range_that_is_offered_and_no_other(speech: Speech) -> None:
    for bounds in (speech.offer, speech._upto(2, 4)):
        low, high = speech.text(bounds.lowest), speech.text(bounds.highest)
        found = list(refusals(speech, bounds))
        assert found
        for _, reply in found:
            said = said_by(reply)
            check_body(reply)
            assert 400 <= reply.status < 500
            assert names_version(low, said)
            assert names_version(high, said)
            assert ranges_told(said) <= {low, high}


def names_version(text: str, said: str) -> bool:
    """Whether the version stands there by itself, not as a part of another one."""
    return re.search(rf"(?<![\w.]){re.escape(text)}(?![\w]|\.\d)", said) is not None


_BOUND = re.compile(r"(?:min|max)\w*[\\\"': ]+(\d+(?:[.-]\d+)*)", re.IGNORECASE)


def ranges_told(said: str) -> set[str]:
    """The versions that stand behind a word for a bound, in JSON (however often quoted) or in prose."""
    return set(_BOUND.findall(said)) | set(re.findall(r"(?:inimum|aximum) is '?([\d.]*\d)", said))


@every_speech
def test_any_refusal_that_requests_bring_about_can_be_sent(speech: Speech) -> None:
    @narrow
    @given(request_lines(speech), st.sampled_from(negotiated(speech)))
    def holds(lines: list[Header], place: Place) -> None:
        ask = speech.ask(place, lines)
        refusal = refusal_of(speech, ask)
        if refusal is None:
            refusal = Refusal(Reason.MALFORMED, Ask(AskKind.GARBLED, text=ask.text), None, speech.offer)
        reply = speech.dialect.refuse(refusal, place, folded(lines))
        check_body(reply)
        assert 400 <= reply.status < 500
        owned = {fold(name) for name, _ in reply.headers} - {"content-type"}
        assert owned <= speech.dialect.owned_reply | {"cache-control", "x-openstack-request-id"}
        if refusal.version is not None:
            said = said_by(reply)
            assert all(
                names_version(speech.text(each), said) for each in (speech.offer.lowest, speech.offer.highest)
            )

    holds()


@every_speech
def test_any_failure_can_be_sent_and_tells_the_offer_or_no_range(speech: Speech) -> None:
    dialect = speech.dialect

    @narrow
    @given(
        st.sampled_from([400, 404, 405, 413, 500, 502, 503, 504]),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40),
        st.none() | st.sampled_from([speech.offer, speech.own]),
        st.none()
        | st.just(Ask(AskKind.EXACT, speech.ladder[2], speech.text(speech.ladder[2])))
        | st.just(Ask(AskKind.GARBLED, text='"spam\xe9')),
    )
    def holds(status: int, detail: str, bounds: Bounds | None, ask: Ask | None) -> None:
        reply = dialect.fail(Failure(status, "Some Title", detail, retry_after=2, bounds=bounds, ask=ask))
        check_body(reply)
        assert reply.status == status
        assert {fold(name) for name, _ in reply.headers} - {"content-type"} <= dialect.owned_reply
        told = ranges_told("\n".join(value for _, value in reply.headers))
        allowed = set() if bounds is None else {speech.text(bounds.lowest), speech.text(bounds.highest)}
        assert told <= allowed

    holds()


@every_speech
@pytest.mark.parametrize("status", [None, 400, 404])
def test_an_operation_outside_its_versions_is_refused_as_its_servers_do(
    speech: Speech, status: int | None
) -> None:
    """A final word that is no version refusal: a client must not renegotiate, nor a proxy ask another one."""
    dialect = speech.dialect
    for place in negotiated(speech):
        for version in speech.ladder[1:4]:
            ask = Ask(AskKind.EXACT, version, speech.text(version))
            reply = dialect.refuse_operation(Absence(version, ask, speech.offer, status), place)
            check_body(reply)
            assert reply.status == status if status else reply.status in (400, 404)
            assert said_by(reply)
            owned = folded(reply.headers)
            assert set(owned) - {"content-type"} <= dialect.owned_reply
            heard = dialect.read_reply(place, reply.status, owned)
            assert heard.refused is Refused.NO
            assert heard.version in {None, version}
            assert heard.advert is None or heard.advert.versions == speech.offer.versions
            assert dialect.read_refusal(reply.status, owned, reply.body) is None


@every_speech
def test_what_the_gateway_answers_itself_tells_the_offer_and_no_other_range(speech: Speech) -> None:
    for place, (method, path) in targets(speech.dialect).items():
        if not place.answered:
            continue
        for bounds in (None, speech.offer):
            head = RequestHead(method, path, "")
            reply = speech.dialect.answer(place, head, bounds, OPERATIONS)
            check_body(reply)
            allowed = set() if bounds is None else {speech.text(bounds.lowest), speech.text(bounds.highest)}
            assert ranges_told(said_by(reply)) <= allowed
            if bounds is not None and reply.status == 200 and method == "GET":
                assert allowed <= set(re.findall(r"\d+(?:\.\d+)*", said_by(reply)))
            if place.metered:
                ask = speech.dialect.read_ask(place, folded([]))
                check_body(speech.dialect.fail(Failure(429, "Too Many Requests", "x", 1, bounds, ask)))


OPERATIONS: Final = Operations.of(
    [
        Entry(("GET", "PUT"), PathTemplate.read("/x"), Extent.of([Stretch()])),
        Entry(("GET",), PathTemplate.read("/{y}/x"), Extent(), Status.UNSTABLE),
    ]
)


# --- a backend's reply -------------------------------------------------------------------------------------


@every_speech
def test_the_served_version_crosses_as_the_backend_said_it_and_its_range_does_not(speech: Speech) -> None:
    """Where a dialect echoes: what a server of its own kind says is read as that, and told as that."""
    dialect, settled = speech.dialect, speech.ladder[1]
    said = [reply_lines(speech, place, settled) for place in negotiated(speech)]
    assert any(said) or not dialect.owned_reply
    for place in negotiated(speech):
        for version in speech.ladder:
            lines = reply_lines(speech, place, version)
            served = dialect.read_reply(place, 200, folded(lines))
            assert served.version in {None, version}
            assert served.refused is not Refused.YES
            if served.advert is not None:
                assert served.advert.versions == speech.own.versions
            written = dialect.write_reply(place, 200, served, settled, speech.offer, silent=False)
            again = dialect.read_reply(place, 200, folded(written))
            assert again.version == served.version
            assert again.advert is None or again.advert.versions == speech.offer.versions
            assert (again.advert is None) == (served.advert is None)
            told = ranges_told("\n".join(f"{name}: {value}" for name, value in written))
            assert told <= {speech.text(speech.offer.lowest), speech.text(speech.offer.highest)}


@every_speech
def test_it_reads_of_a_reply_what_it_owns_there_and_nothing_else(speech: Speech) -> None:
    dialect = speech.dialect
    for place in places(speech):
        for status in (200, 400, 404, 406, 503):
            watched = Watched(
                [*reply_lines(speech, place, speech.ladder[1]), ("server", "1.9"), ("x-a", "2")]
            )
            dialect.read_reply(place, status, watched)
            assert watched.seen - {""} <= dialect.owned_reply


@every_speech
def test_any_reply_can_be_read_and_told(speech: Speech) -> None:
    dialect = speech.dialect
    names = sorted(dialect.owned_reply) or ["x-none"]

    @narrow
    @given(
        st.lists(st.tuples(st.sampled_from(names), values(speech)), max_size=5),
        st.sampled_from(places(speech)),
        STATUSES,
        st.none() | st.sampled_from(speech.ladder),
        st.booleans(),
        BODIES,
    )
    def holds(
        lines: list[Header], place: Place, status: int, settled: Version | None, silent: bool, body: bytes
    ) -> None:
        headers = folded(lines)
        served = dialect.read_reply(place, status, headers)
        written = dialect.write_reply(place, status, served, settled, speech.offer, silent=silent)
        render(written)
        folded_names = [fold(name) for name, _ in written]
        assert set(folded_names) <= dialect.owned_reply
        assert len(set(folded_names)) == len(folded_names)
        assert served.advert is None or served.advert.versions
        assert served.refused is Refused.NO or status >= 300
        named = dialect.read_refusal(status, headers, body)
        assert named is None or named.versions

    holds()


# --- documents ---------------------------------------------------------------------------------------------

LINKS: Final = Links("http://10.0.0.5:8774", "api.example", "https://api.example/compute")


@every_speech
def test_a_rewritten_document_tells_the_offer_and_never_the_backends_own_range(speech: Speech) -> None:
    own = [speech.text(version) for version in (speech.own.lowest, speech.own.highest)]
    offer = {speech.text(version) for version in (speech.offer.lowest, speech.offer.highest)}
    told = set()
    for place in places(speech):
        if not place.document:
            continue
        specimen = SPECIMENS.get(speech.label) or SPECIMENS[speech.dialect.name]
        for document in specimen(*own):
            body = speech.dialect.rewrite_document(place, json.dumps(document).encode(), speech.offer, LINKS)
            if body is not None:
                versions = set(leaves(json.loads(body)))
                assert not versions & set(own), f"{place.name}: {document}"
                assert b"10.0.0.5" not in body
                told |= versions & offer
    assert any(place.document for place in places(speech)) == bool(told)
    assert not told or speech.text(speech.offer.highest) in told


def leaves(node: Any) -> Iterator[str]:
    """Every text and number in a document, keys left out."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from leaves(each)
    else:
        yield str(node)


@every_speech
def test_any_body_is_a_document_or_none(speech: Speech) -> None:
    @narrow
    @given(st.sampled_from(places(speech)), BODIES)
    def holds(place: Place, body: bytes) -> None:
        told = speech.dialect.rewrite_document(place, body, speech.offer, LINKS)
        if told is not None:
            json.loads(told)
            assert told == speech.dialect.rewrite_document(place, body, speech.offer, LINKS)

    holds()


# --- probes ------------------------------------------------------------------------------------------------


@every_speech
@pytest.mark.parametrize("path", [None, "/of/the/operator"])
def test_a_probe_begins_with_a_question_and_any_answers_end_it(speech: Speech, path: str | None) -> None:
    dialect = speech.dialect
    first = dialect.probe((), path)
    names = sorted(dialect.owned_reply | {"content-type", "location", "x-goiardi"})

    assert isinstance(first, ProbeRequest)
    assert first.path == path if path else first.path.startswith("/")
    render(first.headers)

    answer = st.builds(
        ProbeAnswer,
        STATUSES,
        st.lists(st.tuples(st.sampled_from(names), values(speech)), max_size=4).map(folded),
        BODIES,
    )

    @narrow
    @given(st.lists(answer, min_size=4, max_size=4))
    def holds(answers: list[ProbeAnswer]) -> None:
        step, asked = dialect.probe((), path), 0
        while isinstance(step, ProbeRequest):
            assert asked < 4, "a fifth question"
            assert step.path.startswith("/")
            render(step.headers)
            asked += 1
            step = dialect.probe(tuple(answers[:asked]), path)
        if isinstance(step, ProbeFault):
            assert step.reason in PROBE_FAILURES
            assert step.detail
        else:
            assert isinstance(step, Advert)
            assert step.versions or step.silent

    holds()


@every_speech
def test_a_probe_learns_the_range_from_what_its_own_servers_say(speech: Speech) -> None:
    """By their headers, or by a document of theirs; and never another range than that."""
    place = negotiated(speech)[0]
    kind = ("content-type", "application/json")
    lines = folded([*reply_lines(speech, place, speech.own.lowest), kind])
    own = [speech.text(version) for version in (speech.own.lowest, speech.own.highest)]
    specimen = SPECIMENS.get(speech.label) or SPECIMENS.get(speech.dialect.name)
    bodies = [b"{}", *(json.dumps(each).encode() for each in (specimen(*own) if specimen else ()))]
    learned = [
        step.versions
        for status in (200, 300, 401, 406)
        for body in bodies
        for headers in (lines, folded([kind]), folded([]))
        if isinstance(step := speech.dialect.probe((ProbeAnswer(status, headers, body),), None), Advert)
        and not step.silent
    ]

    assert learned
    assert all(versions == speech.own.versions for versions in learned)
