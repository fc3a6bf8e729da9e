"""One configuration of a measurement: what every proxy in it is given. It knows no proxy's own syntax."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Setting:
    """`backends` old and new ones in turn behind one service, or so many `services` with a new one each."""

    backends: int = 2
    services: int = 0
    #: How a request finds its service.
    by: Literal["version", "prefix", "host"] = "version"
    #: JSON lines, into a file.
    access_log: bool = False
    #: Clients come through an outer proxy. Its fields are kept and continued.
    trusted: bool = False
    #: Clients use TLS, with a certificate that has a key of this kind.
    tls: Literal["", "ecdsa", "rsa"] = ""
    #: The connections that a proxy must be able to hold.
    connections: int = 4096
    #: Processes of the gateway that serve requests; 0: one, and the scenario is not about them.
    workers: int = 0
    #: Threads of HAProxy; 0: one, and the scenario is not about them.
    threads: int = 0

    @property
    def size(self) -> int:
        return self.services or self.workers or self.threads or self.backends

    @property
    def label(self) -> str:
        """What tells this setting from the others of its scenario."""
        if self.workers:
            return f"{self.workers} workers"
        if self.threads:
            return "1 thread" if self.threads == 1 else f"{self.threads} threads"
        if self.tls:
            return f"TLS ({self.tls.upper()})"
        return f"{self.size:,} {'services' if self.services else 'backends'}"
