"""rewrite_head(): the served version stays as the backend sent it, and its range becomes the offer's."""

# ruff: noqa: N802 -- ids of attacks are written with capitals

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gateway.core.decision.decision import Forward, Resolution, decide
from gateway.core.decision.response import ResponseRewrite, rewrite_head, vary_lines
from gateway.core.dialect import Advertisement, Dialect, Endpoint, Served
from gateway.core.fleet.backend import Member
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import Header, RequestHead
from gateway.core.versions.ranges import VersionSet
from tests.core.builders import Toy, backend, legacy, snapshot, upto, v

MIXED = snapshot({"legacy": legacy("1.1"), "old": upto(5), "new": upto(9)}, policy=Policy.REACHABLE)
RANGE = (("x-min", "1.1"), ("x-max", "1.9"))


def negotiated(base: Snapshot, version: str | None = "1.1", path: str = "/x") -> Resolution:
    head = RequestHead("GET", path, "", () if version is None else (("x-version", version),))
    decision = decide(base, head, "", {}, 0, {})
    assert isinstance(decision, Forward)
    return decision.resolution


def member(base: Snapshot, name: str) -> Member:
    found = base.views["toy"].members.member(name)
    assert found is not None
    return found


def rewritten(
    name: str, *fields: Header, version: str = "1.1", status: int = 200, base: Snapshot = MIXED
) -> ResponseRewrite:
    return rewrite_head(negotiated(base, version), member(base, name), status, fields)


def lines(rewrite: ResponseRewrite) -> list[str]:
    return rewrite.lines.decode().split("\r\n")[:-1]


def test_the_range_becomes_the_offers_and_the_served_version_stays() -> None:
    rewrite = rewritten("old", ("x-version", "1.3"), ("x-min", "1.1"), ("x-max", "1.5"), version="1.3")

    assert lines(rewrite) == ["X-Version: 1.3", "X-Min: 1.1", "X-Max: 1.9", "Vary: X-Version"]
    assert not rewrite.mismatch
    assert rewrite.fact is None


def test_a_legacy_member_in_a_mixed_fleet_looks_like_the_others() -> None:
    assert lines(rewritten("legacy")) == lines(rewritten("new", ("x-version", "1.1"), *RANGE))


def test_where_a_backend_sends_no_version_none_is_made_up() -> None:
    assert lines(rewritten("new", status=404)) == ["Vary: X-Version"]


def test_in_a_transparent_service_nothing_is_added_or_removed() -> None:
    base = snapshot({"a": legacy("1.1")})
    fields = (("x-version", "7"), ("vary", "Accept"), ("x-max", "?"))

    rewrite = rewrite_head(negotiated(base, "spam"), member(base, "a"), 200, fields)

    assert lines(rewrite) == ["x-version: 7", "vary: Accept", "x-max: ?"]


def test_a_first_range_in_a_transparent_service_is_a_fact() -> None:
    base = snapshot({"a": legacy("1.1")})

    rewrite = rewrite_head(negotiated(base, None), member(base, "a"), 200, RANGE)

    assert rewrite.fact == upto(9)
    assert lines(rewrite) == ["x-min: 1.1", "x-max: 1.9"], "decided while transparent"


# --- facts ---------------------------------------------------------------------------------------------


def test_only_a_range_that_differs_is_a_fact() -> None:
    assert rewritten("new", *RANGE).fact is None
    assert rewritten("new").fact is None
    assert rewritten("new", ("x-min", "1.1"), ("x-max", "1.12")).fact == upto(12)
    assert rewritten("old", ("x-min", "1.1"), ("x-max", "1.2")).fact == upto(2)


def test_declared_backends_learn_no_advertisement() -> None:
    declared = backend("a", declared=VersionSet.between(v("1.1"), v("1.5")))
    base = snapshot({}, backends=(declared,))

    assert rewrite_head(negotiated(base), member(base, "a"), 200, RANGE).fact is None


def test_a_range_of_just_the_version_that_a_legacy_member_stands_for_is_a_fact() -> None:
    """Another gateway at its address may offer exactly 1.1; that is not the same as a legacy backend."""
    rewrite = rewritten("legacy", ("x-min", "1.1"), ("x-max", "1.1"))

    assert rewrite.fact == Advertisement(VersionSet.only(v("1.1")))


def test_a_range_of_a_member_without_an_advertisement_is_a_fact() -> None:
    unknown = Member("toy", backend("new"))

    assert rewrite_head(negotiated(MIXED), unknown, 200, RANGE).fact == upto(9)


# --- mismatches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "served, status, mismatch",
    [("1.3", 200, False), ("1.2", 200, True), (None, 200, False), ("spam", 200, False), ("1.2", 406, False)],
)
def test_V9_a_mismatch_is_noted_and_the_client_gets_what_the_backend_sent(
    served: str | None, status: int, mismatch: bool
) -> None:
    fields = () if served is None else (("x-version", served),)

    rewrite = rewritten("old", *fields, version="1.3", status=status)

    assert rewrite.mismatch is mismatch
    assert ("X-Version: 1.2" in lines(rewrite)) is (served == "1.2")


def test_where_nothing_was_negotiated_there_is_no_mismatch() -> None:
    rewrite = rewrite_head(negotiated(MIXED, path="/doc"), member(MIXED, "new"), 200, (("x-version", "1.9"),))

    assert not rewrite.mismatch
    assert lines(rewrite) == ["X-Version: 1.9", "Vary: X-Version"]


# --- responses of servers that always name the served version, and repeat the requested one ----------------


