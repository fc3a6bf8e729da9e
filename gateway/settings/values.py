"""The settings as the rest of the gateway takes them: frozen values, read and checked.

Made by `load`; code that needs settings without a file may make them itself. No rule is applied here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import final

from gateway.core.service import Service
from gateway.settings.model import AccessLog, Limits, Timeouts
from gateway.settings.secret import Secret


@final
@dataclass(frozen=True, slots=True)
class Listen:
    """An address on which clients are served. `host` is a name or an address without brackets; port 0: any
    free one."""

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
    """One configuration, whole and without an error in it."""

    listen: tuple[Listen, ...]
    services: tuple[Service, ...] = field(repr=False)
    admin: AdminSettings = AdminSettings()
    workers: int = 1
    access_log: AccessLog = field(default_factory=AccessLog)
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    state: str | None = None
    """Path of the file that keeps offers, pins and drains across a restart."""
    hash: str = ""
    """The first twelve hexadecimal digits of the SHA-256 of the file's text, for `/status`."""
