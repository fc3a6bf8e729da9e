"""`skewgate engine haproxy`: with `-c FILE` alone, `--write`, and what is said of what cannot work."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gateway.cli import main
from tests.kit.networks import free_port
from tests.kit.processes import call, finish, start
from tests.kit.waiting import until

SERVICE = "services:\n  baremetal:\n    dialect: ironic\n    backends:\n"
DECLARED = "      - {name: one, url: 'http://127.0.0.1:1', versions: '1.1-1.9'}\n"
TRUSTED = "trusted_proxies: [127.0.0.0/8]\n"
LISTEN = "listen: 127.0.0.1:6381\n"


def written(folder: Path, more: str = TRUSTED, listen: str = LISTEN, service: str = SERVICE) -> str:
    file = folder / "skewgate.yaml"
    file.write_text(f"{listen}admin: {{listen: 127.0.0.1:0}}\nwatch: false\n{more}{service}{DECLARED}")
    return str(file)


def refused(capfd: pytest.CaptureFixture[str], *argv: str, code: int = 2) -> str:
    """The one sentence about it."""
    assert main(["engine", "haproxy", *argv, "--write"]) == code
    out, err = capfd.readouterr()
    assert not out
    assert "Traceback" not in err
    return err


def test_write_makes_both_files_beside_the_configuration_and_says_what_follows(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine", "haproxy", "-c", written(tmp_path), "--write"]) == 0

    table, part = tmp_path / "skewgate.map", tmp_path / "haproxy.cfg"
    rows = table.read_text().splitlines()
    assert any(row.startswith("baremetal|1:1.9|") for row in rows)
    assert f"map_str({table})" in part.read_text()
    assert "server skewgate-gateway 127.0.0.1:6381" in part.read_text()
    assert "bind *:8080" in part.read_text()
    for file in (table, part):
        assert stat.S_IMODE(file.stat().st_mode) == 0o644  # HAProxy is another user
    assert capfd.readouterr().out.splitlines() == [
        f"{table}: written, {len(rows)} rows",
        f"{part}: written",
        f"next: start `haproxy -f /etc/haproxy/haproxy.cfg -f {part}`,",
        "then run this command without --write",
    ]


def test_beside_the_state_file_if_there_is_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state").mkdir()
    file = written(tmp_path, f"{TRUSTED}state: {tmp_path}/state/state.json\n")
    assert main(["engine", "haproxy", "-c", file, "--write"]) == 0
    assert {each.name for each in (tmp_path / "state").iterdir()} == {"skewgate.map", "haproxy.cfg"}
    assert f"-f {tmp_path}/state/haproxy.cfg" in capfd.readouterr().out


def test_options_come_before_these_places(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "map").mkdir()
    argv = ["-c", written(tmp_path), "--map", f"{tmp_path}/map/a.map", "--map-as", "/etc/haproxy/a.map"]
    argv += [
        "--configuration",
        f"{tmp_path}/b.cfg",
        "--bind",
        "192.0.2.10:6385",
        "--bind",
        "[2001:db8::1]:443",
    ]
    assert main(["engine", "haproxy", *argv, "--hard-stop-after", "90s", "--write"]) == 0
    assert capfd.readouterr().out
    text = (tmp_path / "b.cfg").read_text()
    for part in (
        *("map_str(/etc/haproxy/a.map)", "bind 192.0.2.10:6385", "bind [2001:db8::1]:443"),
        "hard-stop-after 90s",
    ):
        assert part in text
    assert (tmp_path / "map/a.map").exists()


def test_what_takes_the_way_through_the_gateway_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    service = SERVICE.replace("    dialect", "    match: {path: /baremetal}\n    dialect")
    assert main(["engine", "haproxy", "-c", written(tmp_path, "", service=service), "--write"]) == 0
    out = capfd.readouterr().out
    assert "skewgate.map: written, 0 rows" in out
    assert "baremetal: all requests go through the gateway: an engine routes by host" in out
    assert "HAProxy is not in `trusted_proxies`" in out


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["--bind", "*:6381"], "--bind: the gateway listens on port 6381 itself"),
        (["--bind", "127.0.0.1:6381 tfo"], "--bind: the gateway listens on port 6381 itself"),
        (["--bind", ""], "--bind: write an address and parameters"),
        (["--bind", "*:80\n  mode tcp"], "--bind: write an address and parameters"),
        (["--map", "/tmp/a b.map"], "'/tmp/a b.map' has characters that HAProxy's commands cannot contain"),
        (["--map-as", "/etc/a.map)"], "--map-as: '/etc/a.map)' has characters"),
        (["--socket", "/run/a\nb"], "--socket: '/run/a\\nb' has characters"),
        (["--map", "haproxy.cfg", "--configuration", "haproxy.cfg"], "must be three different files"),
        (["--map", "/"], "--map: / is a folder; name a file"),
        (["--hard-stop-after", "0"], "must be a number of seconds from 1 to 86400"),
        (["more"], "unexpected argument 'more'"),
    ],
)
def test_bad_usage_is_one_sentence_and_nothing_is_written(
    argv: list[str], sentence: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capfd, "-c", written(tmp_path), *argv)
    assert [each.name for each in tmp_path.iterdir()] == ["skewgate.yaml"]


def test_the_minimal_file_and_the_default_bind_are_told_apart(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, listen="listen: 127.0.0.1:8080\n")
    assert "--bind: the gateway listens on port 8080 itself" in refused(capfd, "-c", file)
    assert main(["engine", "haproxy", "-c", file, "--bind", "192.0.2.1:8080", "--write"]) == 0


def test_a_place_that_is_not_there_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, absent = written(tmp_path), tmp_path / "absent"
    for option in ("--map", "--configuration"):
        said = refused(capfd, "-c", file, option, f"{absent}/file", code=1)
        assert f"{option}: the folder {absent} does not exist" in said


def test_a_place_where_nobody_may_write_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`/proc` takes new files from nobody, not from root either."""
    said = refused(capfd, "-c", written(tmp_path), "--map", "/proc/self/a.map", code=1)
    assert "/proc/self" in said


