"""The matcher in C finds what the regular expression of the same pattern finds, and nothing else.

Left out without a C compiler (conftest).
"""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TypeAlias

import pytest

from gateway.core.http.patterns import (
    MANY,
    MARK,
    NOTHING,
    SPAN,
    Pattern,
    group,
    literal,
    not_after,
    span,
    unless,
)
from gateway.dataplane.http1.layouts import request_layout, response_layout
from gateway.errors import FramingError
from gateway.telemetry.trace_context import PARENT
from tests.dataplane.damages import PIECES
from tests.dataplane.matcher_in_c import Both, compile_matcher, load_matcher, mutated
from tests.dataplane.test_layouts import (
    IDENTIFIED,
    READERS,
    REQUEST_HEADS,
    RESPONSE_HEADS,
    RESPONSES,
    strictly,
)
from tests.fuzz.heads import head_in
from tests.fuzz.targets import corpus

MUTATED = 20_000
TABLE = bytes(range(256))
MAX_SIZE = 1 << 16

Read: TypeAlias = Callable[[bytes], object]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return load_matcher(compile_matcher(tmp_path_factory.mktemp("matcher"), "-O2"))


@pytest.fixture
def both(module: ModuleType) -> Both:
    return Both(module)


def layouts_of(both: Both) -> list[tuple[bytes, Read]]:
    """Good heads of requests and responses, each with the layout that was made of it for some peer."""
    found: list[tuple[bytes, Read]] = []
    heads = [*REQUEST_HEADS, *(head_in(path.read_bytes()) for path in corpus("request_head"))]
    for _, table in READERS.values():
        accepted = [head for head in heads if isinstance(strictly(head, table), dict)]
        of_requests = [(head, request_layout(head, table, 1, both.make)) for head in accepted]
        found += [(head, partial(layout.read, max_size=MAX_SIZE)) for head, layout in of_requests if layout]
    for table in (RESPONSES, IDENTIFIED):
        of_responses = [(head, response_layout(head, table, 1, both.make)) for head in RESPONSE_HEADS]
        found += [
            (head, partial(layout.read, is_head_request=False)) for head, layout in of_responses if layout
        ]
    return found


def test_S17_mutated_heads_are_matched_alike_in_c_and_by_re(both: Both) -> None:
    layouts, chance = layouts_of(both), random.Random(30)
    for _ in range(MUTATED):
        head, read = chance.choice(layouts)
        with contextlib.suppress(FramingError):  # of a target
            read(mutated(head, PIECES, chance))

    assert both.matched > MUTATED / 5
    assert both.refused > MUTATED / 5


def test_S17_heads_of_other_layouts_and_parts_of_heads_are_matched_alike(both: Both) -> None:
    layouts = layouts_of(both)
    for own, read in layouts:
        for head, _ in layouts:
            with contextlib.suppress(FramingError):
                read(head)
        for size in range(len(own)):
            assert read(own[:size]) is None


def test_S17_every_byte_anywhere_in_a_head_is_matched_alike(both: Both) -> None:
    for head, read in layouts_of(both)[::7]:
        for at in range(len(head)):
            for byte in range(256):
                with contextlib.suppress(FramingError):
                    read(head[:at] + bytes([byte]) + head[at + 1 :])


@pytest.mark.parametrize(
    "pattern",
    [
        NOTHING,
        literal(b"a.b"),
        unless(b"ab") + span(rb"[a-c]"),
        span(rb"[a-c]", 2) + literal(b"d"),
        span(rb"[a-c]", 1, 3) + literal(b"d"),
        span(rb"[ -~]") + not_after(rb"[ ]"),
        span(rb"[ -~]", 0, 20) + literal(b"\r"),
        not_after(rb"[ ]"),
        PARENT,
    ],
    ids=lambda pattern: pattern.source.decode(),
)
def test_each_part_of_a_pattern_is_matched_alike(pattern: Pattern, both: Both) -> None:
    match = both.make(group(pattern), (b"name", b"\0"), (b"\0\0", b""))
    good = (
        b"a.b",
        b"abcabc",
        b"abcd",
        b"abd ",
        b" " * 9 + b"x" * 30 + b"\r",
        b"00-" + b"1" * 32 + b"-1",
        b"",
    )
    chance = random.Random(30)
    for _ in range(2000):
        match(mutated(chance.choice(good), (b"0" * 16, b"ff", b"-", b" ", b"\xff", b"\0"), chance))


def test_a_match_has_the_size_the_fields_and_joined_values(both: Both) -> None:
    pattern = group(span(rb"[a-z]")) + literal(b"-") + group(span(rb"[0-9]"))
    match = both.make(pattern, (b"letters", b"\0"), (b"\1\0", b"\1"))

    assert match(b"ab-12!") == (5, (b"letters", b"ab"), (b"12ab", b"12"))


@pytest.mark.parametrize(
    "program, fields, values",
    [
        (((MARK, b"", 0, 0),), (), (b"\0",)),
        (((MARK, b"", 0, 0),) * 2, (b"name", b"\1"), ()),
        (((MARK, b"", 0, 0),) * 2, (), (b"\0\xff",)),
        (((MARK, b"", 0, 0),) * 514, (), ()),
        (((MARK + 1, b"", 0, 0),), (), ()),
        (((-1, b"", 0, 0),), (), ()),
        (((SPAN, TABLE[1:], 0, MANY),), (), ()),
        (((SPAN, TABLE, 0, -1),), (), ()),
        (((SPAN, TABLE, 0, 1 << 64),), (), ()),
        (((SPAN, "text", 0, 0),), (), ()),
        (((SPAN, TABLE, 0),), (), ()),
        (("step",), (), ()),
        ([], (), ()),
        ((), ("name", "group"), ()),
        ((), (), (1,)),
    ],
    ids=str,
)
def test_S20_a_program_that_would_read_elsewhere_is_refused(
    program: object, fields: object, values: object, module: ModuleType
) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError, SystemError)):
        module.Matcher(program, fields, values)


def test_only_bytes_are_matched(module: ModuleType) -> None:
    with pytest.raises(TypeError, match="bytes expected"):
        module.Matcher((), (), ()).match("text")
