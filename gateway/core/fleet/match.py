"""Hosts and path prefix of a service: `services.NAME.match`. `decision.routing` looks them up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from gateway.core.dialect import ProbePaths
from gateway.keys.addresses import HOST_PATTERN, PATH
from gateway.keys.kinds import TEXT, Either, ListOf, Text, section
from gateway.keys.texts import FLAG

ONE_HOST: Final = Text(lambda text: (HOST_PATTERN.read(text),), TEXT)


@final
@dataclass(frozen=True, slots=True)
class Match:
    """Hosts and path prefix whose requests belong to the service."""

    host: tuple[str, ...] | None = Either(ONE_HOST, ListOf(HOST_PATTERN)).key(
        None,
        "The Host of the request, without port, or a list of such. `*.example.org` stands for every name "
        "with one label or more before `.example.org`. An exact name wins over a wildcard, a longer wildcard "
        "over a shorter one, and both over services without this key. Without this key: any.",
        reason="Most gateways have one name.",
        example=["baremetal.example.org", "*.metal.example.org"],
    )
    path: str = PATH.key(
        "/",
        "A path prefix on a segment boundary. The longest match wins.",
        reason="A single service needs no prefix.",
        example="/baremetal",
    )
    strip_prefix: bool = FLAG.key(
        default=True,
        meaning="Whether backends get the path without the prefix.",
        reason="An API server with its own address serves from the root.",
        example=False,
    )

    @property
    def hosts(self) -> tuple[str, ...]:
        """Each host once, in lower case, without port; `*.`: one label or more. Empty: any host."""
        return tuple(dict.fromkeys(self.host or ()))

    @property
    def prefix(self) -> str:
        """The prefix that is removed from a path: empty for `/`."""
        return "" if self.path == "/" else self.path

    def local(self, path: str) -> str | None:
        """The path of a server as the dialect knows it; None: clients cannot reach it."""
        return ProbePaths(prefix="" if self.strip_prefix else self.prefix).local(path)


MATCH: Final = section(Match, "Hosts and path prefix whose requests belong to the service.")
DEFAULT_MATCH: Final = Match()
