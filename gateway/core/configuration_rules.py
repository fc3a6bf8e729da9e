"""What a dialect demands of its service's configuration, and what it knows of the rest of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final


@final
class OptionWarning(NamedTuple):
    """Something that is allowed among a dialect's options, and that will mislead somebody."""

    at: tuple[str | int, ...]
    """Its position there."""
    message: str
    hint: str


@final
@dataclass(frozen=True, slots=True)
class ConfigurationRules:
    """What a dialect demands of its service's configuration beyond its own options. Settings check it;
    requests never read it."""

    can_be_probed: bool = True
    """False: nothing tells what its servers serve, so every backend must declare its versions."""
    path_is_signed: bool = False
    """True: clients sign the path, so a configuration under which backends get another one is refused."""
    option_paths: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    """Paths in its options, each with its position there. They begin behind the route's prefix, as `endpoint`
    gets paths."""
    warnings: tuple[OptionWarning, ...] = ()
    notes: tuple[str, ...] = ()
    """What `check` says about the service although nothing is wrong: one sentence each."""
    says_default: bool = False
    """True: `check` says what a request without a version gets, because no server's habit decides it."""


@final
@dataclass(frozen=True, slots=True)
class ProbePaths:
    """What probes request, by the service's configuration. A dialect that wants to know it has an option
    `probes` of this type, which no operator writes."""

    path: str | None = None
    """`probe.path`; None: the dialect's own."""
    health: str | None = None
    """The path of the health check; None: there is none."""
    prefix: str = ""
    """The route's prefix, if backends get it, too."""

    def local(self, path: str) -> str | None:
        """The path of a server as `Dialect.endpoint` gets it. None: no client gets there."""
        if not self.prefix:
            return path
        rest = path[len(self.prefix) :]
        return (rest or "/") if path.startswith(self.prefix) and rest[:1] in ("", "/") else None
