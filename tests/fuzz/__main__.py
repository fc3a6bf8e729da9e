"""One time-boxed run of one target: `python -m tests.fuzz TARGET --seconds N`.

    python -m tests.fuzz requests --seconds 600      search for ten minutes
    python -m tests.fuzz requests FILE...            only these inputs

It begins with the kept inputs and changes them. With atheris (Linux on x86-64) it is guided by the lines of
the gateway that an input reaches, otherwise hypothesis changes them without guidance. An input that breaks a
property is written to `--findings` (default: the folder `findings` in the current one), and the exit code is
not 0. Move it to the target's folder in `tests/fuzz/corpus/` once it is understood: from then on every run of
`./test` tries it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.fuzz import targets

LONGEST: Final = 8192
"""Bytes of an input. What needs more is tested elsewhere, by sizes at the limits."""
LONGEST_WORD: Final = 40
SLOWEST: Final = 10
"""Seconds for one input."""


def known_words() -> tuple[bytes, ...]:
    """What is put into inputs besides their own pieces. Imported late: atheris instruments imports."""
    from tests.dataplane.damages import PIECES

    others = (b"chunked", b"Upgrade", b"h2c", b"1.58", b"latest", b"OpenStack-API-Version: ", b"\r\n\r\n")
    return (*(piece for piece in PIECES if len(piece) <= LONGEST_WORD), *others)


def as_text(word: bytes) -> str:
    """A line of a dictionary of libFuzzer."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n'


def with_atheris(name: str, seconds: int, seed: int, findings: Path) -> None:
    """Ends the process."""
    import atheris

    with atheris.instrument_imports(include=["gateway"]):
        target = targets.target(name)
        target(b"")  # some modules are imported later
    with tempfile.TemporaryDirectory() as found, tempfile.NamedTemporaryFile("w") as words:
        words.writelines(as_text(word) for word in known_words())
        words.flush()
        options = (
            f"-dict={words.name}",
            *(f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}", f"-timeout={SLOWEST}"),
            *(f"-artifact_prefix={findings}/{name}-", "-print_final_stats=1", "-verbosity=0"),
        )
        atheris.Setup(["fuzz", *options, found, str(targets.folder(name))], target)
        atheris.Fuzz()


def with_hypothesis(name: str, seconds: int, seed: int, findings: Path) -> int:
    """Kept inputs with a few places changed; gives the exit code."""
    from hypothesis import given
    from hypothesis import strategies as st

    target = targets.target(name)
    tried = b""

    @st.composite
    def changed(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(kept))
        for _ in range(draw(st.integers(0, 4))):
            place = draw(st.integers(0, len(data)))
            piece = draw(st.sampled_from(words) | st.binary(max_size=4) | st.sampled_from(kept))
            data = data[:place] + piece + data[place + draw(st.integers(0, 8)) :]
        return data[:LONGEST]

    @given(changed())
    def attempt(data: bytes) -> None:
        nonlocal tried
        tried = data
        target(data)

    words = known_words()
    kept = [path.read_bytes() for path in targets.corpus(name)]
    chance, end, number = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        try:
            attempt.hypothesis.fuzz_one_input(chance.randbytes(512))  # type: ignore[attr-defined]
        except Exception:
            path = findings / f"{name}-crash-{hashlib.sha256(tried).hexdigest()[:40]}"
            path.write_bytes(tried)
            print(f"written: {path}", file=sys.stderr)
            raise
        number += 1
    print(f"{number} inputs", file=sys.stderr)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("target", choices=(*targets.NAMES, targets.BROKEN))
    parser.add_argument("files", nargs="*", type=Path, help="only these inputs")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--findings", type=Path, default=Path("findings"))
    parser.add_argument("--without-atheris", action="store_true", help="also where it is installed")
    arguments = parser.parse_args()
    for file in arguments.files:
        print(file, file=sys.stderr)
        targets.target(arguments.target)(file.read_bytes())
    if arguments.files:
        return 0
    findings = arguments.findings.resolve()
    findings.mkdir(parents=True, exist_ok=True)
    seed = arguments.seed or random.SystemRandom().randrange(1, 2**32)
    print(f"seed {seed}", file=sys.stderr)
    if importlib.util.find_spec("atheris") is None or arguments.without_atheris:
        return with_hypothesis(arguments.target, arguments.seconds, seed, findings)
    with_atheris(arguments.target, arguments.seconds, seed, findings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