class Naming(Toy):
    """Every successful response names the served version; `X-Repeated` is the requested one. Legacy backends
    stand for 1.1."""

    owned_response = Toy.owned_response | {"x-repeated"}
    legacy_versions = VersionSet.only(v("1.1"))

    def endpoint(self, method: str, path: str, query: str) -> Endpoint:
        return super().endpoint(method, path, query)._replace(served_always=path != "/sometimes")

    def read_response(self, endpoint: Endpoint, status: int, headers: Mapping[str, str]) -> Served:
        repeated = self.scheme.parse(headers.get("X-Repeated", ""))
        return replace(super().read_response(endpoint, status, headers), repeated=repeated)


class Unnamed(Naming):
    """Legacy backends stand for no version."""

    legacy_versions = VersionSet()


def named(
    *fields: Header, name: str = "new", status: int = 200, path: str = "/x", dialect: Dialect | None = None
) -> ResponseRewrite:
    """The rewrite of a response to a request at 1.3."""
    base = snapshot(
        {"legacy": legacy("1.1"), "new": upto(9)}, dialect=dialect or Naming(), policy=Policy.REACHABLE
    )
    version = "1.1" if name == "legacy" else "1.3"
    return rewrite_head(negotiated(base, version, path), member(base, name), status, fields)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_R_A2_a_client_is_told_what_a_server_without_versions_executes(status: int) -> None:
    rewrite = named(status=status)

    assert rewrite.served_missing
    assert not rewrite.plain
    assert rewrite.served_text == "1.1"
    assert lines(rewrite) == ["X-Version: 1.1", "X-Min: 1.1", "X-Max: 1.9", "Vary: X-Version"]


def test_R_A2_where_legacy_backends_stand_for_no_version_the_client_is_told_none() -> None:
    rewrite = named(dialect=Unnamed())

    assert rewrite.served_missing
    assert rewrite.served_text == ""
    assert not any("X-Version:" in line for line in lines(rewrite))


@pytest.mark.parametrize("fields", [(("x-version", "spam"),), (("x-version", "1.3, 1.2"),), RANGE])
def test_R_A2_a_response_with_other_version_headers_is_no_legacy_one(fields: tuple[Header, ...]) -> None:
    """Its version is unknown all the same, but nothing shows at which version it was executed."""
    rewrite = named(*fields)

    assert rewrite.served_missing
    assert rewrite.served_text == ""
    assert not any("X-Version:" in line for line in lines(rewrite))


@pytest.mark.parametrize(
    "rewrite",
    [
        named(("x-version", "1.3")),
        named(("x-version", "1.2")),
        *(named(status=status) for status in (199, 300, 304, 400, 404, 406, 500)),
        named(name="legacy"),
        named(path="/sometimes"),
        named(path="/doc"),
        named(path="/legacy"),
    ],
)
def test_R_A2_elsewhere_a_missing_served_version_says_nothing(rewrite: ResponseRewrite) -> None:
    assert not rewrite.served_missing


def test_R_A2_in_a_transparent_service_a_missing_served_version_says_nothing() -> None:
    base = snapshot({"a": legacy("1.1")}, dialect=Naming())

    assert rewrite_head(negotiated(base, "spam"), member(base, "a"), 200, ()).plain


@pytest.mark.parametrize("repeated, mismatch", [(None, True), ("1.3", True), ("1.1", False), ("1.2", False)])
def test_R_A12_a_response_that_repeats_another_version_is_not_about_our_request(
    repeated: str | None, mismatch: bool
) -> None:
    fields = () if repeated is None else (("x-repeated", repeated),)

    rewrite = named(("x-version", "1.1"), *fields)

    assert rewrite.mismatch is mismatch
    assert rewrite.served_text == ("1.1" if mismatch else "")
    assert not rewrite.served_missing
    assert "X-Version: 1.1" in lines(rewrite), "the client is told what the backend said"


# --- Vary ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "received, expected",
    [
        ([], ["Vary: A, B"]),
        (["Accept"], ["Vary: Accept", "Vary: A, B"]),
        (["Accept, a"], ["Vary: Accept, a", "Vary: B"]),
        (["Accept", " B ,A"], ["Vary: Accept", "Vary:  B ,A"]),
        (["*"], ["Vary: *"]),
        (["Accept, *"], ["Vary: Accept, *"]),
        ([""], ["Vary: ", "Vary: A, B"]),
    ],
)
def test_V10_the_names_of_the_dialect_join_the_backends_own(received: list[str], expected: list[str]) -> None:
    assert [f"{name}: {value}" for name, value in vary_lines(tuple(received), ("A", "B"))] == expected


def test_V10_a_backends_own_vary_stays_and_is_sent_once() -> None:
    assert lines(rewritten("new", ("vary", "Accept"), ("x-other", "1"))) == [
        "Vary: Accept",
        "Vary: X-Version",
        "x-other: 1",
    ]


def test_a_dialect_without_vary_adds_none() -> None:
    base = snapshot({"a": upto(5)}, dialect=Toy(vary=()))

    assert lines(rewrite_head(negotiated(base), member(base, "a"), 200, ())) == []


def test_a_response_without_a_fact_mismatch_or_refusal_is_plain() -> None:
    assert rewritten("new", ("x-version", "1.1"), *RANGE).plain
    assert not rewritten("new", ("x-max", "1.12"), ("x-min", "1.1")).plain
    assert not rewritten("new", ("x-version", "1.2")).plain
    assert not rewritten("new", status=406).plain
