"""The wrong configurations are the same for the same seed, and they reach many messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.settings import load, schema_text
from tests.architecture.source import ROOT
from tests.before_and_after.configurations import templates_of
from tests.before_and_after.files import cases, write_cases
from tests.before_and_after.material import WHOLE, Material, material_of, write_files
from tests.before_and_after.read_files import result

NUMBER = 200


@pytest.fixture(scope="module")
def material() -> Material:
    return material_of(ROOT, schema_text())


def test_the_file_with_every_key_has_no_mistake(material: Material, tmp_path: Path) -> None:
    write_files(tmp_path)

    loaded = load(
        WHOLE.read_text(encoding="utf-8"), filename=str(tmp_path / "x.yaml"), environ=material.variables
    )

    assert not loaded.errors, loaded.render()


def test_more_cases_of_a_seed_begin_with_the_same_ones(material: Material) -> None:
    found = list(cases(material, 7, NUMBER))

    assert found[:20] == list(cases(material_of(ROOT, schema_text()), 7, 20))
    assert found[:20] != list(cases(material, 8, 20))
    assert len({case.text for case in found}) > NUMBER * 0.9


def test_they_reach_many_messages_and_some_can_be_used(material: Material, tmp_path: Path) -> None:
    write_files(tmp_path)

    results = [
        result(json.loads(json.dumps(case))) for case in write_cases(tmp_path, cases(material, 7, NUMBER))
    ]

    templates = templates_of(problem for each in results for problem in each["problems"])
    assert len(templates) > 150
    assert sum(each["usable"] for each in results) > 10
    assert all(bool(each["facts"]) == each["usable"] for each in results)
