"""`init --from URL`: what is written works, and what cannot be found out is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings import load
from tests.cli.conftest import Call
from tests.kit.fleets import Fleet
from tests.kit.networks import free_port


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


async def test_what_is_written_has_no_problem(fleet: Fleet, call_main: Call) -> None:
    both = [url(fleet.old.port), url(fleet.new.port)]

    ended = await call_main("init", "--from", both[0], "--from", both[1], "--service", "metal")

    assert (ended.code, ended.err) == (0, "")
    loaded = load(ended.out, filename="x", environ={})
    assert loaded.problems == ()
    (service,) = loaded.require().services
    assert (service.name, service.dialect.name) == ("metal", "ironic")
    assert [f"http://{backend.host}:{backend.port}" for backend in service.backends] == both
    assert "# served 1.1-1.58 when this was written" in ended.out
    assert '#   ceiling: "1.90"' in ended.out


async def test_a_dialect_that_is_named_is_taken_and_shows_its_options(fleet: Fleet, call_main: Call) -> None:
    ended = await call_main(
        *("init", "--from", url(fleet.new.port), "--dialect", "openstack"),
        *("--service-type", "baremetal"),
    )

    assert "    dialect: openstack\n    openstack:\n      service_type: baremetal\n" in ended.out
    assert "      # latest: preset\n" in ended.out
    assert load(ended.out, filename="x", environ={}).problems == ()


async def test_a_server_that_is_down_is_written_with_a_warning(fleet: Fleet, call_main: Call) -> None:
    gone = url(free_port())

    ended = await call_main("init", "--from", url(fleet.new.port), "--from", gone)

    assert ended.code == 0
    assert ended.err.startswith(f"skewgate: warning: {gone}: no connection to ")
    assert f"      # showed no versions when this was written\n      - url: {gone}\n" in ended.out


async def test_a_file_is_written_once(fleet: Fleet, tmp_path: Path, call_main: Call) -> None:
    file = tmp_path / "new.yaml"
    argv = ("init", "--from", url(fleet.new.port), "--to", str(file))

    written, again = await call_main(*argv), await call_main(*argv)

    assert written.out == f"{file}: written; next: skewgate check {file} && skewgate run -c {file}\n"
    assert again == (2, "", f"skewgate: {file} already exists; it was not changed\n")
    assert load(file.read_text(), filename="x", environ={}).problems == ()


@pytest.mark.parametrize(
    "argv, code, said",
    [
        ((), 2, "missing option '--from'"),
        (("--from", "nonsense"), 2, "a URL must begin with http:// or https://"),
        (("--from", "http://127.0.0.1:1", "--dialect", "x"), 2, "there is no dialect 'x'"),
        (
            *(("--from", "http://127.0.0.1:1"), 1),
            "no server responds at http://127.0.0.1:1: no connection to 127.0.0.1:1: connection refused\n",
        ),
        (("--from", "https://127.0.0.1:1", "--ca", "/nowhere.pem"), 2, "/nowhere.pem"),
    ],
)
async def test_what_cannot_be_done_is_said(
    argv: tuple[str, ...], code: int, said: str, call_main: Call
) -> None:
    ended = await call_main("init", *argv)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err


async def test_an_option_that_makes_no_configuration_is_said(fleet: Fleet, call_main: Call) -> None:
    ended = await call_main("init", "--from", url(fleet.new.port), "--listen", "nowhere")

    assert ended.code == 2
    assert ended.out == ""
