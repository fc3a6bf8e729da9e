"""Sends probes over HTTP: the requests that the dialect wants, and the responses of the backend.

A probe trusts little: it follows no redirect, requests only from the configured address, keeps no cookie and
uses no proxy of the environment. Addresses come from `resolver`. It reads no compressed body and at most
`limits.document` of any other, all within one deadline (threats O1, O2, O4). Exceptions of the libraries end
here. The dialect decides what a response means.
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
from gateway.core.fleet.probed_document import ProbedDocument, probed_document
from gateway.core.fleet.service import Health, Service
from gateway.telemetry.access_log import printable
from gateway.tls.client import ClientContexts, reason_of, refused_by_peer

if TYPE_CHECKING:
    from aiohttp.connector import Connection

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
    """HTTP client for probes, with its connections. For one event loop. `certificate_seen` is called with
    service, backend, and the Unix time at which the backend's certificate expires."""

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
        """The HTTP session for a backend: the one shared for TCP, or one of its own for a Unix socket."""
        if not backend.socket_path:
            yield self._session
            return
        async with _new_session(aiohttp.UnixConnector(backend.socket_path, force_close=True)) as session:
            yield session

    async def close(self) -> None:
        await self._session.close()

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
        """Send one request of a probe. Only here, exceptions of the libraries become texts for operators."""
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
    """Response that keeps its certificate's expiry: the caller gets it without the connection."""

    certificate_expiry: float | None = None
    """Expiry of the server's certificate as Unix time; None: none was verified."""

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
    """Resolver for aiohttp with the addresses of `resolver`. aiohttp's own needs a thread per lookup."""

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
        """Do nothing when aiohttp closes this: the resolver belongs to its creator."""


async def _read(response: aiohttp.ClientResponse, size: int) -> bytes | None:
    """Read the body of a response; None if it has more than `size` bytes."""
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
