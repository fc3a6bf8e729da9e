"""A real worker process, whose main process is the test: what it does with each message, and when it ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from _thread import allocate_lock
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from gateway.core.agreement.attachment import Agreed
from gateway.core.dialect import Advertisement
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.fleet import ProbeSucceeded
from gateway.runtime.process import boot_time
from gateway.settings import AccessLogSettings, LogSettings
from gateway.telemetry.counters import Counted
from gateway.telemetry.series.service import OfRequests
from gateway.workers.messages import (
    Ack,
    Deadlines,
    Do,
    Pause,
    Report,
    ReportRequest,
    Serve,
    Serving,
    Shutdown,
    Stopped,
)
from tests.dataplane.listener_tls import tls_listener
from tests.kit.backends import ScriptedBackend, UpstreamConnection, ironic_response, serve
from tests.kit.certificates import authority
from tests.kit.clients import Client
from tests.kit.ironic import reconfigure, versions
from tests.kit.messages import MAX_FIELD, MIN_FIELD, VERSION_FIELD, response
from tests.kit.waiting import PATIENCE
from tests.kit.workers import Testbed, service_of
from tests.workers.main_process import PROGRAM, MainProcess, main_process_of, record

pytestmark = pytest.mark.processes

OFFERED = Agreed(record(3, "1.1-1.90"))


def get(version: str = "1.31") -> bytes:
    return f"GET /v1/nodes HTTP/1.1\r\nHost: api.example\r\n{VERSION_FIELD}: {version}\r\n\r\n".encode()


@pytest.fixture
async def api(testbed: Testbed) -> ScriptedBackend:
    return await testbed.backend(serve)


async def test_it_serves_what_it_was_told_once_it_may(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        main.send_start()
        await main.acknowledged()
        client = await main.client()
        await client.send(get())
        main.send(ReportRequest(1, counters=True))
        assert (await main.report(1)).worker.use["0"].clients == 0  # it waits to be accepted

        main.send(Serve())
        await main.heard(Serving)
        answer = await client.response()

        assert answer.status == 200
        assert api.requests[0].one(VERSION_FIELD) == "1.31"


async def test_what_the_main_process_learns_and_decides_is_in_force_when_it_is_acknowledged(
    testbed: Testbed,
) -> None:
    old, new = await testbed.backend(serve, declared="1.1-1.58"), await testbed.backend(serve, declared=None)
    async with main_process_of(service_of(old, new), agreed=Agreed(record(1, "1.1-1.58"))) as main:
        await main.begin()
        client = await main.client()
        assert (await client.request(get("1.80"))).status == 406

        main.holder.observe(
            "baremetal", new.name, ProbeSucceeded(Advertisement(versions("1.1-1.90")), monotonic())
        )
        main.publish()
        await main.acknowledged()
        assert (await client.request(get("1.80"))).status == 406  # it is known, and not agreed on

        main.holder.agree({"baremetal": Agreed(record(2, "1.1-1.90"))})
        main.publish()
        await main.acknowledged()
        assert (await client.request(get("1.80"))).status == 200

        assert [one.one(VERSION_FIELD) for one in new.requests] == ["1.80"]
        assert main.of(Ack) == [Ack(1), Ack(2), Ack(3)]


# --- facts -------------------------------------------------------------------------------------------------


async def test_what_a_request_shows_is_in_force_at_once_and_told(testbed: Testbed) -> None:
    async def rolled_back(upstream: UpstreamConnection) -> None:
        while True:
            await upstream.request()
            await upstream.send(refusal())

    bad, good = await testbed.backend(rolled_back, declared=None), await testbed.backend(serve)
    async with main_process_of(service_of(bad, good), agreed=OFFERED) as main:
        learned(main, bad)
        await main.begin()
        client = await main.client()

        for _ in range(20):
            assert (await client.request(get("1.80"))).status == 200

        assert len(bad.requests) == 1  # the first one shows it, and is sent again
        facts = await main.facts()
        assert facts.number == 1
        assert {(service, backend) for service, backend, _ in facts.facts} == {("baremetal", bad.name)}

        # An Update that does not have it yet does not undo it.
        main.publish()
        await main.acknowledged()
        for _ in range(20):
            assert (await client.request(get("1.80"))).status == 200
        assert len(bad.requests) == 1

        # Once the main process has seen it, what it publishes counts alone.
        learned(main, bad)
        main.publish(facts_seen=1)
        await main.acknowledged()
        for _ in range(20):
            assert (await client.request(get("1.80"))).status == 200
        assert len(bad.requests) == 2
        assert (await main.facts(2)).number == 2


def refusal() -> bytes:
    """A server that was rolled back."""
    return response(
        406,
        f"{MIN_FIELD}: 1.1",
        f"{MAX_FIELD}: 1.58",
        "Content-Type: application/json",
        body=b'{"error_message": "not supported"}',
    )


def learned(main: MainProcess, backend: ScriptedBackend, text: str = "1.1-1.90") -> None:
    advertisement = Advertisement(versions(text))
    main.holder.observe("baremetal", backend.name, ProbeSucceeded(advertisement, monotonic()))


# --- reports -----------------------------------------------------------------------------------------------


async def test_a_report_tells_what_it_has_and_counts_each_request_once(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        await main.begin()
        client = await main.client()
        for _ in range(3):
            assert (await client.request(get())).status == 200

        main.send(ReportRequest(7, counters=True))
        first = await main.report(7)
        main.send(ReportRequest(8, counters=True))
        second = await main.report(8)
        main.send(ReportRequest(9, counters=False))
        third = await main.report(9)

    assert first.worker.use["0"].clients == 1
    assert first.worker.connections == {("baremetal", api.name): (1, 0)}
    assert first.worker.processes["0"].cpu_seconds > 0
    assert first.counted is not None
    assert counted_requests(first.counted) == {(200, api.name): 3}
    assert second.counted is not None
    assert ("baremetal",) not in second.counted
    assert third.counted is None


def counted_requests(counted: Counted) -> Mapping[tuple[int, str], int]:
    """The requests of the service, by (status, backend)."""
    return counted["baremetal",][OfRequests.requests.full_name]


# --- the end -----------------------------------------------------------------------------------------------


async def test_a_drain_accepts_no_more_finishes_and_reports_all_that_was_counted(testbed: Testbed) -> None:
    may_answer = asyncio.Event()

    async def slow(upstream: UpstreamConnection) -> None:
        while True:
            message = await upstream.request()
            await may_answer.wait()
            await upstream.send(ironic_response(message))

    api = await testbed.backend(slow)
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        await main.begin()
        client = await main.client()
        await client.send(get())
        await api.received()

        main.send(Shutdown(10.0))
        await main.heard(Stopped)
        late = await main.client()  # it waits for the next worker of the slot
        await late.send(get())
        main.send(ReportRequest(2, counters=False))  # a worker that drains still answers
        assert (await main.report(2)).worker.use["0"].clients == 1
        may_answer.set()
        answer = await client.response()
        assert (answer.status, answer.one("connection")) == (200, "close")
        code, logged = await main.ended()

        last = await main.heard(Report, 2)
        assert (code, logged) == (0, "")
        assert last.counted is not None
        assert counted_requests(last.counted) == {(200, api.name): 1}
        assert last.worker.in_flight_by_service.get("baremetal", 0) == 0

        await main.start()  # the next one has the same sockets, and so whoever waits there
        await main.begin()
        assert (await late.response()).status == 200


async def test_a_request_that_is_cut_at_the_end_of_a_drain_is_in_the_last_report(testbed: Testbed) -> None:
    async def silent(upstream: UpstreamConnection) -> None:
        await upstream.request()
        await asyncio.Event().wait()

    api = await testbed.backend(silent)
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        await main.begin()
        clients = [await main.client() for _ in range(3)]
        for client in clients:
            await client.send(get())
        await api.received(3)

        main.send(Shutdown(0.1))
        code, logged = await main.ended()

        last = await main.heard(Report)
        assert code == 0
        assert "3 client connections were cut" in logged
        assert last.counted is not None
        assert sum(counted_requests(last.counted).values()) == 3
        assert last.worker.in_flight_by_service.get("baremetal", 0) == 0


async def test_a_drain_before_it_serves_ends_it(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        main.send_start()
        main.send(Shutdown(10.0))
        await main.heard(Stopped)
        assert (await main.ended())[0] == 0


async def test_without_a_main_process_from_the_beginning_it_ends(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        main.hang_up()
        assert await main.ended() == (0, "")


@pytest.mark.parametrize("served", [False, True])
async def test_signals_mean_nothing_while_the_main_process_lives(api: ScriptedBackend, served: bool) -> None:
    """Whoever stops a service or presses Ctrl-C sends them to all its processes."""
    everyday = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        if served:
            await main.begin()
        else:
            main.send_start()
            await main.acknowledged()
        for number in (*everyday, *everyday):
            main.signal(number)
        if not served:
            main.send(Serve())
            await main.heard(Serving)
        assert (await (await main.client()).request(get())).status == 200
        main.send(Shutdown(1.0))
        assert (await main.ended())[0] == 0


async def test_what_is_no_message_ends_it_and_a_second_start_too(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        main.send(Serve())
        code, logged = await main.ended()
        assert code == 1
        assert "the main process has sent a Serve before `Start`" in logged


async def test_by_hand_it_says_how_it_is_started() -> None:
    process = await asyncio.create_subprocess_exec(*PROGRAM, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    assert process.returncode == 2
    assert (
        said.decode()
        == "error: a worker is started by `skewgate run` with `workers` above 1, and not by hand\n"
    )


# --- one of several replicas -------------------------------------------------------------------------------


async def test_it_looks_at_the_deadline_before_it_refuses(api: ScriptedBackend) -> None:
    voting = replace(OFFERED, voting=True)
    async with main_process_of(service_of(api), agreed=voting) as main:
        main.send(Deadlines({"baremetal": boot_time() + 1e6}))  # before there is anything it is about
        await main.begin()
        client = await main.client()
        assert (await client.request(get("1.91"))).status == 406

        main.send(Deadlines({"baremetal": boot_time() - 0.001}))
        main.send(ReportRequest(1, counters=False))
        await main.report(1)
        assert (await client.request(get("1.91"))).status == 503
        assert (await client.request(get("1.31"))).status == 200


# --- orphans -----------------------------------------------------------------------------------------------


async def test_an_orphan_accepts_nobody_refuses_no_version_and_ends(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED, drain=60.0) as main:
        await main.begin()
        [address] = main.sockets.addresses
        finishes, is_refused = await main.client(), await main.client()
        assert (await finishes.request(get("1.31"))).status == 200
        assert (await is_refused.request(get("1.91"))).status == 406
        await finishes.send(get("1.31")[:20])
        await is_refused.send(get("1.91")[:20])

        main.hang_up()
        main.sockets.close()  # as the kernel does with those of a killed main process
        await refused_at(*address)

        await finishes.send(get("1.31")[20:])
        await is_refused.send(get("1.91")[20:])
        answer = await finishes.response()
        assert (answer.status, answer.one("connection")) == (200, "close")
        assert (await is_refused.response()).status == 503
        code, logged = await main.ended()
        assert code == 0
        assert (
            "worker 0: the main process is gone: this worker accepts no more, and ends after the requests "
            "in flight, at most 60 s"
        ) in logged


class Unreportable(int):
    """A number that reaches the worker as a lock: its report cannot be sent, as by a bug of the gateway."""

    def __reduce__(self) -> tuple[Any, ...]:
        return allocate_lock, ()


async def test_a_bug_in_a_report_is_logged_and_ends_it_after_the_requests_in_flight(
    api: ScriptedBackend,
) -> None:
    """Its main process, which gets no reports any more, puts another worker in its place."""
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        await main.begin()
        client = await main.client()
        assert (await client.request(get())).status == 200
        await client.send(get()[:20])

        main.send(ReportRequest(Unreportable(), counters=True))
        await main.gone()
        await client.send(get()[20:])
        assert (await client.response()).status == 200
        code, logged = await main.ended()
        assert code == 0
        assert "this worker ends because of a bug in the gateway" in logged
        assert "cannot pickle '_thread.lock' object" in logged


async def refused_at(host: str, port: int) -> None:
    """Wait until nobody listens there any more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                _, writer = await asyncio.open_connection(host, port)
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.01)


