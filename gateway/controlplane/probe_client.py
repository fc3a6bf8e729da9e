"""Sends probes over HTTP: the requests that the dialect wants, and the responses of the backend.

A probe trusts little: it follows no redirect, requests only from the configured address, keeps no cookie and
uses no proxy of the environment. Addresses come from `resolver`. It reads no compressed body and at most
`limits.document` of any other, all within one deadline (threats O1, O2, O4). Each request has a
`probe_connection` of its own. The dialect decides what a response means.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, final

from multidict import CIMultiDict

from gateway.controlplane.probe_connection import Headers, ProbeConnection
from gateway.controlplane.resolver import Resolve
from gateway.core.dialect import Advertisement, ProbeFault, ProbeRequest, ProbeResponse
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.probed_document import ProbedDocument, probed_document
from gateway.core.fleet.service import Health, Service
from gateway.telemetry.access_log import printable
from gateway.tls.client import SHUTDOWN_TIME, ClientContexts, reason_of, refused_by_peer

MAX_REQUESTS: Final = 4
"""Largest number of requests in one probe (`Dialect.probe`)."""
REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""Statuses of redirects. 300 is not one: it lists what this server has."""
NO_SUCH_CHECK: Final = frozenset({404, 405, 501})
"""Statuses with which a server says that it has no health check: it must not lose requests for that."""


@final
class Probed(NamedTuple):
    """Result of probing a backend for its versions."""

    found: Advertisement | ProbeFault
    document: ProbedDocument | None = None
    """A discovery document among the responses that can be shown to clients."""


