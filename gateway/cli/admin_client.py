"""Requests from a verb to a running gateway: which admin listener, with which token, and its responses.

Each call sends one request and ignores the proxies of the environment. Every failure is an `AdminError` with
one sentence. This module decides nothing and prints nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.parse import SplitResult, urlencode, urlsplit

import click

from gateway.cli import admin_tls, plain_http
from gateway.cli.admin_tls import PLAIN_TLS, AdminTls
from gateway.cli.command import FileName, Text, read_settings, usage_error
from gateway.errors import AdminError, TokenError
from gateway.runtime.terminal import plain

if TYPE_CHECKING:
    from gateway.cli.admin_section import AdminSection

DEFAULT_URL: Final = "http://127.0.0.1:9900"
TOKEN_VARIABLE: Final = "SKEWGATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable, not a token
TIMEOUT: Final = 10.0
"""Seconds for one response. The admin listener responds from memory; a reload reads one file."""
NO_GATEWAY: Final = "the program that listens at {url} is not a skewgate admin listener"
HOW_TO_NAME_ONE: Final = "; `skewgate run` starts one, -c FILE or --admin URL names another address"
MAX_RESPONSE: Final = 16 << 20
"""Bytes of a response. /status of a thousand backends is smaller than one MiB."""


@final
@dataclass(frozen=True, slots=True)
class AdminClient:
    """A client of one running gateway's admin listener."""

    url: str
    token: str | None = None
    token_from: str = TOKEN_VARIABLE
    """Where the token was found, for the message about a wrong one."""
    tls: AdminTls = PLAIN_TLS
    assumed: bool = False
    """Nobody named an address: this is the usual one."""
    timeout: float = TIMEOUT
    """Seconds for one response."""
    light: bool = False
    """A GET over plain HTTP imports as little as possible."""

    def request(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        *,
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Send a request, with `body` as JSON; status and body of the response. Raises `AdminError` without a
        response, and when the token is wrong or missing."""
        parts = urlsplit(self.url)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = parts.path.rstrip("/") + path
        pairs = list(query)
        host = parts.hostname or ""
        if pairs:
            target = f"{target}?{urlencode(pairs)}"
        try:
            if self.light and (parts.scheme, method) == ("http", "GET"):
                address = host, parts.port or 80
                status, content = plain_http.get(
                    address, target, headers, timeout=self.timeout, limit=MAX_RESPONSE
                )
            else:
                status, content = self._exchange(parts, method, target, body, headers)
        except AdminError as problem:
            raise AdminError(f"no connection to {self.url}: {problem}") from None
        except OSError as problem:
            if _is_refused_by_peer(problem):
                raise AdminError(f"{self.url} {self._certificate_problem()}") from None
            hint = HOW_TO_NAME_ONE if self.assumed else ""
            raise AdminError(f"no gateway responds at {self.url}: {plain(_reason(problem))}{hint}") from None
        if status in {401, 429}:  # 429: wrong as well, and others were before it
            raise TokenError(f"{self.url} {self._token_problem()}")
        return status, content

    def _exchange(
        self, parts: SplitResult, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Status and body of the response. Raises `OSError` and `AdminError`."""
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415 - imports TLS

        host = parts.hostname or ""
        connection: HTTPConnection | None = None
        try:
            if parts.scheme == "https":  # the gateway is known before it gets the token
                connection = self.tls.connection(host, parts.port, self.timeout)
            else:
                connection = HTTPConnection(host, parts.port, timeout=self.timeout)
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_RESPONSE)
        except HTTPException as problem:
            raise OSError(str(problem) or type(problem).__name__) from problem
        finally:
            if connection is not None:
                connection.close()

    def _token_problem(self) -> str:
        if self.token:
            return f"does not accept the token in {self.token_from}"
        return f"needs a token: give it in -c FILE or in {TOKEN_VARIABLE}"

    def _certificate_problem(self) -> str:
        if self.tls.certificate is not None:
            file = self.tls.certificate
            return f"does not accept the certificate in {file}: its CA must be in admin.tls.client_ca"
        return "wants the certificate of an operator: give --cert and --key"

    def document(self, method: str, path: str, query: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        """The JSON object of a 200. Raises `AdminError` with the gateway's message for any other response."""
        return document_of(self.url, path, *self.request(method, path, query))

    def status(self) -> dict[str, Any]:
        """/status. Raises `AdminError` also when it is not that of a gateway: any program may listen
        there."""
        status, content = self.request("GET", "/status")
        if status == 404 or (status != 200 and _own_error(_json(content)) is None):
            raise AdminError(f"{NO_GATEWAY.format(url=self.url)}: /status responded {status}")
        return require_state(self.url, document_of(self.url, "/status", status, content))


def _is_refused_by_peer(problem: Exception) -> bool:
    """Whether the gateway does not accept the operator's certificate."""
    if not _is_of_tls(problem):
        return False
    from gateway.tls.client import refused_by_peer  # noqa: PLC0415 - of the data plane

    return refused_by_peer(problem)


def _is_of_tls(problem: Exception) -> bool:
    """Whether it is an `ssl.SSLError`. Without TLS `ssl` is not imported."""
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(problem, ssl.SSLError)


def _reason(problem: OSError) -> str:
    if _is_of_tls(problem):
        from gateway.tls.client import reason_of  # noqa: PLC0415 - of the data plane

        return reason_of(problem)
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


def document_of(url: str, path: str, status: int, body: bytes) -> dict[str, Any]:
    """The JSON object of a response. Raises `AdminError` as `AdminClient.document` does."""
    document = _json(body)
    if status == 200 and isinstance(document, dict):
        return document
    raise AdminError(f"{url}{path} responded {status}: {_error_text(document, body)}")


def require_state(url: str, document: dict[str, Any]) -> dict[str, Any]:
    """`document` if it is a state as gateways show it. Raises `AdminError`."""
    generation, services = document.get("generation"), document.get("services")
    if isinstance(generation, int) and isinstance(services, dict) and isinstance(document.get("build"), dict):
        return document
    raise AdminError(NO_GATEWAY.format(url=url))


def formatted(url: str, page: Callable[[], str]) -> str:
    """The page made from a response. Raises `AdminError` when the response is not a gateway's, because any
    program may listen there."""
    try:
        return page()
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise AdminError(NO_GATEWAY.format(url=url)) from problem


def _own_error(document: object) -> str | None:
    """The message of an error as gateways write it."""
    message = document.get("error") if isinstance(document, dict) else None
    return message if isinstance(message, str) else None


def _error_text(document: object, body: bytes) -> str:
    """The message in the body of an error."""
    if (message := _own_error(document)) is not None:
        return plain(message)
    return plain(body[:300].decode("utf-8", "replace").strip()) or "no message"


class Where(NamedTuple):
    """What the options say of the admin listener."""

    config: Path | None
    admin: str | None
    ca: str | None
    cert: str | None
    key: str | None


def options(function: Callable[..., int]) -> Callable[..., int]:
    """`-c FILE` and `--admin URL`, at most one of them, and TLS: the function gets `where`."""

    @wraps(function)
    def with_where(  # `rest`: the other options of the verb
        config: Path | None,
        admin: str | None,
        ca: str | None,
        cert: str | None,
        key: str | None,
        **rest: Any,  # noqa: ANN401
    ) -> int:
        if config is not None and admin is not None:
            usage_error("--admin is not allowed with a configuration file")
        return function(where=Where(config, admin, ca, cert, key), **rest)

    decorated: Callable[..., int] = with_where
    for option, text, variable in reversed(admin_tls.FILES):
        decorated = click.option(
            option, metavar="FILE", envvar=variable, show_envvar=True, help=f"https: {text}"
        )(decorated)
    decorated = click.option(
        "--admin", metavar="URL", type=Text("URL", _url), help=f"the admin listener; default: {DEFAULT_URL}"
    )(decorated)
    return click.option(
        "-c",
        "--config",
        metavar="FILE",
        type=FileName(),
        help="the configuration: the admin listener is found in it",
    )(decorated)


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("must be http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def find(where: Where, *, light: bool = False) -> AdminClient:
    """A client of the admin listener that the options name. Raises `SettingsError` for a wrong file. `light`:
    of the file only what it says of the listener is read, where that can be told from the rest."""
    token = os.environ.get(TOKEN_VARIABLE) or None
    if where.config is None:
        tls = admin_tls.find(*where[2:], None)
        return AdminClient(
            where.admin or DEFAULT_URL, token, tls=tls, assumed=where.admin is None, light=light
        )
    admin = _section(where.config, light=light)
    host, tls = _reachable(admin.host), admin_tls.find(*where[2:], admin.certificates)
    scheme = "http" if admin.certificates is None else "https"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{admin.port}"
    if token is None and admin.token is not None:
        return AdminClient(url, admin.token, str(where.config), tls, light=light)
    return AdminClient(url, token, tls=tls, light=light)


def _section(file: Path, *, light: bool) -> AdminSection:
    """What a configuration says of the listener."""
    from gateway.cli.admin_section import AdminSection, read_admin_section  # noqa: PLC0415 - imports YAML

    found = read_admin_section(file, os.environ) if light else None
    if found is not None:
        return found
    admin = read_settings(file).admin
    token = None if admin.token is None else admin.token.reveal()
    certificates = None if admin.tls is None else tuple(each.certificate for each in admin.tls.certificates)
    return AdminSection(*admin.listen, token, certificates)


def _reachable(host: str) -> str:
    """`host`, or the loopback address when the gateway listens on all addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"
