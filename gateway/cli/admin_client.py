"""Requests from a verb to a running gateway: which admin listener, with which token, and its responses.

Each call sends one request and ignores the proxies of the environment. Every failure is an `AdminError` with
one sentence. This module decides nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urlencode, urlsplit

from gateway.cli.files import read_settings
from gateway.errors import AdminError
from gateway.terminal import plain

DEFAULT_URL: Final = "http://127.0.0.1:9900"
TOKEN_VARIABLE: Final = "SKEWGATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable, not a token
TIMEOUT: Final = 10.0
"""Seconds for one response. The admin listener responds from memory; a reload reads one file."""
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
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = parts.path.rstrip("/") + path
        pairs = list(query)
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT)
        try:
            connection.request(method, f"{target}?{urlencode(pairs)}" if pairs else target, body, headers)
            response = connection.getresponse()
            status, content = response.status, response.read(MAX_RESPONSE)
        except (OSError, HTTPException) as problem:
            reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            raise AdminError(f"no gateway responds at {self.url}: {plain(reason)}") from None
        finally:
            connection.close()
        if status == 401:
            raise AdminError(f"{self.url} {self._token_problem()}")
        return status, content

    def _token_problem(self) -> str:
        if self.token:
            return f"does not accept the token in {self.token_from}"
        return f"needs a token: give it in -c FILE or in {TOKEN_VARIABLE}"

    def document(self, method: str, path: str, query: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        """The JSON object of a 200. Raises `AdminError` with the gateway's message for any other response."""
        return document_of(self.url, path, *self.request(method, path, query))


def document_of(url: str, path: str, status: int, body: bytes) -> dict[str, Any]:
    """The JSON object of a response. Raises `AdminError` as `AdminClient.document` does."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if status == 200 and isinstance(document, dict):
        return document
    raise AdminError(f"{url}{path} responded {status}: {_error_text(document, body)}")


def formatted(url: str, page: Callable[[], str]) -> str:
    """The page made from a response. Raises `AdminError` when the response is not a gateway's, because any
    program may listen there."""
    try:
        return page()
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise AdminError(f"the program that listens at {url} is not a skewgate admin listener") from problem


def _error_text(document: object, body: bytes) -> str:
    """The message in the body of an error."""
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        return plain(document["error"])
    return plain(body[:300].decode("utf-8", "replace").strip()) or "no message"


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-c FILE` and `--admin URL`, at most one of them."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "-c", "--config", metavar="FILE", type=Path, help="find the admin listener in this file"
    )
    group.add_argument(
        "--admin", metavar="URL", type=_url, help=f"the admin listener; default: {DEFAULT_URL}"
    )


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise argparse.ArgumentTypeError("must be http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def find(options: argparse.Namespace) -> AdminClient:
    """A client of the admin listener that the options name. Raises `SettingsError` for a wrong file."""
    token = os.environ.get(TOKEN_VARIABLE) or None
    if options.config is None:
        return AdminClient(options.admin or DEFAULT_URL, token)
    admin = read_settings(options.config).admin
    host = _reachable(admin.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{admin.port}"
    if token is None and admin.token is not None:
        return AdminClient(url, admin.token.reveal(), str(options.config))
    return AdminClient(url, token)


def _reachable(host: str) -> str:
    """`host`, or the loopback address when the gateway listens on all addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"
