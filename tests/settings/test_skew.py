"""`skew` of a service: whose releases have an order, and whose need one."""

from __future__ import annotations

import pytest

from gateway.core.fleet.skew import Skew
from gateway.settings import load
from gateway.settings.yaml.problem import Problem
from tests.settings.texts import BASE


def problems_of(dialect: str, more: str = "") -> list[Problem]:
    text = BASE.replace("dialect: plain", f"dialect: {dialect}") + f"    skew: {{releases: 1}}\n{more}"
    return list(load(text, filename="x", environ={}).problems)


@pytest.mark.parametrize("dialect", ["ironic", "nova", "senlin"])
def test_openstack_has_an_order_of_its_own(dialect: str) -> None:
    assert problems_of(dialect) == []


@pytest.mark.parametrize("releases", ["", "    releases: {'12.19': 2}\n"])
def test_others_need_two_releases(releases: str) -> None:
    [problem] = problems_of("chef", releases)

    assert (problem.code, problem.line, problem.column) == ("contradiction", 7, 11)
    assert problem.message == "the order of releases is not known: fewer than two have a highest version"
    assert problem.hint == "add `releases: {NAME: VERSION, ...}`"
    assert problems_of("chef", "    releases: {'12.0': 0, '12.19': 2}\n") == []


def test_an_openstack_service_without_a_table_needs_openstacks_names() -> None:
    service = "openstack\n    openstack: {service_type: dns}"
    assert problems_of(service, "    releases: {ours: '1.0', theirs: '1.2'}\n") != []
    assert problems_of(service, "    releases: {zed: '1.0', '2023.1': '1.2'}\n") == []


def test_one_step_is_the_default() -> None:
    text = BASE.replace("dialect: plain", "dialect: ironic") + "    skew: {}\n"
    (service,) = load(text, filename="x", environ={}).require().services
    assert service.skew == Skew(1)
