"""The settings as the rest of the gateway uses them: frozen values that have been read and checked.

`load` makes them. Code that needs settings without a file may make them itself. This module checks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import final

from gateway.core.fleet.service import Service
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.settings.model.document import AccessLog, Limits, Timeouts
from gateway.settings.model.secret import Secret


@final
@dataclass(frozen=True, slots=True)
class Listen:
    """An address on which clients are served. `host` is a name, or an IP address without brackets. Port 0 is
    any free port."""

    host: str
    port: int


@final
@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The admin listener."""

    host: str = "127.0.0.1"
    port: int = 9900
    token: Secret | None = None


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """A whole configuration without an error."""

    listen: tuple[Listen, ...]
    services: tuple[Service, ...] = field(repr=False)
    admin: AdminSettings = AdminSettings()
    workers: int = 1
    access_log: AccessLog = field(default_factory=AccessLog)
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    """Headers, some with `*` at the end, that are dropped from peers that are not trusted."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    state: str | None = None
    """Path of the file that keeps offers, pins and drains across a restart."""
    hash: str = ""
    """The first twelve hexadecimal digits of the SHA-256 of the file's text, for `/status`."""
