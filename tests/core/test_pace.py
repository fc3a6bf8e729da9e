"""Own pace: what a named client is told is what it is served, and nobody else notices it but by `Vary`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from ipaddress import ip_network
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.attachment import Agreed
from gateway.core.agreement.record import AgreedRecord
from gateway.core.clients import Client, Naming
from gateway.core.decision.decision import Answer, Decision, Forward, Refuse
from gateway.core.decision.explanation import explain
from gateway.core.decision.response import rewrite_head
from gateway.core.dialect import DefaultKind, DefaultVersion, Links, VersionMatch
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.service import Policy
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import Header, RequestHead
from gateway.core.versions.ranges import VersionSet
from gateway.dataplane.documents.rewrite_cache import RewriteCache
from tests.core.builders import Toy, no_decisions, send, snapshot, upto, v

RULES: Final = (Client("old", "curl"), Client("older", header={"X-Team": "x"}))
PACES: Final = (Pace(("old",), v("1.6")), Pace(("older",), v("1.3"), date(1970, 1, 2)))
ENDS: Final = 2 * 86_400.0
NAMES: Final = ("", "old", "older", "unheard")


def fleet(paces: tuple[Pace, ...] = PACES, rules: tuple[Client, ...] = RULES, **more: Any) -> Snapshot:
    naming = Naming(rules if paces else ())
    return snapshot({"a": upto(9, 2), "b": upto(9, 2)}, paces=paces, naming=naming, **more)


def served(decision: Decision) -> str:
    """The version at which a request is executed; `refused` or `unavailable` if it is not."""
    if isinstance(decision, Forward):
        return decision.resolution.version_text
    assert isinstance(decision, Refuse)
    return {406: "refused", 503: "unavailable"}[decision.response.status]


def told(decision: Decision) -> VersionSet:
    """The versions that a response states as the offer."""
    assert isinstance(decision, Forward)
    resolution = decision.resolution
    assert decision.member is not None
    fields = [("x-version", resolution.version_text), ("x-min", "1.1"), ("x-max", "1.99")]
    written = dict(_lines(rewrite_head(resolution, decision.member, 200, fields).lines))
    return VersionSet.between(v(written["X-Min"]), v(written["X-Max"]))


def _lines(lines: bytes) -> list[Header]:
    found = (line.partition(": ") for line in lines.decode().split("\r\n")[:-1])
    return [(name, value) for name, _, value in found]


@pytest.mark.parametrize(
    "version, served_by_name",
    [
        ("latest", ("1.9", "1.6", "1.3", "1.9")),
        ("1.9", ("1.9", "refused", "refused", "1.9")),
        ("1.6", ("1.6", "1.6", "refused", "1.6")),
        ("1.3", ("1.3",) * 4),
        ("1.1", ("refused",) * 4),
        (None, ("1.2",) * 4),
    ],
)
def test_a_named_client_is_served_up_to_its_own_ceiling(
    version: str | None, served_by_name: tuple[str, ...]
) -> None:
    base, cache = fleet(), no_decisions()
    for _ in range(2):  # by the cached decisions, too
        assert tuple(served(send(base, version, name, cache=cache)) for name in NAMES) == served_by_name


def test_it_is_told_that_part_and_others_are_told_all() -> None:
    base, cache = fleet(), no_decisions()

    highest = [told(send(base, "1.3", name, cache=cache)).highest for name in NAMES]

    assert highest == [v("1.9"), v("1.6"), v("1.3"), v("1.9")]


def test_an_answered_document_and_an_error_show_the_part() -> None:
    for name, highest in (("", "1.9"), ("old", "1.6"), ("older", "1.3")):
        answer = send(fleet(), None, name, path="/own")
        assert isinstance(answer, Answer)
        assert answer.response.body == f"GET /own? {highest}".encode()
    nobody = fleet()
    refuse = send(nobody, "1.9", "old")
    assert isinstance(refuse, Refuse)
    assert (refuse.resolution.offered, refuse.result) == (VersionSet.between(v("1.2"), v("1.6")), "above_max")


def test_the_own_pace_ends_with_its_day() -> None:
    cache = no_decisions()
    for wall_time, version in ((0.0, "1.3"), (ENDS - 0.001, "1.3"), (ENDS, "1.9"), (ENDS - 1, "1.3")):
        assert served(send(fleet(), "latest", "older", wall_time=wall_time, cache=cache)) == version


def test_clients_of_one_ceiling_share_decisions_and_names_are_in_no_key() -> None:
    names = tuple(f"c{number}" for number in range(50))
    base, cache = (
        fleet((Pace(names[:25], v("1.6")), Pace(names[25:], v("1.4")))),
        no_decisions(),
    )
    for name in names:
        send(base, "1.3", name, cache=cache)
        send(base, "1.3", f"other-{name}", cache=cache)

    assert len(cache) == 3


def test_an_own_ceiling_beneath_the_offer_leaves_nothing_and_refuses_nothing_for_ever() -> None:
    base = fleet((Pace(("old",), v("1.1")),))

    assert [served(send(base, version, "old")) for version in ("1.1", "1.3", "latest", None)] == [
        "unavailable"
    ] * 4
    why = explain(base, RequestHead("GET", "/x", "", ()), "", client_name="old")["because"]
    assert why == "nothing is on offer up to 1.1, the own ceiling of this client"


def test_what_replicas_accept_beyond_the_own_ceiling_does_not_matter() -> None:
    shown, all_of_it = upto(7, 2).versions, upto(9, 2).versions
    levels = AgreedRecord(1, "guaranteed", all_of_it, shown, all_of_it, all_of_it)
    base = fleet().with_agreed({"toy": Agreed(levels)}, 1.0)

    by_name = [tuple(served(send(base, text, name)) for text in ("1.9", "1.5", "latest")) for name in NAMES]

    assert by_name == [
        ("1.9", "1.5", "1.7"),
        ("refused", "1.5", "1.6"),
        ("refused", "refused", "1.3"),
        ("1.9", "1.5", "1.7"),
    ]


def test_explain_names_the_own_ceiling() -> None:
    head = RequestHead("GET", "/x", "", (("x-version", "1.9"),))
    for name, time, own, because in (
        ("", 0.0, None, "the requested version leads to 1.9 of the offer 1.2-1.9"),
        (
            "old",
            0.0,
            "1.6",
            "the requested version (1.9) is not in the offer 1.2-1.6 (up to 1.6 for this client)",
        ),
        ("older", ENDS, None, "the requested version leads to 1.9 of the offer 1.2-1.9"),
    ):
        shown = explain(fleet(), head, "", client_name=name, wall_time=time)
        assert (shown["offer"]["own_ceiling"], shown["because"]) == (own, because)
        assert shown["offer"]["max"] == (own or "1.9")


# --- what responses depend on


def headers_of(base: Snapshot, name: str, version: str = "1.3") -> list[Header]:
    """`Vary` and `Cache-Control` of the response to a client."""
    decision = send(base, version, name)
    if isinstance(decision, Forward):
        assert decision.member is not None
        found: Iterable[Header] = _lines(rewrite_head(decision.resolution, decision.member, 200, ()).lines)
    else:
        assert isinstance(decision, Refuse)
        found = decision.response.headers
    return [(key, value) for key, value in found if key in ("Vary", "Cache-Control")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("version", ["1.3", "1.1"])
def test_every_response_to_everybody_varies_on_the_headers_that_decide(name: str, version: str) -> None:
    assert headers_of(fleet(), name, version) == [("Vary", "X-Version, X-Team, User-Agent")]
    assert headers_of(fleet(()), name, version) == [("Vary", "X-Version")]


def test_it_is_private_where_an_address_or_a_certificate_decides() -> None:
    rules = (Client("near", networks=(ip_network("10.0.0.0/8"),)), Client("old", header={"x_version": "1.3"}))
    base = fleet((Pace(("old",), v("1.6")),), rules)
    for name in NAMES:
        for version in ("1.3", "1.1"):
            assert headers_of(base, name, version) == [
                ("Vary", "X-Version"),
                ("Cache-Control", "private"),
            ]


def test_configured_headers_cannot_make_it_public() -> None:
    rules = (Client("old", networks=(ip_network("10.0.0.0/8"),)),)
    edits = HeaderEdits(set=(("Cache-Control", "public"),))
    base = fleet((Pace(("old",), v("1.6")),), rules, response_edits=edits)

    assert ("Cache-Control", "private") in headers_of(base, "", "1.1")


def test_a_document_is_rewritten_once_for_each_range() -> None:
    calls: list[VersionSet] = []

    class Documented(Toy):
        def rewrite_document(self, endpoint: Any, body: bytes, offered: VersionSet, links: Any) -> bytes:
            calls.append(offered)
            return self.scheme.format(offered.highest).encode()

    base, cache = fleet(dialect=Documented()), RewriteCache()
    links = Links("http://b", "b", "http://c")
    for _ in range(3):
        for name, highest in (("", b"1.9"), ("old", b"1.6"), ("older", b"1.3")):
            resolution = send(base, None, name, path="/doc")
            assert isinstance(resolution, Forward)
            view, offered = resolution.resolution.view, resolution.resolution.offered
            assert offered is not None
            endpoint = resolution.resolution.endpoint
            assert cache.rewrite(view.service, endpoint, b"{}", offered, links) == highest

    assert len(calls) == 3


# --- the law


@given(
    ceilings=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    bounds=st.tuples(st.integers(1, 10), st.integers(1, 10)).map(sorted),
    ceiling=st.none() | st.integers(1, 12),
    default=st.sampled_from([DefaultKind.MINIMUM, DefaultKind.MAXIMUM, DefaultKind.REFUSED]),
    match=st.sampled_from(VersionMatch),
    policy=st.sampled_from([Policy.GUARANTEED, Policy.REACHABLE]),
    asked=st.lists(st.none() | st.just("latest") | st.integers(1, 13).map("1.{}".format), max_size=6),
    wall_time=st.sampled_from([0.0, ENDS - 1, ENDS, ENDS + 1]),
)
def test_what_a_client_is_told_contains_what_it_is_served(
    *,
    ceilings: list[int],
    bounds: list[int],
    ceiling: int | None,
    default: DefaultKind,
    match: VersionMatch,
    policy: Policy,
    asked: list[str | None],
    wall_time: float,
) -> None:
    paces = [
        Pace((f"c{at}",), v(f"1.{own}"), date(1970, 1, 2) if at else None) for at, own in enumerate(ceilings)
    ]
    base = snapshot(
        {"a": upto(bounds[1], bounds[0]), "b": upto(10)},
        paces=tuple(paces),
        naming=Naming(RULES),
        ceiling=None if ceiling is None else v(f"1.{ceiling}"),
        dialect=Toy(DefaultVersion(default), match=match),
        policy=policy,
    )
    whole, cache = base.views["toy"].offer.versions, no_decisions()
    for version in asked:
        for name in ("", *(pace.clients[0] for pace in paces)):
            own = next((each for each in paces if name in each.clients and wall_time < each.ends_at), None)
            mine = whole if own is None else whole.up_to(own.ceiling)
            decision = send(base, version, name, wall_time=wall_time, cache=cache)
            if isinstance(decision, Forward):
                assert told(decision) == mine
                assert decision.resolution.version is not None
                assert decision.resolution.version in mine
            else:
                assert isinstance(decision, Refuse)
                assert decision.resolution.offered == (mine or None)
                exact = None if version in {None, "latest"} else v(str(version))
                assert exact is None or exact not in mine, "what it may be told is not refused"
