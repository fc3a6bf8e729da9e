"""Every kept input keeps the properties of its target, in every run."""

from __future__ import annotations

import pytest

from tests.fuzz import targets

LARGEST = 4096
"""Bytes of a kept input: small ones show what they are about, and are changed to something near."""


@pytest.mark.parametrize("name", targets.NAMES)
def test_every_kept_input_keeps_the_properties(name: str) -> None:
    target = targets.target(name)
    for path in targets.corpus(name):
        try:
            target(path.read_bytes())
        except Exception as error:
            error.add_note(f"the input is {path}")
            raise


@pytest.mark.parametrize("name", targets.NAMES)
@pytest.mark.parametrize("data", [b"", b"\0", b"\r\n\r\n", b"\xff" * 100], ids=repr)
def test_what_is_no_such_input_is_one_too(name: str, data: bytes) -> None:
    targets.target(name)(data)


def test_every_target_has_a_corpus_of_small_inputs_and_nothing_else_is_kept() -> None:
    assert {folder.name for folder in targets.CORPUS.iterdir()} == set(targets.NAMES)
    for name in targets.NAMES:
        inputs = targets.corpus(name)
        assert len(inputs) >= 10
        assert all(path.stat().st_size <= LARGEST for path in inputs)
