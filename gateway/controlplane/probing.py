"""One probe over HTTP: the dialect's questions, the backend's answers, and everything that is no answer.

A probe believes little: no redirect is followed, nothing but the configured address is asked, no cookie is
kept, no proxy of the environment is used, no compressed body is read, at most 1 MiB of any other, all within
one deadline (hardening O1, O2, O4). Foreign exceptions end here. What an answer means is the dialect's to
say.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Final, final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gateway.core.backend import Backend, BackendTls
from gateway.core.dialect import Advert, Dialect, ProbeAnswer, ProbeFault, ProbeRequest
from gateway.core.service import ProbePlan, Service
from gateway.telemetry.access_log import printable

MOST_QUESTIONS: Final = 4
"""Requests a probe (`Dialect.probe`)."""

MOST_BODY: Final = 1024 * 1024
"""Bytes of one answer (hardening O1)."""

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
"""Statuses that send the asker elsewhere. 300 is not among them: it lists what is here."""


@final
class Asker:
    """Asks backends; owns the connections. Used by one loop."""

    def __init__(self) -> None:
        self._contexts: dict[BackendTls, ssl.SSLContext] = {}
        self._session = aiohttp.ClientSession(
            # One connection a question: a kept one would prove that an old process lives, not a new one.
            connector=aiohttp.TCPConnector(force_close=True, limit=0, use_dns_cache=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # one deadline for all questions: see `ask`
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        )

    async def close(self) -> None:
        await self._session.close()

    def forget_certificates(self) -> None:
        """Read certificate files again before the next question: they may have been renewed."""
        self._contexts.clear()

    async def ask(self, service: Service, backend: Backend) -> Advert | ProbeFault:
        """One whole probe, within `probe.timeout` seconds."""
        plan = service.probe
        try:
            async with asyncio.timeout(plan.timeout):
                return await self._converse(service.dialect, backend, plan)
        except TimeoutError:
            return ProbeFault("timeout", f"no whole answer within {plan.timeout:g} s")

    async def _converse(self, dialect: Dialect, backend: Backend, plan: ProbePlan) -> Advert | ProbeFault:
        """Question by question until the dialect knows, or gives up."""
        answers: tuple[ProbeAnswer, ...] = ()
        step = dialect.probe(answers, plan.path)
        while isinstance(step, ProbeRequest):
            if len(answers) == MOST_QUESTIONS:
                return ProbeFault("steps", f"not settled after {MOST_QUESTIONS} questions")
            answer = await self._answer(step, backend, plan)
            if isinstance(answer, ProbeFault):
                return answer
            answers = (*answers, answer)
            step = dialect.probe(answers, plan.path)
        return step

    async def _answer(
        self, request: ProbeRequest, backend: Backend, plan: ProbePlan
    ) -> ProbeAnswer | ProbeFault:
        """The one table from foreign exceptions to what an operator is told."""
        try:
            return await self._question(request, backend, plan)
        except aiohttp.ClientSSLError as error:
            return ProbeFault("tls", f"TLS could not be agreed on: {_brief(error)}")
        except ssl.SSLError as error:
            return ProbeFault("tls", f"the TLS files of this backend cannot be used: {_brief(error)}")
        except aiohttp.ServerDisconnectedError:
            return ProbeFault("protocol", "closed the connection without an answer")
        except aiohttp.ClientConnectorError as error:
            return ProbeFault("connect", f"no connection to {backend.authority}: {_reason(error.os_error)}")
        except aiohttp.ClientOSError as error:
            return ProbeFault("protocol", f"broke the connection off: {_reason(error)}")
        except (aiohttp.ClientError, ValueError) as error:
            return ProbeFault("protocol", f"gave no valid HTTP answer ({type(error).__name__})")
        except OSError as error:
            return ProbeFault("connect", f"no connection to {backend.authority}: {_reason(error)}")

    async def _question(
        self, request: ProbeRequest, backend: Backend, plan: ProbePlan
    ) -> ProbeAnswer | ProbeFault:
        """One GET. An operator's header replaces the dialect's of the same name."""
        headers = CIMultiDict[str]({"User-Agent": "skewgate"})
        headers.update(request.headers)
        headers.update(plan.headers)
        headers["Accept-Encoding"] = "identity"
        async with self._session.get(
            URL(backend.url + request.path, encoded=True),
            headers=headers,
            allow_redirects=False,
            ssl=self._context(backend.tls) if backend.tls is not None else True,
            server_hostname=backend.tls.server_name if backend.tls is not None else None,
        ) as reply:
            if reply.status in REDIRECTS:
                where = printable(reply.headers.get("Location", "nowhere"), 100)
                return ProbeFault("redirect", f"redirects to {where}; probes follow no redirect")
            codings = ",".join(reply.headers.getall("Content-Encoding", ()))
            if codings.strip().lower() not in {"", "identity"}:
                return ProbeFault("encoding", "compressed its answer though it was asked not to")
            body = await _read(reply)
            if body is None:
                return ProbeFault("too_large", f"the answer is larger than {MOST_BODY // 1024} KiB")
            return ProbeAnswer(reply.status, reply.headers, body)

    def _context(self, tls: BackendTls) -> ssl.SSLContext:
        """Raises `ssl.SSLError` for files that cannot be used."""
        context = self._contexts.get(tls)
        if context is None:
            for path in filter(None, (tls.ca, tls.certificate, tls.key)):
                if not os.access(path, os.R_OK):
                    raise ssl.SSLError(f"{path} cannot be read")
            context = ssl.create_default_context(cafile=tls.ca)
            if not tls.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if tls.certificate is not None:
                context.load_cert_chain(tls.certificate, tls.key)
            self._contexts[tls] = context
        return context


async def _read(reply: aiohttp.ClientResponse) -> bytes | None:
    """The body; None when it is larger than `MOST_BODY`, without reading on."""
    if (reply.content_length or 0) > MOST_BODY:
        return None
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > MOST_BODY:
            return None
    return bytes(body)


def _reason(error: OSError) -> str:
    """`connection refused`: the system's own word, without numbers and addresses that differ from time to
    time."""
    text = os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))
    return printable(text.lower(), 100)


def _brief(error: Exception) -> str:
    reason = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return printable(
        getattr(reason, "verify_message", "") or getattr(reason, "reason", "") or str(reason), 200
    )
