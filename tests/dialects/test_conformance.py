"""What the gateway requires of every dialect, tested on each that `discover` finds, option by option.

Nothing here knows what a dialect reads or writes: a client's lines are those of `write_request`, and a
backend's are those of `write_response`. So a new dialect must pass all tests from its first day. The exact
bytes of its servers are in tests of its own beside this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.decision.decision import NegotiationResult, Resolution, resolve
from gateway.core.decision.negotiation import negotiate
from gateway.core.decision.operations import (
    OperationRule,
    Operations,
    OperationStatus,
    PathTemplate,
)
from gateway.core.dialect import (
    Advertisement,
    BackendResponse,
    DefaultKind,
    Endpoint,
    GatewayError,
    Links,
    MissingOperation,
    ProbeFault,
    ProbeRequest,
    ProbeResponse,
    Refusal,
    RefusalReason,
    RequestedKind,
    RequestedVersion,
    VersionRefusal,
)
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.snapshot import ServiceView
from gateway.core.http.json_body import MAX_DEPTH, MAX_VALUES
from gateway.core.http.message import Header, RequestHead, Response, as_mapping, normalize_name, render
from gateway.core.versions.ranges import NEWEST, OLDEST, VersionRange, VersionSet
from gateway.core.versions.version import Version
from gateway.dataplane.http1 import request_head
from gateway.dataplane.http1.names import NameTable
from gateway.dialects import discover
from gateway.settings import load
from gateway.telemetry.series.backend import PROBE_FAILURES
from tests.core.builders import explained_json
from tests.dialects.dialect_samples import (
    BODIES,
    DIALECT_SAMPLES,
    DOCUMENT_SAMPLES,
    METHODS,
    STATUSES,
    TARGETS,
    DialectSample,
    WatchedHeaders,
    any_request_lines,
    disguised_name,
    endpoints,
    folded_headers,
    header_values,
    negotiated_endpoints,
    response_lines,
    targets_by_endpoint,
)

every_sample = pytest.mark.parametrize("sample", DIALECT_SAMPLES, ids=lambda sample: sample.label)
few_examples = settings(
    max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow]
)
"""Many dialects share these tests, so each of them gets fewer examples than a test of its own would."""

# --- declarations ------------------------------------------------------------------------------------------


def test_every_dialect_has_samples_with_labels_of_their_own() -> None:
    assert {sample.dialect.name for sample in DIALECT_SAMPLES} == set(discover())
    assert len({sample.label for sample in DIALECT_SAMPLES}) == len(DIALECT_SAMPLES)


@every_sample
def test_names_are_folded_or_canonical_and_vary_lists_only_what_is_read_or_owned(
    sample: DialectSample,
) -> None:
    dialect = sample.dialect

    for names in (dialect.reads, dialect.owned_request, dialect.owned_response):
        assert names == {normalize_name(name) for name in names}
    assert {normalize_name(name) for name in dialect.vary} <= dialect.reads & dialect.owned_request
    assert len({normalize_name(name) for name in dialect.vary}) == len(dialect.vary)
    assert not dialect.owned_request & {"host", "content-length", "transfer-encoding", "connection", "vary"}
    assert not dialect.owned_response & {"content-length", "transfer-encoding", "connection", "vary"}


@every_sample
def test_a_default_version_has_a_constant_only_if_it_is_one(sample: DialectSample) -> None:
    default_version = sample.dialect.default_version

    assert (default_version.constant is not None) == (default_version.kind is DefaultKind.CONSTANT)


@every_sample
def test_a_service_can_be_configured_with_it(sample: DialectSample) -> None:
    """The configuration is JSON, which is YAML as well. An empty list is the same as none."""
    options = to_json(asdict(sample.options))
    options.pop("probes", None)  # which comes from the service
    service = {
        "dialect": sample.dialect.name,
        "backends": [{"url": "http://127.0.0.1:9"}],
        **({sample.dialect.name: options} if options else {}),
    }
    text = json.dumps({"listen": "127.0.0.1:8080", "services": {"api": service}}, indent=1)

    loaded = load(text, filename="test", environ={})

    assert {problem.code for problem in loaded.problems} <= {"misleading"}, loaded.render()
    dialect = loaded.require().services[0].dialect
    assert type(dialect) is type(sample.dialect)
    assert (dialect.reads, dialect.vary, dialect.releases) == (
        sample.dialect.reads,
        sample.dialect.vary,
        sample.dialect.releases,
    )


def to_json(options: Any) -> Any:
    """Options as they are in a file, without None and empty lists."""
    if isinstance(options, dict):
        return {name: to_json(value) for name, value in options.items() if value not in ((), None)}
    return [to_json(option) for option in options] if isinstance(options, tuple) else options


@every_sample
def test_explain_says_for_every_endpoint_what_would_happen(sample: DialectSample) -> None:
    """The result of the request itself is the same, because the decision is the same."""
    current = sample.snapshot(sample.offered)
    for endpoint, (method, path) in targets_by_endpoint(sample.dialect).items():
        for version in sample.versions:
            sends_version = endpoint.negotiated and not endpoint.answered
            lines = sample.request_field_lines(version, endpoint) if sends_version else ()
            explanation = explained_json(current, method, path or "/", lines)
            json.dumps(explanation)
            assert explanation["dialect"] == sample.dialect.name
            if lines and endpoint.version_in_target is None:
                offered = version in sample.offered
                assert explanation["decision"] == ("forward" if offered else "refuse")
                assert explanation["requested"]["kind"] == "exact"
                assert explanation["version"] == (sample.text(version) if offered else None)
            if endpoint.answered:
                assert explanation["decision"] == "answer"


# --- endpoints ---------------------------------------------------------------------------------------------


@every_sample
def test_any_target_has_an_endpoint_and_the_same_one_each_time(sample: DialectSample) -> None:
    @few_examples
    @given(
        st.sampled_from(METHODS) | st.text(max_size=8),
        st.sampled_from(TARGETS)
        | st.text(max_size=30)
        | st.sampled_from(TARGETS).map(lambda path: path + "/%"),
        st.text(max_size=20),
    )
    def holds(method: str, path: str, query: str) -> None:
        endpoint = sample.dialect.endpoint(method, path, query)

        assert isinstance(endpoint, Endpoint)
        assert endpoint == sample.dialect.endpoint(method, path, query)
        assert hash(endpoint) == hash(sample.dialect.endpoint(method, path, query))

    holds()


@every_sample
def test_a_negotiated_document_is_for_versioned_backends_only(sample: DialectSample) -> None:
    assert all(
        endpoint.versioned_only for endpoint in endpoints(sample) if endpoint.document and endpoint.negotiated
    )


# --- requested versions ------------------------------------------------------------------------------------


@every_sample
@pytest.mark.parametrize("part", ["a part", "all"])
def test_a_request_without_a_version_gets_the_default_version(sample: DialectSample, part: str) -> None:
    dialect, default_version = sample.dialect, sample.dialect.default_version
    offered = sample.offered if part == "a part" else sample.backend_versions
    if part == "all" and default_version.constant is not None and dialect.scheme.contiguous:
        offered = VersionSet.between(default_version.constant, sample.versions[-1])
    expected = {
        DefaultKind.MINIMUM: offered.lowest,
        DefaultKind.MAXIMUM: offered.highest,
        DefaultKind.CONSTANT: default_version.constant,
        DefaultKind.REFUSED: None,
    }[default_version.kind]
    view = sample.view(offered)

    for endpoint in negotiated_endpoints(sample):
        assert sample.requested(endpoint, []).kind is RequestedKind.NONE
        resolution = resolve(view, endpoint, RequestHead(*targets_by_endpoint(dialect)[endpoint]), "/")
        if expected is not None and expected in offered:
            assert (resolution.result, resolution.version) == (NegotiationResult.SERVED, expected)
            assert (
                sample.requested(
                    sample.endpoint_with(endpoint, expected), lines_of(resolution.request_field_lines)
                ).version
                == expected
            )
        else:
            assert resolution.response is not None
            assert resolution.response.status >= 400
            assert resolution.result is not NegotiationResult.SERVED


@every_sample
def test_what_is_written_for_a_backend_is_read_as_the_same_version(sample: DialectSample) -> None:
    """All lines together, and each line alone that has a version: some releases read only one of them."""
    dialect = sample.dialect
    for endpoint in negotiated_endpoints(sample):
        for version in sample.versions:
            written = sample.request_field_lines(version, endpoint)
            alone = [sample.requested(endpoint, [line]) for line in written]
            assert sample.requested(sample.endpoint_with(endpoint, version), written).version == version
            read = {requested.version for requested in alone if requested.kind is not RequestedKind.NONE}
            assert read == ({version} if written or not dialect.target_has_version else set())


@every_sample
def test_any_headers_make_a_requested_version_of_one_of_four_kinds(sample: DialectSample) -> None:
    @few_examples
    @given(any_request_lines(sample), st.sampled_from(negotiated_endpoints(sample)))
    def holds(lines: list[Header], endpoint: Endpoint) -> None:
        requested = sample.requested(endpoint, lines)

        assert (requested.version is not None) == (requested.kind is RequestedKind.EXACT)
        # None: a version that cannot be on offer may be requested (Chef -1), but it is never read as another
        # one.
        assert requested.version is None or sample.dialect.scheme.parse(sample.text(requested.version)) in {
            None,
            requested.version,
        }

    holds()


@every_sample
def test_requested_versions_and_refusals_depend_only_on_the_headers_that_the_dialect_declares(
    sample: DialectSample,
) -> None:
    """The data plane caches decisions by these headers and the endpoint."""
    dialect = sample.dialect
    others = [("x-request-id", "2.7"), ("user-agent", "1.9"), ("x-forwarded-for", "10.0.0.1")]

    @few_examples
    @given(any_request_lines(sample), st.sampled_from(negotiated_endpoints(sample)))
    def holds(lines: list[Header], endpoint: Endpoint) -> None:
        read = [line for line in lines if line[0] in dialect.reads]
        bare, watched = folded_headers(read), WatchedHeaders([*lines, *others])
        requested = dialect.read_requested(endpoint, watched)
        assert requested == dialect.read_requested(endpoint, bare) == dialect.read_requested(endpoint, bare)
        refusal = refusal_of(sample, requested)
        if refusal is not None:
            assert dialect.refuse(refusal, endpoint, watched) == dialect.refuse(refusal, endpoint, bare)
        if requested.version is not None:
            written = dialect.write_request(endpoint, requested.version, watched)
            assert written == dialect.write_request(endpoint, requested.version, bare)
        assert watched.seen <= dialect.reads

    holds()


# --- written headers ---------------------------------------------------------------------------------------


@every_sample
def test_every_name_written_is_owned_canonical_and_written_once(sample: DialectSample) -> None:
    dialect = sample.dialect
    in_requests: dict[str, set[str]] = {normalize_name(name): {name} for name in dialect.vary}
    in_responses: dict[str, set[str]] = {}

    def check(written: Sequence[Header], owned: frozenset[str], spellings: dict[str, set[str]]) -> None:
        render(written)
        names = [normalize_name(name) for name, _ in written]
        assert set(names) <= owned
        assert len(set(names)) == len(names)
        for name, value in written:
            assert re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", name)
            assert not re.search(r"[\x00-\x1f\x7f]|^ | $", value)
            spellings.setdefault(normalize_name(name), set()).add(name)

    for endpoint in endpoints(sample):
        for version in sample.versions:
            if endpoint.negotiated and not endpoint.answered:
                check(sample.request_field_lines(version, endpoint), dialect.owned_request, in_requests)
            for status in (100, 200, 204, 300, 400, 401, 404, 406, 500, 503):
                check(response_lines(sample, endpoint, version, status), dialect.owned_response, in_responses)
    assert all(len(found) == 1 for found in (*in_requests.values(), *in_responses.values()))


@every_sample
def test_a_legacy_backend_is_never_sent_an_owned_header(sample: DialectSample) -> None:
    dialect = sample.dialect
    view = sample.view(sample.offered)

    @few_examples
    @given(any_request_lines(sample), st.sampled_from(negotiated_endpoints(sample)))
    def holds(lines: list[Header], endpoint: Endpoint) -> None:
        resolution = resolve(view, endpoint, RequestHead("GET", "/x", "", tuple(lines)), "/x")
        if resolution.requested is None or not resolution.requested.signed:
            sent = {normalize_name(name) for name, _ in lines_of(resolution.legacy_request_field_lines)}
            assert not sent & dialect.owned_request

    holds()


@every_sample
def test_where_nothing_is_negotiated_no_version_is_sent(sample: DialectSample) -> None:
    """What is left of an owned header there has no version, and each name is there once."""
    dialect = sample.dialect

    @few_examples
    @given(any_request_lines(sample), st.sampled_from(negotiated_endpoints(sample)))
    def holds(lines: list[Header], endpoint: Endpoint) -> None:
        left = dialect.without_version(folded_headers(lines))
        names = [normalize_name(name) for name, _ in left]
        assert len(set(names)) == len(names)
        assert set(names) <= dialect.owned_request
        render(left)
        if sample.requested(endpoint, lines).kind is not RequestedKind.MALFORMED:
            assert sample.requested(endpoint, left).kind is RequestedKind.NONE

    holds()


def lines_of(request_field_lines: bytes) -> list[Header]:
    """Rendered header lines as names and values."""
    found = (line.partition(": ") for line in request_field_lines.decode("latin-1").split("\r\n") if line)
    return [(name, value) for name, _, value in found]


def read_and_resolve(
    view: ServiceView, endpoint: Endpoint, lines: Sequence[Header]
) -> tuple[request_head.RequestHead, Resolution]:
    """A request's head and its decision, from bytes that the data plane's own reader reads."""
    head = b"GET /x HTTP/1.1\r\nHost: api.test\r\n" + render(lines) + b"\r\n"
    dialect = view.service.dialect
    table = NameTable.for_requests(dialect.reads | dialect.owned_request)
    read = request_head.read_request_head(head, table, Limits())
    return read, resolve(view, endpoint, read, read.path)


@every_sample
def test_duplicates_and_disguised_names_end_in_one_version_and_one_spelling(sample: DialectSample) -> None:
    """Threats V1 to V4: whatever a client repeats or disguises, a backend reads the negotiated version."""
    dialect = sample.dialect
    view = sample.view(sample.backend_versions)
    read_only = dialect.reads - dialect.owned_request

    @few_examples
    @given(
        st.lists(st.sampled_from(sample.versions), min_size=1, max_size=3),
        any_request_lines(sample),
        st.sampled_from(negotiated_endpoints(sample)),
        st.randoms(use_true_random=False),
        st.booleans(),
    )
    def holds(
        versions: list[Version], odd: list[Header], endpoint: Endpoint, random: Random, valid: bool
    ) -> None:
        lines = [line for version in versions for line in sample.request_field_lines(version, endpoint)]
        lines = lines if valid else [*odd, *lines]
        random.shuffle(lines)
        disguised = [(disguised_name(name, random), value) for name, value in lines]
        # A name with `_` is dropped: it is neither read nor passed on.
        read = [line for line, (name, _) in zip(lines, disguised, strict=True) if "_" not in name]
        _, plain = read_and_resolve(view, endpoint, read)
        reader, resolution = read_and_resolve(view, endpoint, disguised)

        assert (resolution.result, resolution.version) == (plain.result, plain.version)
        assert resolution.request_field_lines == plain.request_field_lines
        passed_on = {normalize_name(name) for name, _ in lines_of(reader.passthrough)}
        assert not passed_on & (dialect.owned_request | dialect.reads)
        if resolution.result is not NegotiationResult.SERVED:
            assert resolution.request_field_lines == b""
            return
        assert resolution.requested is not None
        if resolution.requested.signed:
            assert resolution.request_field_lines == render(reader.fields)
            return
        if valid and read and not dialect.target_has_version:
            assert resolution.version in versions
        sent = lines_of(resolution.request_field_lines)
        assert resolution.version is not None
        assert [line for line in sent if normalize_name(line[0]) not in read_only] == list(
            dialect.write_request(endpoint, resolution.version, as_mapping(reader.fields))
        )
        assert (
            sample.requested(sample.endpoint_with(endpoint, resolution.version), sent).version
            == resolution.version
        )

    holds()


# --- local responses ---------------------------------------------------------------------------------------


def refusal_of(
    sample: DialectSample, requested: RequestedVersion, offered: VersionSet | None = None
) -> Refusal | None:
    """Why the gateway would refuse the requested version; None when it would not."""
    negotiated = negotiate(
        requested, offered or sample.offered, sample.dialect.default_version, sample.dialect.version_match
    )
    return negotiated if isinstance(negotiated, Refusal) else None


def refusals(sample: DialectSample, offered: VersionSet) -> Iterator[tuple[Endpoint, Response]]:
    """The refusals of all sample versions that are not in `offered`."""
    for endpoint in negotiated_endpoints(sample):
        for version in sample.versions:
            lines = sample.request_field_lines(version, endpoint)
            refusal = refusal_of(
                sample, sample.requested(sample.endpoint_with(endpoint, version), lines), offered
            )
            if refusal is not None:
                yield endpoint, sample.dialect.refuse(refusal, endpoint, folded_headers(lines))


def response_text(response: Response) -> str:
    """The header values and the body of a response, as one text."""
    return "\n".join([*(value for _, value in response.headers), response.body.decode("utf-8")])


def check_body(response: Response) -> None:
    """The body matches its `Content-Type`, of which there is one."""
    render(response.headers)
    kinds = [value.lower() for name, value in response.headers if normalize_name(name) == "content-type"]
    assert len(kinds) == (1 if response.body else len(kinds)) <= 1
    # The caller adds these.
    added = {"content-length", "transfer-encoding", "vary", "retry-after"}
    assert not added & {normalize_name(name) for name, _ in response.headers}
    if kinds and "json" in kinds[0]:
        json.loads(response.body)
    elif kinds:
        assert kinds[0].startswith("text/")
        response.body.decode("utf-8")


@every_sample
def test_a_refusal_names_the_range_that_is_offered_and_no_other(sample: DialectSample) -> None:
    for offered in (sample.offered, sample.offered_between(2, 4)):
        low, high = texts_of(sample, offered)
        found = list(refusals(sample, offered))
        assert found
        for _, response in found:
            text = response_text(response)
            check_body(response)
            assert 400 <= response.status < 500
            assert has_version(low, text)
            assert has_version(high, text)
            assert range_ends(text) <= {low, high}


@every_sample
def test_a_refusal_in_a_brownout_says_why_in_the_form_of_the_api(sample: DialectSample) -> None:
    why = "API versions below 1.5 are refused until 2026-02-03T10:00:00Z (brown-out). See https://a/b?c=1"
    for endpoint in negotiated_endpoints(sample):
        for version in sample.versions:
            lines = sample.request_field_lines(version, endpoint)
            requested = sample.requested(sample.endpoint_with(endpoint, version), lines)
            refusal = Refusal(RefusalReason.BROWNOUT, requested, version, sample.offered, why)
            response = sample.dialect.refuse(refusal, endpoint, folded_headers(lines))
            check_body(response)
            assert why in response.body.decode()
            assert 400 <= response.status < 500


def has_version(version: str, text: str) -> bool:
    """Whether `text` has the version by itself, not as a part of another one."""
    return re.search(rf"(?<![\w.]){re.escape(version)}(?![\w]|\.\d)", text) is not None


_RANGE_END = re.compile(r"(?:min|max)\w*[\\\"': ]+(\d+(?:[.-]\d+)*)", re.IGNORECASE)


def range_ends(text: str) -> set[str]:
    """The versions after a key or a word for minimum or maximum, in JSON (nested or not) or in a sentence."""
    return set(_RANGE_END.findall(text)) | set(re.findall(r"(?:inimum|aximum) is '?([\d.]*\d)", text))


@every_sample
def test_a_refusal_of_any_request_can_be_sent(sample: DialectSample) -> None:
    @few_examples
    @given(any_request_lines(sample), st.sampled_from(negotiated_endpoints(sample)))
    def holds(lines: list[Header], endpoint: Endpoint) -> None:
        requested = sample.requested(endpoint, lines)
        refusal = refusal_of(sample, requested)
        if refusal is None:
            refusal = Refusal(
                RefusalReason.MALFORMED,
                RequestedVersion(RequestedKind.MALFORMED, text=requested.text),
                None,
                sample.offered,
            )
        response = sample.dialect.refuse(refusal, endpoint, folded_headers(lines))
        check_body(response)
        assert 400 <= response.status < 500
        owned = {normalize_name(name) for name, _ in response.headers} - {"content-type"}
        assert owned <= sample.dialect.owned_response | {"cache-control", "x-openstack-request-id"}
        if refusal.version is not None:
            text = response_text(response)
            assert has_version(sample.text(sample.offered.lowest), text)
            assert has_version(sample.text(sample.offered.highest), text)

    holds()


@every_sample
def test_any_error_can_be_sent_and_has_the_offer_or_no_range(sample: DialectSample) -> None:
    dialect = sample.dialect

    @few_examples
    @given(
        st.sampled_from([400, 404, 405, 413, 500, 502, 503, 504]),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40),
        st.none() | st.sampled_from([sample.offered, sample.backend_versions]),
        st.none()
        | st.just(RequestedVersion(RequestedKind.EXACT, sample.versions[2], sample.text(sample.versions[2])))
        | st.just(RequestedVersion(RequestedKind.MALFORMED, text='"spam\xe9')),
    )
    def holds(
        status: int, detail: str, offered: VersionSet | None, requested: RequestedVersion | None
    ) -> None:
        response = dialect.error_response(
            GatewayError(status, detail, retry_after=2, offered=offered, requested=requested)
        )
        check_body(response)
        assert response.status == status
        assert {normalize_name(name) for name, _ in response.headers} - {
            "content-type"
        } <= dialect.owned_response
        ends = range_ends("\n".join(value for _, value in response.headers))
        allowed = set() if offered is None else {sample.text(offered.lowest), sample.text(offered.highest)}
        assert ends <= allowed

    holds()


@every_sample
@pytest.mark.parametrize("status", [None, 400, 404])
def test_an_operation_outside_its_versions_is_refused_as_its_servers_do(
    sample: DialectSample, status: int | None
) -> None:
    """It is no version refusal, so no client negotiates again and no proxy tries another backend."""
    dialect = sample.dialect
    for endpoint in negotiated_endpoints(sample):
        for version in sample.versions[1:4]:
            requested = RequestedVersion(RequestedKind.EXACT, version, sample.text(version))
            response = dialect.refuse_operation(MissingOperation(version, requested, sample.offered, status))
            check_body(response)
            assert response.status == status if status else response.status in (400, 404)
            assert response_text(response)
            owned = folded_headers(response.headers)
            assert set(owned) - {"content-type"} <= dialect.owned_response
            served = dialect.read_response(endpoint, response.status, owned)
            assert served.version_refusal is VersionRefusal.NO
            assert served.version in {None, version}
            assert served.advertisement is None or served.advertisement.versions == sample.offered
            assert dialect.read_refusal(response.status, response.body) is None


@every_sample
def test_an_answered_endpoint_has_the_offer_and_no_other_range(sample: DialectSample) -> None:
    for endpoint, (method, path) in targets_by_endpoint(sample.dialect).items():
        if not endpoint.answered:
            continue
        for offered in (None, sample.offered):
            head = RequestHead(method, path, "")
            response = sample.dialect.answer(endpoint, head, offered, OPERATIONS)
            check_body(response)
            allowed = (
                set() if offered is None else {sample.text(offered.lowest), sample.text(offered.highest)}
            )
            assert range_ends(response_text(response)) <= allowed
            if offered is not None and response.status == 200 and method == "GET":
                assert allowed <= set(re.findall(r"\d+(?:\.\d+)*", response_text(response)))
            if endpoint.rate_limited:
                requested = sample.dialect.read_requested(endpoint, folded_headers([]))
                check_body(sample.dialect.error_response(GatewayError(429, "x", 1, offered, requested)))


OPERATIONS: Final = Operations.of(
    [
        OperationRule(("GET", "PUT"), PathTemplate.read("/x"), VersionSet((VersionRange(OLDEST, NEWEST),))),
        OperationRule(("GET",), PathTemplate.read("/{y}/x"), VersionSet(), OperationStatus.UNSTABLE),
    ]
)


# --- responses of backends ---------------------------------------------------------------------------------


@every_sample
def test_the_served_version_is_passed_on_and_the_range_of_the_backend_is_not(sample: DialectSample) -> None:
    """For dialects with an echo: the version of a server of their own kind is read and written unchanged."""
    dialect, version_1 = sample.dialect, sample.versions[1]
    echoes = [response_lines(sample, endpoint, version_1) for endpoint in negotiated_endpoints(sample)]
    assert any(echoes) or not dialect.owned_response
    for endpoint in negotiated_endpoints(sample):
        for version in sample.versions:
            lines = response_lines(sample, endpoint, version)
            served = dialect.read_response(endpoint, 200, folded_headers(lines))
            assert served.version in {None, version}
            assert served.version_refusal is not VersionRefusal.YES
            if served.advertisement is not None:
                assert served.advertisement.versions == sample.backend_versions
            written = dialect.write_response(
                BackendResponse(endpoint, 200, served, version_1, sample.offered)
            )
            again = dialect.read_response(endpoint, 200, folded_headers(written))
            assert again.version == served.version
            assert again.advertisement is None or again.advertisement.versions == sample.offered
            assert (again.advertisement is None) == (served.advertisement is None)
            ends = range_ends("\n".join(f"{name}: {value}" for name, value in written))
            assert ends <= {sample.text(sample.offered.lowest), sample.text(sample.offered.highest)}


@every_sample
def test_it_reads_only_owned_headers_of_a_response(sample: DialectSample) -> None:
    dialect = sample.dialect
    for endpoint in endpoints(sample):
        for status in (200, 400, 404, 406, 503):
            watched = WatchedHeaders(
                [*response_lines(sample, endpoint, sample.versions[1]), ("server", "1.9"), ("x-a", "2")]
            )
            dialect.read_response(endpoint, status, watched)
            assert watched.seen - {""} <= dialect.owned_response


@every_sample
def test_any_response_can_be_read_and_its_headers_written(sample: DialectSample) -> None:
    dialect = sample.dialect
    names = sorted(dialect.owned_response) or ["x-none"]

    @few_examples
    @given(
        st.lists(st.tuples(st.sampled_from(names), header_values(sample)), max_size=5),
        st.sampled_from(endpoints(sample)),
        STATUSES,
        st.none() | st.sampled_from(sample.versions),
        st.booleans(),
        BODIES,
    )
    def holds(
        lines: list[Header],
        endpoint: Endpoint,
        status: int,
        negotiated: Version | None,
        legacy: bool,
        body: bytes,
    ) -> None:
        headers = folded_headers(lines)
        served = dialect.read_response(endpoint, status, headers)
        written = dialect.write_response(
            BackendResponse(endpoint, status, served, negotiated, sample.offered, legacy=legacy)
        )
        render(written)
        folded_names = [normalize_name(name) for name, _ in written]
        assert set(folded_names) <= dialect.owned_response
        assert len(set(folded_names)) == len(folded_names)
        assert served.advertisement is None or served.advertisement.versions
        assert served.version_refusal is VersionRefusal.NO or status >= 300
        named = dialect.read_refusal(status, body)
        assert named is None or named.versions

    holds()


# --- documents ---------------------------------------------------------------------------------------------

LINKS: Final = Links("http://10.0.0.5:8774", "api.example", "https://api.example/compute")


@every_sample
def test_a_rewritten_document_has_the_offer_and_never_the_range_of_the_backend(sample: DialectSample) -> None:
    offered, backend = texts_of(sample, sample.offered), texts_of(sample, sample.backend_versions)
    found = set()
    for endpoint in endpoints(sample):
        if not endpoint.document:
            continue
        write_documents = DOCUMENT_SAMPLES.get(sample.label) or DOCUMENT_SAMPLES[sample.dialect.name]
        for document in write_documents(*backend):
            body = sample.dialect.rewrite_document(
                endpoint, json.dumps(document).encode(), sample.offered, LINKS
            )
            if body is not None:
                versions = set(leaves(json.loads(body)))
                assert not versions & set(backend), f"{endpoint.name}: {document}"
                assert b"10.0.0.5" not in body
                found |= versions & set(offered)
    assert any(endpoint.document for endpoint in endpoints(sample)) == bool(found)
    assert not found or sample.text(sample.offered.highest) in found


def texts_of(sample: DialectSample, offered: VersionSet) -> tuple[str, str]:
    """The minimum and the maximum as texts."""
    return sample.text(offered.lowest), sample.text(offered.highest)


def leaves(node: Any) -> Iterator[str]:
    """Every text and number in a document, without the keys."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from leaves(child)
    else:
        yield str(node)


