"""Client of the admin listener: finds its address, token and certificate, sends requests, reads responses.

Each call sends one request and ignores the proxies of the environment. With `--ca` an https listener is
verified as usual, by CA and name; with `-c FILE` alone it must show the very certificate that the file names.
Every failure is an `AdminError` with one sentence. This module prints nothing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final
from urllib.parse import SplitResult, urlencode, urlsplit

import click

from gateway.cli import one_request
from gateway.cli.command import Decorated, file_option, read_settings, usage_error
from gateway.errors import AdminError, SettingsError, TokenError
from gateway.runtime.terminal import plain

if TYPE_CHECKING:
    import socket
    import ssl

    from gateway.cli.admin_section import AdminSection

DEFAULT_URL: Final = "http://127.0.0.1:9900"
LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
"""Loopback address at which a listener on a wildcard address is reached."""
TOKEN_VARIABLE: Final = "SKEWGATE_ADMIN_TOKEN"  # noqa: S105 - the name of a variable, not a token
TIMEOUT: Final = 10.0
"""Seconds to wait for one response. The admin listener responds from memory; a reload reads one file."""
NO_GATEWAY: Final = "{url} is not a skewgate admin listener"
HOW_TO_NAME_ONE: Final = "; start one with `skewgate run`, or give its address with -c FILE or --admin URL"
_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.ASCII | re.DOTALL
)


@final
@dataclass(frozen=True, slots=True)
class AdminTls:
    """TLS settings of an https admin listener, with paths of PEM files.

    Without `ca` the CAs of the system are trusted. Without `key` it is in the file of the client certificate.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    pinned: frozenset[bytes] = frozenset()
    """Certificates (DER) of which the gateway must show one; empty: name and CA are verified instead."""

    def connection(self, host: str, port: int, timeout: float) -> ssl.SSLSocket:
        """Open a connection and verify the gateway. Raises `OSError`, and `AdminError` for unusable files."""
        context = self._context()
        plain = one_request.connect(host, port, timeout)
        try:
            connection = context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise
        if self.pinned and connection.getpeercert(binary_form=True) not in self.pinned:
            connection.close()
            raise AdminError(
                "its certificate is not the one in the configuration: another program listens there, or the"
                " file has changed; give --ca to verify the certificate by CA and name"
            )
        return connection

    def _context(self) -> ssl.SSLContext:
        import ssl  # noqa: PLC0415 - plain HTTP does without it

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        path = self.ca or ""
        try:
            if self.pinned:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE  # `connection` compares the certificate itself
            elif self.ca is None:
                context.load_default_certs()
            else:
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.load_verify_locations(self.ca)
            if self.certificate is not None:
                path = self.certificate
                context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise AdminError(f"{path} cannot be used for TLS: {reason}") from error
        return context


