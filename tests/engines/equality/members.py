"""The members of all fleets: servers on loopback that behave as servers of their API do.

A member answers 406 to a version that it does not serve, in its API's own words. Its response says which
member it was and what it got of the version; its range headers are its own.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

from tests.differential.testbed import version_in
from tests.engines.equality.apis import FLEETS, MEMBERS, Fleet, kind_of
from tests.kit.messages import read_raw
from tests.kit.servers import serving

MEMBER_HEADER: Final = "X-Member"
RECEIVED_HEADER: Final = "X-Received"
"""Each version header of the request as the member got it, separated by `|`; also under a name that only
some servers take for it."""


async def _serve(
    fleet: Fleet, member: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    while (request := await read_raw(reader)).whole:
        writer.write(respond(fleet, member, request.head))


def respond(fleet: Fleet, member: str, head: bytes) -> bytes:
    """The response of this member. The query `reply=` asks for another one than 200."""
    version = version_in(fleet.api, _canonical(fleet, head))
    lines = head.decode("latin-1").split("\r\n")
    received = [line for line in lines[1:] if as_servers_read(line) in fleet.version_headers]
    status, body, kind = "200 OK", b"ok", "text/plain"
    method, target, _ = lines[0].split(" ")
    path = target.partition("?")[0].rstrip("/")
    if path in fleet.documents:
        kind = "application/json"
        if method in ("GET", "HEAD"):
            body = _document(fleet, member)
        else:
            status, body = "405 Method Not Allowed", b"{}"
    elif version and not _serves(fleet, member, version):
        status, kind = refusal_status(fleet.api.name), "application/json"
        body = refusal_of_version(fleet.api.name, version, fleet.lowest, fleet.highest(kind_of(member)))
        version = ""
    elif UNACCEPTABLE in lines[0]:
        status, body, kind = "406 Not Acceptable", other_refusal(fleet.api.name), "application/json"
    elif "reply=404" in lines[0]:
        status, body = "404 Not Found", b"no such thing"
    elif "reply=204" in lines[0]:
        status, body = "204 No Content", b""
    answer = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"{MEMBER_HEADER}: {member}",
        f"{RECEIVED_HEADER}: {'|'.join(sorted(received, key=str.lower))}",
        *fleet.response_lines(kind_of(member), version),
    ]
    if "reply=vary" in lines[0]:
        answer.append("Vary: Accept-Encoding")
    if not status.startswith("204"):
        answer.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*answer, "", "")).encode("latin-1") + (b"" if head.startswith(b"HEAD ") else body)


def as_servers_read(line: str) -> str:
    """The name of a header in lower case, as servers find it that keep headers in an environment (WSGI):
    there an underscore is as good as a hyphen. Some take more characters for one."""
    return re.sub(r"[^a-z0-9-]", "-", line.partition(":")[0].strip().lower())


def _document(fleet: Fleet, member: str) -> bytes:
    """A discovery document, with the range of this member."""
    entry = {
        "id": f"v{fleet.lowest}",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": f"http://{fleet.api.host}/v{fleet.lowest}/"}],
        "min_version": fleet.lowest,
        "max_version": fleet.highest(kind_of(member)),
        "version": fleet.highest(kind_of(member)),
    }
    return json.dumps({"versions": [entry], "version": entry}).encode()


def _canonical(fleet: Fleet, head: bytes) -> bytes:
    """The head with version headers as the API spells them: engines may write names in lower case."""
    lines = head.split(b"\r\n")
    spelled = {name.lower().encode(): name.encode() for name in fleet.api.headers}
    for at, line in enumerate(lines[1:], 1):
        name, colon, value = line.partition(b":")
        if name.lower() in spelled:
            lines[at] = spelled[name.lower()] + colon + value
    return b"\r\n".join(lines)


def _serves(fleet: Fleet, member: str, version: str) -> bool:
    return _key(fleet.lowest) <= _key(version) <= _key(fleet.highest(kind_of(member)))


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@asynccontextmanager
async def running_members(**others: str) -> AsyncIterator[Mapping[str, Mapping[str, int]]]:
    """All members of all fleets; gives their ports by service and member. `others`: what a kind is really."""
    ports: dict[str, dict[str, int]] = {name: {} for name in FLEETS}
    async with AsyncExitStack() as stack:
        for name, fleet in FLEETS.items():
            for member in MEMBERS:
                serve = partial(_serve, fleet, others.get(kind_of(member), member))
                server = await stack.enter_async_context(serving(serve))
                ports[name][member] = server.port
        yield ports


UNACCEPTABLE: Final = "reply=406"
"""In the query of a request: the member answers 406 for another reason than the version."""


class _Words(NamedTuple):
    version: object
    """In its texts, ASKED, LOW and HIGH stand for versions."""
    other: object


def _openstack(key: str, text: str) -> object:
    return {key: {"code": 406, "message": text}}


def _listed(detail: str, **more: str) -> object:
    error = {"status": 406, "title": "Not Acceptable", "detail": detail, "code": "", **more}
    return {"errors": [error]}


def _ironic(text: str) -> object:
    return {"error_message": json.dumps({"code": 406, "title": "Not Acceptable", "description": text})}


def _senlin(text: str, kind: str) -> object:
    return {"code": 406, "title": "Not Acceptable", "error": {"code": 406, "message": text, "type": kind}}


_RANGE: Final = "Version ASKED is not supported by the API. Minimum is LOW and maximum is HIGH."
_OTHER: Final = "The resource identified by the request cannot be given in a form that you accept."
_WORDS: Final = {
    "ironic": _Words(
        _ironic("Version ASKED was requested but is not supported by this service. LOW to HIGH are."),
        _ironic("The requested field is not available at this version."),
    ),
    "nova": _Words(_openstack("computeFault", _RANGE), _openstack("computeFault", _OTHER)),
    "senlin": _Words(
        _senlin(
            "Version 'ASKED' is not supported by the API. Minimum is 'LOW' and maximum is 'HIGH'.",
            "InvalidGlobalAPIVersion",
        ),
        _senlin(_OTHER, "HTTPNotAcceptable"),
    ),
    "placement": _Words(
        _listed("Unacceptable version header: ASKED", min_version="LOW", max_version="HIGH"),
        _listed("Only application/json is provided"),
    ),
    "manila": _Words(_openstack("computeFault", _RANGE), _openstack("computeFault", _OTHER)),
    "magnum": _Words(
        _listed("Version ASKED is not supported.", min_version="LOW", max_version="HIGH"),
        _listed(_OTHER),
    ),
    "header": _Words({"error": "no version ASKED, only LOW to HIGH"}, {"error": _OTHER}),
}


def refusal_of_version(service: str, asked: str, low: str, high: str) -> bytes:
    text = json.dumps(_WORDS[service].version)
    for word, version in (("ASKED", asked), ("LOW", low), ("HIGH", high)):
        text = text.replace(word, version)
    return text.encode()


def refusal_status(service: str) -> str:
    """Of a refused version. APIs of the configuration have 400 if it says nothing else."""
    return "400 Bad Request" if service == "header" else "406 Not Acceptable"


def other_refusal(service: str) -> bytes:
    return json.dumps(_WORDS[service].other).encode()
