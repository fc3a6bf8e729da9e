"""Where clients sign the path, a configuration that would change the path is refused."""

from __future__ import annotations

import pytest

from gateway.core.dialect import ConfigurationRules
from gateway.settings import load
from tests.settings.dialects import Plain


class Signed(Plain):
    """A dialect whose clients sign the path."""

    name = "signed"
    configuration_rules = ConfigurationRules(path_is_signed=True)


DIALECTS = {"plain": Plain, "signed": Signed}
BASE = """\
listen: 127.0.0.1:8080
services:
  api:
    dialect: signed
    match: {}
    backends:
      - url: http://127.0.0.1:4000
"""


def problems(text: str) -> list[tuple[str, int, int]]:
    found = load(text, filename="x.yaml", environ={}, dialects=DIALECTS).problems
    return [(problem.code, problem.line, problem.column) for problem in found]


@pytest.mark.parametrize(
    "match, found",
    [
        ("{}", []),
        ("{path: /}", []),
        ("{host: chef.example}", []),
        ("{path: /organizations/acme, strip_prefix: false}", []),
        ("{path: /chef}", [("contradiction", 5, 19)]),
        ("{path: /chef, strip_prefix: true}", [("contradiction", 5, 40)]),
    ],
)
def test_a_prefix_that_would_be_removed_from_a_signed_path(
    match: str, found: list[tuple[str, int, int]]
) -> None:
    assert problems(BASE.replace("match: {}", f"match: {match}")) == found


@pytest.mark.parametrize("path, found", [("/", []), ("/chef", [("contradiction", 7, 14)])])
def test_a_base_path_that_would_be_added_to_a_signed_path(
    path: str, found: list[tuple[str, int, int]]
) -> None:
    assert problems(BASE.replace(":4000", f":4000{path}")) == found


def test_paths_without_a_signature_may_be_changed() -> None:
    text = BASE.replace("dialect: signed", "dialect: plain").replace(":4000", ":4000/base")

    assert problems(text.replace("match: {}", "match: {path: /api}")) == []