@final
@dataclass(frozen=True, slots=True)
class AdminClient:
    """A client of one running gateway's admin listener."""

    url: str
    token: str | None = None
    token_from: str = TOKEN_VARIABLE
    """Source of the token, named in the message about a wrong one."""
    tls: AdminTls = AdminTls()
    assumed: bool = False
    """Whether `url` is the default address of an admin listener, because no option names one."""
    timeout: float = TIMEOUT
    """Seconds to wait for one response."""

    def request(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        *,
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        """Send the admin listener a request, with `body` as JSON, and return status and body of the response.
        Raises `AdminError` without a response, and `TokenError` for a wrong or missing token."""
        parts = urlsplit(self.url)
        headers = {"Host": parts.netloc}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        pairs = list(query)
        target = parts.path.rstrip("/") + path + (f"?{urlencode(pairs)}" if pairs else "")
        try:
            with self._connect(parts) as connection:
                status, content = one_request.send_request(
                    connection, method, target, headers, body or b"", timeout=self.timeout
                )
        except AdminError as problem:
            raise AdminError(f"no connection to {self.url}: {problem}") from None
        except OSError as problem:
            raise AdminError(self._no_response(problem)) from None
        if status in {401, 429}:  # 429: wrong as well, and others were before it
            if self.token:
                raise TokenError(f"{self.url} does not accept the token in {self.token_from}")
            raise TokenError(f"{self.url} needs a token: give it in -c FILE or in {TOKEN_VARIABLE}")
        return status, content

    def _connect(self, parts: SplitResult) -> socket.socket:
        """Open a connection. Over TLS, the gateway is verified before it gets the token."""
        host = parts.hostname or ""
        if parts.scheme == "https":
            return self.tls.connection(host, parts.port or 443, self.timeout)
        return one_request.connect(host, parts.port or 80, self.timeout)

    def _no_response(self, problem: OSError) -> str:
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        ssl = sys.modules.get("ssl")  # without TLS it is not imported
        if ssl is not None and isinstance(problem, ssl.SSLError):
            from gateway.tls.client import reason_of, refused_by_peer  # noqa: PLC0415 - of the data plane

            if refused_by_peer(problem):
                if (own := self.tls.certificate) is None:
                    return f"{self.url} requires a client certificate: give --cert and --key"
                hint = "its CA must be in `admin.tls.client_ca`"
                return f"{self.url} does not accept the certificate in {own}: {hint}"
            reason = reason_of(problem)
        hint = HOW_TO_NAME_ONE if self.assumed else ""
        return f"no gateway responds at {self.url}: {plain(reason)}{hint}"

    def explain(
        self, method: str, path: str, headers: Iterable[tuple[str, str]], address: str = ""
    ) -> dict[str, Any]:
        """Return the gateway's explanation of a request. Raises `AdminError`."""
        lines = (("header", f"{name}: {value}") for name, value in headers)
        query = [("method", method), ("path", path), ("from", address or None), *lines]
        return self.document("/explain", query)

    def document(self, path: str, query: Iterable[tuple[str, str | None]]) -> dict[str, Any]:
        """Return the JSON object at a path. Parameters that are None are not sent. Raises `AdminError`."""
        given = [(name, text) for name, text in query if text is not None]
        return document_of(self.url, path, *self.request("GET", path, given))

    def status(self) -> dict[str, Any]:
        """Return the JSON object of /status. Raises `AdminError`, also if another program listens there."""
        status, content = self.request("GET", "/status")
        if status == 404 or (status != 200 and _own_error(_json(content)) is None):
            raise AdminError(f"{NO_GATEWAY.format(url=self.url)}: /status responded {status}")
        return require_state(self.url, document_of(self.url, "/status", status, content))


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except ValueError:
        return None


def document_of(url: str, path: str, status: int, body: bytes) -> dict[str, Any]:
    """Return the JSON object of a 200 response. Raises `AdminError` with the gateway's message for others."""
    document = _json(body)
    if status == 200 and isinstance(document, dict):
        return document
    message = _own_error(document)
    if message is None:
        message = body[:300].decode("utf-8", "replace").strip() or "no message"
    raise AdminError(f"{url}{path} responded {status}: {plain(message)}")


def require_state(url: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return `document` if it looks like a gateway's /status, else raise `AdminError`."""
    generation, services = document.get("generation"), document.get("services")
    if isinstance(generation, int) and isinstance(services, dict) and isinstance(document.get("build"), dict):
        return document
    raise AdminError(NO_GATEWAY.format(url=url))


def formatted(url: str, page: Callable[[], str]) -> str:
    """Return `page()`, which formats a response. Raises `AdminError` if the response is not a gateway's."""
    try:
        return page()
    except (AttributeError, LookupError, TypeError, ValueError) as problem:
        raise AdminError(NO_GATEWAY.format(url=url)) from problem


def _own_error(document: object) -> str | None:
    """Return the message of a gateway's error response; None if it is not one."""
    message = document.get("error") if isinstance(document, dict) else None
    return message if isinstance(message, str) else None


class AdminOptions(NamedTuple):
    """The options that select the admin listener, and its TLS."""

    config: Path | None
    admin: str | None
    ca: str | None
    cert: str | None
    key: str | None


def options(function: Callable[..., int], config: Iterable[str] = ("-c", "--config")) -> Callable[..., int]:
    """Add `-c FILE`, `--admin URL` and the TLS options; the function gets them as `where`. `config`: the
    names of the first."""

    @file_option(*config, text="configuration file with the address of the admin listener")
    @click.option(
        "--admin",
        metavar="URL",
        type=_url,
        help=f"URL of the admin listener; default: {DEFAULT_URL}",
    )
    @_tls_option("--ca", "CA of its certificate; default: the certificate in -c FILE, or the system's CAs")
    @_tls_option("--cert", "client certificate with its chain")
    @_tls_option("--key", "private key of --cert, unless it is in the same file")
    @wraps(function)
    def with_where(**given: Any) -> int:  # noqa: ANN401 - `where`, and the other options of the verb
        where = AdminOptions(*(given.pop(name) for name in AdminOptions._fields))
        if where.config is not None and where.admin is not None:
            usage_error("--admin is not allowed with a configuration file")
        return function(where=where, **given)

    return with_where


def _tls_option(name: str, text: str) -> Callable[[Decorated], Decorated]:
    """Add an option with a file for TLS, which may come from the environment: `--ca` is SKEWGATE_ADMIN_CA."""
    variable = f"SKEWGATE_ADMIN_{name.removeprefix('--').upper()}"
    return click.option(name, metavar="FILE", envvar=variable, show_envvar=True, help=f"https: {text}")


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError("must be http://HOST:PORT or https://HOST:PORT")
    return text.rstrip("/")


def find(where: AdminOptions, *, light: bool = False) -> AdminClient:
    """Return a client of the admin listener. `light`: read only the section `admin` of the file if
    possible."""
    token = os.environ.get(TOKEN_VARIABLE) or None
    if where.config is None:
        return AdminClient(
            where.admin or DEFAULT_URL, token, tls=_tls(where, None), assumed=where.admin is None
        )
    admin = _section(where.config, light=light)
    host, tls = LOOPBACK.get(admin.host, admin.host), _tls(where, admin.certificates)
    scheme = "http" if admin.certificates is None else "https"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{admin.port}"
    if token is None and admin.token is not None:
        return AdminClient(url, admin.token, str(where.config), tls)
    return AdminClient(url, token, tls=tls)


def _section(file: Path, *, light: bool) -> AdminSection:
    """Read the admin listener from a configuration. Raises `SettingsError`."""
    from gateway.cli.admin_section import AdminSection, read_admin_section  # noqa: PLC0415 - imports YAML

    found = read_admin_section(file, os.environ) if light else None
    if found is not None:
        return found
    admin = read_settings(file).admin
    token = None if admin.token is None else admin.token.reveal()
    certificates = None if admin.tls is None else tuple(each.certificate for each in admin.tls.certificates)
    return AdminSection(*admin.listen, token, certificates)


def _tls(where: AdminOptions, certificates: Iterable[str] | None) -> AdminTls:
    """Return the TLS settings of a client. `certificates`: paths of the listener's certificates, if known."""
    if where.key is not None and where.cert is None:
        raise SettingsError("--key needs --cert")
    pinned: frozenset[bytes] = frozenset()
    if certificates is not None and where.ca is None:
        pinned = frozenset(map(_first_certificate, certificates))
    return AdminTls(where.ca, where.cert, where.key, pinned)


def _first_certificate(path: str) -> bytes:
    """Read the first certificate of a PEM file, as DER. Raises `SettingsError`."""
    try:
        text = Path(path).read_bytes().decode("ascii", "replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
        raise SettingsError(
            f"the certificate of the admin listener, {path}, cannot be read: {reason}"
        ) from None
    import ssl  # noqa: PLC0415 - plain HTTP does without it

    found = _CERTIFICATE.search(text)
    try:
        return ssl.PEM_cert_to_DER_cert(found[0] if found else "")
    except ValueError:
        raise SettingsError(f"{path} has no certificate in PEM") from None
