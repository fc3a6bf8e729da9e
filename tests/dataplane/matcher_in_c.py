"""The matcher in C, compiled from the present source, beside the one that uses `re`."""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from gateway.core.http.patterns import Pattern
from gateway.dataplane.http1.matchers import ExpressionMatcher, Match, MatchFunction

SOURCE: Final = Path(__file__).parents[2] / "gateway/dataplane/http1/layout_matcher.c"
WARNINGS: Final = ("-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type")
COMPILER: Final = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
HEADERS: Final = Path(sysconfig.get_path("include"))
HAS_COMPILER: Final = shutil.which(COMPILER) is not None and (HEADERS / "Python.h").exists()


def compile_matcher(folder: Path, *options: str, source: Path = SOURCE) -> Path:
    """The file of the module, compiled with `options` into `folder`."""
    file = folder / f"layout_matcher{EXTENSION_SUFFIXES[0]}"
    command = [COMPILER, "-shared", "-fPIC", *WARNINGS, *options, f"-I{HEADERS}", str(source)]
    subprocess.run([*command, "-o", str(file)], check=True)
    return file


def load_matcher(file: Path) -> ModuleType:
    """The module in this file, whatever other one the data plane uses."""
    spec = spec_from_file_location("gateway.dataplane.http1.layout_matcher", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Both:
    """Makes matchers in both ways. What they return is compared for every head."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.matched = 0
        self.refused = 0

    def make(self, pattern: Pattern, fields: tuple[bytes, ...], values: tuple[bytes, ...]) -> MatchFunction:
        by_expression = ExpressionMatcher(pattern.source, fields, values).match
        in_c: MatchFunction = self._module.Matcher(pattern.steps, fields, values).match

        def match(data: bytes) -> Match | None:
            expected = by_expression(data)
            assert in_c(data) == expected, (pattern.source, data)
            if expected is None:
                self.refused += 1
            else:
                self.matched += 1
            return expected

        return match


def mutated(good: bytes, pieces: tuple[bytes, ...], chance: random.Random) -> bytes:
    """A head with up to three places changed."""
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(good) + 1)
        put = chance.choice((chance.choice(pieces), bytes([chance.randrange(256)]), b"", good[at : at + 9]))
        good = good[:at] + put + good[at + chance.randrange(4) :]
    return good
