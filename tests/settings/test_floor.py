"""`offer.floor` in front of APIs whose oldest clients name no version."""

from __future__ import annotations

import pytest

from gateway.core.versions.version import Version
from gateway.settings import load
from gateway.settings.yaml.problem import Problem
from tests.settings.texts import BASE

WRITTEN_FOR = [("ironic", "1.1"), ("nova", "2.1"), ("senlin", "1.0"), ("chef", "0")]


def problems_of(dialect: str, offer: str, more: str = "") -> list[Problem]:
    text = BASE.replace("dialect: plain", f"dialect: {dialect}") + f"    offer: {offer}\n{more}"
    return list(load(text, filename="x", environ={}).problems)


@pytest.mark.parametrize("dialect, oldest", WRITTEN_FOR)
def test_the_version_of_clients_that_name_none_is_no_problem(dialect: str, oldest: str) -> None:
    assert problems_of(dialect, f"{{floor: '{oldest}'}}") == []


@pytest.mark.parametrize("dialect, oldest", WRITTEN_FOR)
def test_above_it_a_rule_for_them_is_asked_for(dialect: str, oldest: str) -> None:
    higher = "1" if dialect == "chef" else f"{oldest[0]}.9"
    [problem] = problems_of(dialect, f"{{floor: '{higher}'}}")

    assert (problem.code, problem.column) == ("contradiction", 20)
    assert problem.message == f"clients that name no version rely on {oldest}, which is beneath"
    assert (problem.hint or "").endswith(f'or a version: "{higher}"')
    for rule in ("minimum", "refused", f"'{higher}'"):
        assert problems_of(dialect, f"{{floor: '{higher}'}}", f"    default_version: {rule}\n") == []


def test_the_service_has_the_floor() -> None:
    text = BASE.replace("plain", "ironic") + "    offer: {floor: '1.5'}\n    default_version: minimum\n"
    (service,) = load(text, filename="x", environ={}).require().services

    assert service.floor == Version(1, 5)
