"""`skewgate usage`: who uses which version, from databases alone, several added up, or from a gateway."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from time import gmtime, strftime, time

import aiohttp
import pytest

from gateway.cli import main
from gateway.controlplane.usage.database import Batch, Database
from gateway.core.fleet.backend import Backend
from gateway.core.usage.record import Count, Gap, RowKey, Scope, UsageReport
from gateway.demo.ironic import SERVED
from gateway.settings.sections.usage import UsageSettings
from tests.cli.conftest import Call, Running
from tests.kit.ironic import holder_of, learn, service, upto
from tests.kit.processes import Ended

NOW = time()
TODAY = int(NOW // 86_400)
SEEN = strftime("%d %b %H:%M", gmtime(NOW))
NOVA = RowKey(
    "baremetal", "nova", True, "exact", "1.31", "served", "1.31", "api", False, True, "GET /v1/nodes"
)
CURL = NOVA._replace(client="curl", named=False, requested="none", asked="", version="1.1")
NEWEST = NOVA._replace(requested="latest", asked="", version="1.58", operation="GET /v1/nodes/{id}")
REFUSED = CURL._replace(requested="exact", asked="1.95", version="", result="above_max")


def database(path: Path, counts: dict[RowKey, int], *gaps: Gap, replica: str = "", others: str = "") -> Path:
    """The database of a gateway that has counted these requests a moment ago, and was stopped."""
    holder = holder_of(service(Backend("api-1", "127.0.0.1", 1)))
    learn(holder, "api-1", upto(58))
    rows = {(TODAY, key): Count(number, NOW, NOW) for key, number in counts.items()}
    report = UsageReport("worker", 1, rows)
    kept = Database(path, UsageSettings())
    kept.commit(
        Batch(
            now=NOW,
            gaps=gaps,
            snapshot=holder.current,
            records={},
            config="c",
            replicas={replica, others} - {""},
            own=replica,
            reports=(report,),
        ),
        last=True,
    )
    kept.close()
    return path


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return database(tmp_path / "one", {NOVA: 1200, NEWEST: 3, CURL: 40, REFUSED: 7})


def test_clients_and_how_they_ask(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "baremetal", "--db", str(one)]) == 0
    day = datetime.fromtimestamp(NOW, UTC).date()
    assert capsys.readouterr().out == (
        f"baremetal, {day} to {day} (UTC): 1250 requests, 7 refused\n"
        "\n"
        "CLIENT  ASKED FOR          REQUESTS  REFUSED  LAST SEEN\n"
        f"nova    1.31                   1200        0  {SEEN}\n"
        f"nova    latest -> 1.58            3        0  {SEEN}\n"
        f"(curl)  1.95                      7        7  {SEEN}\n"
        f"(curl)  no version -> 1.1        40        0  {SEEN}\n"
        "\n"
        "(client): product of the User-Agent, (none) without one; not named in `clients`\n"
    )


def test_versions_operations_and_filters(one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", "--db", str(one), "--by", "version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:19].strip() for line in lines[3:7]] == [
        "no version -> 1.1",
        "1.31",
        "latest -> 1.58",
        "1.95",
    ]
    assert main(["usage", "--db", str(one), "--by", "operation", "--client", "nova", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["operation"], row["requests"]) for row in rows] == [
        ("GET /v1/nodes", 1200),
        ("GET /v1/nodes/{id}", 3),
    ]
    assert main(["usage", "baremetal", "--db", str(one), "--below", "1.31", "-o", "json"]) == 0
    assert [row["client"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["curl"]
    assert main(["usage", "--db", str(one), "--client", "nobody"]) == 0
    assert ": 0 requests, 0 refused\n" in capsys.readouterr().out


def test_a_long_name_is_cut_and_one_request_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = database(tmp_path / "one", {NOVA._replace(client="a-client-with-a-very-long-name"): 1})
    assert main(["usage", "--db", str(file), "--by", "version"]) == 0
    shown = capsys.readouterr().out
    assert "(UTC): 1 request, 0 refused\n" in shown
    assert "a-client-with-a-very-…" in shown


def test_an_incomplete_record_says_so_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "a worker was killed, and what it had counted in its last second is lost with it"
    file = database(tmp_path / "one", {NOVA: 1}, Gap(TODAY, "", Scope.ALL, why))
    assert main(["usage", "--db", str(file), "--since", "7d"]) == 0
    shown = capsys.readouterr().out
    assert "\nINCOMPLETE: requests may be missing here, or be counted under `other`\n" in shown
    assert "a worker was killed" in shown
    assert "the record begins only on the last of these days" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_replicas_are_looked_at_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = database(tmp_path / "a", {NOVA: 1, CURL: 2}, replica="r1", others="r2")
    second = database(tmp_path / "b", {NOVA: 10}, replica="r2", others="r1")
    assert main(["usage", "--db", str(first), "-o", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["usage", "--db", str(first), "--db", str(second), "-o", "json"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert (alone["requests"], alone["complete"]) == (3, False)
    assert "the database of replica r2 was not read" in alone["incomplete"][0]
    assert (both["requests"], both["incomplete"]) == (13, [])
    assert main(["usage", "--db", str(first), "--db", str(first)]) == 1
    assert "are the same database" in capsys.readouterr().err


def test_csv_with_text_that_a_spreadsheet_would_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formula = "=cmd|'/c calc'!A1"
    gap = Gap(TODAY, "", Scope.ALL, "a worker was killed")
    file = database(tmp_path / "one", {CURL._replace(client=formula): 2}, gap)
    assert main(["usage", "--db", str(file), "-o", "csv"]) == 0
    shown = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(shown.out))
    assert (row["client"], row["versions"], row["requests"]) == (f"'{formula}", "1.1", "2")
    assert (row["complete"], row["named"]) == ("false", "false")
    assert row["last"] == strftime("%Y-%m-%dT%H:%M:%SZ", gmtime(NOW))
    assert "incomplete: " in shown.err


@pytest.mark.processes
async def test_a_running_gateway_and_its_copy_give_the_same_answer(
    running: Running, session: aiohttp.ClientSession, call_main: Call, tmp_path: Path
) -> None:
    asked = [
        ("nova/1", {SERVED: "1.31"}),
        ("nova/2", {SERVED: "latest"}),
        ("curl/8", {}),
        ("curl/8", {SERVED: "9"}),
    ]
    for agent, headers in asked:
        async with session.get(f"{running.url}/v1/nodes", headers={"User-Agent": agent, **headers}):
            pass
    copy = tmp_path / "copy"
    assert (await call_main("usage", "--admin", running.admin, "--export", str(copy))) == Ended(0, "", "")
    assert copy.stat().st_mode & 0o777 == 0o600
    live = Ended(1, "", "")
    for more in (["--by", "client"], ["--by", "version", "-o", "csv"], ["--since", "7d", "-o", "json"]):
        live = await call_main("usage", "baremetal", "--admin", running.admin, *more)
        read = await call_main("usage", "baremetal", "--db", str(copy), *more)
        assert live == read
        assert live.code == 0
    assert json.loads(live.out)["requests"] == 4
    assert [(row["client"], row["requested"], row["refused"]) for row in json.loads(live.out)["rows"]] == [
        ("curl", "malformed", 1),
        ("curl", "none", 0),
        ("nova", "exact", 0),
        ("nova", "latest", 0),
    ]
    again = await call_main("usage", "--admin", running.admin, "--export", str(copy))
    assert (again.code, again.err) == (1, f"skewgate: {copy} cannot be written: File exists\n")
    unknown = await call_main("usage", "compute", "--admin", running.admin)
    assert (unknown.code, unknown.out) == (1, "")
    assert "there is no service 'compute'; there are: baremetal" in unknown.err


@pytest.mark.parametrize(
    "more, code, sentence",
    [
        (["--since", "week"], 2, "`since` must be a number of days, such as 7d"),
        (["--below", "1.10"], 2, "`below` must be a version of one service"),
        (["compute"], 2, "nothing is recorded about compute"),
        (["--admin", "http://127.0.0.1:1"], 2, "--db is not allowed with"),
        (["--db", "missing"], 1, "missing cannot be read as a database of usage"),
        (["--by", "color"], 2, "is not one of"),
    ],
)
def test_bad_use(
    one: Path, more: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["usage", "--db", str(one), *more]) == code
    assert sentence in capsys.readouterr().err