async def test_an_orphan_is_left_for_no_longer_than_its_drain_time(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED, drain=0.3) as main:
        await main.begin()
        client = await main.client()
        assert (await client.request(get())).status == 200
        await client.send(get()[:20])

        main.hang_up()
        code, _ = await main.ended()

        assert code == 0
        assert (await client.ended()).rest == b""


async def test_a_stop_signal_that_is_quicker_than_the_end_of_the_channel_counts(
    api: ScriptedBackend, tmp_path: Path
) -> None:
    """The process above it is killed, as the main process by the kernel: the channel is here, and stays open.
    The second signal from then on cuts what the worker still has."""
    pid = tmp_path / "pid"
    shell = ("/bin/sh", "-c", f'"$@" & echo $! > {pid}; wait', "sh", *PROGRAM)
    async with main_process_of(service_of(api), agreed=OFFERED, drain=60.0, start=False) as main:
        await main.start(shell)
        await main.begin()
        client = await main.client()
        assert (await client.request(get())).status == 200
        await client.send(get()[:20])
        worker = int(pid.read_text())
        for number in (1, 3):
            os.kill(worker, signal.SIGTERM)
            # It means nothing yet. The first report may come before the signal's handler has run.
            for each in (number, number + 1):
                main.send(ReportRequest(each, counters=False))
                await main.report(each)

        main.signal(signal.SIGKILL)
        await main.dead()
        os.kill(worker, signal.SIGTERM)
        main.send(ReportRequest(5, counters=False))
        await main.report(5)
        main.hang_up()
        os.kill(worker, signal.SIGTERM)

        await gone(worker)


