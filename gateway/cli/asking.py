"""How a verb reaches a running gateway: which admin listener, with which token, and what it says.

One request, one answer, no proxies from the environment. Every failure is an `AdminError` of one sentence.
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
from gateway.cli.printing import plain
from gateway.errors import AdminError

DEFAULT_URL: Final = "http://127.0.0.1:9900"
TOKEN_VARIABLE: Final = "SKEWGATE_ADMIN_TOKEN"  # noqa: S105 - the name of one, not a token
PATIENCE: Final = 10.0
"""Seconds for one answer. The admin listener answers from memory; a reload reads one file."""
LARGEST: Final = 16 << 20
"""Bytes of an answer: /status of a thousand backends is below one MiB."""


@final
@dataclass(frozen=True, slots=True)
class Admin:
    """One running gateway's admin listener."""

    url: str
    token: str | None = None
    token_from: str = TOKEN_VARIABLE
    """Where the token was found, for the sentence about a wrong one."""

    def ask(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        *,
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Status and body; `body`: JSON. Raises `AdminError` when there is none, or no right token."""
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = parts.path.rstrip("/") + path
        pairs = list(query)
        connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE)
        try:
            connection.request(method, f"{target}?{urlencode(pairs)}" if pairs else target, body, headers)
            reply = connection.getresponse()
            status, said = reply.status, reply.read(LARGEST)
        except (OSError, HTTPException) as problem:
            reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            raise AdminError(f"no gateway answers at {self.url}: {plain(reason)}") from None
        finally:
            connection.close()
        if status == 401:
            raise AdminError(f"{self.url} {self._wanted_token()}")
        return status, said

    def _wanted_token(self) -> str:
        if self.token:
            return f"wants another token than the one in {self.token_from}"
        return f"wants a token: give it in -c FILE or in {TOKEN_VARIABLE}"

    def document(self, method: str, path: str, query: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        """The JSON object of a 200. Raises `AdminError` for any other answer, in the gateway's words."""
        return document_of(self.url, path, *self.ask(method, path, query))


def document_of(url: str, path: str, status: int, body: bytes) -> dict[str, Any]:
    """The JSON object of an answer. Raises `AdminError` as `Admin.document` does."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if status == 200 and isinstance(document, dict):
        return document
    raise AdminError(f"{url}{path} answered {status}: {_said(document, body)}")


def readable(url: str, page: Callable[[], str]) -> str:
    """The page made of an answer. Raises `AdminError` when no gateway gave it: anything may listen there."""
    try:
        return page()
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise AdminError(f"what listens at {url} does not answer as skewgate does") from problem


def _said(document: object, body: bytes) -> str:
    """What an error's body tells."""
    if isinstance(document, dict) and isinstance(document.get("error"), str):
        return plain(document["error"])
    return plain(body[:300].decode("utf-8", "replace").strip()) or "nothing further"


def arguments(parser: argparse.ArgumentParser) -> None:
    """`-c FILE` and `--admin URL`, of which at most one."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-c", "--config", metavar="FILE", type=Path, help="find the admin listener in this file"
    )
    where.add_argument(
        "--admin", metavar="URL", type=_url, help=f"the admin listener; default: {DEFAULT_URL}"
    )


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise argparse.ArgumentTypeError("must be http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def find(options: argparse.Namespace) -> Admin:
    """The admin listener that the options name. Raises `SettingsError` for a wrong file."""
    token = os.environ.get(TOKEN_VARIABLE) or None
    if options.config is None:
        return Admin(options.admin or DEFAULT_URL, token)
    admin = read_settings(options.config).admin
    host = _reachable(admin.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{admin.port}"
    if token is None and admin.token is not None:
        return Admin(url, admin.token.reveal(), str(options.config))
    return Admin(url, token)


def _reachable(host: str) -> str:
    """The loopback address where a gateway listens on all of its addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"
