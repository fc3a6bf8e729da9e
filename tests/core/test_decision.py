"""decide(): every kind of decision, and what is cached on the way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.decision.decision import (
    MAX_CACHED_DECISIONS,
    MAX_CACHED_REQUEST_SIZE,
    NO_ROUTE,
    Answer,
    Decision,
    DecisionCache,
    Forward,
    NegotiationResult,
    Refuse,
    Unrouted,
    decide,
)
from gateway.core.decision.local_responses import RETRY_AFTER
from gateway.core.dialect import DefaultKind, DefaultVersion, Dialect, RequestedKind
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.service import Match, Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header, RequestHead
from tests.core.builders import OtherToy, Toy, legacy, service, snapshot, upto, v

MIXED = snapshot({"old": upto(5), "new": upto(9)})
REACHABLE = snapshot({"old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE)


def send(
    base: Snapshot,
    path: str = "/x",
    version: str | None = None,
    *more: Header,
    decision_cache: DecisionCache | None = None,
    in_flight_by_member: Mapping[str, int] | None = None,
    method: str = "GET",
) -> Decision:
    fields = (*(() if version is None else (("x-version", version),)), *more)
    return decide(
        base,
        RequestHead(method, path, "q=1", fields),
        "api.test",
        in_flight_by_member or {},
        0,
        {} if decision_cache is None else decision_cache,
    )


def forwarded(decision: Decision) -> Forward:
    assert isinstance(decision, Forward)
    return decision


def refused(decision: Decision) -> Refuse:
    assert isinstance(decision, Refuse)
    return decision


def able(decision: Decision) -> set[str]:
    return {member.backend.name for member in forwarded(decision).resolution.candidates.members}


# --- forward -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, kind, negotiated, candidates",
    [
        ("1.3", RequestedKind.EXACT, "1.3", {"old", "new"}),
        ("1.8", RequestedKind.EXACT, "1.8", {"new"}),
        ("latest", RequestedKind.LATEST, "1.9", {"new"}),
        (None, RequestedKind.NONE, "1.1", {"old", "new"}),
    ],
)
def test_it_goes_to_one_that_serves_the_version(
    version: str | None, kind: RequestedKind, negotiated: str, candidates: set[str]
) -> None:
    decision = forwarded(send(REACHABLE, "/x", version))
    resolution = decision.resolution

    assert (resolution.result, resolution.version, resolution.version_text) == (
        NegotiationResult.SERVED,
        v(negotiated),
        negotiated,
    )
    assert resolution.requested is not None
    assert resolution.requested.kind is kind
    assert able(decision) == candidates
    assert decision.member is not None
    assert decision.member.backend.name in candidates
    assert (decision.path, resolution.response) == ("/x", None)
    assert resolution.offered == REACHABLE.views["toy"].offer.offered


def test_the_negotiated_version_is_written_and_headers_that_are_not_owned_pass() -> None:
    resolution = forwarded(send(MIXED, "/x", "1.3", ("x-kind", "forged"), ("accept", "text/x"))).resolution

    assert resolution.request_field_lines == b"X-Version: 1.3\r\nX-Kind: text/x\r\naccept: text/x\r\n"
    assert resolution.legacy_request_field_lines == b"accept: text/x\r\n"


def test_requests_in_flight_and_random_bits_choose() -> None:
    decision = forwarded(send(MIXED, in_flight_by_member={"toy/old": 5}))

    assert decision.member is not None
    assert decision.member.backend.name == "new"


def test_a_signed_request_is_routed_by_its_version_and_not_rewritten() -> None:
    resolution = forwarded(
        send(REACHABLE, "/x", "signed 1.8", ("x-kind", "signed, too"), ("accept", "text/x"))
    ).resolution

    assert resolution.version == v("1.8")
    assert [each.backend.name for each in resolution.candidates.members] == ["new"]
    as_it_came = b"x-version: signed 1.8\r\nx-kind: signed, too\r\naccept: text/x\r\n"
    assert (resolution.request_field_lines, resolution.legacy_request_field_lines) == (as_it_came, as_it_came)
    assert refused(send(REACHABLE, "/x", "signed 1.10")).result is NegotiationResult.ABOVE_MAX


def test_in_a_transparent_service_nothing_is_read_or_written() -> None:
    resolution = forwarded(
        send(snapshot({"a": legacy("1.1")}), "/x", "spam", ("x-kind", "k"), ("x-version", "2"))
    ).resolution

    assert (resolution.requested, resolution.version, resolution.version_text) == (None, None, "")
    assert resolution.result is NegotiationResult.TRANSPARENT
    untouched = b"x-version: spam\r\nx-kind: k\r\nx-version: 2\r\n"
    assert (resolution.request_field_lines, resolution.legacy_request_field_lines) == (untouched, untouched)


@pytest.mark.parametrize("path, candidates", [("/doc", {"new"}), ("/legacy", {"new", "old"})])
def test_where_nothing_is_negotiated_owned_headers_are_dropped(path: str, candidates: set[str]) -> None:
    fleet = snapshot({"old": legacy("1.1"), "new": upto(9)})

    decision = forwarded(send(fleet, path, "spam", ("accept", "text/x")))
    resolution = decision.resolution

    assert able(decision) == candidates
    assert (resolution.requested, resolution.result, resolution.version) == (None, None, None)
    assert resolution.request_field_lines == resolution.legacy_request_field_lines == b"accept: text/x\r\n"


def test_a_legacy_member_gets_the_version_it_stands_for_without_version_headers() -> None:
    fleet = snapshot({"old": legacy("1.1"), "new": upto(9)}, policy=Policy.REACHABLE)

    assert able(send(fleet, "/x", "1.1")) == {"old", "new"}
    assert able(send(fleet, "/x", "1.2")) == {"new"}
    assert able(send(fleet, "/new", "1.1")) == {"new"}, "an endpoint for versioned members only"
    assert forwarded(send(fleet, "/x", "1.1")).resolution.legacy_request_field_lines == b""


def test_the_prefix_of_the_route_is_not_in_the_local_path() -> None:
    below = snapshot({"a": upto(9)}, match=Match(path="/toy"))

    assert forwarded(send(below, "/toy/x")).path == "/x"
    assert forwarded(send(below, "/toy")).path == "/"
    assert forwarded(send(below, "/toy/doc")).resolution.endpoint.name == "doc", "endpoints are the API's own"


# --- refuse --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, result, text",
    [
        ("1.0", NegotiationResult.BELOW_MIN, "1.0"),
        ("1.6", NegotiationResult.ABOVE_MAX, "1.6"),
        ("spam", NegotiationResult.MALFORMED, ""),
    ],
)
def test_outside_the_offer_the_dialect_refuses_and_no_backend_gets_it(
    version: str, result: NegotiationResult, text: str
) -> None:
    decision = refused(send(MIXED, "/x", version))

    assert (decision.result, decision.response.status) == (result, 406)
    assert decision.response.body == result.value.encode()
    assert decision.response.headers == (("Vary", "X-Version"),)
    assert decision.resolution.candidates.tiers == ()
    assert decision.resolution.version_text == text


def test_the_default_version_may_be_a_constant_that_is_no_longer_on_offer() -> None:
    constant = DefaultVersion(DefaultKind.CONSTANT, v("1.7"))

    assert (
        refused(send(snapshot({"a": upto(5)}, default_version=constant))).result
        is NegotiationResult.ABOVE_MAX
    )
    assert forwarded(send(snapshot({"a": upto(9)}, default_version=constant))).resolution.version == v("1.7")


@pytest.mark.parametrize("path", ["/x", "/new", "/doc", "/legacy"])
@pytest.mark.parametrize("version", [None, "1.3", "1.99", "spam"])
def test_before_the_first_offer_everything_is_unavailable(path: str, version: str | None) -> None:
    """Documents, too: otherwise one backend's own range would be the only one that clients see."""
    decision = refused(send(snapshot({"a": upto(5)}, unprobed=["b"]), path, version))

    assert (decision.result, decision.response.status) == (NegotiationResult.UNAVAILABLE, 503)
    assert ("Retry-After", str(RETRY_AFTER)) in decision.response.headers
    assert ("Vary", "X-Version") in decision.response.headers
    assert decision.resolution.version is None


