"""What every reader of the differential test gives: a request as one framework shows it to a server's code.

A view looks at the captured bytes only. It knows neither the gateway nor what was negotiated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from tests.differential.apis import Header, Location, Microversion, Parameter, Path, Query


class MediaType(NamedTuple):
    """A media type as a reader understands it."""

    name: str
    """In lower case."""
    parameters: tuple[tuple[str, str], ...]
    """Names in lower case."""

    def values_of(self, parameter: str) -> list[str]:
        return [value for name, value in self.parameters if name == parameter]


class Unreadable(Exception):
    """The framework refuses the request: its server would answer 4xx or 5xx, and execute nothing."""


class View(ABC):
    """One request in one framework. Methods raise `Unreadable` where the framework refuses the request."""

    @property
    @abstractmethod
    def method(self) -> str: ...
    @property
    @abstractmethod
    def path(self) -> str:
        """The decoded path."""

    @abstractmethod
    def header(self, name: str) -> list[str]:
        """Everything that server code gets as this header; empty: it is absent."""

    @abstractmethod
    def query(self, name: str) -> list[str]:
        """Everything that server code gets as this parameter, by each way to look it up."""

    @abstractmethod
    def accept(self) -> list[MediaType]:
        """The media types of `Accept`."""

    @abstractmethod
    def content_type(self) -> list[MediaType]:
        """The media type of the content; empty: there is none."""

    @abstractmethod
    def route(self, location: Path) -> list[str]:
        """The version segment, by each router of the framework; empty: none finds one."""

    def microversion(self, location: Microversion) -> list[str] | None:
        """What OpenStack's library finds. None: this framework is not what it is used with."""
        return None

    def versions(self, location: Location) -> list[str] | None:
        """Every text that a server would read as the version in this location. None: no such reader."""
        match location:
            case Header(name):
                return self.header(name)
            case Microversion():
                return self.microversion(location)
            case Query(name):
                return self.query(name)
            case Parameter(name, types):
                elements = [*self.accept(), *self.content_type()]
                return [
                    ", ".join(element.values_of(name))  # empty: a type without the parameter
                    for element in elements
                    if not types or element.name in types
                ]
            case Path():
                return [text for text in self.route(location) if location.prefix or text[:1].isdecimal()]
