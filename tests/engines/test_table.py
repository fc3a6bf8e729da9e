"""Every row of a compiled table says what `decide` says, and what `decide` refuses is in no row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.decision.decision import Forward, decide
from gateway.core.decision.routing import Routes
from gateway.core.dialect import Advertisement, Dialect
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.bridge import Bridge, BridgeMatch
from gateway.core.fleet.brownouts import Schedule
from gateway.core.fleet.fleet import Drain
from gateway.core.fleet.lifecycle import Lifecycle, Line
from gateway.core.fleet.pace import Pace
from gateway.core.fleet.service import Match, Policy, Service
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.http.message import RequestHead, normalize_name, render
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version
from gateway.dialects.openstack.ironic import Ironic
from gateway.engines import table as table_module
from gateway.engines.haproxy.configuration import key_of
from gateway.engines.table import (
    EngineServer,
    ServiceTable,
    TableCompiler,
    compile_table,
    inexpressible,
    request_of,
    sample_host,
)
from tests.core.builders import Toy, service, snapshot
from tests.dialects.dialect_samples import DIALECT_SAMPLES, DialectSample

DIRECT = [sample for sample in DIALECT_SAMPLES if inexpressible(service("a", dialect=sample.dialect)) is None]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
OTHERS = {"accept": "*/*", "content-type": "application/json"}


def fleet(dialect: Dialect, *served: VersionSet, legacy: bool = False, **more: Any) -> Snapshot:
    """One member for each set, and a legacy one."""
    results = {f"m{at}": Advertisement(versions) for at, versions in enumerate(served)}
    if legacy:
        results["old"] = Advertisement(dialect.legacy_versions, legacy=True)
    return snapshot(results, dialect=dialect, policy=Policy.REACHABLE, **more)


def halves(sample: DialectSample) -> tuple[VersionSet, VersionSet]:
    """All versions of the sample, and the older half of them."""
    versions = sorted(sample.versions)
    return VersionSet.only(*versions), VersionSet.only(*versions[: (len(versions) + 1) // 2])


def the_table(found: Snapshot) -> ServiceTable:
    (table,) = compile_table(found).services
    return table


def test_the_dialects_that_engines_are_for_are_among_them() -> None:
    assert {sample.dialect.name for sample in DIRECT} == {"ironic", "nova", "senlin", "openstack", "custom"}


@pytest.mark.parametrize("sample", DIRECT, ids=lambda sample: sample.label)
@pytest.mark.parametrize("legacy", [False, True])
@settings(max_examples=3)
@given(data=st.data())
def test_a_row_says_what_decide_says(sample: DialectSample, legacy: bool, data: st.DataObject) -> None:
    found = fleet(sample.dialect, *halves(sample), legacy=legacy)
    table = the_table(found)
    assert table.traits is not None, table.inexpressible
    route_sets = {route_set.name: route_set for route_set in table.route_sets}
    for row in table.rows:
        paths = data.draw(st.sampled_from(table.paths))
        rest = data.draw(st.from_regex(rf"\A[{paths.first}][A-Za-z0-9/_~@:,+=-]{{0,9}}\Z"))
        path = paths.prefix + rest
        if path.lower().startswith(paths.besides):
            continue
        plain = request_of(table.traits, row.asked, paths)
        others = tuple(
            one for one in OTHERS.items() if one[0] in sample.dialect.reads - sample.dialect.owned_request
        )
        head = RequestHead(
            data.draw(st.sampled_from(METHODS)), path, "_method=PUT&a=1", (*plain.fields, *others)
        )
        decision = decide(found, head, sample_host(table.service), {}, 0, {})
        assert isinstance(decision, Forward), (head, decision)
        resolution = decision.resolution
        assert resolution.version_text == row.version
        assert not resolution.rewrites_document
        assert route_sets[row.route_set].keys == {member.key for member in resolution.candidates.members}
        lines = zip(table.traits.headers, table.traits.written, strict=True)
        written = tuple((name, f"{before}{row.version}{after}") for name, (before, after) in lines)
        kept = tuple(one for one in others if one[0] not in sample.dialect.owned_request)
        assert resolution.request_field_lines == render((*written, *kept))


@pytest.mark.parametrize("sample", DIRECT, ids=lambda sample: sample.label)
def test_rows_have_different_keys_and_no_refused_version(sample: DialectSample) -> None:
    versions, older = halves(sample)
    found = fleet(sample.dialect, versions, ceiling=older.highest)
    table = the_table(found)
    offered = found.views[table.service.name].offer.versions
    keys = [key_of(table.service, row.asked) for row in table.rows]
    assert len(keys) == len(set(keys))
    assert {sample.dialect.scheme.require(row.version) for row in table.rows} <= set(offered)


def test_where_a_legacy_member_may_get_the_request_the_gateway_serves_it() -> None:
    ironic = Ironic()
    table = the_table(fleet(ironic, VersionSet.read("1.1-1.9", ironic.scheme), legacy=True))
    assert {row.version for row in table.rows} == {f"1.{minor}" for minor in range(2, 10)}
    assert not the_table(fleet(ironic, legacy=True)).rows


def test_a_version_whose_end_is_announced_is_in_no_row_however_it_was_asked_for() -> None:
    """A row cannot add headers. Without a version, a request is served at 1.1."""
    ironic = Ironic()
    line = Line(ironic.scheme.require("1.5"), date(2030, 1, 1))
    versions = VersionSet.read("1.1-1.9", ironic.scheme)
    table = the_table(fleet(ironic, versions, lifecycle=Lifecycle(line)))
    assert {row.version for row in table.rows} == {f"1.{minor}" for minor in range(5, 10)}
    assert all(any(row.asked) for row in table.rows)


def test_an_edge_of_a_brownout_changes_no_row() -> None:
    """Deprecated versions have none, so HAProxy asks the gateway for them all the time."""
    ironic = Ironic()
    line = Line(ironic.scheme.require("1.5"), date(2023, 7, 1))
    versions = VersionSet.read("1.1-1.9", ironic.scheme)
    tables = [
        the_table(fleet(ironic, versions, lifecycle=Lifecycle(line, None, windows, unsafe=True)))
        for windows in ((), (Schedule(int(time.time()) - 3_600, (86_400.0,)),))
    ]
    assert tables[0].rows == tables[1].rows


def test_a_route_set_that_the_engine_lacks_is_replaced_by_the_largest_one_inside_it() -> None:
    ironic = Ironic()
    served = [VersionSet.read(text, ironic.scheme) for text in ("1.1-1.9", "1.1-1.9", "1.1-1.5")]
    found = fleet(ironic, *served)
    full = compile_table(found)
    wanted = {row.route_set for service in full.services for row in service.rows}
    known = [route_set for route_set in full.route_sets if route_set.name not in wanted]
    (table,) = compile_table(found, {route_set.name for route_set in known}).services
    names = {route_set.name: route_set for route_set in known}
    assert table.missing == wanted
    by_asked = {row.asked: row for row in full.services[0].rows}
    all_sets = {route_set.name: route_set for route_set in full.route_sets}
    assert len(table.rows) == len(full.services[0].rows)
    for row in table.rows:
        assert names[row.route_set].keys < all_sets[by_asked[row.asked].route_set].keys
    assert not compile_table(found, []).services[0].rows


def test_a_route_set_with_another_address_has_another_name() -> None:
    ironic = Ironic()
    one = the_table(fleet(ironic, VersionSet.read("1.1-1.9", ironic.scheme))).route_sets[0]
    moved = replace(one, members=tuple(replace(member, port=member.port + 1) for member in one.members))
    assert one.name != moved.name


@pytest.mark.parametrize(
    "change, key",
    [
        ({"match": Match(path="/baremetal")}, ("match", "path")),
        ({"dialect": Toy()}, ("dialect",)),
        ({"paces": (Pace(("a",), Version(1, 5)),)}, ("offer", "for")),
        ({"bridges": (Bridge(("a",), BridgeMatch.NEAREST, date(2099, 1, 1)),)}, ("bridge",)),
    ],
)
def test_what_cannot_be_expressed_has_a_reason(change: dict[str, object], key: tuple[str, ...]) -> None:
    one: Service = replace(service("a", dialect=Ironic()), **change)  # type: ignore[arg-type]
    found = inexpressible(one)
    assert found is not None
    assert found.key == key


def test_a_version_header_in_another_spelling_is_in_no_row() -> None:
    ironic = Ironic()
    table = the_table(fleet(ironic, VersionSet.read("1.1-1.9", ironic.scheme)))
    assert table.traits is not None
    assert {normalize_name(name) for name in table.traits.headers} == ironic.owned_request
    values = {value for row in table.rows for value in row.asked if value is not None}
    assert "baremetal 1.5" in values
    assert not {"1.05", "Baremetal 1.5", "1.10", "LATEST"} & values


# --- what it costs, in calls -------------------------------------------------------------------------------


class Calls:
    """How often a function of the compiler was called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.number = 0
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        self.number += 1
        return self._function(*arguments)