@pytest.mark.parametrize("path", ["/x", "/doc"])
def test_under_a_ceiling_below_the_minimum_nothing_is_offered(path: str) -> None:
    decision = refused(send(snapshot({"a": upto(9, 5)}, ceiling=v("1.4")), path, "1.5"))

    assert (decision.result, decision.response.status) == (NegotiationResult.UNAVAILABLE, 503)


def test_a_version_on_offer_that_no_suitable_member_serves_is_unavailable_and_never_refused() -> None:
    """The endpoint is for versioned members, and only a legacy one serves this version."""
    fleet = snapshot({"old": legacy("1.1"), "new": upto(9, 2)}, policy=Policy.REACHABLE)

    decision = refused(send(fleet, "/new", "1.1"))

    assert (decision.result, decision.response.status) == (NegotiationResult.UNAVAILABLE, 503)
    assert decision.resolution.version == v("1.1")
    assert able(send(fleet, "/x", "1.1")) == {"old"}


def test_a_dialect_without_vary_gets_none() -> None:
    bare = snapshot({"a": upto(5)}, dialect=Toy(vary=()))

    assert refused(send(bare, "/x", "1.6")).response.headers == ()


# --- answer, and no service ----------------------------------------------------------------------------


def test_an_answered_endpoint_is_answered_even_before_anything_is_known() -> None:
    known, unknown = send(MIXED, "/own", method="PUT"), send(snapshot({"a": None}), "/own")

    assert isinstance(known, Answer)
    assert known.response.body == b"PUT /own?q=1 1.5"
    assert known.response.headers == (("Vary", "X-Version"),)
    assert isinstance(unknown, Answer)
    assert unknown.response.body == b"GET /own?q=1 unknown"


