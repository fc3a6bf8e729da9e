"""Mutations of headers: aliases, duplicates, lists, blanks, and what proxies treat specially.

The values are what clients might send; no name here is known to the gateway's own tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from tests.differential.apis import Header
from tests.differential.draft import Draft, Mutation, spellings

SEPARATORS: Final = "_.!#$%&'*+^`|~-"
"""Every character of a token (RFC 9110 5.6.2) that is neither a letter nor a digit."""

_BLANKS: Final = (" ", "\t", "  ", "\xa0", "\x85", "\xa0 ", " \t ", "\xad", "\xc2\xa0", "\xe2\x80\x8b")

_VALUES: Final = spellings("header_values")
"""Values in place of `{v}`, the requested version. `{o}` is another one."""

_ITEMS: Final = spellings("header_items")
"""Values of a header with items, of which `{s}` names this service."""


def any_case(random: Random, text: str) -> str:
    return "".join(random.choice((letter.lower(), letter.upper())) for letter in text)


def alias_of(random: Random, name: str) -> str:
    """Another spelling of a header name that some servers take for it."""
    one = random.choice(SEPARATORS)
    mixed = random.random() < 0.4
    alias = "".join(
        letter if letter.isalnum() else (random.choice(SEPARATORS) if mixed else one) for letter in name
    )
    return any_case(random, alias) if random.random() < 0.4 else alias


def _spelled(draft: Draft, random: Random, header: Header, value: str) -> str:
    text = value.replace("{v}", draft.version).replace("{o}", draft.other)
    return header.spelling.format(text) if random.random() < 0.8 else text


def alias(draft: Draft, random: Random) -> None:
    header = draft.location(random, Header)
    value = header.spelling.format(random.choice((draft.other, draft.other, draft.version)))
    draft.add(random, f"{alias_of(random, header.name)}: {value}")


def alias_alone(draft: Draft, random: Random) -> None:
    header = draft.location(random, Header)
    at = draft.find(header.name)
    value = draft.lines.pop(at).partition(":")[2].strip() if at >= 0 else draft.other
    draft.add(random, f"{alias_of(random, header.name)}: {value}")


def duplicate(draft: Draft, random: Random) -> None:
    header = draft.location(random, Header)
    for _ in range(random.choice((1, 1, 2))):
        value = header.spelling.format(random.choice((draft.other, draft.version)))
        draft.add(random, f"{any_case(random, header.name)}: {value}")


def odd_value(draft: Draft, random: Random) -> None:
    header = draft.location(random, Header)
    value = _spelled(draft, random, header, random.choice(_VALUES))
    draft.replace(random, header.name, f"{header.name}: {value}")


def odd_items(draft: Draft, random: Random) -> None:
    header = draft.location(random, Header)
    service = header.spelling.partition(" ")[0] if " " in header.spelling else "compute"
    value = random.choice(_ITEMS).replace("{s}", service).replace("{S}", service.upper())
    value = value.replace("{v}", draft.version).replace("{o}", draft.other)
    draft.replace(random, header.name, f"{header.name}: {value}")


def odd_blanks(draft: Draft, random: Random) -> None:
    header = draft.location(random, Header)
    before, after = random.choice(_BLANKS), random.choice(("", "", *_BLANKS))
    value = header.spelling.format(draft.version)
    draft.replace(random, header.name, f"{header.name}:{before}{value}{after}")


def odd_name(draft: Draft, random: Random) -> None:
    """Names near the header's: no aliases, or names that no server may accept."""
    name = draft.location(random, Header).name
    names = (
        f"HTTP_{name}",
        f"{name}_",
        f"_{name}",
        f"{name} ",
        f"{name}\t",
        f" {name}",
        f"-{name}",
        f"x{name}",
    )
    more = (f"HTTP-{name}", name.replace("-", ""), name.replace("-", "--"), f"{name}\xa0", f"({name})")
    draft.add(random, f"{random.choice(names + more)}: {draft.other}")


def folded_line(draft: Draft, random: Random) -> None:
    name = draft.location(random, Header).name
    draft.add(random, f"X-Any: a\r\n {name}: {draft.other}")


def listed_in_connection(draft: Draft, random: Random) -> None:
    name = random.choice(draft.api.headers or ("X-Any",))
    listed = random.choice(
        (name, alias_of(random, name), f"close, {name}", f"{name},keep-alive", f"X-Any, {name}")
    )
    draft.add(random, f"{random.choice(('Connection', 'connection', 'Proxy-Connection'))}: {listed}")


# --- any API -----------------------------------------------------------------------------------------------

_OVERRIDES: Final = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "x_http_method_override")
_OTHERS: Final = spellings("other_lines")


def other_line(draft: Draft, random: Random) -> None:
    draft.add(random, random.choice(_OTHERS))


def method_override(draft: Draft, random: Random) -> None:
    draft.method = random.choice(("POST", "POST", "PUT", "GET"))
    method = random.choice(("GET", "DELETE", "PUT", "delete", "PATCH", "HEAD"))
    draft.add(random, f"{random.choice(_OVERRIDES)}: {method}")


def other_method(draft: Draft, random: Random) -> None:
    draft.method = random.choice(("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


def body(draft: Draft, random: Random) -> None:
    draft.method = random.choice(("POST", "PUT", "PATCH"))
    texts = (b'{"version": 9}', b"version=9&api_version=9&_method=DELETE", b"x" * 300, b"")
    types = ("application/json", "application/x-www-form-urlencoded", "text/plain")
    draft.pieces = tuple(random.choice(texts) for _ in range(random.randint(1, 3)))
    draft.chunked = random.random() < 0.5
    if draft.find("Content-Type") < 0 and random.random() < 0.7:
        draft.add(random, f"Content-Type: {random.choice(types)}")


def old_http(draft: Draft, random: Random) -> None:
    draft.http = "1.0"
    if random.random() < 0.5:
        draft.add(random, "Connection: keep-alive")


def absolute_target(draft: Draft, random: Random) -> None:
    draft.authority = random.choice(("http://{}", "HTTP://{}", "https://{}:443")).format(draft.api.host)


def signature(draft: Draft, random: Random) -> None:
    """How Chef clients say which protocol they sign with. From 1.3 on it covers the version."""
    values = (
        "version=1.0",
        "version=1.1",
        "version=1.3",
        "version=1.3;algorithm=sha256",
        "algorithm=sha1",
        "",
    )
    draft.add(
        random, f"{random.choice(('X-Ops-Sign', 'x-ops-sign'))}: {random.choice((*values, 'version=1.3;'))}"
    )


# --- responses ---------------------------------------------------------------------------------------------


def response_alias(draft: Draft, random: Random) -> None:
    name = random.choice(list(draft.api.response))
    alias = alias_of(random, name)
    if alias.lower() != name.lower():  # the header itself twice is a contradiction of the server
        draft.response_lines.append(f"{alias}: {draft.other}")


HEADER_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "alias": alias,
    "alias alone": alias_alone,
    "duplicate": duplicate,
    "odd value": odd_value,
    "odd items": odd_items,
    "odd blanks": odd_blanks,
    "odd name": odd_name,
    "folded line": folded_line,
}
"""For APIs with a version in a header."""

REQUEST_MUTATIONS: Final[Mapping[str, Mutation]] = {
    "listed in Connection": listed_in_connection,
    "another line": other_line,
    "method override": method_override,
    "another method": other_method,
    "body": body,
    "HTTP/1.0": old_http,
    "absolute target": absolute_target,
    "response alias": response_alias,
}
"""For every API."""

SIGNATURES: Final[Mapping[str, Mutation]] = {"signature": signature}
"""For Chef."""
