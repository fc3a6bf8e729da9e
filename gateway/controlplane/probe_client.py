"""Sends one probe over HTTP: the requests that the dialect wants, and the backend's responses to them.

A probe trusts little: it follows no redirect, asks only the configured address, keeps no cookie and uses no
proxy of the environment. A name's addresses come from `resolver`; none is looked up here. It reads no
compressed body and at most `limits.document` of any other, all within one deadline (threats O1, O2, O4).
Exceptions of the libraries end here. What a response means is up to the dialect.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from gateway.controlplane.resolver import Resolve
from gateway.core.dialect import Advertisement, ProbeFault, ProbeRequest, ProbeResponse
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.probe import Health
from gateway.core.fleet.probed_document import ProbedDocument, probed_document
from gateway.core.fleet.service import Service
from gateway.telemetry.access_log import printable
from gateway.tls.client import ClientContexts, reason_of, refused_by_peer

if TYPE_CHECKING:
    from aiohttp.connector import Connection

MAX_REQUESTS: Final = 4
"""Requests in one probe (`Dialect.probe`)."""

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""Statuses that point elsewhere. 300 is not among them: it lists what this server has."""

NO_SUCH_CHECK: Final = frozenset({404, 405, 501})
"""Answers of a server without a health check. Old ones may lack it, and must not lose requests for that."""


@final
class HealthAnswer(NamedTuple):
    """What a health check brought."""

    answered: bool
    """False: it says nothing."""
    error: str | None = None
    """What was answered, if that was no."""


@final
class Probed(NamedTuple):
    """What a probe brought."""

    found: Advertisement | ProbeFault
    document: ProbedDocument | None = None
    """The discovery document among the responses, if one can be shown to clients."""


