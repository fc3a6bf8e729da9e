"""How the bench compares: within each round, with the best of several peers, and with itself at size 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report
from bench.heads import ID, RESPONSE, Heads
from bench.instructions import PARTS
from bench.lineup import lineup
from bench.load import Run
from bench.loads.wrk import Wrk
from bench.results import Entry, Results, Spread
from bench.rounds import order
from bench.scenarios import SCENARIOS, Scenario
from bench.setting import Setting
from bench.slot import Slot
from bench.targets import TARGETS, Target, added, growth, growth_next_to, met, ratio_to
from gateway.core.http.request_ids import OPENSTACK_IDS
from gateway.telemetry.trace_context import is_well_formed

PEERS = {peer.name: peer for peer in lineup("asyncio")}
PLAIN = Scenario("plain", "a load", Wrk(), ("gateway", "nginx", "nginx-log-buffered"))


def entry(peer: str, *cpu: float, setting: Setting = PLAIN.settings[0]) -> Entry:
    runs = {number: Run({"cpu": figure}, 1, 0) for number, figure in enumerate(cpu)}
    return Entry(PLAIN, PEERS[peer], setting, runs=runs)


def test_a_ratio_is_made_in_each_round_against_the_best_peer_of_that_round() -> None:
    results = Results(
        PLAIN,
        [entry("gateway", 20, 40, 60), entry("nginx", 10, 20, 60), entry("nginx-log-buffered", 20, 10, 30)],
    )

    spread = ratio_to("nginx", "nginx-log-buffered")(results, "gateway")

    assert spread == Spread(2.0, 2.0, 4.0, 3)


def test_a_round_in_which_one_of_both_failed_does_not_count() -> None:
    results = Results(PLAIN, [entry("gateway", 20, 40), entry("nginx", 10)])

    assert ratio_to("nginx")(results, "gateway") == Spread(2.0, 2.0, 2.0, 1)
    assert ratio_to("nginx")(results, "compiled") is None


def test_growth_compares_a_peer_with_itself() -> None:
    few, many = Setting(backends=2), Setting(backends=1000)
    results = Results(PLAIN, [entry("gateway", 20, 10, setting=few), entry("gateway", 22, 12, setting=many)])

    spread = growth(1000, 2)(results, "gateway")

    assert spread is not None
    assert (spread.lowest, spread.highest) == (1.1, 1.2)


def test_growth_next_to_another_peer_leaves_a_part_of_the_core_to_probes() -> None:
    few, many = Setting(backends=2), Setting(backends=1000)
    entries = [
        Entry(PLAIN, PEERS[peer], setting, runs={0: Run({"cpu": cpu, "rate": 20_000}, 1, 0)})
        for peer, setting, cpu in (
            ("gateway", few, 20),
            ("gateway", many, 45),
            ("nginx", few, 10),
            ("nginx", many, 20),
        )
    ]

    spread = growth_next_to("nginx", 1000, 2, 0.1)(Results(PLAIN, entries), "gateway")

    assert spread == Spread(1.0, 1.0, 1.0, 1)  # 45 µs less 0.1 s / 20,000, against 20; 20 against 10


@pytest.mark.parametrize(
    "interpreted, compiled, answer",
    [
        (1.0, 1.0, "yes"),
        (3.0, 3.0, "no"),
        (1.0, 3.0, "interpreted yes, compiled no"),
        (1.0, None, "interpreted yes"),
    ],
)
def test_a_target_is_met_by_both_builds_or_by_one(
    interpreted: float, compiled: float | None, answer: str
) -> None:
    target = Target("a figure", "plain", ratio_to("nginx"), 2.0, 2.0)
    spreads = [None if figure is None else Spread.of([figure]) for figure in (interpreted, compiled)]

    assert met(target, *spreads) == answer


def test_each_round_has_another_order() -> None:
    entries = [entry("gateway"), entry("nginx"), entry("nginx-log-buffered")]

    orders = [tuple(each.peer.name for each in order(entries, number)) for number in range(4)]

    assert len({found[0] for found in orders[:3]}) > 1
    assert len(set(orders)) == 4


def test_every_scenario_has_known_peers_and_every_target_a_scenario() -> None:
    names = {scenario.name for scenario in SCENARIOS}

    assert {peer for scenario in SCENARIOS for peer in scenario.peers} - PEERS.keys() == {"earlier"}
    assert len(names) == len(SCENARIOS)
    assert {target.scenario for target in TARGETS} <= names


def test_a_line_of_a_template_is_written_for_each_backend(tmp_path: Path) -> None:
    slot = Slot(tmp_path, 1, 2, 3, Setting(backends=6))

    values = {"KEEPALIVE": 4, "SSL": "", "CERTIFICATE": "", "REUSEPORT": ""}

    text = slot.fill("peers/nginx/version.conf", values).read_text()

    assert text.count("server 127.20.") == 3
    assert text.count("server 127.21.") == 6  # in both pools
    assert "@" not in text


@pytest.mark.parametrize("heads, fields", [(Heads(), 8), (Heads(more=32), 40), (Heads(unique=False), 6)])
def test_the_heads_have_the_fields_that_the_scenario_names(heads: Heads, fields: int, tmp_path: Path) -> None:
    found = heads.heads(Slot(tmp_path, 1, 2, 3, Setting()))

    assert {head.count(b"\r\n") - 2 for head in found} == {fields}
    assert all((b"@ID@" in head) is heads.unique for head in found)


def test_twelve_kinds_of_clients_have_twelve_sequences_of_names(tmp_path: Path) -> None:
    found = Heads(kinds=12).heads(Slot(tmp_path, 1, 2, 3, Setting()))

    names = {tuple(line.split(b":")[0] for line in head.split(b"\r\n")[1:]) for head in found}

    assert len(names) == 12


def test_all_ids_in_heads_are_well_formed(tmp_path: Path) -> None:
    digits = b"0123456789ab"
    for head in (*Heads(kinds=12).heads(Slot(tmp_path, 1, 2, 3, Setting())), RESPONSE):
        lines = head.replace(ID, digits).decode().split("\r\n")[1:]
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

        assert OPENSTACK_IDS.is_valid(fields["x-openstack-request-id"])
        assert head is RESPONSE or is_well_formed(fields["traceparent"].encode())


def test_every_counted_function_is_in_the_sources() -> None:
    sources = Path(__file__).parents[2] / "gateway"
    for name in (name for names in PARTS.values() for name in names):
        *path, function = name.split("___")
        module = next(part for part in reversed(path) if part.islower())
        [text] = {
            file.read_text()
            for file in sources.rglob(f"{module}.py")
            if f"def {function}(" in file.read_text()
        }

        assert all(part in text for part in path if not part.islower())


def test_the_page_keeps_what_is_around_the_markers(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{report.START}\nold\n{report.END}\nafter\n")

    report.put_between_markers(file, "new\n")

    assert file.read_text() == f"before\n{report.START}\nnew\n{report.END}\nafter\n"


def test_what_tls_adds_is_the_difference_to_the_same_peer_without_it() -> None:
    plain, tls = Setting(), Setting(tls="ecdsa")
    scenario = Scenario("tls", "a load", Wrk(), ("gateway", "nginx"), (plain, tls))
    entries = [
        Entry(scenario, PEERS[peer], setting, runs={0: Run({"cpu": figure}, 1, 0)})
        for peer, setting, figure in (
            ("gateway", plain, 30),
            ("gateway", tls, 36),
            ("nginx", plain, 15),
            ("nginx", tls, 19),
        )
    ]

    assert added("nginx")(Results(scenario, entries), "gateway") == Spread(1.5, 1.5, 1.5, 1)