def test_an_answered_endpoint_of_a_dialect_without_an_answer_is_a_bug_and_loud() -> None:
    class Silent(Toy):
        answer = Dialect.answer

    with pytest.raises(NotImplementedError, match="an `answered` endpoint"):
        send(snapshot({"a": upto(5)}, dialect=Silent()), "/own")


def test_no_service() -> None:
    decision = send(snapshot({"a": upto(5)}, match=Match(path="/toy")), "/other")

    assert isinstance(decision, Unrouted)
    assert decision is NO_ROUTE


# --- what is cached ------------------------------------------------------------------------------------


def resolution_of(decision: Decision) -> object:
    assert not isinstance(decision, Unrouted)
    return decision.resolution


@pytest.mark.parametrize("version", [None, "1.3", "1.99", "spam", "latest"])
@pytest.mark.parametrize("path", ["/x", "/doc", "/new"])
def test_equal_requests_are_resolved_once(path: str, version: str | None) -> None:
    decision_cache: DecisionCache = {}

    first = resolution_of(send(MIXED, path, version, decision_cache=decision_cache))

    assert resolution_of(send(MIXED, path, version, decision_cache=decision_cache)) is first
    assert resolution_of(send(MIXED, path, "1.2", decision_cache=decision_cache)) is not first
    assert (
        resolution_of(send(MIXED, path, version, ("accept", "x"), decision_cache=decision_cache)) is not first
    )


def test_a_cached_resolution_is_valid_for_its_view_only() -> None:
    decision_cache: DecisionCache = {}
    before = forwarded(send(MIXED, "/x", "latest", decision_cache=decision_cache))
    assert before.resolution.version == v("1.5")

    after = MIXED.with_fleet(MIXED.fleet.observe("toy", "old", ProbeSucceeded(upto(7), 2.0)), 0.0)
    assert forwarded(send(after, "/x", "latest", decision_cache=decision_cache)).resolution.version == v(
        "1.7"
    )

    reloaded = Snapshot.configured([service("old", "new", ceiling=v("1.2"))], after=after, now=0.0)
    assert forwarded(send(reloaded, "/x", "latest", decision_cache=decision_cache)).resolution.version == v(
        "1.2"
    )
    assert forwarded(send(MIXED, "/x", "latest", decision_cache=decision_cache)).resolution.version == v(
        "1.5"
    )


