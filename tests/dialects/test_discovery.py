"""Dialects are found by folder (decision 0009): what is not one of its own name is told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import dialects

MORE_THAN_ONE = """
from gateway.dialects.ironic import Ironic

class One(Ironic):
    name = "stray"

class Two(Ironic):
    name = "stray"
"""
OF_ANOTHER_NAME = """
from gateway.dialects.ironic import Ironic

class Stray(Ironic):
    name = "straw"
"""
IMPORTED_ONLY = "from gateway.dialects.ironic import Ironic\n"
RIGHT = OF_ANOTHER_NAME.replace("straw", "stray")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another folder of the package; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(dialects, "__path__", [*dialects.__path__, str(tmp_path)])
    yield tmp_path
    del sys.modules["gateway.dialects.stray"], dialects.stray  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["", IMPORTED_ONLY, MORE_THAN_ONE, OF_ANOTHER_NAME])
def test_a_file_that_is_not_one_dialect_of_its_own_name_is_told(folder: Path, text: str) -> None:
    (folder / "stray.py").write_text(text)

    with pytest.raises(TypeError, match=r"gateway\.dialects\.stray must define exactly one dialect"):
        dialects.discover.__wrapped__()


def test_a_new_file_is_a_new_dialect_and_a_brick_is_none(folder: Path) -> None:
    (folder / "stray.py").write_text(RIGHT)
    (folder / "_brick.py").write_text("")

    found = dialects.discover.__wrapped__()

    assert set(found) == {*dialects.discover(), "stray"}
    assert found["stray"].name == "stray"
