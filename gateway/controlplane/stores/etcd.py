"""Store in etcd 3.4 or newer, through its JSON gateway.

    read, commit ──> one endpoint, or several after each other ──> POST /v3/… ──> checked values

A read goes to the endpoint that answered last. When that takes long another one is asked as well: a member
without a quorum, or one that is stopped, says nothing. A transaction is sent to one endpoint only: if it had
been carried out, its repetition would fail by its own guards. It goes to the next endpoint only if no
connection could be made. Nothing from etcd is trusted: its size is bounded, its shape checked. No message has
a token or a password.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.controlplane.stores.store import (
    Contents,
    Entry,
    Guard,
    NothingNewer,
    StoreError,
    StoreRefused,
    Transaction,
)
from gateway.errors import CertificateError
from gateway.runtime.process import end_tasks
from gateway.settings.sections.agreement import EtcdSettings
from gateway.telemetry.access_log import printable
from gateway.tls.client import client_context, reason_of

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
WATCH: Final = "/v3/watch"
AUTHENTICATE: Final = "/v3/auth/authenticate"

CALL_TTLS: Final = 0.23
"""Time limit of one call to etcd as a share of the TTL: less than the time between two beats."""
LOGIN_TIME: Final = 5.0
"""Seconds for a login, which may outlast a call: etcd checks passwords slowly on purpose."""
WATCH_TTLS: Final = 10.0
"""Silence, in multiples of the TTL, after which a watch is renewed: its connection may be gone."""
MAX_ANSWER: Final = 8 * 1024 * 1024
MAX_REQUEST: Final = 1024 * 1024
MAX_MESSAGE: Final = 200

_BAD_TOKEN: Final = ("invalid auth token", "user name is empty", "revision of auth store is old")
"""Messages of etcd about an unknown token, and about a request without one."""
_NO_END: Final = aiohttp.ClientTimeout(total=None)
"""Time limit of a single request: none. `EtcdStore._within` limits the call."""
_NO_USERS: Final = "authentication is not enabled"

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")


@final
class _NotSent(StoreError):
    """Error: there is no connection to the endpoint, so nothing was sent."""


@final
class _BadToken(StoreError):
    """Error: the token for etcd is missing or too old, so nothing was done."""


@final
class EtcdStore:
    """`Store` of one replica in etcd, for one event loop. Connections are made when they are needed."""

    def __init__(self, settings: EtcdSettings, ttl: float) -> None:
        self._endpoints: Final = settings.endpoints
        self._settings = settings
        self._ttl = ttl
        self._call_time = CALL_TTLS * ttl
        self._addresses = _Addresses()
        self._preferred = 0
        """Index of the endpoint of etcd that answered last."""
        self._until_moved: asyncio.Timeout | None = None
        """Deadline that ends the watch when the preferred endpoint changes."""
        self._clusters: dict[str, str] = {}
        """Ids of the clusters by endpoint, as far as they have answered."""
        self._token = ""
        self._login: asyncio.Task[StoreError | None] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None
        self._watches: set[asyncio.Task[None]] = set()
        self._closed = False

    async def read(self, prefix: str) -> Contents:
        return _contents(await self._within(lambda: self._send_until_one_answers(RANGE, _range(prefix))))

    async def commit(self, transaction: Transaction) -> int | None:
        answer = await self._within(lambda: self._send_in_turn(TXN, _txn(transaction)))
        return _revision(answer) if answer.get("succeeded") is True else None

    def watch(self, prefix: str, changed: Callable[[], None]) -> None:
        task = _start(self._watch(prefix, changed))
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def close(self) -> None:
        self._closed = True
        await end_tasks(self._login, *self._watches)
        await self._addresses.close()
        if self._session is not None:
            await self._session.close()

    async def _within(self, send: Callable[[], Awaitable[Json]]) -> Json:
        if self._closed:
            raise StoreError("the connection to etcd was closed")
        try:
            async with asyncio.timeout(self._call_time):
                return await send()
        except TimeoutError:
            raise StoreError(
                f"no endpoint of etcd answered within {round(1000 * self._call_time)} ms"
            ) from None

    def _in_order(self) -> list[int]:
        count = len(self._endpoints)
        return [(self._preferred + each) % count for each in range(count)]

    def _prefer(self, index: int) -> None:
        if index != self._preferred:
            self._preferred = index
            if self._until_moved is not None and not self._until_moved.expired():
                self._until_moved.reschedule(asyncio.get_running_loop().time())

    async def _send_until_one_answers(self, path: str, body: Json) -> Json:
        """Send a read to etcd. Another endpoint is asked when one fails or takes long; the first answer
        counts. The first endpoint is asked twice: its connection may be an old one that it closed."""
        order = self._in_order()
        order.append(order[0])
        patience = self._call_time / len(order)
        asked: dict[asyncio.Task[Json], int] = {}
        errors: list[StoreError] = []
        try:
            while order or asked:
                if order:
                    index = order.pop(0)
                    task = _start(self._send(self._endpoints[index], path, body))
                    asked[task] = index
                done, _ = await asyncio.wait(
                    asked, timeout=patience if order else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    index = asked.pop(task)
                    try:
                        answer = task.result()
                    except StoreRefused:
                        raise
                    except StoreError as error:
                        errors.append(error)
                    else:
                        self._prefer(index)
                        return answer
        finally:
            await end_tasks(*asked)
        raise errors[0]

    async def _send_in_turn(self, path: str, body: Json) -> Json:
        """Send a transaction to etcd. The next endpoint is asked only if the one before was not reached."""
        first: StoreError | None = None
        for index in self._in_order():
            try:
                answer = await self._send(self._endpoints[index], path, body)
            except _NotSent as error:
                first = first or error
            else:
                self._prefer(index)
                return answer
        assert first is not None
        raise first

    async def _send(self, endpoint: str, path: str, body: Json) -> Json:
        """Send a request to one endpoint. A token that is too old is renewed once."""
        used = await self._token_of(endpoint)
        try:
            answer = await self._post(endpoint, path, body, used)
        except _BadToken as error:
            if self._settings.user is None:
                raise StoreRefused("etcd wants a user: set agreement.etcd.user and .password") from error
            await self._renew_token(endpoint, used)
            try:
                answer = await self._post(endpoint, path, body, self._token)
            except _BadToken as again:
                raise StoreError(f"{endpoint} refuses the token that etcd has just given") from again
        await self._check_cluster(endpoint, answer)
        return answer

    async def _check_cluster(self, endpoint: str, answer: Json) -> None:
        """Check that all endpoints belong to one cluster: two clusters could hold different records. An
        endpoint that differs is asked again, because both may be new."""
        mine = _header(answer).get("cluster_id")
        if not isinstance(mine, str):
            raise StoreError(f"{endpoint} answers without the id of its cluster: it is not etcd")
        self._clusters[endpoint] = mine
        for other, theirs in list(self._clusters.items()):
            if theirs == mine:
                continue
            del self._clusters[other]
            found = None
            with suppress(StoreError):  # one that says nothing is asked when it does
                found = _header(await self._post(other, RANGE, _range("\0"), self._token)).get("cluster_id")
            if isinstance(found, str) and found != mine:
                self._clusters[other] = found
                raise StoreError(
                    f"{endpoint} and {other} belong to two etcd clusters: list the endpoints of one"
                )

    async def _token_of(self, endpoint: str) -> str:
        if self._settings.user is not None and not self._token:
            await self._renew_token(endpoint, "")
        return self._token

    async def _renew_token(self, endpoint: str, used: str) -> None:
        """Log in to etcd, unless another call has done so meanwhile. A login outlives the call it was for."""
        if self._token != used:
            return
        if self._login is None or self._login.done():
            self._login = _start(self._log_in(endpoint))
        error = await asyncio.shield(self._login)
        if error is not None:
            raise error

    async def _log_in(self, endpoint: str) -> StoreError | None:
        password = self._settings.password
        body = {"name": self._settings.user, "password": "" if password is None else password.reveal()}
        try:
            async with asyncio.timeout(LOGIN_TIME):
                token = (await self._post(endpoint, AUTHENTICATE, body, "")).get("token")
        except TimeoutError:
            return StoreError(f"{endpoint} did not answer the login within {LOGIN_TIME:g} s")
        except StoreError as error:
            if _NO_USERS not in str(error):
                return error
            token = ""  # everybody may read and write: it will say when this changes
        if not isinstance(token, str) or not token.isprintable():
            return StoreError(f"{endpoint} answers the login with no token")
        self._token = token
        return None

    async def _post(self, endpoint: str, path: str, body: Json, token: str) -> Json:
        """Send one request to etcd. Only here, exceptions of the library become texts for operators."""
        try:
            async with await self._open(endpoint, path, body, token) as response:
                return _json(endpoint, response.status, await _read(response, endpoint))
        except aiohttp.ClientConnectorCertificateError as error:  # it has no `os_error`
            cause = error.certificate_error
            self._no_connection(endpoint, cause if isinstance(cause, OSError) else OSError(str(cause)))
        except aiohttp.ClientConnectorError as error:
            self._no_connection(endpoint, error.os_error)
        except aiohttp.ServerDisconnectedError:
            raise StoreError(f"{endpoint} closed the connection without an answer") from None
        except OSError as error:
            self._context = None  # it may be the certificate: it is said after the handshake
            cause = error.__cause__ if isinstance(error.__cause__, ssl.SSLError) else error
            reason = printable(reason_of(cause), MAX_MESSAGE)
            raise StoreError(f"the connection to {endpoint} broke: {reason}") from error
        except (aiohttp.ClientError, ValueError) as error:
            name = type(error).__name__
            raise StoreError(f"{endpoint} sent no valid HTTP response ({name})") from error

    def _no_connection(self, endpoint: str, error: OSError) -> NoReturn:
        if isinstance(error, ssl.SSLError):
            self._context = None  # the files may have been renewed
        reason = printable(reason_of(error), MAX_MESSAGE)
        raise _NotSent(f"no connection to {endpoint}: {reason}") from error

    async def _open(
        self, endpoint: str, path: str, body: Json, token: str, waits: aiohttp.ClientTimeout = _NO_END
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=_NO_END,
                connector=aiohttp.TCPConnector(use_dns_cache=False, resolver=self._addresses),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        data = json.dumps(body).encode()
        if len(data) > MAX_REQUEST:
            raise StoreError(f"a transaction of {len(data)} bytes is more than etcd takes")
        tls = self._settings.tls
        headers = {
            "User-Agent": "skewgate",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        }
        if token:
            headers["Authorization"] = token
        return await self._session.post(
            endpoint + path,
            data=data,
            headers=headers,
            allow_redirects=False,
            ssl=await self._tls_context(),
            server_hostname=None if tls is None or not tls.server_name else tls.server_name,
            timeout=waits,
        )

    async def _tls_context(self) -> ssl.SSLContext | bool:
        """Return the TLS context for etcd. It is made at the first request, because it reads files."""
        if self._settings.tls is None:
            return True
        if self._context is None:
            try:
                self._context = await asyncio.to_thread(client_context, self._settings.tls)
            except CertificateError as error:
                raise _NotSent(f"agreement.etcd.tls.{error.part}: {error}") from error
        return self._context

    async def _watch(self, prefix: str, changed: Callable[[], None]) -> None:
        """Watch the store for changes. Every message is a hint. A watch that ends or is silent for long is
        renewed, and it follows when the calls move to another endpoint: the old one may hang."""
        while not self._closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as self._until_moved:
                    with suppress(StoreError, aiohttp.ClientError, OSError, ValueError):
                        await self._watch_once(prefix, changed)
                    await asyncio.sleep(self._ttl / 4)

    async def _watch_once(self, prefix: str, changed: Callable[[], None]) -> None:
        waits = aiohttp.ClientTimeout(
            total=None, sock_connect=self._call_time, sock_read=WATCH_TTLS * self._ttl
        )
        endpoint = self._endpoints[self._preferred]
        used = await self._token_of(endpoint)
        body = {"create_request": _range(prefix)}
        async with await self._open(endpoint, WATCH, body, used, waits) as response:
            if response.status != 200:
                return
            async for chunk in response.content.iter_any():
                if b'"canceled":true' in chunk:
                    if any(words.encode() in chunk for words in _BAD_TOKEN):
                        await self._renew_token(endpoint, used)
                    return
                changed()


_Address: TypeAlias = tuple[str, int, socket.AddressFamily]


@final
class _Addresses(AbstractResolver):
    """Resolver for aiohttp that asks the system. A lookup may take long and holds a thread, so there is one
    at a time for each name, and the last addresses serve meanwhile."""

    def __init__(self) -> None:
        self._system = aiohttp.ThreadedResolver()
        self._found: dict[_Address, list[ResolveResult]] = {}
        self._lookups: dict[_Address, asyncio.Task[None]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        key = (host, port, family)
        if key not in self._lookups or self._lookups[key].done():
            self._lookups[key] = _start(self._look_up(key))
        if key not in self._found:
            await asyncio.shield(self._lookups[key])
        if key not in self._found:
            raise OSError(None, f"no address of {host} was found")
        return self._found[key]

    async def _look_up(self, key: _Address) -> None:
        with suppress(OSError):
            self._found[key] = await self._system.resolve(*key)

    async def close(self) -> None:
        await end_tasks(*self._lookups.values())


def _start(doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task; the caller keeps a reference to it and ends it."""
    return asyncio.create_task(doing)  # noqa: TID251 - a set, a name or a `finally` has each of them