def test_services_do_not_share_cached_resolutions() -> None:
    one = service("a", match=Match(path="/one"))
    other = service("a", name="other", dialect=OtherToy(), match=Match(path="/other"))
    first = Snapshot.configured([one, other], now=0.0)
    both = first.with_fleet(
        first.fleet.observe("toy", "a", ProbeSucceeded(upto(5), 1.0)).observe(
            "other", "a", ProbeSucceeded(upto(9), 1.0)
        ),
        0.0,
    )
    decision_cache: DecisionCache = {}

    assert forwarded(send(both, "/one/x", "latest", decision_cache=decision_cache)).resolution.version == v(
        "1.5"
    )
    assert forwarded(send(both, "/other/x", "latest", decision_cache=decision_cache)).resolution.version == v(
        "1.9"
    )


def test_a_local_response_is_not_cached() -> None:
    """It may depend on the whole target, which is not in the key."""
    decision_cache: DecisionCache = {}
    send(MIXED, "/own", decision_cache=decision_cache)

    again = send(MIXED, "/own", decision_cache=decision_cache, method="PUT")

    assert isinstance(again, Answer)
    assert again.response.body.startswith(b"PUT")
    assert decision_cache == {}


def test_the_cache_is_bounded_in_entries_and_size() -> None:
    """Clients choose the keys (threats V11)."""
    decision_cache: DecisionCache = {}
    for number in range(MAX_CACHED_DECISIONS + 10):
        send(MIXED, "/x", f"1.{number}", decision_cache=decision_cache)
        assert len(decision_cache) <= MAX_CACHED_DECISIONS
    before = len(decision_cache)

    send(MIXED, "/x", "1." + "9" * MAX_CACHED_REQUEST_SIZE, decision_cache=decision_cache)
    send(MIXED, "/x", "1.3", ("accept", "x" * MAX_CACHED_REQUEST_SIZE), decision_cache=decision_cache)

    assert len(decision_cache) == before


TEXTS = (
    st.none()
    | st.sampled_from(["latest", "spam", "signed 1.3", "signed x"])
    | st.builds("{}.{}".format, st.integers(0, 2), st.integers(0, 12))
)
ADVERTISEMENTS = st.none() | st.builds(upto, st.integers(5, 10), st.integers(1, 5)) | st.just(legacy("1.1"))


@given(
    st.lists(ADVERTISEMENTS, min_size=1, max_size=4),
    st.sampled_from(Policy),
    st.sampled_from(["/x", "/new", "/doc", "/legacy"]),
    st.lists(TEXTS, min_size=1, max_size=4),
    st.integers(0, 2**64 - 1),
)
def test_no_request_reaches_a_member_that_does_not_serve_the_negotiated_version(
    advertisements: list[object], policy: Policy, path: str, versions: list[str | None], random_bits: int
) -> None:
    """The first promise of docs/semantics.md, with a full and with an empty cache."""
    results = {f"b{number}": advertisement for number, advertisement in enumerate(advertisements)}
    base = snapshot(results, policy=policy)  # type: ignore[arg-type]  # advertisements or None
    decision_cache: DecisionCache = {}
    for version in (*versions, *versions):
        head = RequestHead("GET", path, "", () if version is None else (("x-version", version),))

        decision = decide(base, head, "", {}, random_bits, decision_cache)

        match decision:
            case Forward(resolution=resolution, member=member):
                assert member is not None
                assert member.advertisement is not None
                negotiated = resolution.version
                assert negotiated is None or negotiated in member.advertisement.versions
                assert negotiated is None or negotiated in base.views["toy"].offer.versions
                assert (
                    not (member.legacy and resolution.endpoint.versioned_only)
                    or base.views["toy"].offer.transparent
                )
            case Refuse(resolution, response):
                assert response.status in {406, 503}
                assert (response.status == 503) == (decision.result is NegotiationResult.UNAVAILABLE)
            case other:
                pytest.fail(f"unexpected {other}")
        fresh = decide(base, head, "", {}, random_bits, {})
        match decision, fresh:
            case Forward(member=member), Forward(member=again):
                assert member == again
            case Refuse(_, response), Refuse(_, again_response):
                assert response == again_response
            case different:
                pytest.fail(f"not alike: {different}")