@every_sample
def test_any_body_is_a_document_or_passed_on_unchanged(sample: DialectSample) -> None:
    @few_examples
    @given(st.sampled_from(endpoints(sample)), BODIES)
    def holds(endpoint: Endpoint, body: bytes) -> None:
        document = sample.dialect.rewrite_document(endpoint, body, sample.offered, LINKS)
        if document is not None:
            json.loads(document)
            assert document == sample.dialect.rewrite_document(endpoint, body, sample.offered, LINKS)

    holds()


@every_sample
def test_a_document_is_read_within_limits(sample: DialectSample) -> None:
    """Otherwise one document of a backend could hold all requests for seconds (threats R-B12)."""
    write_documents = DOCUMENT_SAMPLES.get(sample.label) or DOCUMENT_SAMPLES.get(sample.dialect.name)
    documents = write_documents(*texts_of(sample, sample.backend_versions)) if write_documents else ()
    for endpoint in endpoints(sample):
        for document in documents:
            rewrite = partial(sample.dialect.rewrite_document, endpoint, offered=sample.offered, links=LINKS)
            if endpoint.document and rewrite(json.dumps(document).encode()) is not None:
                assert rewrite(enlarged(document, MAX_DEPTH, 1)) is not None
                assert rewrite(enlarged(document, MAX_DEPTH + 1, 1)) is None
                assert rewrite(enlarged(document, 2, MAX_VALUES)) is None


