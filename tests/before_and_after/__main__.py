"""Compares an old and a new checkout of the project by what outsiders see of them.

    python -m tests.before_and_after OLD_CHECKOUT [NEW_CHECKOUT] [--files 3000] [--seed 1] [--only settings,…]

settings   `skewgate schema`, the reference page, and all problems of thousands of wrong configurations
traffic    `/metrics` in all forms, `/status` and every response of real gateways under recorded traffic

Each checkout needs its own `.venv`. NEW_CHECKOUT: the one of this script. Both run as processes; nothing of
them is imported here. Exit code 0: they are equal; 1: they are not, and what differs is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.before_and_after import configurations, scrapes
from tests.before_and_after.checkout import Checkout
from tests.before_and_after.report import Report

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = ("settings", "traffic")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.before_and_after", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--files", type=int, default=3000, help="wrong configurations")
    parser.add_argument("--seed", type=int, default=1, help="of the wrong configurations")
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    old, new = Checkout("old", arguments.old.resolve()), Checkout("new", arguments.new.resolve())
    report = Report()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="before-and-after-") as folder:
        if "settings" in parts:
            place = Path(folder, "settings")
            place.mkdir(mode=0o700)
            configurations.compare(old, new, place, report, files=arguments.files, seed=arguments.seed)
        if "traffic" in parts:
            place = Path(folder, "traffic")
            place.mkdir(mode=0o700)
            scrapes.compare(old, new, place, report)
    report.say(f"{'equal' if report.equal else 'DIFFERENT'} after {time.monotonic() - began:.0f} s")
    return 0 if report.equal else 1


if __name__ == "__main__":
    sys.exit(main())