def two_services(*served: str) -> Snapshot:
    """`a` with a member for each of these ranges, and `b` with one."""
    ironic = Ironic()

    def one(name: str, ranges: Sequence[str]) -> Service:
        members = tuple(
            Backend(f"m{at}", "127.0.0.1", at + 1, declared=VersionSet.read(text, ironic.scheme))
            for at, text in enumerate(ranges)
        )
        return Service(name, ironic, members, Match(host=(f"{name}.test",)), policy=Policy.REACHABLE)

    return Snapshot.configured([one("a", served), one("b", ["1.1-1.9"])], now=0.0)


def test_decide_is_asked_once_for_each_way_of_asking_and_again_only_where_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Calls(decide)
    monkeypatch.setattr(table_module, "decide", asked)
    first = two_services("1.1-1.90", "1.1-1.58")
    compiler = TableCompiler()
    table = compiler.compile(first)
    ways = {each.service.name: len(each.rows) for each in table.services}
    assert ways["a"] > 90
    assert asked.number == sum(ways.values())

    asked.number = 0
    assert compiler.compile(first) is table
    assert asked.number == 0

    drained = first.with_fleet(first.fleet.apply("b", Drain("m0")), 1.0)
    changed = compiler.compile(drained)
    assert changed.services[0] is table.services[0]
    assert not changed.services[1].rows
    assert asked.number == 4  # no version, and `latest` in each set of two headers


def test_a_table_for_other_route_sets_or_other_routes_is_another_one() -> None:
    first, compiler = two_services("1.1-1.9"), TableCompiler()
    table = compiler.compile(first)
    assert all(each.rows for each in table.services)
    assert not any(each.rows for each in compiler.compile(first, frozenset()).services)
    assert compiler.compile(first) == table
    elsewhere = replace(first, routes=Routes.of([]))
    assert not any(each.rows for each in compiler.compile(elsewhere).services)


def test_servers_and_route_sets_are_not_made_again_for_each_version(monkeypatch: pytest.MonkeyPatch) -> None:
    made, digests = Calls(EngineServer.of), Calls(sha256)
    monkeypatch.setattr(table_module, "EngineServer", SimpleNamespace(of=made))
    monkeypatch.setattr(table_module, "sha256", digests)
    found = two_services("1.1-1.1999", "1.1-1.1000", "1.1-1.1000")
    table = compile_table(found)
    assert len(table.services[0].rows) > 1999
    assert made.number == 4
    assert digests.number < 20
