"""Dialects are found by file and folder (decision 0020). What breaks the rules of that is an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway import dialects

EXAMPLE = """
from gateway.dialects.openstack.ironic import Ironic

class Example(Ironic):
    name = "example"
"""
MORE_THAN_ONE = EXAMPLE + "\nclass Other(Ironic):\n    name = 'example'\n"
WITH_ANOTHER_NAME = EXAMPLE.replace('"example"', '"other"')
USED_NAME = EXAMPLE.replace('"example"', '"ironic"')
IMPORTED_ONLY = "from gateway.dialects.openstack.ironic import Ironic\n"
ABSTRACT = """
from gateway.core.dialect import Dialect

class Example(Dialect):
    name = "example"
"""
PRIVATE = EXAMPLE.replace("class Example", "class _Example")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Another folder of the package; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(dialects, "__path__", [*dialects.__path__, str(tmp_path)])
    yield tmp_path
    for name in [
        name
        for name in sys.modules
        if name.startswith(("gateway.dialects.example", "gateway.dialects.ironic"))
    ]:
        del sys.modules[name]
    for name in ("example", "ironic"):
        vars(dialects).pop(name, None)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "gateway.dialects.example defines no dialect"),
        (IMPORTED_ONLY, "gateway.dialects.example defines no dialect"),
        (PRIVATE, "gateway.dialects.example defines no dialect"),
        (ABSTRACT, "gateway.dialects.example defines no dialect"),
        (MORE_THAN_ONE, "gateway.dialects.example defines more than one dialect"),
        (WITH_ANOTHER_NAME, "must be named after the module or the folder"),
    ],
)
def test_a_file_that_is_not_one_dialect_of_its_own_name_is_refused(
    folder: Path, text: str, reason: str
) -> None:
    (folder / "example.py").write_text(text)

    with pytest.raises(TypeError, match=reason.replace(".", r"\.")):
        dialects.discover.__wrapped__()


def test_a_name_that_another_dialect_has_is_refused(folder: Path) -> None:
    (folder / "ironic.py").write_text(USED_NAME)

    with pytest.raises(TypeError, match="two dialects are named 'ironic'"):
        dialects.discover.__wrapped__()


def test_a_new_file_is_a_new_dialect(folder: Path) -> None:
    (folder / "example.py").write_text(EXAMPLE)

    found = dialects.discover.__wrapped__()

    assert set(found) == {*dialects.discover(), "example"}
    assert found["example"].name == "example"


def test_a_folder_has_several_dialects_and_its_other_modules_are_shared_code(folder: Path) -> None:
    family = folder / "example"
    family.mkdir()
    for name, text in {
        "__init__": "",
        "shared": "X = 1\n",
        "dialect": EXAMPLE,
        "other": WITH_ANOTHER_NAME,
    }.items():
        (family / f"{name}.py").write_text(text)

    found = dialects.discover.__wrapped__()

    assert set(found) == {*dialects.discover(), "example", "other"}


def test_a_folder_without_a_dialect_is_refused(folder: Path) -> None:
    (folder / "example").mkdir()
    (folder / "example" / "__init__.py").write_text("")

    with pytest.raises(TypeError, match="example defines no dialect"):
        dialects.discover.__wrapped__()


def test_each_is_found_by_its_name_as_by_looking_at_all() -> None:
    for name, dialect in dialects.discover().items():
        assert dialects.find(name) is dialect


@pytest.mark.parametrize("name", ["", "microversion", "documents", "no_such", "gateway", "openstack.ironic"])
def test_what_is_no_name_of_a_dialect_finds_none(name: str) -> None:
    assert dialects.find(name) is None


def test_only_modules_that_may_define_it_are_imported(folder: Path) -> None:
    (folder / "example.py").write_text(EXAMPLE)
    (folder / "another.py").write_text("raise AssertionError('imported')")
    family = folder / "family"
    family.mkdir()
    (family / "__init__.py").write_text("")
    (family / "one.py").write_text("raise AssertionError('imported')")

    found = dialects.find("example")

    assert found is not None
    assert found.name == "example"


def test_a_dialect_that_is_named_neither_after_its_module_nor_its_folder_is_not_found(folder: Path) -> None:
    (folder / "example.py").write_text(WITH_ANOTHER_NAME)

    assert dialects.find("other") is None
    with pytest.raises(TypeError, match="must be named after the module or the folder"):
        dialects.find("example")
