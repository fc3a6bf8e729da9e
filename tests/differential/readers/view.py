"""What every reader of the differential test gives: a request as one framework shows it to a server's code.

A view looks at the captured bytes only. It knows neither the gateway nor what was negotiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tests.differential.apis import Header, Location, Microversion, Parameter, Path, Query


class MediaType(NamedTuple):
    """A media type as a reader understands it; the names are in lower case."""

    name: str
    parameters: tuple[tuple[str, str], ...]


class Unreadable(Exception):
    """The framework refuses the request: its server would answer 4xx or 5xx, and execute nothing."""


class View(NamedTuple):
    """One request in one framework. Calls raise `Unreadable` where the framework refuses the request."""

    method: str
    path: str
    """Decoded."""
    header: Callable[[str], list[str]]
    """Everything that server code gets as this header; empty: it is absent."""
    query: Callable[[str], list[str]]
    """Everything that server code gets as this parameter."""
    accept: Callable[[], list[MediaType]]
    content_type: Callable[[], list[MediaType]]
    route: Callable[[Path], list[str]]
    """The version segment, by each router of the framework; empty: none finds one."""
    microversion: Callable[[Microversion], list[str]] | None = None
    """What OpenStack's library finds. None: this framework is not what it is used with."""

    def versions(self, location: Location) -> list[str] | None:
        """Every text that a server would read as the version in this location. None: no such reader."""
        match location:
            case Header(name):
                return self.header(name)
            case Microversion():
                return None if self.microversion is None else self.microversion(location)
            case Query(name):
                return self.query(name)
            case Parameter(name, types):
                elements = [*self.accept(), *self.content_type()]
                return [
                    ", ".join(value for key, value in element.parameters if key == name)  # empty: without it
                    for element in elements
                    if not types or element.name in types
                ]
            case Path():
                return [text for text in self.route(location) if location.prefix or text[:1].isdecimal()]


def media_type(name: str, parameters: Iterable[tuple[str, str]]) -> MediaType:
    return MediaType(name.lower(), tuple((key.lower(), value) for key, value in parameters))


def joined(values: Sequence[str]) -> list[str]:
    """Several values as one text, so that whoever looks up any of them is seen."""
    return [", ".join(values)] if values else []


def only(value: str | None) -> list[str]:
    return [] if value is None else [value]