def test_a_gateway_that_haproxy_cannot_reach_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, listen="listen: 127.0.0.1:0\n")
    assert "HAProxy needs a listener without TLS on a fixed port" in refused(capfd, "-c", file, code=1)


@pytest.mark.processes
async def test_without_write_the_same_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ended = await call("engine", "haproxy", "-c", written(tmp_path), "--bind", "*:6381")
    assert ended.code == 2
    assert "--bind: the gateway listens on port 6381 itself" in ended.err
    assert "serves on" not in ended.err
    ended = await call("engine", "haproxy", "-c", written(tmp_path), "--map", "/absent/skewgate.map")
    assert ended.code == 1
    assert "--map: the folder /absent does not exist" in ended.err


@pytest.mark.processes
async def test_with_a_configuration_alone_it_runs_and_says_what_haproxy_lacks(tmp_path: Path) -> None:
    """As a user who has HAProxy nowhere: both files are there, and the log says what the socket lacks."""
    port, log = free_port(), tmp_path / "log"
    with log.open("wb") as stderr:
        argv = ("-c", written(tmp_path, "", listen=f"listen: 127.0.0.1:{port}\n"), "--bind", "192.0.2.1:80")
        process = await start("engine", "haproxy", *argv, "--socket", f"{tmp_path}/s", stderr=stderr)

    async def follows_nobody() -> bool:
        return f"HAProxy is not in sync: there is no socket {tmp_path}/s" in log.read_text()

    await until(follows_nobody, "the log says that there is no socket")
    assert f"127.0.0.1:{port}" in (tmp_path / "haproxy.cfg").read_text()
    assert (tmp_path / "skewgate.map").exists()
    assert "HAProxy is not in `trusted_proxies`" in log.read_text()
    process.terminate()
    assert (await finish(process)).code == 0
