"""`skewgate reload`: a running gateway reads its file anew.

Applied, or the reasons are printed and the old configuration stays. The file is the gateway's own, not ours.
"""

from __future__ import annotations

import argparse

from gateway.cli import asking

HELP = "make a running gateway read its configuration anew"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Where to ask."""
    asking.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Ask once. Raises `AdminError` when it was refused or nobody answers."""
    state = asking.find(options).document("POST", "/-/reload")
    generation = state.get("generation")
    print("reloaded" if generation is None else f"reloaded: generation {generation} is in force")
    return 0
