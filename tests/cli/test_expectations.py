"""`skewgate test`: rows that are as expected, rows that differ, and files that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.cli import main
from tests.cli.conftest import Call, Running, Write
from tests.kit.processes import ROOT

CONFIG = """\
listen: 127.0.0.1:8080
services:
  baremetal:
    dialect: ironic
    match: {path: /baremetal}
    backends:
      - {name: api-1, url: 'http://127.0.0.1:1'}
      - {name: api-2, url: 'http://127.0.0.1:2'}
      - {name: api-3, url: 'http://127.0.0.1:3', versions: 1.1-1.70}
"""
HEADER = "X-OpenStack-Ironic-API-Version"
TABLE = f"""\
config: gateway.yaml
backends:
  baremetal/api-1: 1.1-1.58
  baremetal/api-2: 1.1-1.90
requests:
  - request: GET /baremetal/v1/nodes
    headers: {{{HEADER}: latest}}
    expect: {{decision: forward, service: baremetal, version: "1.58", backends: [api-3, api-2, api-1]}}
  - request: get /baremetal/v1/nodes
    headers: {{{HEADER}: ["1.1", "1.89"]}}
    expect: {{decision: refuse, status: 406}}
  - request: GET /other
    expect: {{decision: unrouted, status: 404}}
  - request: GET /baremetal/../x
    expect: {{decision: refuse}}
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    file = tmp_path / "table.yaml"
    file.write_text(TABLE)
    return file


def test_a_table_that_holds(table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["test", str(table)]) == 0
    assert capfd.readouterr() == (f"{table}: 4 requests, all as expected\n", "")


def test_a_row_that_differs_says_how_and_why(table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table.write_text(TABLE.replace('"1.58"', '"1.90"').replace("status: 406", "status: 400"))

    assert main(["test", str(table)]) == 1

    first, second, last = capfd.readouterr().out.splitlines()
    assert first.startswith(f"{table}:6: GET /baremetal/v1/nodes: version is 1.58, not 1.90 (because ")
    assert second.startswith(f"{table}:9: GET /baremetal/v1/nodes: status is 406, not 400 (because ")
    assert last == f"{table}: 4 requests, 2 not as expected"


def test_a_header_may_be_empty(table: Path) -> None:
    table.write_text(TABLE.replace('["1.1", "1.89"]', '""').replace("refuse, status: 406", "forward"))

    assert main(["test", str(table)]) == 0


def test_as_json(table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "-o", "json", str(table)]) == 0

    found = json.loads(capfd.readouterr().out)
    assert [row["as_expected"] for row in found["requests"]] == [True] * 4
    assert found["requests"][0]["found"]["version"] == "1.58"


@pytest.mark.parametrize("claim, version", [("down", "1.70"), ("legacy", "1.1"), ("1.1-1.31", "1.31")])
def test_what_a_backend_is_said_to_serve(claim: str, version: str, table: Path) -> None:
    text = TABLE.replace("api-1: 1.1-1.58", f"api-1: {claim}").replace('"1.58"', f'"{version}"')
    table.write_text(text.replace(", backends: [api-3, api-2, api-1]", ""))

    assert main(["test", str(table)]) == 0


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("requests:", "request:", ":5:1: error[unknown-key]"),
        ("config: gateway.yaml\n", "config: [x]\n", ":1:9: error[wrong-type]"),
        ("GET /other", "GET other", ":12:14: error[bad-value]: must be a method and a path"),
        ("decision: unrouted", "decision: lost", ":13:24: error[bad-value]: not one of the allowed values"),
        ("expect: {decision: unrouted, status: 404}", "expect: {}", ":13:13: error[bad-value]"),
        ("baremetal/api-1: ", "api-1: ", ":3:3: error[bad-value]: must be SERVICE/BACKEND"),
        ("baremetal/api-1: ", "baremetal/api-9: ", ":3:20: error[bad-value]: the configuration has no such"),
        ("1.1-1.58", "x-y", ":3:20: error[bad-value]"),
        ("backends:\n", "backends: [\n", "error[yaml-syntax]"),
    ],
)
def test_a_file_that_cannot_be_used_is_exit_2_with_the_place(
    old: str, new: str, said: str, table: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert old in TABLE
    table.write_text(TABLE.replace(old, new, 1))

    assert main(["test", str(table)]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("data", [None, b"\xff", b""])
def test_a_file_that_cannot_be_read(
    data: bytes | None, table: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table.unlink()
    if data is not None:
        table.write_bytes(data)

    assert main(["test", str(table)]) == 2
    assert str(table) in capfd.readouterr().err


async def test_a_running_gateway_decides(running: Running, tmp_path: Path, call_main: Call) -> None:
    file = tmp_path / "table.yaml"
    row = (
        "{request: GET /v1/nodes, headers: {%s: latest}, expect: {version: '1.58', backends: [api-1, api-2]}}"
    )
    file.write_text(f"requests:\n  - {row % HEADER}\n")

    ended = await call_main("test", "--admin", running.admin, str(file))

    assert ended == (0, f"{file}: 1 request, all as expected\n", "")


async def test_without_claims_the_backends_are_probed(write: Write, tmp_path: Path, call_main: Call) -> None:
    file = tmp_path / "table.yaml"
    file.write_text(
        "requests:\n  - {request: GET /v1/nodes, expect: {version: '1.1', backends: [api-1, api-2]}}\n"
    )

    ended = await call_main("test", "-c", str(write()), str(file))

    assert ended == (0, f"{file}: 1 request, all as expected\n", "")


def test_the_example_in_the_documentation_holds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    example = page.partition("## The file of `test`")[2].partition("```yaml\n")[2].partition("```")[0]
    backends = [
        f"      - {{name: api-{number}, url: 'http://127.0.0.1:{number}'}}\n" for number in range(1, 5)
    ]
    head = CONFIG.partition("    match")[0]
    (tmp_path / "skewgate.yaml").write_text(f"{head}    backends:\n{''.join(backends)}")
    file = tmp_path / "table.yaml"
    file.write_text(example)

    assert main(["test", str(file)]) == 0, capfd.readouterr()
