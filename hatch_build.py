"""The hook with which hatchling builds the compiled wheel (HATCH_BUILD_HOOK_ENABLE_CUSTOM=1).

mypyc makes C of the modules that pyproject.toml lists, one file of each, and setuptools compiles these files
and those below gateway/ on all processors at the same time. Nothing is written beside the sources. Why:
docs/decisions/0028-a-compiled-build.md.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, final

import setuptools  # before mypyc, which takes its classes only if it finds them imported
from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from mypyc.build import mypycify
from pathspec import GitIgnoreSpec
from setuptools.command.build_ext import build_ext

SHARED: Final = "skewgate"
"""Name of the library that holds the code of all compiled modules: skewgate__mypyc."""
FLAGS: Final = ("--config-file=", "--follow-imports=silent")
"""Arguments for mypy. Checking the types is the matter of `./test`: here, they are only read."""


@final
class CompiledWheel(BuildHookInterface[BuilderConfig]):
    """Adds the compiled modules to the wheel, beside their sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before hatchling collects the files of the wheel."""
        self._scratch = tempfile.TemporaryDirectory()
        with contextlib.redirect_stdout(sys.stderr):
            made = compile_all(self.root, self.config, Path(self._scratch.name))
        for file in made.rglob("*"):
            if file.is_file():
                build_data["force_include"][str(file)] = str(file.relative_to(made))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made, now that the wheel has it."""
        self._scratch.cleanup()


def compile_all(root: str, table: dict[str, Any], scratch: Path) -> Path:
    """Compile what `table` lists, and every C file of the package. Returns the folder with the modules."""
    included, excluded = (GitIgnoreSpec.from_lines(table[key]) for key in ("include", "exclude"))
    package = Path(root, "gateway")
    names = sorted(path.relative_to(root).as_posix() for path in package.rglob("*.py"))
    listed = [name for name in names if included.match_file(name) and not excluded.match_file(name)]
    with contextlib.chdir(root):
        extensions = mypycify(
            [*FLAGS, *listed],
            group_name=SHARED,
            multi_file=True,
            opt_level=table["opt-level"],
            debug_level="0",
            target_dir=str(scratch / "c"),
        )
        for extension in extensions:
            # Calls between the files of one library are direct, and may be inlined within a file.
            extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]
        for path in sorted(package.rglob("*.c")):
            source = path.relative_to(root)
            name = ".".join(source.with_suffix("").parts)
            extensions.append(setuptools.Extension(name, [str(source)]))
        command = ParallelBuild(setuptools.Distribution({"ext_modules": extensions}))
        command.build_lib, command.build_temp = str(scratch / "made"), str(scratch / "objects")
        command.ensure_finalized()
        command.run()
    return scratch / "made"


@final
class ParallelBuild(build_ext):  # type: ignore[misc]  # setuptools has no types
    """Compiles the C files of one extension module at the same time. setuptools does so with modules only."""

    def build_extensions(self) -> None:
        """Compile and link all extension modules."""
        compile_in_order = self.compiler.compile
        jobs = len(os.sched_getaffinity(0))
        self.parallel = jobs

        def compile_at_once(sources: Sequence[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(jobs) as threads:
                made = threads.map(lambda source: compile_in_order([source], **options), sources)
                return [file for files in made for file in files]

        self.compiler.compile = compile_at_once
        super().build_extensions()
