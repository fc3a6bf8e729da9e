"""The recorded traffic: the same requests, commands and reloads for each checkout, one after the other.

    gateway.yaml, servers -> Traffic -> /metrics in all forms, /status, every response

Who answers is scripted, and so is what it answers. A step that changes what the gateway knows ends when the
gateway shows that it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from tests.before_and_after.running import FORMS, Running, at, do, head
from tests.before_and_after.servers import IRONIC, LOOPBACK, PATIENCE, SICK, Server
from tests.kit.messages import request_head
from tests.kit.networks import reset

TEMPLATE: Final = Path(__file__).with_name("gateway.yaml")


def configuration(values: Mapping[str, object], *without: str) -> str:
    """The text of the file. `without`: services and backends that it does not have."""
    lines = TEMPLATE.read_text(encoding="utf-8").splitlines(keepends=True)
    for name in without:
        lines = _without_service(lines, name)
        lines = [line for line in lines if f"{{name: {name}," not in line]
    text = "".join(lines)
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text


def _without_service(lines: list[str], name: str) -> list[str]:
    start = next((at for at, line in enumerate(lines) if line == f"  {name}:\n"), None)
    if start is None:
        return lines
    after = (at for at, line in enumerate(lines) if at > start and line.startswith("  ") and line[2] != " ")
    return lines[:start] + lines[next(after, len(lines)) :]


def ironic(version: str) -> str:
    """The field by which clients of Ironic ask for a version."""
    return f"{IRONIC}Version: {version}"


def _shake_hands(port: int, context: ssl.SSLContext) -> None:
    """A handshake that one side refuses. Blocks: the event loop would close without an alert."""
    with (
        socket.create_connection((LOOPBACK, port), timeout=PATIENCE) as plain,
        suppress(OSError),
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.recv(1)  # with TLS 1.3 a client learns here that it was refused


@final
class Traffic:
    """What happens to one gateway. `alone`: one process serves; what several ones count or limit together
    in an order of their own is left out for them. `results`: texts by name."""

    def __init__(
        self, gateway: Running, servers: Mapping[str, Server], file: Path, values: Mapping[str, object]
    ) -> None:
        self.gateway = gateway
        self.servers = servers
        self.file = file
        self.values = values
        self.alone = values["workers"] == 1
        self.in_detail = self.alone and values["per_backend"] == "true"
        """Whether the series that steps wait for are there."""
        self.results: dict[str, str] = {}

    async def run(self) -> dict[str, str]:
        await self._begin()
        await self._versions()
        await self._dialects()
        await self._failures()
        await self._mistakes()
        await self._tunnels()
        await self._operators()
        if self.in_detail:
            await self._limits()
            await self._handshakes()
        if not self.alone:
            await self._both_workers()
        await self._record("before the reload")
        await self._reload()
        await self._record("after the reload")
        if not self.alone:
            await self._death()
            await self._record("after the end of a worker")
        self.results["responses"] = "\n".join(self.gateway.transcript)
        return self.results

    async def _record(self, moment: str) -> None:
        await self.gateway.rests()
        for form in FORMS:
            self.results[f"/metrics as {form}, {moment}"] = await self.gateway.scrape(form)
        self.results[f"/status, {moment}"] = await self.gateway.status_text()

    async def _record_now(self, moment: str) -> None:
        """While something is under way."""
        await self.gateway.has_all_clients()
        self.results[f"/metrics as text, {moment}"] = await self.gateway.scrape()
        self.results[f"/status, {moment}"] = await self.gateway.status_text()

    async def _begin(self) -> None:
        """Each backend has been probed, and all workers serve."""
        failed = {"sick": {*SICK, "nobody"}}
        await self.gateway.until(
            "all probes have ended",
            lambda status: (
                all(
                    backend["max"] is not None or name in failed.get(service, ())
                    for service, each in status["services"].items()
                    for name, backend in each["backends"].items()
                )
                and bool(status["services"]["found"]["backends"])
            ),
        )
        await self.gateway.until(
            "failed probes are known",
            lambda status: all(each["error"] for each in status["services"]["sick"]["backends"].values()),
        )
        await self.gateway.until(
            "a health check has said no",
            lambda status: "unhealthy" in status["services"]["placement"]["backends"]["all"],
        )
        await self.gateway.until(
            "all workers serve",
            lambda status: (
                len(status["workers"]) == self.values["workers"]
                and all(each["state"] == "serving" for each in status["workers"])
            ),
        )
        for slot in range(self.gateway.workers):
            await self.gateway.until_any("skewgate_event_loop_lag_seconds_count", worker=str(slot))

    # --- versions -------------------------------------------------------------------------------------------

    async def _versions(self) -> None:
        """Served, latest, none, malformed, below and above the range, and what only one backend serves."""
        ask = self.gateway.ask
        for version in ("1.10", "1.58", "1.59", "1.90", "1.91", "1.0", "2.0", "latest", "x", "1.010"):
            await ask("/metal/v1/nodes", ironic(version))
        await ask("/metal/v1/nodes")
        await ask("/metal/v1/nodes", ironic("1.10"), ironic("1.20"))
        for target in ("/metal/", "/metal/v1", "/metal/v1/nodes?limit=1", "/nowhere", "/", "/metal/v1/../x"):
            await ask(target)
        await ask("/metal/v1/allocations", ironic("1.51"))
        await ask("/metal/v1/allocations", ironic("1.52"))
        await ask("/metal/v1/nodes", ironic("1.10"), method="HEAD")
        await ask("/metal/v1/nodes", ironic("1.10"), method="POST", body=b"x" * 1000)
        await ask("/metal/v1/nodes", ironic("1.10"), method="POST", body=b"x" * 20_000)
        for what in ("large", "chunked", "status=500", "status=404"):
            await ask("/metal/v1/nodes", ironic("1.10"), do(what))
        wire = await self.gateway.connect()
        for _ in range(3):
            await ask("/metal/v1/nodes", ironic("1.20"), wire=wire)
        await wire.close()
        await ask("/sick/v1/nodes", ironic("1.10"))
        await ask("/sick/")
        await ask("/closed/v1/nodes", ironic("1.2"))
        await ask("/secret/v1/nodes", ironic("1.2"))
        await ask("/found/v1/nodes", ironic("1.2"))

    async def _dialects(self) -> None:
        """What each dialect makes of the same requests."""
        ask = self.gateway.ask
        for version in ("1", "5", "6", "0", "latest", "x", "1.1"):
            await ask("/shrinking/things", at(version))
        await ask("/shrinking/things")
        for service, kind, versions in (
            ("nova", "compute", ("2.1", "2.90", "2.91", "2.0", "latest", "x")),
            ("senlin", "clustering", ("1.0", "1.13", "1.14", "0.9", "latest", "x")),
            ("placement", "placement", ("1.0", "1.39", "1.40", "0.9", "latest", "x")),
        ):
            for version in versions:
                await ask(f"/{service}/v2.1/things", f"OpenStack-API-Version: {kind} {version}")
            await ask(f"/{service}/v2.1/things")
        for version in ("0", "1", "2", "x"):
            await ask("/things", "Host: chef.example.org", f"X-Ops-Server-API-Version: {version}")
        await ask("/things", "Host: chef.example.org")

    # --- failures -------------------------------------------------------------------------------------------

    async def _failures(self) -> None:
        """Connections that break, in every way, and what follows from it."""
        ask = self.gateway.ask
        for version in ("2", "1"):  # the second one has nobody to spare
            await ask("/dead/things", at(version))
        if self.alone:  # of several workers, some know already that it cannot be connected to
            await ask("/dead/things", at("2"), method="POST", body=b"x")
        for method in ("GET", "POST"):
            await ask("/late/things", at("2"), do("hang@late"), method=method, body=b"x" * (method == "POST"))
        for what in ("kill@weak", "reset@weak"):
            await ask("/flaky/things", at("2"), do(what))
            await ask("/flaky/things", at("3"))  # a success: the row of failures begins anew
        for what in ("garbage@weak", "kill@weak", "status=500@weak"):
            await ask("/flaky/things", at("2"), do(what), method="POST", body=b"x")
        await self.gateway.until(
            "a backend is ejected",
            lambda status: "ejected" in status["services"]["flaky"]["backends"]["weak"],
        )
        if self.alone:  # of several workers, some do not know it yet
            await ask("/flaky/things", at("2"), do("kill@weak"))
        if self.in_detail:
            await self._out_of_step()
            await self._doubts()
        await self._upgrade()

    async def _out_of_step(self) -> None:
        """A backend that sends more than it was asked for; a response that ends too early."""
        gateway = self.gateway
        await gateway.ask("/gone/things", at("2"), do("surplus"))
        await gateway.until_value(1, "skewgate_out_of_step_total", service="gone")
        wire = await gateway.connect()
        await wire.send(head("/gone/things", at("2"), do("cut")))
        gateway.note("GET /gone/things, cut", await wire.rest())
        await wire.close()

    async def _doubts(self) -> None:
        """Responses that contradict what is known: a smaller range, and some that prompt a probe."""
        gateway = self.gateway
        for what, newest in (("refuse@old", "1.15"), ("", "1.58")):
            await gateway.ask("/metal/v1/nodes", ironic("1.20" if what else "1.10"), do(what))
            await gateway.until(
                f"the newest version is {newest}",
                lambda status, newest=newest: (  # type: ignore[misc]
                    status["services"]["metal"]["backends"]["old"]["max"] == newest
                ),
            )
        for what, version in (("served=1.7@old", "1.30"), ("unversioned@old", "1.40")):
            before = await gateway.value("skewgate_probe_duration_seconds_count", backend="old")
            await gateway.ask("/metal/v1/nodes", ironic(version), do(what))
            await gateway.until_value(before + 1, "skewgate_probe_duration_seconds_count", backend="old")

    async def _upgrade(self) -> None:
        """A backend that is upgraded, and then both rolled back. Their responses say so first."""
        await self.gateway.ask("/rolling/v1/nodes", ironic("1.10"))
        for backend, newest, version, offered in (
            ("first", 90, "1.10", "1.90"),
            ("first", 70, "1.10", "1.90"),  # it stays on offer while the other one serves it
            ("second", 70, "1.80", "1.70"),
        ):
            if backend == "second":
                await self.gateway.ask("/rolling/v1/nodes", ironic(version))
            self.servers[backend].newest = newest
            await self.gateway.ask("/rolling/v1/nodes", ironic(version))
            await self.gateway.until(
                f"{backend} serves 1.{newest}, and 1.{offered} is on offer",
                lambda status, name=backend, newest=newest, offered=offered: (  # type: ignore[misc]
                    status["services"]["rolling"]["backends"][name]["max"] == f"1.{newest}"
                    and status["services"]["rolling"]["offer"]["max"] == offered
                ),
            )
            await self._all_know("rolling", "first")

    async def _all_know(self, service: str, backend: str) -> None:
        """Wait until all workers know what the gateway knows: commands do. This one changes nothing."""
        await self.gateway.operate("POST", f"/services/{service}/backends/{backend}/enable")

    async def _mistakes(self) -> None:
        """What is no HTTP, or too much of it."""
        broken = self.gateway.broken
        for name, data in MISTAKES.items():
            await broken(name, data)
        await broken("no PROXY header", head("/metal/"), "proxied")
        await broken("half a PROXY header", b"PROXY TCP4 127.0.0.1\r\n\r\n", "proxied")
        wire = await self.gateway.connect("proxied")
        await wire.send(b"PROXY TCP4 10.1.2.3 10.1.2.4 1000 80\r\n" + head("/metal/v1/nodes"))
        await self.gateway.answer(wire, "with a PROXY header")

    async def _tunnels(self) -> None:
        """Upgrades that are allowed or not, and every end of a tunnel."""
        gateway = self.gateway
        lines = ("Connection: Upgrade", "Upgrade: echo", at("2"))
        await gateway.ask("/tunnels/things", "Connection: Upgrade", "Upgrade: websocket", at("2"))
        await gateway.ask("/gone/things", *lines)
        await gateway.ask("/tunnels/things", *lines)  # the server does not switch
        for number, ends in enumerate(("closed", "client_gone", "backend_gone"), 1):
            wire = await gateway.wire_for("/tunnels/", kept=False)
            what = "tunnel-leave" if ends == "backend_gone" else "tunnel"
            await wire.send(head("/tunnels/things", *lines, do(what)))
            await gateway.answer(wire, f"a tunnel: {ends}", close=False)
            await gateway.until_value(1, "skewgate_tunnels_open", service="tunnels")
            if ends == "backend_gone":
                await wire.send(b"x")
                gateway.note("what the tunnel brings", await wire.rest())
            else:
                await wire.send(b"x" * 1000)
                gateway.note("what the tunnel brings", await wire.reader.readexactly(1000))
                if ends == "closed":
                    wire.writer.write_eof()
                    gateway.note("the end of the tunnel", await wire.rest())
                else:
                    await self._record_now("while a tunnel is open")
                    reset(wire.writer)
            await gateway.until_value(number, "skewgate_tunnels_total", service="tunnels")
            await wire.close()

    # --- operators ------------------------------------------------------------------------------------------

    async def _operators(self) -> None:
        """Pins, drains, and everything that the admin listener refuses."""
        operate, ask = self.gateway.operate, self.gateway.ask
        await operate("PUT", "/services/metal/ceiling", {"version": "1.80"})
        await ask("/metal/v1/nodes", ironic("1.90"))
        await operate("PUT", "/services/nova/ceiling", {"release": "train"})
        await operate("PUT", "/services/metal/ceiling", {"version": "0.1"})
        await operate("PUT", "/services/metal/ceiling", {"version": 1.9})
        await operate("PUT", "/services/nowhere/ceiling", {"version": "1.9"})
        await operate("DELETE", "/services/nova/ceiling")
        await operate("POST", "/services/metal/backends/old/drain")
        await self.gateway.until_value(0, "skewgate_backend_connections", backend="old", service="metal")
        await ask("/metal/v1/nodes", ironic("1.10"))
        await operate("POST", "/services/rolling/backends/second/drain")
        await operate("POST", "/services/rolling/backends/second/enable")
        await operate("POST", "/services/metal/backends/nowhere/drain")
        await operate("GET", "/explain?method=GET&path=/metal/v1/nodes")
        await operate("GET", "/explain?method=GET&path=x")
        await operate("GET", "/nowhere")
        for token in (None, "a-wrong-token-of-some-length"):
            await operate("GET", "/status", token=token)
            await operate("POST", "/-/reload", token=token)
        for name, data in ADMIN_MISTAKES.items():
            await self.gateway.broken(f"operator: {name}", data, "admin", shown=len(data) < 10_000)

    # --- limits, for one worker -----------------------------------------------------------------------------

    async def _limits(self) -> None:
        """Networks, rates, concurrency, and queues that are full or too slow."""
        gateway = self.gateway
        await gateway.ask("/guarded/things", at("2"), "X-Forwarded-For: 10.9.1.1")
        await gateway.ask("/guarded/things", at("2"), "X-Forwarded-For: nonsense")
        for _ in range(5):
            await gateway.ask("/guarded/things", at("2"), "X-Forwarded-For: 10.2.2.2")
        first = await gateway.connect()
        await first.send(head("/guarded/things", at("2"), do("hold"), "X-Forwarded-For: 10.1.1.1"))
        await self.servers["guarded"].holds(1)
        await gateway.ask("/guarded/things", at("2"), "X-Forwarded-For: 10.1.1.1")
        self.servers["guarded"].release()
        await gateway.answer(first, "the first one of 10.1.1.1")
        for service in ("full", "brief"):
            await self._queue(service, "only" if service == "full" else "brief")

    async def _queue(self, service: str, backend: str) -> None:
        gateway, server = self.gateway, self.servers[backend]
        first = await gateway.connect()
        await first.send(head(f"/{service}/things", at("2"), do("hold"), method="PUT", body=b"x" * 1000))
        await server.holds(1)
        second = await gateway.connect()
        await second.send(head(f"/{service}/things", at("2")))
        if service == "full":
            await gateway.until_value(1, "skewgate_queue_length", service=service)
            await gateway.ask(f"/{service}/things", at("2"))  # no place is left
            await self._record_now("while a request waits")
        else:
            await gateway.answer(second, f"{service}: waited too long")
        server.release()
        await gateway.answer(first, f"{service}: the first one", "PUT")
        if service == "full":
            await gateway.answer(second, f"{service}: the second one")

    async def _handshakes(self) -> None:
        """TLS with and without a certificate, and what is no TLS."""
        gateway, folder = self.gateway, self.file.parent
        trusting = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        known = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        known.load_cert_chain(folder / "client.crt", folder / "client.key")
        foreign = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        foreign.load_cert_chain(folder / "foreign.crt", folder / "foreign.key")
        for name, context in (("no certificate", trusting), ("a certificate", known)):
            wire = await gateway.connect("tls", ssl=context, server_hostname="localhost")
            await gateway.ask("/metal/v1/nodes", ironic("1.90"), wire=wire)
            await wire.close()
            gateway.note(f"TLS with {name}", b"")
        await self._refused_handshake(ssl.create_default_context(), "client_refused")
        await self._refused_handshake(foreign, "client_certificate")
        for result, data in (("plain_http", head("/")), ("not_tls", b"\x00\x01\x02\x03nonsense\r\n\r\n")):
            await gateway.broken(f"no TLS: {result}", data, "tls")
            await gateway.until_value(1, "skewgate_tls_handshakes_total", result=result)
        wire = await gateway.connect("tls")
        await wire.send(b"\x16\x03\x01\x02\x00\x01")
        await wire.close()
        await gateway.until_value(1, "skewgate_tls_handshakes_total", result="closed")

    async def _refused_handshake(self, context: ssl.SSLContext, result: str) -> None:
        await asyncio.to_thread(_shake_hands, self.gateway.ports["tls"], context)
        await self.gateway.until_value(1, "skewgate_tls_handshakes_total", result=result)

    # --- several workers ------------------------------------------------------------------------------------

    async def _both_workers(self) -> None:
        """Requests of one service at each worker, one after the other."""
        for target in ("/gone/", "/metal/"):  # each is at another worker
            wire = await self.gateway.wire_for(target, kept=False)
            for number in range(3):
                await self.gateway.ask("/metal/v1/nodes", ironic(f"1.{60 + number}"), wire=wire)

    async def _death(self) -> None:
        """A worker is killed while it has a request."""
        gateway = self.gateway
        wire = await gateway.wire_for("/metal/", kept=False)
        await wire.send(head("/metal/v1/nodes", ironic("1.70"), do("hold")))
        await self.servers["new"].holds(1)
        await gateway.until_value(1, "skewgate_requests_in_flight", service="metal")
        (killed,) = [each for each in (await gateway.status())["workers"] if each["connections"]]
        os.kill(killed["pid"], signal.SIGKILL)
        gateway.note("held by a worker that was killed", await wire.rest())
        self.servers["new"].release()
        await gateway.until(
            "another worker serves in its place",
            lambda status: (
                [each["restarts"] for each in status["workers"]].count(1) == 1
                and all(each["state"] == "serving" for each in status["workers"])
            ),
        )

    # --- reloads --------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """One that is refused, and one that removes a service and a backend while each has a request."""
        gateway, good = self.gateway, self.file.read_text(encoding="utf-8")
        self.file.write_text(good.replace("dialect: nova", "dialect: nowa"), encoding="utf-8")
        await gateway.operate("POST", "/-/reload")
        self.results["/status, after a reload that was refused"] = await gateway.status_text()
        self.file.write_text(configuration(self.values, "gone", "leaves"), encoding="utf-8")
        held = {}
        for service, backend in (("gone", "gone"), ("shrinking", "leaves")):
            held[service] = await gateway.wire_for(f"/{service}/", kept=False)
            await held[service].send(head(f"/{service}/things", at("3"), do("hold")))
            await self.servers[backend].holds(1)
        await gateway.operate("POST", "/-/reload")
        await self._record_now("while removed ones have requests")
        for backend in ("gone", "leaves"):
            self.servers[backend].release()
        for service, wire in held.items():
            await gateway.answer(wire, f"{service}: held over the reload")
        await gateway.until_value(1, "skewgate_requests_total", service="other")
        await gateway.ask("/gone/things", at("2"))
        await gateway.ask("/shrinking/things", at("2"))


MISTAKES: Final = {
    "no request line": b"nonsense\r\n\r\n",
    "a wrong version of HTTP": b"GET / HTTP/3.0\r\nHost: a\r\n\r\n",
    "no host": request_head(host=False),
    "two hosts": request_head("Host: b"),
    "a wrong name": request_head("A B: c"),
    "a folded line": request_head("A: b", " c"),
    "a control byte": request_head("A: \x01"),
    "a wrong length": request_head("Content-Length: x"),
    "two framings": request_head("Content-Length: 1", "Transfer-Encoding: chunked"),
    "a wrong coding": request_head("Transfer-Encoding: gzip"),
    "a coding in HTTP/1.0": request_head("Transfer-Encoding: chunked", start="POST / HTTP/1.0"),
    "a fragment": request_head(start="GET /a#b HTTP/1.1"),
    "a wrong chunk": request_head("Transfer-Encoding: chunked", start="POST /metal/v1/nodes HTTP/1.1")
    + b"x\r\n",
    "a wrong expectation": request_head("Expect: much"),
    "a listed header": request_head("Connection: Host"),
    "a wrong target": request_head(start="GET nodes HTTP/1.1"),
    "a wrong path": request_head(start="GET /a/../b HTTP/1.1"),
    "a wrong method": request_head(start="CONNECT a:80 HTTP/1.1"),
    "a long target": request_head(start=f"GET /{'x' * 3000} HTTP/1.1"),
    "a long line": request_head(f"A: {'x' * 3000}"),
    "a large head": request_head(*(f"A{number}: {'x' * 1500}" for number in range(4))),
    "many lines": request_head(*(f"A{number}: x" for number in range(40))),
    "a bare line feed": b"GET / HTTP/1.1\nHost: a\n\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
}
"""Bytes after which the gateway closes the connection."""

ADMIN_MISTAKES: Final = {
    "no HTTP": b"nonsense\r\n\r\n",
    "another host": b"GET /status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    "a large head": b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 100,
}
"""Bytes after which the admin listener does so."""
