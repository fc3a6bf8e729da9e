"""The settings as the rest of the gateway uses them: frozen values that have been read and checked.

`load` makes them. Code that needs settings without a file may make them itself. This module checks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network
from typing import Final, final

from gateway.core.fleet.backend_tls import BackendTls
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Service
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.keys.secrets import Secret
from gateway.settings.model.admin import Admin
from gateway.settings.model.document import AccessLog, Log, Metrics
from gateway.tls.values import CertificateFiles, ServerTls

_SOME_TLS: Final = ServerTls((CertificateFiles("", ""),))


@final
@dataclass(frozen=True, slots=True)
class Listen:
    """An address on which clients are served. `host` is a name, or an IP address without brackets. Port 0 is
    any free port."""

    host: str
    port: int
    path: str = ""
    """Of a Unix socket, which has neither host nor port."""
    mode: int = 0o660
    """Of the Unix socket."""
    dual_stack: bool = False
    """`[::]` takes IPv4 connections, too."""
    trusted: bool = False
    """Whoever connects to this Unix socket is a trusted proxy."""
    proxy_protocol: bool = False
    """Trusted peers begin with a PROXY header."""
    tls: ServerTls | None = None

    def __str__(self) -> str:
        """As it is written in the file."""
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def fixed(self) -> Listen:
        """What a reload cannot change: all but the certificates."""
        if self.tls is None:
            return self
        return replace(self, tls=replace(_SOME_TLS, forward_client_cert=self.tls.forward_client_cert))


@final
@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """The etcd in which replicas keep what they agree on."""

    endpoints: tuple[str, ...]
    """`http://HOST:PORT` or `https://HOST:PORT`, at least one; all of one scheme."""
    tls: BackendTls | None = None
    """Of https endpoints. Without a `server_name` the host of each endpoint is its name."""
    user: str | None = None
    password: Secret | None = None
    prefix: str = "/skewgate"
    """It begins with a slash, and does not end with one."""


@final
@dataclass(frozen=True, slots=True)
class AgreementSettings:
    """What several replicas agree over."""

    etcd: EtcdSettings
    cluster: str
    """Of all replicas that agree with each other, and of no others."""
    ttl: float = 3.0
    forget: float | None = 86_400.0
    """Seconds for which a detached replica goes on answering; None: for ever."""

    @property
    def prefix(self) -> str:
        """Of all keys of this cluster. It ends with a slash."""
        return f"{self.etcd.prefix}/{self.cluster}/"


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration without an error."""

    listen: tuple[Listen, ...]
    services: tuple[Service, ...] = field(repr=False)
    admin: Admin = Admin()
    workers: int | None = 1
    """Processes that serve requests; None: one for each CPU."""
    agreement: AgreementSettings | None = None
    """None: this replica stands alone."""
    access_log: AccessLog = field(default_factory=AccessLog)
    log: Log = field(default_factory=Log)
    metrics: Metrics = field(default_factory=Metrics)
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    """Headers, some with `*` at the end, that are dropped from peers that are not trusted."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    state: str | None = None
    """Path of the file that keeps offers, pins and drains across a restart."""
    watch: bool = True
    """Whether a reload follows when the content of a file changes."""
    hash: str = ""
    """The first twelve hexadecimal digits of the SHA-256 of the texts of all files, for `/status`."""

    @property
    def for_workers(self) -> Settings:
        """Without what only the parent of workers may know: the admin listener, whose token leaves no
        process, and the store, with its password."""
        return replace(self, admin=Admin(), agreement=None)
