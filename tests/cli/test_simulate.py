"""`skewgate simulate`: exit codes, what it prints, and databases in place of a gateway."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, Final

import pytest
from aiohttp import ClientSession

from gateway.cli import main
from gateway.cli.simulate import exit_code, page_lines
from gateway.controlplane.usage.database import Batch, Database
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.core.fleet.snapshot import Snapshot
from gateway.core.usage.record import OTHER, Count, Gap, RowKey, Scope, UsageReport
from gateway.runtime.terminal import Paint
from gateway.settings import read_file
from gateway.settings.sections.usage import UsageSettings
from tests.cli.conftest import Call, Running
from tests.kit.ironic import upto

DAY: Final = 86_400
CONFIG: Final = """\
listen: 127.0.0.1:8080
clients: [{name: openstacksdk, user_agent: openstacksdk, networks: [10.0.0.0/8]}]
services:
  baremetal:
    dialect: ironic
    offer: {stabilization: 0s}
    backends:
      - {name: old, url: 'http://127.0.0.1:1'}
      - {name: new, url: 'http://127.0.0.1:2'}
"""
ROW: Final = RowKey(
    "baremetal", "curl", False, "exact", "1.5", "served", "1.5", "resource", False, True, "GET /v1/nodes"
)
OSC: Final = ROW._replace(
    client="openstacksdk", named=True, requested="none", asked="", version="1.1", operation="POST /v1/nodes"
)
Make = Callable[..., list[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a gateway that has run for three days: `usage` is its database."""
    file = tmp_path / "gateway.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def recorded(tmp_path: Path, config: Path) -> Make:
    """The options for a database with these rows."""

    def make(*rows: RowKey, name: str = "usage", gaps: tuple[Gap, ...] = ()) -> list[str]:
        settings = read_file(config, environ={}).require()
        snapshot = Snapshot.configured(settings.services, now=0.0)
        served = {"old": upto(58), "new": upto(90)}
        snapshot = snapshot.after(
            [("baremetal", name, ProbeSucceeded(found, 1.0)) for name, found in served.items()], 1.0
        )
        now, database = time(), Database(tmp_path / name, UsageSettings())
        for ago in (3, 2, 1, 0):
            at = now - ago * DAY
            counts = {(int(at // DAY), row): Count(3, at, at) for row in rows}
            report = UsageReport(name, 4 - ago, counts)
            batch = Batch(
                now=at, gaps=gaps, snapshot=snapshot, records={}, config=settings.hash, reports=(report,)
            )
            database.commit(batch, last=not ago)
        database.close()
        return ["-c", str(config), "--db", str(tmp_path / name)]

    return make


def test_nobody_is_affected(recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "baremetal", "--min", "1.2", *recorded(ROW)]) == 0

    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("baremetal, 20")
    assert lines[1:] == ["offer 1.1-1.58, then 1.2-1.58", "", "nobody is affected"]


def test_somebody_is_affected(recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "baremetal", "--min", "1.6", *recorded(ROW, OSC)]) == 3

    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[:5] for line in lines[3:8]] == [
        ["CLIENT", "ASKED", "FOR", "NOW", "THEN"],
        ["(curl)", "1.5", "1.5", "refused", "12"],
        ["GET", "/v1/nodes", "(12)"],
        ["openstacksdk", "no", "version", "1.1", "1.6"],
        ["POST", "/v1/nodes", "(12)"],
    ]
    assert lines[-1] == "2 clients affected: 12 requests refused, 12 moved to another version"


