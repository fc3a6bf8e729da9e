"""HeaderEdits: the same as a list of lines edited one by one, whatever spelling the names have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.header_edits import HeaderEdits
from gateway.core.http.message import Header, Response, normalize_name

NAMES = st.sampled_from(["X-A", "x_a", "X.A", "X-AB", "X-B", "Y", "y", "Set-Cookie", "x-a-b", "X--A"])
VALUES = st.sampled_from(["1", "a b", "X-A: 1", "", "x,y"])
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=6)


@st.composite
def edits(draw: st.DrawFn) -> HeaderEdits:
    """Every name in one of the three, as settings demand."""
    chosen = draw(st.lists(NAMES, max_size=4, unique_by=normalize_name))
    verbs = [draw(st.sampled_from(["set", "add", "remove"])) for _ in chosen]
    by_verb = {
        verb: [name for name, of in zip(chosen, verbs, strict=True) if of == verb]
        for verb in ("set", "add", "remove")
    }
    return HeaderEdits(
        tuple((name, "new") for name in by_verb["set"]),
        tuple((name, "more") for name in by_verb["add"]),
        tuple(by_verb["remove"]),
    )


def by_hand(change: HeaderEdits, fields: list[Header]) -> list[Header]:
    gone = {normalize_name(name) for name in (*change.remove, *(name for name, _ in change.set))}
    others = [field for field in fields if normalize_name(field[0]) not in gone]
    return [*others, *change.set, *change.add]


def lines(fields: list[Header]) -> bytes:
    return "".join(f"\r\n{name}: {value}" for name, value in fields).encode()


@given(edits(), FIELDS)
def test_field_lines_are_edited_as_by_hand(change: HeaderEdits, fields: list[Header]) -> None:
    assert change.edit(lines(fields)) == lines(by_hand(change, fields))
    assert change.edit(lines(fields)) == change.without(lines(fields)) + lines([*change.set, *change.add])


@given(edits(), FIELDS)
def test_a_local_response_is_edited_in_the_same_way(change: HeaderEdits, fields: list[Header]) -> None:
    edited = change.edit_response(Response(503, tuple(fields), b"x"))

    assert (edited.status, edited.body) == (503, b"x")
    assert list(edited.headers) == by_hand(change, fields)


def test_the_lines_of_a_value_without_a_blank_before_it_are_found_too() -> None:
    assert HeaderEdits(remove=("X-A",)).edit(b"\r\nx-a:1\r\nX-A:\r\nX-AB:2") == b"\r\nX-AB:2"


def test_names_that_only_begin_alike_stay() -> None:
    change = HeaderEdits(set=(("X-User", "a"),))

    assert change.edit(b"\r\nX-User-Id: 1\r\nX-Use: 2\r\nMy-X-User: 3\r\nX.User: 4") == (
        b"\r\nX-User-Id: 1\r\nX-Use: 2\r\nMy-X-User: 3\r\nX-User: a"
    )