def enlarged(document: Any, levels: int, values: int) -> bytes:
    """The document with so many levels, in the last of which are so many values."""
    more: list[Any] = [0] * values
    for _ in range(levels - 2):
        more = [more]
    return json.dumps({**document, "x": more} if isinstance(document, dict) else [*document, more]).encode()


# --- probes ------------------------------------------------------------------------------------------------


@every_sample
@pytest.mark.parametrize("path", [None, "/of/the/operator"])
def test_a_probe_begins_with_a_request_and_ends_whatever_the_answers_are(
    sample: DialectSample, path: str | None
) -> None:
    dialect = sample.dialect
    first = dialect.probe((), path)
    names = sorted(dialect.owned_response | {"content-type", "location", "x-goiardi"})

    assert isinstance(first, ProbeRequest)
    assert first.path == path if path else first.path.startswith("/")
    render(first.headers)

    answer = st.builds(
        ProbeResponse,
        STATUSES,
        st.lists(st.tuples(st.sampled_from(names), header_values(sample)), max_size=4).map(folded_headers),
        BODIES,
    )

    @few_examples
    @given(st.lists(answer, min_size=4, max_size=4))
    def holds(answers: list[ProbeResponse]) -> None:
        step, count = dialect.probe((), path), 0
        while isinstance(step, ProbeRequest):
            assert count < 4, "a fifth request"
            assert step.path.startswith("/")
            render(step.headers)
            count += 1
            step = dialect.probe(tuple(answers[:count]), path)
        if isinstance(step, ProbeFault):
            assert step.reason in PROBE_FAILURES
            assert step.detail
        else:
            assert isinstance(step, Advertisement)
            assert step.versions or step.legacy

    holds()


@every_sample
def test_a_probe_learns_the_range_from_the_responses_of_its_own_servers(sample: DialectSample) -> None:
    """From their headers or from one of their documents, and never another range than theirs."""
    endpoint = negotiated_endpoints(sample)[0]
    json_type = ("content-type", "application/json")
    lines = [*response_lines(sample, endpoint, sample.backend_versions.lowest), json_type]
    write_documents = DOCUMENT_SAMPLES.get(sample.label) or DOCUMENT_SAMPLES.get(sample.dialect.name)
    backend = texts_of(sample, sample.backend_versions)
    documents = tuple(write_documents(*backend)) if write_documents else ()
    learned = [
        step.versions
        for status in (200, 300, 401, 406)
        for body in (b"{}", *(json.dumps(document).encode() for document in documents))
        for headers in (folded_headers(lines), folded_headers([json_type]), folded_headers([]))
        if isinstance(
            step := sample.dialect.probe((ProbeResponse(status, headers, body),), None), Advertisement
        )
        and not step.legacy
    ]

    assert learned
    assert all(versions == sample.backend_versions for versions in learned)
