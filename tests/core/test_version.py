"""A version is a tuple of integers: read strictly, and written in one spelling."""

# ruff: noqa: N802 -- ids of examples and attacks are written with capitals

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.versions.version import (
    CalendarDate,
    MajorMinor,
    Named,
    Scheme,
    Semantic,
    Version,
    WholeNumber,
)
from gateway.errors import VersionTextError

SCHEMES: tuple[Scheme, ...] = (
    MajorMinor(),
    WholeNumber(),
    Semantic(),
    CalendarDate(),
    CalendarDate(day=False),
    Named(("v1alpha1", "v1beta1", "v1")),
)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_version_survives_pickling_and_copying(protocol: int) -> None:
    for version in (Version(), Version(2), Version(1, 31), Version(2024, 1, 31)):
        found = pickle.loads(pickle.dumps(version, protocol))  # noqa: S301 - our own text
        for same in (found, copy.copy(version), copy.deepcopy(version)):
            assert same == version
            assert type(same) is Version
            assert repr(same) == repr(version)


def test_versions_are_ordered_as_integers_and_not_as_decimals() -> None:
    assert Version(1, 10) > Version(1, 9)
    assert sorted([Version(2, 0), Version(1, 10), Version(1, 2)]) == [
        Version(1, 2),
        Version(1, 10),
        Version(2, 0),
    ]


def test_the_last_part_counts_and_the_others_are_the_major() -> None:
    assert (Version(1, 31).major, Version(1, 31).minor) == ((1,), 31)
    assert (Version(2).major, Version(2).minor) == ((), 2)
    assert Version(1, 31).step(-1) == Version(1, 30)


def test_equal_versions_are_one_key() -> None:
    assert len({Version(1, 1), Version(1, 1)}) == 1
    assert repr(Version(1, 31)) == "Version(1, 31)"


@pytest.mark.parametrize(
    "scheme,text,version",
    [
        (MajorMinor(), "1.31", Version(1, 31)),
        (MajorMinor(), "0.0", Version(0, 0)),
        (MajorMinor(), "999999.999999", Version(999999, 999999)),
        (WholeNumber(), "0", Version(0)),
        (WholeNumber(), "22", Version(22)),
        (Semantic(), "0.10.2", Version(0, 10, 2)),
        (CalendarDate(), "2024-02-29", Version(2024, 2, 29)),
        (CalendarDate(day=False), "2024-01", Version(2024, 1)),
        (Named(("v1beta1", "v1")), "v1", Version(1)),
    ],
)
def test_a_canonical_text_is_read_and_written_back(scheme: Scheme, text: str, version: Version) -> None:
    assert scheme.parse(text) == version
    assert scheme.require(text) == version
    assert scheme.format(version) == text


LAX_NUMBERS = [
    "",
    " ",
    "+1",
    "-1",
    "01",
    "1 ",
    " 1",
    "1_0",
    "1e3",
    "1000000",
    "NaN",
    "latest",
    "\u0661",
    "\uff11",
    "1\n",
]


@pytest.mark.parametrize("text", [*LAX_NUMBERS, "1.5", "0x1"])
def test_V6_a_lax_whole_number_is_no_version(text: str) -> None:
    assert WholeNumber().parse(text) is None


@pytest.mark.parametrize("text", [*LAX_NUMBERS, "1", "1.", ".1", "1.2.3", "1,2", "latest\n", "1" * 10_000])
def test_V6_a_lax_microversion_is_no_version(text: str) -> None:
    assert MajorMinor().parse(text) is None


@pytest.mark.parametrize("part", LAX_NUMBERS)
def test_V6_either_part_of_a_microversion_is_strict(part: str) -> None:
    assert MajorMinor().parse(f"{part}.1") is None
    assert MajorMinor().parse(f"1.{part}") is None


@pytest.mark.parametrize(
    "text",
    [
        "2024-1-31",
        "2024-02-30",
        "2024-13-01",
        "0000-01-01",
        "2024-01",
        "24-01-31",
        "2024-01-31 ",
        "\uff12024-01-31",
    ],
)
def test_a_text_that_is_no_day_of_the_calendar_is_no_date(text: str) -> None:
    assert CalendarDate().parse(text) is None


@pytest.mark.parametrize("text", ["2024-00", "2024-13", "2024", "2024-01-01", "0000-01"])
def test_a_text_that_is_no_month_is_no_month_date(text: str) -> None:
    assert CalendarDate(day=False).parse(text) is None


@pytest.mark.parametrize(
    "text", [*LAX_NUMBERS, "1", "1.2", "1.2.3.4", "01.2.3", "1.2.03", "v1.2.3", "1.2.3-rc.1", "1.2.3+build"]
)
def test_a_text_that_is_no_release_of_semver_is_no_version(text: str) -> None:
    assert Semantic().parse(text) is None


def test_semver_is_ordered_part_by_part() -> None:
    scheme = Semantic()
    ordered = ["0.9.10", "1.0.0", "1.2.9", "1.2.10", "1.10.0", "2.0.0"]

    assert [scheme.format(each) for each in sorted(map(scheme.require, reversed(ordered)))] == ordered


def test_names_are_ordered_as_declared_and_match_exactly() -> None:
    scheme = Named(("v1alpha1", "v1beta1", "v1"))

    alpha, beta, stable = (scheme.require(name) for name in scheme.names)
    assert alpha < beta < stable
    assert scheme.parse("V1") is None
    assert scheme.parse("v2") is None


@pytest.mark.parametrize("names", [(), ("v1", "v1")])
def test_a_named_scheme_needs_names_that_differ(names: tuple[str, ...]) -> None:
    with pytest.raises(VersionTextError, match="each once"):
        Named(names)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: f"{scheme.name}:{scheme.example}")
def test_an_error_for_an_operator_has_an_example_that_works(scheme: Scheme) -> None:
    with pytest.raises(VersionTextError, match=scheme.example):
        scheme.require("nonsense")
    assert scheme.parse(scheme.example) is not None


def test_only_numbers_are_shown_as_unbroken_ranges() -> None:
    assert {scheme.name: scheme.contiguous for scheme in SCHEMES} == {
        "major.minor": True,
        "integer": True,
        "semver": False,
        "date": False,
        "named": False,
    }


@given(st.text() | st.from_regex(r"\A[0-9.+_ -]{0,12}\Z"), st.sampled_from(SCHEMES))
def test_whatever_is_read_has_one_spelling(text: str, scheme: Scheme) -> None:
    """So no two texts are one version, and a gateway and a backend cannot read one differently."""
    version = scheme.parse(text)

    assert version is None or scheme.format(version) == text


@given(st.integers(0, 999_999), st.integers(0, 999_999))
def test_every_microversion_survives_the_round_trip(major: int, minor: int) -> None:
    scheme = MajorMinor()

    assert scheme.parse(scheme.format(Version(major, minor))) == Version(major, minor)