def _b64(text: str) -> str:
    return b64encode(text.encode()).decode("ascii")


def _range(prefix: str) -> Json:
    """Make the range of all keys with a prefix: up to the next text of the same length."""
    key = prefix.encode()
    return {"key": _b64(prefix), "range_end": b64encode(key[:-1] + bytes([key[-1] + 1])).decode("ascii")}


def _comparisons(guard: Guard) -> list[Json]:
    if isinstance(guard, NothingNewer):
        newer = {"target": "MOD", "result": "LESS", "mod_revision": str(guard.revision + 1)}
        return [{**_range(guard.prefix), **newer}]
    same = {"key": _b64(guard.key), "result": "EQUAL"}
    found = [{**same, "target": "MOD", "mod_revision": str(guard.revision)}]
    if guard.text is not None:
        found.append({**same, "target": "VALUE", "value": _b64(guard.text)})
    return found


def _txn(transaction: Transaction) -> Json:
    puts = [
        {"request_put": {"key": _b64(key), "value": _b64(text)}} for key, text in transaction.puts.items()
    ]
    deletes = [{"request_delete_range": {"key": _b64(key)}} for key in transaction.deletes]
    compare = [each for guard in transaction.guards for each in _comparisons(guard)]
    return {"compare": compare, "success": [*puts, *deletes]}


