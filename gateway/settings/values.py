"""The settings as the rest of the gateway uses them: frozen values that have been read and checked.

`load` makes them. Code that needs settings without a file may make them itself. This module checks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network
from typing import final

from gateway.core.clients import Client
from gateway.core.fleet.limits import Limits
from gateway.core.fleet.service import Service
from gateway.core.fleet.timeouts import Timeouts
from gateway.core.http.message import UNTRUSTED_HEADERS
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.agreement import AgreementSettings
from gateway.settings.sections.file import AccessLogSettings, LogSettings, MetricsSettings
from gateway.settings.sections.listen import Listen
from gateway.settings.sections.usage import UsageSettings


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a whole configuration, which was read and checked without an error."""

    listen: tuple[Listen, ...]
    services: tuple[Service, ...] = field(repr=False)
    admin: Admin = Admin()
    workers: int | None = 1
    """Number of processes that serve requests; None: one for each CPU."""
    agreement: AgreementSettings | None = None
    """Settings of the agreement with the other replicas of this gateway; None: there are none."""
    access_log: AccessLogSettings = field(default_factory=AccessLogSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    untrusted_headers: tuple[str, ...] = UNTRUSTED_HEADERS
    """Names of headers, some with `*` at the end, that are dropped from requests of untrusted peers."""
    clients: tuple[Client, ...] = ()
    """Rules that name clients."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    state: str | None = None
    """Path of the file that keeps offers, pins and drains across a restart."""
    usage: UsageSettings | None = UsageSettings()
    """Settings of the usage record; None: there is none."""
    watch: bool = True
    """Whether the gateway reloads by itself when the content of a file changes."""
    hash: str = ""
    """The first twelve hexadecimal digits of the SHA-256 of the texts of all files, for `/status`."""

    @property
    def for_workers(self) -> Settings:
        """The settings for worker processes: without the secrets that only the main process needs."""
        return replace(self, admin=Admin(), agreement=None)
