"""A record in a store: written and read, and refused as a whole when it is not one that can be followed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.agreement.record import (
    FLOOR_FORM,
    FORM,
    MAX_ITEMS,
    AgreedRecord,
    Level,
    UnreadableRecord,
    form_for_all,
    level,
    read_record,
    write_record,
)
from gateway.core.versions.ranges import NO_VERSIONS, VersionRange, VersionSet
from gateway.core.versions.version import CalendarDate, MajorMinor, Named, Scheme, Version, WholeNumber
from tests.core.agreement.records import records
from tests.core.builders import XY

NAMES = Named(("v1alpha1", "v1beta1", "v1"))
MORE_NAMES = Named(("v1alpha1", "v1alpha2", "v1beta1", "v1", "v2"))
SCHEMES: list[Scheme] = [MajorMinor(), WholeNumber(), CalendarDate(), NAMES]


def upto(minor: int) -> VersionSet:
    return VersionSet.between(Version(1, 1), Version(1, minor))


EXAMPLE = AgreedRecord(7, "at_least 2", upto(9), upto(3), upto(5), upto(9))


def named(*names: str, scheme: Named = NAMES) -> VersionSet:
    return VersionSet.only(*map(scheme.require, names))


def written(**other: object) -> dict[str, Any]:
    return {**write_record(EXAMPLE, "toy", XY), **other}


def test_a_record_is_plain_json() -> None:
    assert json.loads(json.dumps(write_record(EXAMPLE, "toy", XY))) == {
        "form": 1,
        "dialect": "toy",
        "scheme": ["major.minor"],
        "seq": 7,
        "rule": "at_least 2",
        "state": [["1.1", "1.9"]],
        "offered": [["1.1", "1.3"]],
        "accepted": [["1.1", "1.5"]],
        "open": [["1.1", "1.9"]],
    }


def test_dates_and_names_are_written_one_by_one() -> None:
    record = AgreedRecord(1, "reachable", named("v1beta1", "v1"), NO_VERSIONS, NO_VERSIONS, named("v1"))

    entry = write_record(record, "toy", NAMES)

    assert entry["state"] == ["v1beta1", "v1"]
    assert entry["open"] == ["v1"]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@given(data=st.data())
def test_what_is_written_is_read(scheme: Scheme, data: st.DataObject) -> None:
    record = data.draw(records(scheme))

    found = read_record(json.loads(json.dumps(write_record(record, "toy", scheme))), "toy", scheme)

    assert (found.seq, found.rule, found.state) == (record.seq, record.rule, record.state)
    assert (found.offered, found.accepted, found.open) == (record.offered, record.accepted, record.open)
    assert write_record(found, "toy", scheme) == write_record(record, "toy", scheme)


@pytest.mark.parametrize(
    "value, reason",
    [
        (None, "it is no object"),
        ([], "it is no object"),
        ("doc", "it is no object"),
        ({}, "its form is 'None'"),
        (written(form=3), "its form is '3', and this release reads [1, 2]"),
        (written(form="1"), "its form is '1'"),
        (written(form=True), "its form is 'True'"),
        (written(leader="a"), "a foreign key, 'leader'"),
        ({key: value for key, value in written().items() if key != "seq"}, "it lacks `seq`"),
        (written(dialect="ironic"), "about the dialect 'ironic', not toy"),
        (written(dialect=None), "about the dialect 'None'"),
        (written(scheme="major.minor"), "no list of texts"),
        (written(scheme=[["major.minor"]]), "no list of texts"),
        (written(scheme=["date", True]), "another scheme, 'date True'"),
        (written(seq=0), "its seq is '0'"),
        (written(seq=1.0), "its seq is '1.0'"),
        (written(seq=True), "its seq is 'True'"),
        (written(seq=2**53), "its seq is"),
        (written(rule=""), "its rule is"),
        (written(rule="x" * 65), "its rule is"),
        (written(rule="a\nb"), "its rule is"),
        (written(rule=None), "its rule is"),
        (written(state={"1.1": "1.9"}), "`state` is no list"),
        (written(state=["1.1"]), "'1.1' in place of a range"),
        (written(state=[["1.1"]]), "in place of a range"),
        (written(state=[["1.9", "1.1"]]), "does not run upwards"),
        (written(state=[["1.1", "2.3"]]), "inside one major"),
        (written(state=[["1.1", "1.03"]]), "'1.03' in `state` is not a version"),
        (written(state=[["1.1", 1.9]]), "'1.9' in `state` is not a version"),
        (written(state=[["1.1", "1.3"], ["1.5", "1.9"]]), "has a gap"),
        (written(offered=[["1.1", "1.1"], ["1.3", "1.3"]]), "has a gap"),
        (written(offered=[["1.1", "1.6"]]), "`offered` is not in `accepted`"),
        (written(accepted=[["1.1", "1.20"]]), "`accepted` not in `open`"),
        (written(open=[["1.1", "1.1"]] * (MAX_ITEMS + 1)), f"at most {MAX_ITEMS} items"),
    ],
)
def test_nonsense_is_refused_as_a_whole(value: object, reason: str) -> None:
    with pytest.raises(UnreadableRecord) as caught:
        read_record(value, "toy", XY)

    assert reason in str(caught.value)


def test_a_foreign_text_in_a_message_is_short_and_printable() -> None:
    with pytest.raises(UnreadableRecord) as caught:
        read_record(written(dialect="\x1b[2J" + "x" * 100_000), "toy", XY)

    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


_NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(key=st.sampled_from(sorted(written())), value=_NONSENSE)
def test_any_value_in_any_key_is_read_or_refused(key: str, value: object) -> None:
    try:
        found = read_record(written(**{key: value}), "toy", XY)
    except UnreadableRecord:
        return
    assert found.offered <= found.accepted <= found.open


def with_names(*names: str, scheme: Named, key: tuple[object, ...] = ()) -> AgreedRecord:
    all_of_them = named(*names, scheme=scheme)
    return AgreedRecord(3, "guaranteed", all_of_them, all_of_them, all_of_them, all_of_them, key)


def test_a_scheme_that_has_only_gained_names_is_the_same() -> None:
    value = write_record(with_names("v1beta1", "v1", scheme=NAMES), "toy", NAMES)

    found = read_record(value, "toy", MORE_NAMES)

    assert found.state == named("v1beta1", "v1", scheme=MORE_NAMES)


def test_it_goes_on_being_written_in_the_scheme_with_fewer_names_until_a_new_one_is_in_it() -> None:
    """So a replica whose configuration has not gained the names yet can follow."""
    value = write_record(with_names("v1beta1", "v1", scheme=NAMES), "toy", NAMES)
    found = read_record(value, "toy", MORE_NAMES)
    later = with_names("v1", "v2", scheme=MORE_NAMES, key=found.scheme_key)

    assert read_record(write_record(found, "toy", MORE_NAMES), "toy", NAMES).state == named("v1beta1", "v1")
    with pytest.raises(UnreadableRecord):
        read_record(write_record(later, "toy", MORE_NAMES), "toy", NAMES)


def test_a_name_that_the_writing_scheme_lacks_is_nonsense() -> None:
    value = write_record(with_names("v1", scheme=NAMES), "toy", NAMES)

    with pytest.raises(UnreadableRecord):
        read_record({**value, "open": ["v1", "v2"]}, "toy", MORE_NAMES)


@pytest.mark.parametrize(
    "forms, form",
    [([[1]], 1), ([[1], [1, 2]], 1), ([[1, 2], [2]], 2), ([[1], [2]], None), ([[3]], None), ([], None)],
)
def test_a_writer_uses_the_lowest_form_that_all_read(forms: list[list[int]], form: int | None) -> None:
    assert form_for_all(forms) == form


def test_a_form_that_this_release_does_not_know_is_not_written() -> None:
    with pytest.raises(ValueError, match="form 3"):
        write_record(EXAMPLE, "toy", XY, FLOOR_FORM + 1)


@pytest.mark.parametrize("forms, form", [([[1, 2], [1, 2, 3]], 2), ([[1], [1, 2]], None), ([[3]], None)])
def test_while_a_floor_holds_the_form_is_one_that_all_read(forms: list[list[int]], form: int | None) -> None:
    assert form_for_all(forms, FLOOR_FORM) == form


def test_a_record_is_the_same_in_both_forms() -> None:
    for form in (FORM, FLOOR_FORM):
        assert read_record(write_record(EXAMPLE, "toy", XY, form), "toy", XY) == read_record(
            write_record(EXAMPLE, "toy", XY), "toy", XY
        )


@pytest.mark.parametrize(
    "minor, expected",
    [(3, Level.OFFERED), (5, Level.ACCEPTED), (9, Level.UNDECIDED), (10, Level.REFUSED)],
)
def test_the_sets_are_levels(minor: int, expected: Level) -> None:
    assert level(EXAMPLE, Version(1, minor)) is expected


def test_without_anything_on_offer_nothing_is_decided() -> None:
    nothing = AgreedRecord(4, "guaranteed", NO_VERSIONS, NO_VERSIONS, NO_VERSIONS, NO_VERSIONS)
    falling = AgreedRecord(4, "guaranteed", NO_VERSIONS, NO_VERSIONS, NO_VERSIONS, upto(1))

    assert level(None, Version(1, 1)) is level(nothing, Version(1, 1)) is Level.UNDECIDED
    assert level(falling, Version(1, 1)) is Level.UNDECIDED
    assert level(falling, Version(1, 2)) is Level.REFUSED


@given(first=st.integers(1, 9), last=st.integers(1, 9))
def test_a_range_is_read_as_it_stands(first: int, last: int) -> None:
    value = [[f"1.{first}", f"1.{last}"]]
    if first > last:
        with pytest.raises(UnreadableRecord):
            read_record(written(state=value), "toy", XY)
    else:
        found = read_record(written(state=value), "toy", XY)
        assert found.state.ranges == (VersionRange(Version(1, first), Version(1, last)),)
