"""The words that the project does not use, each with the word of the glossary that takes its place.

Identifiers and prose are two lists: `mark` is pytest's own identifier, and `place` is an English word.
A rule yields findings; the tests try each rule on text that breaks it, too.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import Final

IDENTIFIERS: Final[Mapping[str, str]] = {
    "absence": "missing operation",
    "advert": "advertisement",
    "adverts": "advertisements",
    "apart": "selected",
    "arrival": "accepted connection, receive rate",
    "ask": "request, probe, requested version",
    "asks": "requested versions",
    "board": "connection counts",
    "book": "counters",
    "bounds": "offered versions, buckets",
    "complaint": "problem",
    "complaints": "problems",
    "contradicted": "mismatched",
    "entrance": "listener filter",
    "deputy": "stand-in acceptor",
    "extent": "versions",
    "farewell": "client_disconnected",
    "garbled": "malformed",
    "habits": "profile",
    "hung": "peer_closed",
    "journal": "change_log",
    "kept": "passthrough, saved",
    "lent": "leases",
    "marking": "rewrite",
    "markings": "response_cache",
    "memory": "offer_state",
    "metered": "rate_limited",
    "obey": "apply",
    "overheard": "passive observation",
    "opening": "accept phase, pending connection",
    "openings": "accept phase",
    "outcome": "result, request record",
    "overhearing": "passive observer",
    "permit": "lease",
    "permits": "leases",
    "recall": "decision_cache",
    "replying": "response",
    "reply": "response",
    "replies": "responses",
    "said": "the noun",
    "say": "respond, print",
    "sealed": "signed",
    "settle": "negotiate, stabilization",
    "settled": "negotiated",
    "settling": "stabilizing",
    "silence": "default_version",
    "silent": "legacy",
    "speeches": "samples",
    "spent": "throttled",
    "stand": "testbed",
    "standing": "freshness",
    "strays": "unconfigured",
    "stretch": "range",
    "succession": "reselect",
    "tally": "counters",
    "tallies": "counters",
    "telling": "codec",
    "ticket": "random_bits",
    "told": "explained, or the noun",
    "troubles": "the noun",
    "unreached": "connect_failed",
    "upload": "request_body",
    "twin": "alias",
    "twins": "aliases",
    "verdict": "result",
    "wares": "samples",
    "welcome": "client_connected",
    "wording": "error_bodies",
}
"""Words of an identifier: `read_ask` has two, `AskKind` too."""

PROSE: Final[Mapping[str, str]] = {
    "advert": "advertisement",
    "adverts": "advertisements",
    "garbled": "malformed",
    "opening connection": "pending connection",
    "known document": "cached document",
    "known documents": "cached documents",
    "last word": "last report",
    "last words": "last reports",
    "overheard": "observed in a response",
    "let in": "applied",
    "overhears": "observes",
    "unreached": "connect failed",
    "settle on": "negotiate",
    "settles on": "negotiates",
    "settled on": "negotiated",
    "settling on": "negotiating",
    "silent backend": "legacy backend",
    "silent backends": "legacy backends",
    "tally": "counters",
    "twin": "header alias",
    "twins": "header aliases",
    "verdict": "result",
    "whom to ask": "which backend",
    "is none of ours": "does not concern the gateway",
    "deputy": "stand-in acceptor",
    "the parent": "the main process",
    "its parent": "the main process",
    "parent process": "main process",
}

ALLOWED: Final = frozenset(
    {"NO_REPLY", "BAD_REPLY", "REPLY_CUT", "REPLY_STALLED", "REPLY_TIMEOUT", "on_no_reply"}
    | {"StandInAcceptor", "_stand_in"}
)
"""Identifiers of outward values that keep their names (`no_reply` and its kin), and of the stand-in acceptor,
which is no testbed."""

YAML_KEYS: Final = frozenset({"reply"})
"""Keys of the `custom` dialect: fields of its option classes, whose names the configuration gives."""

SERIES: Final = frozenset({"resident_memory_bytes", "virtual_memory_bytes", "worker_resident_memory_bytes"})
"""Series of /metrics, by the names that every exporter has."""

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def words_of(identifier: str) -> list[str]:
    """The words of `snake_case` and `CamelCase`, in lower case."""
    return [word.lower() for word in _WORDS.findall(identifier)]


def banned_identifiers(tree: ast.Module, allowed: frozenset[str] = ALLOWED) -> Iterator[tuple[int, str, str]]:
    """Line, identifier and replacement for every name that the module binds in an old word."""
    for line, name in sorted(set(_bound(tree))):
        if name in allowed:
            continue
        for word in words_of(name):
            if word in IDENTIFIERS:
                yield line, name, IDENTIFIERS[word]


def _bound(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case _:
                pass


def prose_of(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every comment and docstring of a module."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def banned_prose(text: str) -> Iterator[tuple[str, str]]:
    """Old word and replacement for each that stands in `text`, line ends folded."""
    folded = " ".join(text.lower().split())
    for old, new in PROSE.items():
        if old in folded and re.search(rf"(?<![\w`-]){re.escape(old)}(?![\w`-])", folded):
            yield old, new
