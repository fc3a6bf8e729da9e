"""`services.NAME.legacy`."""

from __future__ import annotations

import pytest

from gateway.settings import load
from tests.settings.texts import BASE, load_text


def test_by_default_legacy_backends_alone_are_transparent() -> None:
    (service,) = load_text(BASE).require().services

    assert not service.negotiates_legacy


@pytest.mark.parametrize("written, refuses", [("transparent", False), ("refuse", True)])
def test_its_two_words(written: str, refuses: bool) -> None:
    (service,) = load_text(f"{BASE}    legacy: {written}\n").require().services

    assert service.negotiates_legacy is refuses


@pytest.mark.parametrize(
    "written, code", [("refused", "bad-value"), ("true", "bad-value"), ("[]", "wrong-type")]
)
def test_another_word_is_an_error_at_its_place(written: str, code: str) -> None:
    (problem,) = load_text(f"{BASE}    legacy: {written}\n").problems

    assert (problem.code, problem.line, problem.column) == (code, 7, 13)


@pytest.mark.parametrize(
    "dialect",
    ["dialect: nova", "dialect: openstack\n    openstack: {service_type: volume}", "dialect: custom"],
)
def test_a_dialect_whose_legacy_backends_count_as_no_version_cannot_refuse(dialect: str) -> None:
    custom = "\n    custom: {scheme: major.minor, header: {name: V}}" if "custom" in dialect else ""
    text = BASE.replace("dialect: plain", dialect + custom)
    loaded = load(f"{text}    legacy: refuse\n", filename="x", environ={})
    problems = [each for each in loaded.problems if "legacy" in each.message]

    assert [(each.code, each.hint) for each in problems] == [("contradiction", "remove this key")]
    assert problems[0].column == 13
    assert "count as no version" in problems[0].message