@final
class ProbeClient:
    """Sends the requests and owns the connections. For one event loop. `certificate_seen` is called with
    service, backend, and when the certificate of the backend expires: seconds since the epoch."""

    def __init__(
        self,
        resolve: Resolve,
        contexts: ClientContexts | None = None,
        certificate_seen: Callable[[str, str, float], None] = lambda service, backend, expiry: None,
    ) -> None:
        self._contexts = contexts or ClientContexts()
        self._certificate_seen = certificate_seen
        # One connection per request: a kept one would show that an old process lives, not a new one.
        self._session = _new_session(
            aiohttp.TCPConnector(
                force_close=True, limit=0, use_dns_cache=False, resolver=_KnownAddresses(resolve)
            )
        )

    @asynccontextmanager
    async def _session_for(self, backend: Backend) -> AsyncIterator[aiohttp.ClientSession]:
        """The session for TCP; for a backend on a unix socket, one for this request."""
        if not backend.socket_path:
            yield self._session
            return
        async with _new_session(aiohttp.UnixConnector(backend.socket_path, force_close=True)) as session:
            yield session

    async def close(self) -> None:
        await self._session.close()

    async def probe(self, service: Service, backend: Backend) -> Probed:
        """One whole probe, within `probe.timeout` seconds."""
        plan = service.probe
        try:
            async with asyncio.timeout(plan.timeout):
                return await self._run_dialect(service, backend)
        except TimeoutError:
            return Probed(ProbeFault("timeout", f"no complete response within {plan.timeout:g} s"))

    async def fetch(self, path: str, service: Service, backend: Backend) -> ProbeResponse | ProbeFault:
        """One request for a document as JSON that belongs to no probe. The caller has a deadline."""
        return await self._send(ProbeRequest(path, (("Accept", "application/json"),)), service, backend)

    async def check_health(self, service: Service, health: Health, backend: Backend) -> HealthAnswer:
        """Ask whether the backend wants requests, within `probe.timeout` seconds."""
        try:
            async with asyncio.timeout(service.probe.timeout):
                response = await self._send(ProbeRequest(health.path), service, backend)
        except TimeoutError:
            return HealthAnswer(answered=False)
        if isinstance(response, ProbeFault) or response.status in NO_SUCH_CHECK:
            return HealthAnswer(answered=False)
        if response.status == health.status:
            return HealthAnswer(answered=True)
        return HealthAnswer(answered=True, error=f"its health check {health.path} answers {response.status}")

    async def _run_dialect(self, service: Service, backend: Backend) -> Probed:
        """One request after the other, until the dialect has read the versions or gives up."""
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
        """One request; the one table from the libraries' exceptions to texts for operators."""
        try:
            return await self._get(request, service, backend)
        except aiohttp.ServerDisconnectedError:
            return ProbeFault("protocol", "closed the connection without a response")
        except aiohttp.ClientConnectorCertificateError as error:  # it has no `os_error`
            cause = error.certificate_error
            return _no_connection(backend, cause if isinstance(cause, OSError) else OSError(str(cause)))
        except aiohttp.ClientConnectorError as error:
            return _no_connection(backend, error.os_error)
        except aiohttp.ClientOSError as error:
            if isinstance(error.__cause__, ssl.SSLError) and refused_by_peer(error.__cause__):
                return _no_connection(backend, error.__cause__)
            return ProbeFault("protocol", f"the connection broke: {printable(reason_of(error), 200)}")
        except (aiohttp.ClientError, ValueError) as error:
            return ProbeFault("protocol", f"sent no valid HTTP response ({type(error).__name__})")
        except OSError as error:
            return _no_connection(backend, error)

    async def _get(
        self, request: ProbeRequest, service: Service, backend: Backend
    ) -> ProbeResponse | ProbeFault:
        """One GET. A header of `probe.headers` replaces the dialect's of the same name."""
        headers = CIMultiDict[str]({"User-Agent": "skewgate"})
        headers.update(request.headers)
        headers.update(service.probe.headers)
        headers["Accept-Encoding"] = "identity"
        tls = backend.tls
        async with (
            self._session_for(backend) as session,
            session.get(
                URL(backend.origin + request.path, encoded=True),
                headers=headers,
                allow_redirects=False,
                ssl=True if tls is None else self._contexts.of(tls).probes,
                server_hostname=None if tls is None else tls.server_name,
            ) as response,
        ):
            if isinstance(response, _Response) and response.certificate_expiry is not None:
                self._certificate_seen(service.name, backend.name, response.certificate_expiry)
            if response.status in REDIRECTS:
                where = printable(response.headers.get("Location", "nowhere"), 100)
                return ProbeFault("redirect", f"redirects to {where}; probes follow no redirect")
            codings = ",".join(response.headers.getall("Content-Encoding", ()))
            if codings.strip().lower() not in {"", "identity"}:
                return ProbeFault("encoding", "sent a compressed response although the probe accepts none")
            limit = service.limits.document
            body = await _read(response, limit)
            if body is None:
                size = limit // 1024
                return ProbeFault("too_large", f"the response is larger than limits.document ({size} KiB)")
            return ProbeResponse(response.status, response.headers, body)


@final
class _Response(aiohttp.ClientResponse):
    """A response that has looked at its server's certificate: the connection is gone when the caller has
    it."""

    certificate_expiry: float | None = None
    """Seconds since the epoch; None: there is no certificate, or nobody has verified it."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        transport = connection.transport
        found = None if transport is None else transport.get_extra_info("peercert")
        if found:
            self.certificate_expiry = float(ssl.cert_time_to_seconds(found["notAfter"]))
        return await super().start(connection)


def _new_session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_Response,
        timeout=aiohttp.ClientTimeout(total=None),  # one deadline for all requests: see `probe`
        trust_env=False,
        auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
    )


@final
class _KnownAddresses(AbstractResolver):
    """What aiohttp asks for the addresses of a name. Its own way makes a thread wait for each of them."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._resolve(host)
        ]

    async def close(self) -> None:
        """Nothing: whoever made the resolver closes it."""


async def _read(response: aiohttp.ClientResponse, size: int) -> bytes | None:
    """The body; None if it has more than `size` bytes, and then the rest is not read."""
    if (response.content_length or 0) > size:
        return None
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > size:
            return None
    return bytes(body)


def _no_connection(backend: Backend, error: OSError) -> ProbeFault:
    reason = "tls" if isinstance(error, ssl.SSLError) else "connect"
    where = backend.url if backend.socket_path else backend.authority
    return ProbeFault(reason, f"no connection to {where}: {printable(reason_of(error), 200)}")
