"""Mutated heads and made-up programs for the matcher in C, in a process that test_matcher starts:

python -m tests.fuzz.matcher FILE SECONDS      FILE: the module, compiled with the sanitizers
"""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path
from time import monotonic

from gateway.core.http.patterns import MANY, MARK, Step
from gateway.errors import FramingError
from tests.dataplane.damages import PIECES
from tests.dataplane.matcher_in_c import Both, load_matcher, mutated
from tests.dataplane.test_layout_matcher import layouts_of


def made_up_step(chance: random.Random) -> Step:
    size = chance.choice((0, 1, 9, 255, 256, 257))
    bounds = (0, 1, 5, MANY, -1)
    return (
        chance.randrange(-1, MARK + 2),
        chance.randbytes(size),
        chance.choice(bounds),
        chance.choice(bounds),
    )


def main(file: Path, seconds: float) -> None:
    module, chance, number = load_matcher(file), random.Random(1), 0
    both = Both(module)
    layouts = layouts_of(both)
    end = monotonic() + seconds
    while monotonic() < end:
        head, read = chance.choice(layouts)
        data = mutated(head, PIECES, chance)
        with contextlib.suppress(FramingError):  # of a target
            read(data)
        with contextlib.suppress(TypeError, ValueError):  # no such program
            program = tuple(made_up_step(chance) for _ in range(chance.randrange(5)))
            groups = tuple(chance.randbytes(chance.randrange(3)) for _ in range(chance.randrange(5)))
            module.Matcher(program, groups, groups).match(data)
        number += 1
    print(f"{number} heads, {both.matched} matched")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
