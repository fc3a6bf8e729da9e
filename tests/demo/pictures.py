"""Draws the pictures of the README anew: `python -m tests.demo.pictures`, from the recording in `data/`.

The README's words for those who do not see the picture are written, too. With two numbers, seconds and a
seed, the demonstration is run first, beside HAProxy, and recorded.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from gateway.demo.director import Director, Options
from gateway.demo.picture import draw, headline, setting
from gateway.demo.recording import Recording, from_json, record, to_json
from gateway.demo.svg import Scheme
from gateway.runtime import process
from tests.architecture.source import ROOT

RECORDING: Final = Path(__file__).parent / "data" / "recording.json"
IMAGES: Final = {
    Scheme.LIGHT: ROOT / "docs/images/demo-light.svg",
    Scheme.DARK: ROOT / "docs/images/demo-dark.svg",
}


def stored() -> Recording:
    """The recording that the README's pictures are drawn from."""
    return from_json(RECORDING.read_text(encoding="utf-8"))


def alternative(recording: Recording) -> str:
    """The words in place of the picture."""
    return f"{headline(recording)}. {setting(recording)}"


async def play(seconds: float, seed: int) -> None:
    async with Director(Options(seconds, seed, compare=True, admin_port=0)) as director:
        recording = await record(director)
    assert recording is not None
    RECORDING.write_text(to_json(recording), encoding="utf-8")


def main() -> None:
    if len(sys.argv) > 1:
        process.run_in_loop(play(float(sys.argv[1]), int(sys.argv[2])))
    for scheme, file in IMAGES.items():
        file.write_text(draw(stored(), scheme), encoding="utf-8")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(
        re.sub(r'alt="[^"]*"', f'alt="{alternative(stored())}"', text, count=1), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