@final
class ProbeClient:
    """HTTP client for probes. `certificate_seen` is called with service, backend, and the Unix time at which
    the backend's certificate expires."""

    def __init__(
        self,
        resolve: Resolve,
        contexts: ClientContexts | None = None,
        certificate_seen: Callable[[str, str, float], None] = lambda service, backend, expiry: None,
    ) -> None:
        self._resolve = resolve
        self._contexts = contexts or ClientContexts()
        self._certificate_seen = certificate_seen

    async def probe(self, service: Service, backend: Backend) -> Probed:
        """Probe a backend for its versions, with one request or several, within `probe.timeout` seconds."""
        plan = service.probe
        try:
            async with asyncio.timeout(plan.timeout):
                return await self._run_dialect(service, backend)
        except TimeoutError:
            return Probed(ProbeFault("timeout", f"no complete response within {plan.timeout:g} s"))

    async def fetch(self, path: str, service: Service, backend: Backend) -> ProbeResponse | ProbeFault:
        """Fetch one JSON document outside of a probe. The caller sets a deadline."""
        return await self._send(ProbeRequest(path, (("Accept", "application/json"),)), service, backend)

    async def check_health(self, service: Service, health: Health, backend: Backend) -> int | None:
        """Send a health check, within `probe.timeout` seconds. Returns the status; None: no usable answer."""
        try:
            async with asyncio.timeout(service.probe.timeout):
                response = await self._send(ProbeRequest(health.path), service, backend)
        except TimeoutError:
            return None
        if isinstance(response, ProbeFault) or response.status in NO_SUCH_CHECK:
            return None
        return response.status

    async def _run_dialect(self, service: Service, backend: Backend) -> Probed:
        """Send the requests of a probe one by one, until the dialect has found the versions or gives up."""
        dialect, plan = service.dialect, service.probe
        responses: tuple[ProbeResponse, ...] = ()
        document: ProbedDocument | None = None
        host = CIMultiDict(plan.headers).get("Host", backend.authority)
        while isinstance(step := dialect.probe(responses, plan.path), ProbeRequest):
            if len(responses) == MAX_REQUESTS:
                error = f"the versions are still unknown after {MAX_REQUESTS} requests"
                return Probed(ProbeFault("steps", error))
            response = await self._send(step, service, backend)
            if isinstance(response, ProbeFault):
                return Probed(response)
            document = (
                probed_document(dialect, service.match.local(step.path), host, plan.headers.items(), response)
                or document
            )
            responses = (*responses, response)
        return Probed(step, document)

    async def _send(
        self, request: ProbeRequest, service: Service, backend: Backend
    ) -> ProbeResponse | ProbeFault:
        head = _request_head(request, service, backend)
        return await self.exchange(
            lambda: ProbeConnection(head, service.limits.document, _why_unusable), service, backend
        )

    async def exchange(
        self, make: Callable[[], ProbeConnection], service: Service, backend: Backend
    ) -> ProbeResponse | ProbeFault:
        """Send one request on a connection that `make` makes for each address. The caller sets a deadline.
        Only here, exceptions of the libraries become texts for operators."""
        try:
            connection = await self._connect(make, service, backend)
        except OSError as error:
            return _no_connection(backend, error)
        try:
            return await connection.response
        except OSError as error:
            if refused_by_peer(error):
                return _no_connection(backend, error)
            return ProbeFault("protocol", f"the connection broke: {printable(reason_of(error), 200)}")

    async def _connect(
        self, make: Callable[[], ProbeConnection], service: Service, backend: Backend
    ) -> ProbeConnection:
        """Connect to the first address of the backend that accepts. Each has an equal share of the time, and
        so has the response: a silent address does not keep the others from being tried."""
        if backend.socket_path:
            return await self._connect_to("", make(), service, backend)
        *others, last = await self._resolve(backend.host)
        for address in others:
            with suppress(OSError):  # a TimeoutError is one, too
                async with asyncio.timeout(service.probe.timeout / (len(others) + 2)):
                    return await self._connect_to(address, make(), service, backend)
        return await self._connect_to(last, make(), service, backend)

    async def _connect_to(
        self, address: str, connection: ProbeConnection, service: Service, backend: Backend
    ) -> ProbeConnection:
        loop, tls = asyncio.get_running_loop(), backend.tls
        try:
            if backend.socket_path:
                await loop.create_unix_connection(lambda: connection, backend.socket_path)
            elif tls is None:
                await loop.create_connection(lambda: connection, address, backend.port)
            else:
                transport, _ = await loop.create_connection(
                    lambda: connection,
                    address,
                    backend.port,
                    ssl=self._contexts.of(tls).probes,
                    server_hostname=tls.server_name,
                    ssl_shutdown_timeout=SHUTDOWN_TIME,
                )
                if verified := transport.get_extra_info("peercert"):
                    expiry = float(ssl.cert_time_to_seconds(verified["notAfter"]))
                    self._certificate_seen(service.name, backend.name, expiry)
        except BaseException:
            connection.abort()
            raise
        return connection


def default_host(backend: Backend) -> str:
    """The `Host` of a request that is for the backend itself."""
    return backend.authority.removesuffix(":80" if backend.tls is None else ":443")


def _request_head(request: ProbeRequest, service: Service, backend: Backend) -> bytes:
    """The head of a probe's request. Of two headers with one name the operator's counts."""
    headers = CIMultiDict[str]({"Host": default_host(backend), "User-Agent": "skewgate"})
    headers.update(request.headers)
    headers.update(service.probe.headers)
    headers["Accept-Encoding"] = "identity"
    headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"GET {backend.path}{request.path} HTTP/1.1\r\n{lines}\r\n".encode()


def _why_unusable(status: int, headers: Headers) -> ProbeFault | None:
    """Why a response to a probe cannot be used, by its head; None: it can be."""
    if status in REDIRECTS:
        where = printable(headers.get("Location", "nowhere"), 100)
        return ProbeFault("redirect", f"redirects to {where}; probes follow no redirect")
    codings = ",".join(headers.getall("Content-Encoding", ()))
    if codings.strip().lower() not in {"", "identity"}:
        return ProbeFault("encoding", "sent a compressed response although the probe accepts none")
    return None


def _no_connection(backend: Backend, error: OSError) -> ProbeFault:
    reason = "tls" if isinstance(error, ssl.SSLError) else "connect"
    where = backend.url if backend.socket_path else backend.authority
    return ProbeFault(reason, f"no connection to {where}: {printable(reason_of(error), 200)}")
