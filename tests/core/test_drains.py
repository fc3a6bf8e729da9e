"""When a drain, or its end, is refused: for a name that another one has given, or for versions on offer."""

from __future__ import annotations

import pytest

from gateway.core.fleet.drains import refusal
from gateway.core.fleet.fleet import Drain
from tests.core.builders import snapshot, upto

ALL = {"a": upto(5), "b": upto(5), "c": upto(5)}


@pytest.mark.parametrize(
    "drained, command, reason",
    [
        ({}, Drain("a", by="roll 1"), None),
        ({"a": "roll 1"}, Drain("a", by="roll 1"), None),
        ({"a": "roll 2"}, Drain("a", by="roll 1"), "roll 2 has drained a"),
        ({"a": ""}, Drain("a", by="roll 1"), "somebody else has drained a"),
        ({"b": ""}, Drain("a", by="roll 1"), None),
        ({"b": "roll 2"}, Drain("a", by="roll 1"), "roll 2 has drained b"),
        ({"b": "ann"}, Drain("a", by="roll 1"), None),
        ({"a": "ann"}, Drain("a", by="roll 1"), "ann has drained a"),
        ({"b": "roll 2"}, Drain("a", by="ann"), "roll 2 has drained b"),
        ({"b": "bob"}, Drain("a", by="ann"), "bob has drained b"),
        ({"a": "roll 2"}, Drain("a"), None),
        ({"a": "roll 2"}, Drain("a", drained=False, by="roll 1"), "roll 2 has drained a"),
        ({"b": "roll 2"}, Drain("a", drained=False, by="roll 1"), None),
        ({"a": "roll 2"}, Drain("a", drained=False), None),
    ],
)
def test_a_name_keeps_others_with_a_name_away(
    drained: dict[str, str], command: Drain, reason: str | None
) -> None:
    """An operator who gives none takes over. A roll leaves out what one who does not roll has drained."""
    assert refusal(snapshot(ALL).views["toy"], drained, command) == reason


@pytest.mark.parametrize(
    "drained, served, is_refused",
    [("", True, False), ("b", True, False), ("bc", True, True), ("bc", False, False), ("abc", True, False)],
)
def test_the_last_that_serves_a_version_is_refused_only_if_asked(
    drained: str, served: bool, is_refused: bool
) -> None:
    reason = refusal(snapshot(ALL).views["toy"], dict.fromkeys(drained, ""), Drain("a", served=served))
    assert (reason == "no other backend that is up and in service serves 1.1-1.5") is is_refused