async def gone(pid: int) -> None:
    """Wait until there is no process of this number, which is no child of this one."""
    descriptor = os.pidfd_open(pid)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(PATIENCE):
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


# --- logs and certificates ---------------------------------------------------------------------------------


async def test_the_access_log_is_reopened(api: ScriptedBackend, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    configured = AccessLogSettings(format="json", path=str(log))
    async with main_process_of(service_of(api), agreed=OFFERED, access_log=configured) as main:
        await main.begin()
        client = await main.client()
        assert (await client.request(get())).status == 200
        log.rename(tmp_path / "old.log")
        main.send(Do("reopen_logs"))
        main.send(ReportRequest(1, counters=False))
        await main.report(1)
        assert (await client.request(get("1.32"))).status == 200
        main.send(Shutdown(1.0))
        await main.ended()

    assert '"version": "1.31"' in (tmp_path / "old.log").read_text()
    assert '"version": "1.32"' in log.read_text()


async def test_certificates_are_read_again_and_a_wrong_one_changes_nothing(
    api: ScriptedBackend, tmp_path: Path
) -> None:
    listener = tls_listener(tmp_path)
    assert listener.listen.tls is not None
    (files,) = listener.listen.tls.certificates

    async def shown() -> bytes:
        """The certificate that a new client sees, once it was served."""
        streams = await asyncio.open_connection(
            *main.sockets.addresses[0], ssl=listener.client_tls, server_hostname="localhost"
        )
        client = Client(*streams)
        main.clients.append(client)
        assert (await client.request(get())).status == 200
        certificate: bytes = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate

    async with main_process_of(service_of(api), agreed=OFFERED, listen=[listener.listen]) as main:
        await main.begin()
        first = await shown()

        shutil.copy(files.key, files.certificate)
        main.send(Do("read_certificates"))
        main.publish(settings=main.settings)  # it reads them, too
        await main.acknowledged()
        assert await shown() == first

        authority().server().write(tmp_path)
        main.publish(settings=main.settings)
        await main.acknowledged()
        second = await shown()
        assert second != first

        authority().server().write(tmp_path)
        main.send(Do("read_certificates"))
        async with asyncio.timeout(PATIENCE):
            while await shown() == second:
                pass
        main.send(Shutdown(1.0))
        _, logged = await main.ended()
    assert "the certificates stay as they were" in logged


async def test_certificates_that_cannot_be_read_keep_it_from_starting(
    api: ScriptedBackend, tmp_path: Path
) -> None:
    listener = tls_listener(tmp_path)
    shutil.rmtree(tmp_path)
    async with main_process_of(service_of(api), agreed=OFFERED, listen=[listener.listen]) as main:
        main.send_start()
        code, logged = await main.ended()
    assert code == 1
    assert "a worker cannot start: " in logged
    assert str(tmp_path) in logged


async def test_another_configuration_is_in_force_with_its_names(testbed: Testbed, tmp_path: Path) -> None:
    first, second = await testbed.backend(serve), await testbed.backend(serve)
    named = Backend("named", "localhost", second.port, declared=versions("1.1-1.90"))
    async with main_process_of(service_of(first), agreed=OFFERED, drain=0.3) as main:
        await main.begin()
        client = await main.client()
        assert (await client.request(get())).status == 200

        services = (service_of(named),)
        reconfigure(main.holder, services)
        main.publish(settings=replace(main.settings, services=services, log=LogSettings(level="error")))
        await main.acknowledged()

        for _ in range(3):
            assert (await client.request(get())).status == 200
        assert (len(first.requests), len(second.requests)) == (1, 3)
        main.hang_up()
        _, logged = await main.ended()
    assert "the main process is gone" in logged
    assert "INFO" not in logged


# --- pauses ------------------------------------------------------------------------------------------------


async def test_a_paused_worker_goes_on_with_its_clients_and_serves_again(api: ScriptedBackend) -> None:
    async with main_process_of(service_of(api), agreed=OFFERED) as main:
        await main.begin()
        client = await main.client()
        await client.send(get()[:20])

        main.send(Pause())
        await main.heard(Stopped)
        waits = await main.client()
        await waits.send(get())
        await client.send(get()[20:])
        assert (await client.response()).status == 200
        main.send(ReportRequest(1, counters=False))
        assert (await main.report(1)).worker.use["0"].clients <= 1

        main.send(Serve())
        await main.heard(Serving, 2)
        assert (await waits.response()).status == 200
        assert not (await waits.request(get())).every("connection")
