"""`run`: a process that serves until a signal stops it, and every way in which it cannot start."""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import aiohttp
import pytest

from gateway.demo.ironic import HIGHEST, SERVED
from tests.cli.conftest import Write
from tests.kit.networks import free_port
from tests.kit.processes import call, finish, ready, start
from tests.kit.servers import serving
from tests.kit.waiting import until

pytestmark = pytest.mark.processes

Answer: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What a backend does after it has received the head of a request."""


class Draining(NamedTuple):
    process: asyncio.subprocess.Process
    request: asyncio.Future[aiohttp.ClientResponse]


@pytest.mark.parametrize("number, loop", [(signal.SIGTERM, "uvloop"), (signal.SIGINT, "asyncio")])
async def test_it_serves_and_a_signal_ends_it_with_0(
    write: Write, session: aiohttp.ClientSession, number: signal.Signals, loop: str
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    port, admin_port = free_port(), free_port()
    process = await start("run", "-c", str(write(port, admin_port)), SKEWGATE_LOOP=loop)
    await ready(session, f"http://127.0.0.1:{admin_port}")

    async with session.get(f"http://127.0.0.1:{port}/v1/nodes", headers={SERVED: "1.31"}) as response:
        assert (response.status, response.headers[SERVED], response.headers[HIGHEST]) == (200, "1.31", "1.58")
        assert await response.json() == {"nodes": []}
    process.send_signal(number)
    ended = await finish(process)

    assert ended.code == 0
    assert f"serves on http://127.0.0.1:{port}" in ended.err
    assert f"the admin listener is http://127.0.0.1:{admin_port}" in ended.err
    assert '"target": "/v1/nodes"' in ended.out
    assert "Traceback" not in ended.err


@asynccontextmanager
async def draining(write: Write, session: aiohttp.ClientSession, answer: Answer) -> AsyncIterator[Draining]:
    """A gateway that got SIGTERM while a request was in flight, and is not ready any more."""
    requested = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        requested.set()
        await answer(reader, writer)

    port, admin_port = free_port(), free_port()
    async with serving(serve) as backend:
        file = declared(write(port, admin_port), backend.port)
        process = await start("run", "-c", str(file))
        await ready(session, f"http://127.0.0.1:{admin_port}")
        request = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/v1/nodes"))
        await requested.wait()
        process.send_signal(signal.SIGTERM)

        async def unready() -> bool:
            async with session.get(f"http://127.0.0.1:{admin_port}/readyz") as response:
                return response.status == 503

        await until(unready, "not ready while draining")
        yield Draining(process, request)


async def test_a_request_in_flight_is_finished_first(write: Write, session: aiohttp.ClientSession) -> None:
    """The backend responds only after the gateway got the signal."""
    allowed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await allowed.wait()
        writer.write(f"HTTP/1.1 200 OK\r\n{SERVED}: 1.1\r\nContent-Length: 4\r\n\r\nlate".encode())
        await writer.drain()

    async with draining(write, session, answer) as (process, request):
        allowed.set()
        async with await request as response:
            assert (response.status, await response.text()) == (200, "late")
        ended = await finish(process)

    assert ended.code == 0


async def test_a_second_signal_ends_it_at_once(write: Write, session: aiohttp.ClientSession) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with draining(write, session, hang) as (process, request):
        process.send_signal(signal.SIGTERM)
        ended = await finish(process)
        with pytest.raises(aiohttp.ClientError):
            await request

    assert ended.code == 1
    assert "second stop signal" in ended.err


def declared(file: Path, port: int) -> Path:
    """The same file with one backend that needs no probe."""
    text = file.read_text()
    head = text[: text.index("      - {name: api-1")]
    file.write_text(f"{head}      - {{url: 'http://127.0.0.1:{port}', versions: 1.1-1.58}}\n")
    return file


async def test_sighup_reads_the_file_again(write: Write, session: aiohttp.ClientSession) -> None:
    admin = f"http://127.0.0.1:{(admin_port := free_port())}"
    port = free_port()
    process = await start("run", "-c", str(write(port, admin_port)))
    await ready(session, admin)

    async def highest() -> str:
        async with session.get(f"{admin}/status") as response:
            status = await response.json()
            found: str = status["services"]["baremetal"]["offer"]["max"]
            return found

    async def capped() -> bool:
        return await highest() == "1.40"

    assert await highest() == "1.58"
    file = write(port, admin_port, offer="{ceiling: '1.40'}")
    process.send_signal(signal.SIGHUP)
    await until(capped, "the new ceiling")

    file.write_text("listen: nowhere\n")
    process.send_signal(signal.SIGHUP)

    async def refused() -> bool:
        async with session.get(f"{admin}/metrics") as response:
            return 'skewgate_config_reloads_total{result="failure"} 1.0' in await response.text()

    await until(refused, "a refused reload")
    assert await highest() == "1.40"
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0


def listed(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def text_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def test_sighup_reopens_the_access_log(
    write: Write, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """As log rotation does it: the file is moved, then the gateway gets SIGHUP."""
    log = tmp_path / "access.log"
    port, admin_port = free_port(), free_port()
    file = write(port, admin_port, more=f"access_log: {{path: {log}}}")
    process = await start("run", "-c", str(file))
    await ready(session, f"http://127.0.0.1:{admin_port}")

    async def request(path: str) -> None:
        async with session.get(f"http://127.0.0.1:{port}{path}"):
            pass

    async def logged(path: str, where: Path) -> None:
        async def is_logged() -> bool:
            return f'"target": "{path}"' in text_of(where)

        await until(is_logged, f"{path} in {where.name}")

    await request("/v1/before")
    await logged("/v1/before", log)
    log.rename(tmp_path / "access.log.1")
    process.send_signal(signal.SIGHUP)

    async def exists() -> bool:
        return log in listed(tmp_path)

    await until(exists, "a new log")
    await request("/v1/after")
    await logged("/v1/after", log)
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0
    assert "/v1/after" not in text_of(tmp_path / "access.log.1")


async def test_a_wrong_file_is_exit_2_with_the_position(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("listen: 127.0.0.1:8080\nservices:\n  baremetal:\n    dialect: iron\n")

    ended = await call("run", "-c", str(file))

    assert (ended.code, ended.out) == (2, "")
    assert f"{file}:4:14: error[unknown-dialect]: " in ended.err
    assert "Traceback" not in ended.err


async def test_R3_N7_run_takes_the_file_without_an_option(tmp_path: Path) -> None:
    """`check FILE` has none, so this is what one types next."""
    file = tmp_path / "wrong.yaml"
    file.write_text("listen: 127.0.0.1:8080\nservices:\n  baremetal:\n    dialect: iron\n")

    ended = await call("run", str(file))

    assert (ended.code, ended.out) == (2, "")
    assert f"{file}:4:14: error[unknown-dialect]: " in ended.err


async def test_a_file_without_its_option_is_said() -> None:
    ended = await call("explain", "GET", "/", "my.yaml")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(
        "skewgate explain: error: unexpected argument 'my.yaml'; did you mean -c my.yaml?\n"
    )


@pytest.mark.parametrize("taken", ["listen", "admin"])
async def test_a_taken_port_is_exit_1_with_one_sentence(write: Write, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file = write(port=port) if taken == "listen" else write(admin_port=port)
        ended = await call("run", "-c", str(file))

    assert (ended.code, ended.out) == (1, "")
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("skewgate: ")
    assert (
        f"cannot listen on 127.0.0.1:{port}: address already in use; is another gateway running?" in lines[0]
    )


@pytest.mark.parametrize("taken", ["listen", "admin"])
async def test_a_taken_port_is_found_before_any_state_is_written(
    write: Write, tmp_path: Path, taken: str
) -> None:
    """Nor does the socket stay on which a start waits for orphans."""
    folder = tmp_path / "state"
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port, more = other.getsockname()[1], f"state: {folder / 'state.json'}"
        file = write(port=port, more=more) if taken == "listen" else write(admin_port=port, more=more)
        ended = await call("run", "-c", str(file))

    assert (ended.code, ended.out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in ended.err.splitlines()[-1]
    assert not (folder / "state.json").exists()
    assert not (folder / "state.json.handover").exists()


async def test_R_B11_sigusr1_reopens_the_access_log_and_reads_no_file(
    write: Write, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """nginx, HAProxy and Apache use a signal of its own for log rotation."""
    log, admin_port = tmp_path / "access.log", free_port()
    file = write(free_port(), admin_port, more=f"access_log: {{path: {log}}}")
    process = await start("run", "-c", str(file))
    await ready(session, f"http://127.0.0.1:{admin_port}")
    log.rename(tmp_path / "access.log.1")

    process.send_signal(signal.SIGUSR1)

    async def exists() -> bool:
        return log in listed(tmp_path)

    await until(exists, "a new log")
    async with session.get(f"http://127.0.0.1:{admin_port}/metrics") as response:
        assert 'skewgate_config_reloads_total{result="success"} 0.0' in await response.text()
    process.send_signal(signal.SIGTERM)
    assert (await finish(process)).code == 0


async def test_R_B11_sigusr2_is_ignored_with_a_line(write: Write, session: aiohttp.ClientSession) -> None:
    admin_port = free_port()
    process = await start("run", "-c", str(write(free_port(), admin_port)))
    await ready(session, f"http://127.0.0.1:{admin_port}")

    process.send_signal(signal.SIGUSR2)
    async with session.get(f"http://127.0.0.1:{admin_port}/livez") as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert ended.code == 0
    assert "SIGUSR2 means nothing here and is ignored" in ended.err


@pytest.mark.parametrize(
    "number, loaded",
    [
        *((signal.SIGTERM, library) for library in ("_yaml", "multidict", "httptools")),
        *((number, "multidict") for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)),
    ],
)
async def test_R_B11_a_signal_in_the_start_ends_it_in_order(
    write: Write, number: signal.Signals, loaded: str
) -> None:
    """While the process still imports its libraries: a supervisor may change its mind at once."""
    process = await start("run", "-c", str(write()))
    maps = Path(f"/proc/{process.pid}/maps")

    async def is_loaded() -> bool:
        return loaded in text_of(maps)

    await until(is_loaded, f"{loaded} is loaded")
    process.send_signal(number)
    if number in (signal.SIGHUP, signal.SIGUSR1):  # nothing to reload or to reopen yet
        process.send_signal(signal.SIGTERM)
    ended = await finish(process)

    assert ended.code == 0, ended
    assert "Traceback" not in ended.err