async def _read(response: aiohttp.ClientResponse, endpoint: str) -> bytes:
    """Read the body of a response, up to `MAX_ANSWER`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER:
            response.close()
            size = MAX_ANSWER // 1024 // 1024
            raise StoreError(
                f"the answer of {endpoint} is larger than {size} MiB: something else is stored there"
            )
    return bytes(body)


def _json(endpoint: str, status: int, body: bytes) -> Json:
    if status == 404:
        raise StoreError(f"{endpoint} does not know {RANGE}: it is not etcd 3.4 or newer")
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise StoreError(f"{endpoint} answers {status} without JSON: it is not etcd")
    if status == 200:
        return answer
    message = printable(str(answer.get("message") or answer.get("error") or "no reason given"), MAX_MESSAGE)
    message = message.removeprefix("etcdserver: ")
    if any(words in message for words in _BAD_TOKEN):
        raise _BadToken(f"{endpoint} reports: {message}")
    if status in {401, 403} or "authentication failed" in message or "permission denied" in message:
        raise StoreRefused(f"{endpoint} refuses access: {message}")
    raise StoreError(f"{endpoint} reports: {message}")


def _header(answer: Json) -> Json:
    header = answer.get("header")
    return header if isinstance(header, dict) else {}


def _revision(answer: Json) -> int:
    return _whole_number(_header(answer).get("revision"))


def _whole_number(found: object) -> int:
    """Parse a 64-bit number, which etcd writes as a JSON text."""
    if not isinstance(found, str) or not found.isascii() or not found.isdecimal() or len(found) > 19:
        raise StoreError("etcd answers without a revision, or with one that is no number")
    return int(found)


def _contents(answer: Json) -> Contents:
    kvs = answer.get("kvs", [])
    if not isinstance(kvs, list) or answer.get("more"):
        raise StoreError("etcd answers with keys that cannot be read")
    entries: dict[str, Entry] = {}
    for kv in kvs:
        if not isinstance(kv, Mapping):
            raise StoreError("etcd answers with a key that cannot be read")
        entry = Entry(_text(kv.get("value", "")), _whole_number(kv.get("mod_revision")))
        entries[_text(kv.get("key"))] = entry
    return Contents(_revision(answer), entries)


def _text(found: object) -> str:
    """Decode a key or value of etcd. Invalid UTF-8 is not ours: the reader of the text reports it."""
    if not isinstance(found, str):
        raise StoreError("etcd answers with a key or value that is no text")
    try:
        return b64decode(found, validate=True).decode("utf-8", "replace")
    except ValueError as error:
        raise StoreError("etcd answers with a key or value that is no base64") from error
