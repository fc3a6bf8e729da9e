"""Every key of the configuration, as the JSON Schema of a checkout has it, with good and wrong values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

from tests.before_and_after.texts import Raw, Tree, made_of

Path: TypeAlias = tuple[str, ...]
"""Names; `*` for any name, `[]` for any item of a list."""

VARIABLES: Final[Mapping[str, str]] = {
    "NUMBER": "7",
    "DURATION": "5s",
    "ADDRESS": "127.0.0.1:8081",
    "URL": "http://127.0.0.1:6399",
    "TOKEN": "a-token-of-some-length",
    "SHORT": "short",
    "EMPTY": "",
    "LINES": "two\nlines",
    "REFERENCE": "${NUMBER}",
}
"""What the environment of the files holds."""

WRONG: Final[tuple[str, ...]] = (
    *("0", "1", "-1", "7", "007", "1.5", "1e3", "1_000", "65536", "99999999", "9999999999999", "\u0667"),
    *("0s", "5", "5s", "5S", "250ms", "1.5s", "25h", "1441m", "24h", "off", "never", "auto", "preset"),
    *("512B", "1MiB", "64KiB", "10M", "10MB", "5GiB", "0B", "50%", "0%", "101%", "100/s", "0/s", "10/d"),
    *("true", "false", "True", "yes", "on", "no", "null", "~", "none", "x", "X", "-", "*", ".", "..", "/"),
    *("", " ", " x", "x ", "a b", "a\nb", "a\x00b", "\u00e4", "\ud800", "\u200b", "\ufeff", "\x7f"),
    *("127.0.0.1", "127.0.0.1:80", "127.0.0.1:0", "0.0.0.0:80", "[::]:80", "::1", "[::1]:80", "localhost:80"),
    *(":80", "a..b:80", "1.2.3.4:70000", "unix:", "unix:/run/x.sock", "unix:relative", "256.0.0.1:80"),
    *(
        "http://127.0.0.1:6385",
        "https://127.0.0.1:6385",
        "http://a/b/",
        "http://a//b",
        "http://u:p@a",
        "ftp://a",
    ),
    *("http://a:0", "http://a/?b", "http://a/#b", "http://", "unix:/a b", "http://_api._tcp.example.org"),
    *("http://[::1]:80", "http://a/%2e", "http://a:b", "https://etcd-1:2379", "http://10.0.0.9:2379/x"),
    *("10.0.0.0/8", "10.0.0.1/8", "fd00::/8", "0.0.0.0/0", "::/0", "10.0.0.0/33", "unix:", "10.0.0.1"),
    *(
        "/v1",
        "/v1/",
        "v1",
        "//v1",
        "/a/../b",
        "/a%20b",
        "/a?b",
        "/a#b",
        "/{version}",
        "/v{version}",
        "{version}",
    ),
    *(
        "/{a}/{b}",
        "/a/{b}c",
        "/a/*",
        "/v1/nodes/{node}",
        "/v{version}/{version}",
        "$.a",
        "$.a[*].b",
        "$",
        "$..a",
    ),
    *(
        "1.90",
        "1.1-1.58",
        "1.58-1.1",
        "1.1-2.5",
        "latest",
        ">=1.28",
        "<=1.5",
        ">1",
        "next",
        "1.1, 1.5",
        "minimum",
    ),
    *(
        "2024-01-31",
        "2024-01",
        "2024-13-01",
        "2024-01-01..2024-06-01",
        "v1",
        "v1..v2",
        "1",
        "1-3",
        "1.2.3",
        "refused",
    ),
    *(
        "Content-Length",
        "Host",
        "X-A",
        "X_A",
        "X-A*",
        "a:b",
        "Authorization",
        "Via",
        "Connection",
        "Date",
        "Vary",
    ),
    *(
        "websocket",
        "h2c",
        "HTTP/2.0",
        "tls/1.2",
        "WebSocket",
        "GET",
        "get",
        "a/b",
        "text/html",
        "application/json",
    ),
    *(
        "old",
        "2024.1",
        "train",
        "our-build-7",
        "ironic",
        "nova",
        "custom",
        "chef",
        "openstack",
        "senlin",
        "header",
    ),
    *(
        "${NUMBER}",
        "${DURATION}",
        "${NOPE}",
        "${EMPTY:-5s}",
        "${NOPE:-x}",
        "${ADDRESS}",
        "${URL}",
        "${TOKEN}",
    ),
    *(
        "${SHORT}",
        "${EMPTY}",
        "${LINES}",
        "${",
        "${1}",
        "a${NOPE}b${ALSO}",
        "${REFERENCE}",
        "$NUMBER",
        "${FILE:}",
    ),
    *(
        "${FILE:token}",
        "${FILE:empty}",
        "${FILE:latin1}",
        "${FILE:large}",
        "${FILE:folder}",
        "${FILE:nowhere}",
    ),
    *("${FILE:-}", "${FILE:/nowhere/x}", "${FILE:short}"),
    *(
        "tls.crt",
        "tls.key",
        "ca.crt",
        "other.key",
        "expired.crt",
        "soon.crt",
        "token",
        "folder",
        "nowhere/x",
        "latin1",
    ),
    *("targets.json", "wrong-targets.json", "targets.yaml", "nowhere.json", "folder/state.json", "a/.."),
    *("parts/*.yaml", "parts/one.yaml", "nowhere/*.yaml", "folder/*.yaml", "**", "parts/"),
    *(
        "a-token-of-some-length",
        "0123456789abcde",
        "x" * 65,
        "x" * 300,
        "'quoted'",
        '"quoted"',
        "# x",
        "a # b",
    ),
)
"""Texts of every kind: where one of them is right, nearly all others are wrong."""

RAW: Final = tuple(
    Raw(text)
    for text in (
        *(
            "",
            "null",
            "~",
            "!!int 1",
            "!!str x",
            "&a x",
            "*a",
            "[",
            "{",
            "]",
            "}",
            "'",
            '"',
            "- x",
            "? x",
            "@x",
        ),
        *(
            "|\n      x",
            ">\n      x",
            "`x`",
            "%x",
            "x: y",
            "[a, b]",
            "{a: b}",
            "[[]]",
            "{}",
            "[]",
            '"\\x"',
            "\tx",
        ),
        *(
            '"\\ud800"',
            '"\\U00110000"',
            "!x y",
            "<<",
            "2024-01-01",
            "0x10",
            "1_000",
            "1:30",
            "1.10",
            "yes",
            "'1.10'",
        ),
    )
)
"""What is written without quotation marks, though it may need them."""


class Key(NamedTuple):
    """One key and what its schema says."""

    path: Path
    schema: Mapping[str, Any]


def keys_of(schema: Mapping[str, Any]) -> list[Key]:
    """Every key of the schema."""
    return list({key.path: key for key in _below(schema, schema, ())}.values())


def _below(whole: Mapping[str, Any], part: Mapping[str, Any], path: Path) -> Iterator[Key]:
    part = _resolved(whole, part)
    for name, below in part.get("properties", {}).items():
        yield Key((*path, name), _resolved(whole, below))
        yield from _below(whole, below, (*path, name))
    for below in part.get("patternProperties", {}).values():
        yield Key((*path, "*"), _resolved(whole, below))
        yield from _below(whole, below, (*path, "*"))
    if isinstance(extra := part.get("additionalProperties"), dict):
        yield from _below(whole, extra, (*path, "*"))
    if "items" in part:
        yield from _below(whole, part["items"], (*path, "[]"))
    for alternative in (*part.get("oneOf", ()), *part.get("anyOf", ()), *part.get("allOf", ())):
        yield from _below(whole, alternative, path)


def _resolved(whole: Mapping[str, Any], part: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in part:
        return part
    return {**whole["$defs"][part["$ref"].removeprefix("#/$defs/")], **part}


def good_value(key: Key, random: Random) -> Tree:
    """An example of the schema, or its default."""
    found = [*key.schema.get("examples", ())] * 2 + (
        [key.schema["default"]] if "default" in key.schema else []
    )
    found = [each for each in found if each is not None]
    if not found:
        return _near_value(key.schema, random)
    return made_of(json.loads(json.dumps(random.choice(found)).replace("/etc/skewgate/", "")))


def value_for(key: Key, random: Random, words: tuple[str, ...]) -> Tree:
    """Any value: good, wrong by a little, or of another kind. `words`: further texts."""
    chance = random.random()
    if chance < 0.2:
        return good_value(key, random)
    if chance < 0.5:
        return _near_value(key.schema, random)
    return any_value(random, words)


def any_value(random: Random, words: tuple[str, ...]) -> Tree:
    """A value of any kind and any shape."""
    chance = random.random()
    if chance < 0.5:
        return random.choice(WRONG)
    if chance < 0.75 and words:
        return random.choice(words)
    if chance < 0.85:
        return random.choice(RAW)
    return _other_shape(random.choice(WRONG), random)


def _other_shape(text: Tree, random: Random) -> Tree:
    return made_of(
        random.choice(([], {}, [[]], [text], [text, text], {"x": text}, [{"x": text}], {"x": {}}, [{}]))
    )


def _near_value(schema: Mapping[str, Any], random: Random) -> Tree:
    """A value at or next to the limits that the schema has."""
    found: list[object] = [*schema.get("examples", ())]
    for part in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        for word in (*part.get("enum", ()), *([part["const"]] if "const" in part else ())):
            found += [word, str(word).upper(), f"{word}s", str(word)[1:], str(word)[:-1]]
        for limit in (part.get("minimum"), part.get("maximum")):
            found += [] if limit is None else [limit - 1, limit, limit + 1, f"{limit}.0", f"0{limit}"]
    texts = [each for each in found if isinstance(each, str)]
    found += [
        change
        for each in texts[:2]
        for change in (f"{each} ", f" {each}", f"{each}x", each.upper(), f"{each},")
    ]
    found += [[each] for each in found[:2]]
    return made_of(random.choice(found)) if found else random.choice(WRONG)


def schema_of(text: str) -> Mapping[str, Any]:
    """What `skewgate schema` prints."""
    schema: Mapping[str, Any] = json.loads(text)
    return schema
