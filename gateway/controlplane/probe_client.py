"""Sends one probe over HTTP: the requests that the dialect wants, and the backend's responses to them.

A probe trusts little: it follows no redirect, asks only the configured address, keeps no cookie and uses no
proxy of the environment. A name's addresses come from `resolver`; none is looked up here. It reads no
compressed body and at most `limits.document` of any other, all within one deadline (threats O1, O2, O4).
Exceptions of the libraries end here. What a response means is up to the dialect.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final, final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from gateway.controlplane.resolver import Resolve
from gateway.core.dialect import Advertisement, Dialect, ProbeFault, ProbeRequest, ProbeResponse
from gateway.core.fleet.backend import Backend
from gateway.core.fleet.service import ProbePlan, Service
from gateway.telemetry.access_log import printable

MAX_REQUESTS: Final = 4
"""Requests in one probe (`Dialect.probe`)."""

MAX_DOCUMENT: Final = 256 * 1024
"""Bytes of one response's body where nobody says how many: the default of `limits.document`."""

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""Statuses that point elsewhere. 300 is not among them: it lists what this server has."""


@final
class ProbeClient:
    """Sends the requests and owns the connections. For one event loop."""

    def __init__(self, resolve: Resolve, max_document: int) -> None:
        self._max_document = max_document
        self._session = aiohttp.ClientSession(
            # One connection per request: a kept one would show that an old process lives, not a new one.
            connector=aiohttp.TCPConnector(
                force_close=True, limit=0, use_dns_cache=False, resolver=_KnownAddresses(resolve)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # one deadline for all requests: see `probe`
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        )

    async def close(self) -> None:
        await self._session.close()

    async def probe(self, service: Service, backend: Backend) -> Advertisement | ProbeFault:
        """One whole probe, within `probe.timeout` seconds."""
        plan = service.probe
        try:
            async with asyncio.timeout(plan.timeout):
                return await self._run_dialect(service.dialect, backend, plan)
        except TimeoutError:
            return ProbeFault("timeout", f"no complete response within {plan.timeout:g} s")

    async def _run_dialect(
        self, dialect: Dialect, backend: Backend, plan: ProbePlan
    ) -> Advertisement | ProbeFault:
        """One request after the other, until the dialect has read the versions or gives up."""
        responses: tuple[ProbeResponse, ...] = ()
        step = dialect.probe(responses, plan.path)
        while isinstance(step, ProbeRequest):
            if len(responses) == MAX_REQUESTS:
                return ProbeFault("steps", f"the versions are still unknown after {MAX_REQUESTS} requests")
            response = await self._send(step, backend, plan)
            if isinstance(response, ProbeFault):
                return response
            responses = (*responses, response)
            step = dialect.probe(responses, plan.path)
        return step

    async def _send(
        self, request: ProbeRequest, backend: Backend, plan: ProbePlan
    ) -> ProbeResponse | ProbeFault:
        """One request; the one table from the libraries' exceptions to texts for operators."""
        try:
            return await self._get(request, backend, plan)
        except aiohttp.ServerDisconnectedError:
            return ProbeFault("protocol", "closed the connection without a response")
        except aiohttp.ClientConnectorError as error:
            return ProbeFault("connect", f"no connection to {backend.authority}: {_reason(error.os_error)}")
        except aiohttp.ClientOSError as error:
            return ProbeFault("protocol", f"the connection broke: {_reason(error)}")
        except (aiohttp.ClientError, ValueError) as error:
            return ProbeFault("protocol", f"sent no valid HTTP response ({type(error).__name__})")
        except OSError as error:
            return ProbeFault("connect", f"no connection to {backend.authority}: {_reason(error)}")

    async def _get(
        self, request: ProbeRequest, backend: Backend, plan: ProbePlan
    ) -> ProbeResponse | ProbeFault:
        """One GET. A header of `probe.headers` replaces the dialect's of the same name."""
        headers = CIMultiDict[str]({"User-Agent": "skewgate"})
        headers.update(request.headers)
        headers.update(plan.headers)
        headers["Accept-Encoding"] = "identity"
        async with self._session.get(
            URL(backend.url + request.path, encoded=True),
            headers=headers,
            allow_redirects=False,
        ) as response:
            if response.status in REDIRECTS:
                where = printable(response.headers.get("Location", "nowhere"), 100)
                return ProbeFault("redirect", f"redirects to {where}; probes follow no redirect")
            codings = ",".join(response.headers.getall("Content-Encoding", ()))
            if codings.strip().lower() not in {"", "identity"}:
                return ProbeFault("encoding", "sent a compressed response although the probe accepts none")
            body = await _read(response, self._max_document)
            if body is None:
                size = self._max_document // 1024
                return ProbeFault("too_large", f"the response is larger than limits.document ({size} KiB)")
            return ProbeResponse(response.status, response.headers, body)


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


def _reason(error: OSError) -> str:
    """`connection refused`: the system's text, without numbers and addresses, which differ from time to
    time."""
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))
    return printable(text.lower(), 100)
