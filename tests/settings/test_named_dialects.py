"""A file is read with the dialects that it names, and says the same as with all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.dialects import discover
from gateway.settings import load
from gateway.settings.load import named_dialects
from gateway.settings.yaml.tree import child, read_tree
from tests.kit.processes import ROOT

HEAD = "listen: 127.0.0.1:8080\nservices:\n  a:\n    backends: [{url: 'http://127.0.0.1:1'}]\n"
FILES = sorted(
    path for path in (ROOT / "config").rglob("*.yaml") if "services:" in path.read_text(encoding="utf-8")
)
MISTAKES = {
    "none": "    dialect: ironic\n",
    "options of its own": "    dialect: openstack\n    openstack: {service_type: placement}\n",
    "options of another": "    dialect: ironic\n    custom: {version: {}}\n",
    "wrong options of another": "    dialect: ironic\n    chef: {nonsense: 1}\n",
    "an unknown one": "    dialect: irnic\n",
    "a module that is none": "    dialect: microversion\n",
    "no dialect": "",
    "a dialect that is no text": "    dialect: [ironic]\n",
    "an empty one": "    dialect: ''\n",
    "an unset one": "    dialect: ${NO_SUCH_VARIABLE}\n",
    "a misspelt key": "    dialect: ironic\n    ironc: {}\n",
    "a misspelt `dialect`": "    dialct: ironic\n",
    "a key of another place": "    dialect: ironic\n    spelling: 1\n",
    "a key of a dialect at the top": "    dialect: ironic\nironic: {}\ncustom: {}\n",
    "wrong shapes": "    dialect: ironic\n    ironic: []\n    offer: 1\n  b: []\n  c:\n",
}
"""By what is wrong: the rest of a service, and of the file."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_read_as_with_all(path: Path) -> None:
    same(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("rest", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_told_as_with_all(rest: str) -> None:
    same(HEAD + rest, "gateway.yaml")


def same(text: str, filename: str) -> None:
    named = load(text, filename=filename, environ=os.environ)
    known = load(text, filename=filename, environ=os.environ, dialects=discover())
    assert named.problems == known.problems
    assert repr(named.settings) == repr(known.settings)


@pytest.mark.parametrize(
    "services, names",
    [
        ("{}", set()),
        ("{a: {dialect: ironic}}", {"ironic"}),
        ("{a: {dialect: ironic}, b: {dialect: chef, openstack: {}}}", {"ironic", "chef", "openstack"}),
        ("{a: {dialect: ironic}, b: {dialect: nonsense}}", set(discover())),
        ("{a: {dialect: ironic, retry: {}}}", {"ironic"}),
        ("{a: {dialect: ironic, nonsense: {}}}", set(discover())),
        ("{a: {}}", set(discover())),
    ],
)
def test_all_are_known_only_where_something_is_named_that_is_none(services: str, names: set[str]) -> None:
    root, _ = read_tree(f"services: {services}", {})
    assert set(named_dialects(child(root, "services"))) == names
