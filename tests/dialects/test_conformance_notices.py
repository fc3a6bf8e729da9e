"""The conformance tests can fail: they notice each breach of the contract in an otherwise correct dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings

from gateway.core.dialect import (
    NO_HEADERS,
    NO_VERSION_REQUESTED,
    Advertisement,
    BackendResponse,
    Endpoint,
    GatewayError,
    Links,
    ProbeRequest,
    ProbeResponse,
    ProbeStep,
    Refusal,
    RequestedKind,
    RequestedVersion,
    Served,
)
from gateway.core.http.message import Header, Response
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.errors import VersionTextError
from tests.dialects import test_conformance as conformance
from tests.dialects.dialect_samples import DialectSample, sample_versions


class ListsAnUnreadHeader(Ironic):
    vary = (*Ironic.vary, "Accept")


class ReadsAnUndeclaredHeader(Ironic):
    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        return NO_VERSION_REQUESTED if "user-agent" in headers else super().read_requested(endpoint, headers)


class RequestsTheNewestByDefault(Ironic):
    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        requested = super().read_requested(endpoint, headers)
        return RequestedVersion(RequestedKind.LATEST) if requested.kind is RequestedKind.NONE else requested


class RaisesOnMalformedText(Ironic):
    def read_requested(self, endpoint: Endpoint, headers: Mapping[str, str]) -> RequestedVersion:
        requested = super().read_requested(endpoint, headers)
        if requested.kind is RequestedKind.MALFORMED:
            self.scheme.require(requested.text)
        return requested


class ChangesWrittenLines(Ironic):
    def write_request(
        self, endpoint: Endpoint, version: Version, headers: Mapping[str, str] = NO_HEADERS
    ) -> tuple[Header, ...]:
        return self.change(super().write_request(endpoint, version, headers))

    def change(self, written: tuple[Header, ...]) -> tuple[Header, ...]:
        raise NotImplementedError


class WritesTwice(ChangesWrittenLines):
    def change(self, written: tuple[Header, ...]) -> tuple[Header, ...]:
        return (*written, *written)


class WritesUnderscores(ChangesWrittenLines):
    def change(self, written: tuple[Header, ...]) -> tuple[Header, ...]:
        return tuple((name.replace("-", "_"), value) for name, value in written)


class WritesAnUnownedHeader(ChangesWrittenLines):
    def change(self, written: tuple[Header, ...]) -> tuple[Header, ...]:
        return (*written, ("X-Other", "1")) if written else ()


class WritesAnotherVersion(ChangesWrittenLines):
    def change(self, written: tuple[Header, ...]) -> tuple[Header, ...]:
        return tuple((name, value.replace("1.", "1.1")) for name, value in written)


class OwnsNoRequestHeader(Ironic):
    owned_request = frozenset[str]()


class RefusesWithoutARange(Ironic):
    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        return replace(super().refuse(refusal, endpoint, headers), headers=(), body=b"")


class RefusesWithAnotherRange(Ironic):
    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        return super().refuse(refusal, endpoint, headers).with_headers(("X-Max", '{"max_version": "9.9"}'))


class RefusesWithBrokenJson(Ironic):
    def refuse(self, refusal: Refusal, endpoint: Endpoint, headers: Mapping[str, str]) -> Response:
        response = super().refuse(refusal, endpoint, headers)
        return replace(response, body=response.body + b"}")


class WritesErrorsWithoutAType(Ironic):
    def error_response(self, error: GatewayError) -> Response:
        return replace(super().error_response(error), headers=())


class PassesOnTheBackendsRange(Ironic):
    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        own = response.served.advertisement
        offered = own.versions if own else response.offered
        return super().write_response(replace(response, offered=offered))


class WritesTheNegotiatedVersion(Ironic):
    def write_response(self, response: BackendResponse) -> tuple[Header, ...]:
        served = response.served
        changed = served if served.version is None else replace(served, version=response.negotiated)
        return super().write_response(replace(response, served=changed))


class ReadsTheServersName(Ironic):
    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        headers.get("server")
        return super().read_response(endpoint, status, headers)


class LeavesDocumentsUnchanged(Ironic):
    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        return body


class RewritesNothing(Ironic):
    def rewrite_document(
        self, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        return None


class ProbesWithoutEnd(Ironic):
    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        return ProbeRequest(path or "/v1")


class IgnoresTheConfiguredPath(Ironic):
    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        return super().probe(answers, None)


class AdvertisesNothing(Ironic):
    def probe(self, answers: tuple[ProbeResponse, ...], path: str | None) -> ProbeStep:
        return Advertisement(VersionSet()) if answers else super().probe(answers, path)


class NumbersEndpoints(Ironic):
    def __init__(self) -> None:
        self.count = 0

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        self.count += 1
        return super().endpoint(method, path, query)._replace(version_in_target=str(self.count))


declares = conformance.test_names_are_folded_or_canonical_and_vary_lists_only_what_is_read_or_owned
depends = (
    conformance.test_requested_versions_and_refusals_depend_only_on_the_headers_that_the_dialect_declares
)
default_version = conformance.test_a_request_without_a_version_gets_the_default_version
requested = conformance.test_any_headers_make_a_requested_version_of_one_of_four_kinds
names = conformance.test_every_name_written_is_owned_canonical_and_written_once
round_trip = conformance.test_what_is_written_for_a_backend_is_read_as_the_same_version
disguises = conformance.test_duplicates_and_disguised_names_end_in_one_version_and_one_spelling
refusal = conformance.test_a_refusal_names_the_range_that_is_offered_and_no_other
any_refusal = conformance.test_a_refusal_of_any_request_can_be_sent
error = conformance.test_any_error_can_be_sent_and_has_the_offer_or_no_range
served = conformance.test_the_served_version_is_passed_on_and_the_range_of_the_backend_is_not
reads = conformance.test_it_reads_only_owned_headers_of_a_response
documents = conformance.test_a_rewritten_document_has_the_offer_and_never_the_range_of_the_backend
probes = conformance.test_a_probe_begins_with_a_request_and_ends_whatever_the_answers_are
any_endpoint = conformance.test_any_target_has_an_endpoint_and_the_same_one_each_time


@pytest.mark.parametrize(
    "test, breach, more",
    [
        (declares, ListsAnUnreadHeader, {}),
        (depends, ReadsAnUndeclaredHeader, {}),
        (default_version, RequestsTheNewestByDefault, {"part": "all"}),
        (requested, RaisesOnMalformedText, {}),
        (names, WritesTwice, {}),
        (names, WritesUnderscores, {}),
        (names, WritesAnUnownedHeader, {}),
        (round_trip, WritesAnotherVersion, {}),
        (disguises, OwnsNoRequestHeader, {}),
        (refusal, RefusesWithoutARange, {}),
        (refusal, RefusesWithAnotherRange, {}),
        (any_refusal, RefusesWithBrokenJson, {}),
        (error, WritesErrorsWithoutAType, {}),
        (served, PassesOnTheBackendsRange, {}),
        (served, WritesTheNegotiatedVersion, {}),
        (reads, ReadsTheServersName, {}),
        (documents, LeavesDocumentsUnchanged, {}),
        (documents, RewritesNothing, {}),
        (probes, ProbesWithoutEnd, {"path": None}),
        (probes, IgnoresTheConfiguredPath, {"path": "/of/the/operator"}),
        (probes, AdvertisesNothing, {"path": None}),
        (any_endpoint, NumbersEndpoints, {}),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_breach_is_noticed(
    test: Callable[..., None], breach: type[Ironic], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first example that fails is enough. Nobody reads it, so it need not be small.
    first_failure = settings(
        max_examples=200, phases=[Phase.generate], database=None, report_multiple_bugs=False
    )
    monkeypatch.setattr(conformance, "few_examples", first_failure)
    dialect = breach()
    sample = DialectSample("ironic", dialect, Ironic.Options(), sample_versions(dialect))

    with pytest.raises((AssertionError, ValueError, VersionTextError)):
        test(sample, **more)