def test_clients_that_somebody_has_spoken_to_do_not_count(
    recorded: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ack = tmp_path / "spoken.txt"
    ack.write_text("# by mail\n(curl)   # 3 May\ncurl\n\n")
    options = ["simulate", "baremetal", "--min", "1.6", "--ack", str(ack)]

    assert main([*options, *recorded(ROW)]) == 0
    shown = capfd.readouterr().out
    assert "[ack] (curl)" in shown
    assert shown.endswith("\n\nnobody else is affected\n")
    assert main([*options, *recorded(ROW, OSC, name="both")]) == 3
    assert "1 client affected: 0 requests refused, 12 " in capfd.readouterr().out
    ack.write_text("(openstacksdk)\n(curl)")
    assert main([*options, *recorded(OSC, name="named")]) == 3


def test_as_far_as_is_known(recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    gap = Gap(int(time() // DAY), "", Scope.ALL, "a worker was killed")
    options = ["simulate", "baremetal", "--min", "1.2", "--since", "2d"]

    assert main([*options, *recorded(ROW, gaps=(gap,))]) == 4
    lines = capfd.readouterr().out.splitlines()
    assert lines[3] == "NOT CERTAIN: requests may be missing, or cannot be judged"
    assert lines[4].endswith(": a worker was killed")
    assert lines[-1] == "nobody is affected, as far as is known"


def test_a_record_that_is_shorter_than_it_should_be(recorded: Make) -> None:
    options = recorded(ROW)

    assert main(["simulate", "baremetal", "--min", "1.2", "--since", "2d", *options]) == 0
    assert main(["simulate", "baremetal", "--min", "1.2", "--since", "30d", *options]) == 4


def test_another_configuration_than_the_one_that_ran(recorded: Make, config: Path) -> None:
    options = recorded(ROW)
    config.write_text(f"# changed\n{CONFIG}")

    assert main(["simulate", "baremetal", "--min", "1.2", *options]) == 4


def test_a_removed_backend(recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    latest = ROW._replace(requested="latest", asked="", version="1.58")

    assert main(["simulate", "baremetal", "--remove-backend", "old", *recorded(ROW, latest)]) == 3
    assert "latest     1.58  1.90" in capfd.readouterr().out
    assert main(["simulate", "baremetal", "--remove-backend", "new", *recorded(ROW, name="b")]) == 0


@pytest.mark.parametrize(
    "old, new, code, words",
    [
        ("listen", "# the same\nlisten", 0, "then 1.1-1.58"),
        ("0s}", "0s, ceiling: '1.4'}", 3, "refused"),
        ("      - {name: old, url: 'http://127.0.0.1:1'}\n", "", 0, "then 1.1-1.90"),
        ("0s}", "0s, policy: reachable}", 0, "then 1.1-1.90"),
        ("0s}", "0s, floor: '1.3'}\n    default_version: minimum", 0, "then 1.3-1.58"),
        ("0s}", "0s, floor: '1.6'}\n    default_version: minimum", 3, "refused"),
        ("http://127.0.0.1:2", "http://127.0.0.1:3", 4, "not known yet: what new serves"),
        ("    offer", "    match: {path: /x}\n    offer", 4, "`match` changes"),
        ("10.0.0.0/8", "10.0.0.0/9", 4, "`clients` changes"),
        ("ironic", "chef", 4, "`dialect` changes"),
        ("    offer", "    access: {allow: [10.0.0.0/8]}\n    offer", 4, "`access` changes"),
        ("listen", "trusted_proxies: [10.0.0.1]\nlisten", 4, "`trusted_proxies` changes"),
        ("baremetal", "metal", 3, "404"),
        ("    offer", "    maintenance: {}\n    offer", 3, "refused"),
        (
            "    offer",
            "    operations: [{methods: [GET], path: /v1/nodes, versions: '>=1.9'}]\n    offer",
            3,
            "refused",
        ),
    ],
)
def test_another_configuration(
    recorded: Make,
    config: Path,
    capfd: pytest.CaptureFixture[str],
    *,
    old: str,
    new: str,
    code: int,
    words: str,
) -> None:
    candidate = config.with_name("candidate.yaml")
    assert old in CONFIG
    candidate.write_text(CONFIG.replace(old, new))

    assert main(["simulate", "baremetal", "--config", str(candidate), *recorded(ROW)]) == code
    assert words in capfd.readouterr().out


def test_rules_that_stay_are_no_reason_to_doubt(recorded: Make, config: Path) -> None:
    rules = "    access: {allow: [10.0.0.0/8]}\n    headers: {request: {add: {X-Team: a}}}\n    offer"
    config.write_text(CONFIG.replace("    offer", rules))
    options = recorded(ROW)

    assert main(["simulate", "baremetal", "--config", str(config), *options]) == 0


async def test_a_gateway_and_its_database_give_the_same_answer(
    call_main: Call,
    running: Running,
    session: ClientSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for version in ("1.5", "1.30", "latest"):
        headers = {"X-OpenStack-Ironic-API-Version": version}
        async with session.get(f"{running.url}/v1/nodes", headers=headers) as response:
            assert response.status == 200
    copy, candidate = tmp_path / "copy", tmp_path / "candidate.yaml"
    assert (await call_main("usage", "--admin", running.admin, "--export", str(copy))).code == 0
    candidate.write_text(running.file.read_text().replace("offer: {}", "offer: {ceiling: '1.40'}"))
    asked = ("simulate", "baremetal", "-o", "json")

    live = await call_main(*asked, "--min", "1.10", "--admin", running.admin)
    offline = await call_main(*asked, "--min", "1.10", "-c", str(running.file), "--db", str(copy))
    monkeypatch.setenv("SKEWGATE_CONFIG", str(running.file))
    reloaded = await call_main(*asked, "--config", str(candidate), "--admin", running.admin)

    assert (live.code, offline.code, reloaded.code) == (3, 3, 3), (live, offline, reloaded)
    assert json.loads(live.out) == json.loads(offline.out)
    assert [one["asked"] for one in json.loads(live.out)["affected"]] == ["1.5"]
    [found] = json.loads(reloaded.out)["affected"]
    assert (found["requested"], found["now"], found["then"]) == ("latest", "1.58", "1.40")


def test_the_answer_as_json(recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "baremetal", "--min", "1.6", "-o", "json", *recorded(ROW)]) == 3

    answer = json.loads(capfd.readouterr().out)
    assert answer["affected"][0] | {"last": 0} == {
        "client": "curl",
        "named": False,
        "requested": "exact",
        "asked": "1.5",
        "now": "1.5",
        "then": "",
        "result": "below_min",
        "requests": 12,
        "last": 0,
        "operations": {"GET /v1/nodes": 12},
    }


def test_eighty_columns_are_enough(recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    long = ROW._replace(client="a-product-with-a-name-of-" + "x" * 60)
    rows = [long._replace(operation=f"GET /v1/nodes/{{id}}/states/provision-{at}") for at in range(20)]
    gap = Gap(int(time() // DAY), "baremetal", Scope.ALL, "a reason that is long: " + "words " * 20)

    assert main(["simulate", "baremetal", "--min", "1.6", *recorded(*rows, gaps=(gap,))]) == 3
    lines = capfd.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < 16


def test_a_long_list_of_versions_is_folded() -> None:
    dates = ", ".join(f"2024-{month:02d}" for month in range(1, 13))
    found: dict[str, Any] = {
        "service": "shop",
        "first_day": "2026-11-01",
        "last_day": "2026-11-27",
        "offer_before": dates,
    }
    found |= {"offer_after": dates, "affected": [], "incomplete": [], "incomplete_by_client": []}
    shown = "\n".join(page_lines(found, (), Paint(sys.stdout))).splitlines()

    assert max(map(len, shown)) <= 80
    assert shown[-1] == "nobody is affected"


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--min", "1.6", "--max", "1.9"],
        ["--min", "1.6", "--since", "soon"],
        ["--min", "1.6", "--ack", "/nowhere/spoken.txt"],
        ["--min", "1.6", "--admin", "http://127.0.0.1:9"],
    ],
)
def test_bad_use(options: list[str], recorded: Make, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "baremetal", *options, *recorded()[2:]]) == 2
    assert capfd.readouterr().err


@pytest.mark.parametrize(
    "service, options, words",
    [
        ("baremetal", ["--min", "new"], "'new' is not a version"),
        ("baremetal", ["--remove-backend", "api-9"], "no backend 'api-9'"),
        ("nobody", ["--min", "1.6"], "no service 'nobody'"),
        ("baremetal", ["--min", "1.6", "--db", "/nowhere/usage"], "/nowhere/usage cannot be read"),
    ],
)
def test_a_failure_is_no_answer(
    recorded: Make, capfd: pytest.CaptureFixture[str], service: str, options: list[str], words: str
) -> None:
    assert main(["simulate", service, *recorded(ROW), *options]) == 1
    assert words in capfd.readouterr().err


@pytest.mark.parametrize(
    "clients, acknowledged, incomplete, by_client, code",
    [
        ([], [], [], [], 0),
        ([], [], [], ["200 products"], 0),
        ([], [], ["a crash"], [], 4),
        (["curl"], [], ["a crash"], [], 3),
        (["curl"], ["curl"], [], [], 3),
        (["curl"], ["(curl)"], [], ["200 products"], 0),
        (["curl"], ["(curl)"], ["a crash"], [], 4),
        (["curl", OTHER], ["(curl)"], [], [], 3),
        ([OTHER], [f"({OTHER})"], [], [], 0),
        ([OTHER], [f"({OTHER})"], [], ["200 products"], 4),
    ],
)
def test_exit_codes(
    clients: list[str], acknowledged: list[str], incomplete: list[str], by_client: list[str], code: int
) -> None:
    found: dict[str, Any] = {
        "affected": [{"client": each, "named": False} for each in clients],
        "incomplete": incomplete,
        "incomplete_by_client": by_client,
    }

    assert exit_code(found, acknowledged) == code
