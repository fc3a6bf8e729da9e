"""The conformance tests can fail: each breach of the contract, in an otherwise good dialect, is noticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings

from gateway.core.dialect import (
    ASK_SILENT,
    NO_HEADERS,
    Advert,
    Ask,
    AskKind,
    Bounds,
    Failure,
    Links,
    Place,
    ProbeAnswer,
    ProbeRequest,
    ProbeStep,
    Refusal,
    Served,
)
from gateway.core.message import Header, Reply
from gateway.core.ranges import VersionSet
from gateway.core.version import Version
from gateway.dialects.ironic import SERVED, Ironic
from gateway.errors import VersionTextError
from tests.dialects import test_conformance as conformance
from tests.dialects.speeches import Speech, ladder


class ListsAStranger(Ironic):
    vary = (*Ironic.vary, "Accept")


class ReadsAStranger(Ironic):
    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        return ASK_SILENT if "user-agent" in headers else super().read_ask(place, headers)


class TakesSilenceForTheNewest(Ironic):
    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        ask = super().read_ask(place, headers)
        return Ask(AskKind.LATEST) if ask.kind is AskKind.SILENT else ask


class RaisesOnGarbage(Ironic):
    def read_ask(self, place: Place, headers: Mapping[str, str]) -> Ask:
        ask = super().read_ask(place, headers)
        if ask.kind is AskKind.GARBLED:
            self.scheme.require(ask.text)
        return ask


class Writes(Ironic):
    def write_request(
        self,
        place: Place,
        version: Version,
        ask: Ask,
        *,
        silent: bool,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> tuple[Header, ...]:
        written = super().write_request(place, version, ask, silent=silent, headers=headers)
        return self.bent(written, silent=silent)

    def bent(self, written: tuple[Header, ...], *, silent: bool) -> tuple[Header, ...]:
        raise NotImplementedError


class WritesTwice(Writes):
    def bent(self, written: tuple[Header, ...], *, silent: bool) -> tuple[Header, ...]:
        return (*written, *written)


class WritesATwin(Writes):
    def bent(self, written: tuple[Header, ...], *, silent: bool) -> tuple[Header, ...]:
        return tuple((name.replace("-", "_"), value) for name, value in written)


class WritesAStranger(Writes):
    def bent(self, written: tuple[Header, ...], *, silent: bool) -> tuple[Header, ...]:
        return (*written, ("X-Stranger", "1")) if written else ()


class WritesAnotherVersion(Writes):
    def bent(self, written: tuple[Header, ...], *, silent: bool) -> tuple[Header, ...]:
        return tuple((name, value.replace("1.", "1.1")) for name, value in written)


class WritesToTheSilent(Writes):
    def bent(self, written: tuple[Header, ...], *, silent: bool) -> tuple[Header, ...]:
        return written or ((SERVED, "1.1"),)


class DropsNothing(Ironic):
    owned_request = frozenset[str]()


class RefusesWithoutARange(Ironic):
    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        return replace(super().refuse(refusal, place, headers), headers=(), body=b"")


class RefusesWithAForeignRange(Ironic):
    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        return super().refuse(refusal, place, headers).with_headers(("X-Max", '{"max_version": "9.9"}'))


class RefusesWithBrokenJson(Ironic):
    def refuse(self, refusal: Refusal, place: Place, headers: Mapping[str, str]) -> Reply:
        reply = super().refuse(refusal, place, headers)
        return replace(reply, body=reply.body + b"}")


class FailsWithoutAType(Ironic):
    def fail(self, failure: Failure) -> Reply:
        return replace(super().fail(failure), headers=())


class TellsTheBackendsRange(Ironic):
    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[Header, ...]:
        own = Bounds(served.advert.versions) if served.advert else bounds
        return super().write_reply(place, status, served, settled, own, silent=silent)


class TellsWhatWasSettled(Ironic):
    def write_reply(
        self,
        place: Place,
        status: int,
        served: Served,
        settled: Version | None,
        bounds: Bounds,
        *,
        silent: bool,
    ) -> tuple[Header, ...]:
        told = served if served.version is None else replace(served, version=settled)
        return super().write_reply(place, status, told, settled, bounds, silent=silent)


class ReadsTheServersName(Ironic):
    def read_reply(self, place: Place, status: int, headers: Mapping[str, str]) -> Served:
        headers.get("server")
        return super().read_reply(place, status, headers)


class LeavesDocuments(Ironic):
    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        return body


class RewritesNothing(Ironic):
    def rewrite_document(self, place: Place, body: bytes, bounds: Bounds, links: Links) -> bytes | None:
        return None


class AsksWithoutEnd(Ironic):
    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        return ProbeRequest(path or "/v1")


class IgnoresTheOperator(Ironic):
    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        return super().probe(answers, None)


class AdvertisesNothing(Ironic):
    def probe(self, answers: tuple[ProbeAnswer, ...], path: str | None) -> ProbeStep:
        return Advert(VersionSet()) if answers else super().probe(answers, path)


class RemembersPlaces(Ironic):
    def __init__(self) -> None:
        self.asked = 0

    def place(self, method: str, path: str, query: str) -> Place:
        self.asked += 1
        return super().place(method, path, query)._replace(carried=str(self.asked))


declares = conformance.test_names_are_folded_or_canonical_and_vary_lists_only_what_is_read_or_owned
depends = conformance.test_asks_and_refusals_depend_on_what_the_dialect_says_it_reads_and_on_nothing_else
silence = conformance.test_silence_means_what_the_dialect_says
asks = conformance.test_any_headers_make_one_of_four_asks
names = conformance.test_every_name_written_is_owned_canonical_and_written_once
round_trip = conformance.test_what_is_written_for_a_backend_is_read_as_the_same_version
silent = conformance.test_a_silent_backend_is_never_sent_an_owned_header
tricks = conformance.test_duplicates_and_tricks_with_names_end_in_one_version_and_one_spelling
refusal = conformance.test_a_refusal_names_the_range_that_is_offered_and_no_other
any_refusal = conformance.test_any_refusal_that_requests_bring_about_can_be_sent
failure = conformance.test_any_failure_can_be_sent_and_tells_the_offer_or_no_range
crosses = conformance.test_the_served_version_crosses_as_the_backend_said_it_and_its_range_does_not
reads = conformance.test_it_reads_of_a_reply_what_it_owns_there_and_nothing_else
documents = conformance.test_a_rewritten_document_tells_the_offer_and_never_the_backends_own_range
probes = conformance.test_a_probe_begins_with_a_question_and_any_answers_end_it
any_place = conformance.test_any_target_is_a_place_and_the_same_one_each_time


@pytest.mark.parametrize(
    "test, breach, more",
    [
        (declares, ListsAStranger, {}),
        (depends, ReadsAStranger, {}),
        (silence, TakesSilenceForTheNewest, {"offered": "all"}),
        (asks, RaisesOnGarbage, {}),
        (names, WritesTwice, {}),
        (names, WritesATwin, {}),
        (names, WritesAStranger, {}),
        (round_trip, WritesAnotherVersion, {}),
        (silent, WritesToTheSilent, {}),
        (tricks, DropsNothing, {}),
        (refusal, RefusesWithoutARange, {}),
        (refusal, RefusesWithAForeignRange, {}),
        (any_refusal, RefusesWithBrokenJson, {}),
        (failure, FailsWithoutAType, {}),
        (crosses, TellsTheBackendsRange, {}),
        (crosses, TellsWhatWasSettled, {}),
        (reads, ReadsTheServersName, {}),
        (documents, LeavesDocuments, {}),
        (documents, RewritesNothing, {}),
        (probes, AsksWithoutEnd, {"path": None}),
        (probes, IgnoresTheOperator, {"path": "/of/the/operator"}),
        (probes, AdvertisesNothing, {"path": None}),
        (any_place, RemembersPlaces, {}),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_breach_is_noticed(
    test: Callable[..., None], breach: type[Ironic], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first example that fails is enough: nobody will look at a small one.
    at_once = settings(max_examples=200, phases=[Phase.generate], database=None, report_multiple_bugs=False)
    monkeypatch.setattr(conformance, "narrow", at_once)
    dialect = breach()
    speech = Speech("ironic", dialect, Ironic.Options(), ladder(dialect))

    with pytest.raises((AssertionError, ValueError, VersionTextError)):
        test(speech, **more)
