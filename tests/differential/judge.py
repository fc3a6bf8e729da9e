"""Judges one case: every reader finds the version that the gateway logged, and nothing where it logged none.

A request that the gateway refused, or that a reader refuses, is no disagreement: nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.differential.apis import Api, Header, Location, Microversion, Parameter, Path, Query, folded
from tests.differential.readers.view import View
from tests.differential.testbed import Result


class Disagreement(NamedTuple):
    """One location in one reader, or one field of the response."""

    reader: str
    location: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.reader} reads {self.found} as {self.location}, where the gateway means {self.expected}"


def disagreements(result: Result, reader: str, view: View) -> Iterator[Disagreement]:
    """What `view` reads otherwise than the gateway. Raises `Unreadable`."""
    api, negotiated = result.case.api, result.negotiated
    without_versions = _without_versions(api, view.path)
    if api.negotiated_everywhere and not negotiated and not without_versions:
        yield Disagreement(reader, "path", "a path without versions", view.path)
    for location in api.locations:
        if without_versions and not isinstance(location, Header):
            continue  # versions mean nothing to servers there; the gateway still keeps headers from them
        found = view.versions(location)
        if found is not None and not _agrees(location, negotiated if location.sent else "", found):
            yield Disagreement(reader, repr(location), negotiated or "no version", repr(found))
    yield from _operations(result, reader, view)


def _agrees(location: Location, negotiated: str, found: list[str]) -> bool:
    if not negotiated:
        return not any(found) if isinstance(location, Parameter) else not found
    match location:
        case Header(_, spelling, absent):
            return set(found) == {spelling.format(negotiated)} or (not found and absent == negotiated)
        case Query() | Microversion() | Parameter():
            return set(found) == {negotiated}
        case Path():  # without a route the server answers 404
            return set(found) <= {negotiated}


def _without_versions(api: Api, path: str) -> bool:
    """Whether the operator declared that servers read no version in this target."""
    path = _plain(api, path.removeprefix(api.strip))
    return any(path == each or path.startswith(each + "/") for each in api.unversioned)


def _plain(api: Api, path: str) -> str:
    """The path by which servers look up what to do."""
    for suffix in api.suffixes:
        path = path.removesuffix(suffix)
    return path


def _operations(result: Result, reader: str, view: View) -> Iterator[Disagreement]:
    """Operations that a server would execute although they do not exist in the negotiated version."""
    api, negotiated = result.case.api, result.negotiated
    if not negotiated:
        return
    methods = {view.method}
    if view.method == "POST":
        methods |= {text.strip().upper() for name in api.method_override for text in view.header(name)}
    path = _plain(api, view.path)
    for operation in api.operations:
        executed = methods & {*operation.methods} and re.fullmatch(operation.path, path)
        if executed and _key(negotiated) < _key(operation.lowest):
            yield Disagreement(reader, repr(operation), negotiated, f"{sorted(methods)} {path}")


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def request_aliases(result: Result) -> Iterator[Disagreement]:
    """Aliases of version headers that reach the backend: CGI servers fold every character but letters
    and digits to one."""
    own = {folded(name): name.lower() for name in result.case.api.headers}
    for name in _names(result.forwarded):
        if own.get(folded(name), name.lower()) != name.lower():
            yield Disagreement("CGI", own[folded(name)], "one spelling", name)


def _names(message: bytes) -> list[str]:
    head = message.decode("latin-1").partition("\r\n\r\n")[0]
    return [line.partition(":")[0] for line in head.split("\r\n")[1:]]


def response_disagreements(result: Result) -> Iterator[Disagreement]:
    """Aliases of version headers that reach the client, and a served version that is not the logged one."""
    own = {folded(name): (name, value) for name, value in result.case.api.response.items()}
    seen: set[str] = set()
    for line in result.response.decode("latin-1").split("\r\n")[1:-2]:
        name, _, value = line.partition(":")
        if folded(name) not in own:
            continue
        canonical, template = own[folded(name)]
        served = template.replace("{}", result.negotiated)
        if name.lower() != canonical.lower() or name.lower() in seen:
            yield Disagreement("client", canonical, "one line", line)
        elif "{}" in template and result.forwarded and result.negotiated and value.strip() != served:
            yield Disagreement("client", canonical, served, line)
        seen.add(name.lower())
