"""The build that runs: version, interpreter, event loop, and whether the hot path is compiled.

Two things can be compiled: the matcher (`MATCHER`), one module in C that has a fallback in Python, and the
whole hot path, the modules that pyproject.toml lists, with the matcher. In a checkout `skewgate build` puts
both into the environment and never beside the sources: there, a build of older sources would win silently.
Each is named by its stamp, a checksum of everything that it was made from. `use_compiled` computes the stamp
of the present sources and takes only the build of that name. An installed compiled wheel needs none of this.
This module builds nothing, and its imports are few because every verb of the command begins here.

The loop: SKEWGATE_LOOP=asyncio or uvloop; without it, uvloop if it is installed. `process` makes it.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, final

from gateway import __version__
from gateway.errors import SettingsError

VARIABLE: Final = "SKEWGATE_COMPILED"
"""The environment variable for the build. `0`: nothing that we compile. `matcher`: the sources with the
compiled matcher, or not at all. `1`: the whole compiled build, or not at all. Unset: what there is for these
sources."""
NOTHING: Final = "0"
MATCHER_ONLY: Final = "matcher"
WHOLE: Final = "1"
SOURCES: Final = Path(__file__).resolve().parents[2]
"""The folder with the package `gateway`: a checkout, or the `site-packages` of an installed one."""
BUILDS: Final = Path(sys.prefix) / "compiled"
"""The folder with the compiled builds of this environment, each in a folder named by its stamp."""
MATCHERS: Final = Path(sys.prefix) / "compiled-matcher"
"""The folder with the compiled matcher of this environment, likewise."""
MATCHER: Final = "gateway.dataplane.http1.layout_matcher"
"""Name of the module in C. Its source has the same path in the package."""
INTERPRETER: Final = f"{sys.version}\n{sys.base_prefix}\n{EXTENSION_SUFFIXES[0]}\n".encode()
"""What a compiled module fits: a part of every stamp."""
LOOP_VARIABLE: Final = "SKEWGATE_LOOP"
ASYNCIO: Final = "asyncio"
UVLOOP: Final = "uvloop"

STALE: Final = "compiled build is of other sources: run ./run build"
HOT_MODULE: Final = "gateway.dataplane.exchange.exchange"
"""Name of a module that every compiled build contains: its file shows whether one runs."""


class BuildInfo(NamedTuple):
    """The version and kind of a running build, as `/status` and `skewgate_build_info` show it."""

    version: str
    python: str
    loop: str
    """`asyncio` or `uvloop`: the package of the running event loop; `none` without one."""
    compiled: bool


def build_info() -> BuildInfo:
    """The version, interpreter, event loop and kind of build of this process."""
    loop = "none"
    if (asyncio := sys.modules.get("asyncio")) is not None:  # else none can run
        with suppress(RuntimeError):
            loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return BuildInfo(__version__, platform.python_version(), loop, is_compiled())


def chosen_loop() -> str:
    """Name of the event loop to run. Raises `SettingsError` if SKEWGATE_LOOP names one that cannot run."""
    wanted = os.environ.get(LOOP_VARIABLE, "")
    installed = find_spec(UVLOOP) is not None
    if wanted not in ("", ASYNCIO, UVLOOP):
        raise SettingsError(f"{LOOP_VARIABLE} must be {ASYNCIO} or {UVLOOP}, not {wanted!r}")
    if wanted == UVLOOP and not installed:
        raise SettingsError(f"{LOOP_VARIABLE} is {UVLOOP}, which is not installed")
    return wanted or (UVLOOP if installed else ASYNCIO)


def is_compiled() -> bool:
    """Whether the hot path of this process is compiled."""
    spec = find_spec(HOT_MODULE)
    return spec is not None and spec.origin is not None and spec.origin.endswith(tuple(EXTENSION_SUFFIXES))


def has_matcher() -> bool:
    """Whether this process finds the compiled matcher."""
    try:
        return find_spec(MATCHER) is not None
    except ModuleNotFoundError:
        return False


def note() -> str:
    """A warning that an existing compiled build does not run, as it is of other sources; empty: none."""
    if is_compiled() or os.environ.get(VARIABLE) in (NOTHING, MATCHER_ONLY) or not builds():
        return ""
    return STALE


def require(*, runs_gateway: bool = True) -> None:
    """Raise `SettingsError` if SKEWGATE_COMPILED is invalid, or asks for what is not compiled here.
    `runs_gateway`: whether this process runs modules that a compiled build has."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", NOTHING, MATCHER_ONLY, WHOLE):
        raise SettingsError(f"{VARIABLE} must be {NOTHING}, {MATCHER_ONLY} or {WHOLE}, not {wanted!r}")
    if wanted == WHOLE and runs_gateway and not is_compiled():
        raise SettingsError(f"{VARIABLE} is 1, but there is no compiled build of these sources: ./run build")
    if wanted == MATCHER_ONLY and runs_gateway and not has_matcher():
        raise SettingsError(f"{VARIABLE} is {wanted}, but the matcher is not compiled: ./run build --matcher")


def use_compiled() -> None:
    """Import what is compiled of these sources and wished (`VARIABLE`) from now on, and not the sources."""
    wanted = os.environ.get(VARIABLE)
    if wanted in (NOTHING, MATCHER_ONLY):
        sys.meta_path.insert(0, Sources(hidden=wanted == NOTHING))
    elif builds() and (folder := BUILDS / stamp(SOURCES)).is_dir():
        sys.meta_path.insert(0, CompiledModules(folder))
        return
    if wanted != NOTHING and (matcher := matcher_build()) is not None:
        sys.meta_path.insert(0, CompiledModules(matcher))


def builds() -> tuple[Path, ...]:
    """Folders of all compiled builds in this environment, of any sources; none if this is no checkout."""
    if not (SOURCES / "pyproject.toml").exists() or not BUILDS.is_dir():
        return ()
    return tuple(folder for folder in BUILDS.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def matcher_build() -> Path | None:
    """The folder with the compiled matcher of these sources; None: there is none in this environment."""
    if not MATCHERS.is_dir():
        return None
    folder = MATCHERS / matcher_stamp(SOURCES)
    return folder if folder.is_dir() else None


def stamp(sources: Path) -> str:
    """A checksum of all that a build of `sources` is made from: interpreter, tools, list of modules, sources.
    All modules count, since a compiled one contains constants and layouts of those that it imports."""
    import hashlib  # noqa: PLC0415 - a verb that uses no build does without
    import tomllib  # noqa: PLC0415

    project = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))
    checksum = hashlib.sha256(INTERPRETER)
    checksum.update(repr(project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]).encode())
    checksum.update((sources / "requirements" / "build.txt").read_bytes())
    checksum.update((sources / "hatch_build.py").read_bytes())
    checksum.update(matcher_source(sources).read_bytes())
    for piece in code_of(sources / "gateway"):
        checksum.update(piece)
    return checksum.hexdigest()[:32]


def matcher_stamp(sources: Path) -> str:
    """A checksum of what the matcher is compiled from: interpreter and C file."""
    import hashlib  # noqa: PLC0415 - likewise

    return hashlib.sha256(INTERPRETER + matcher_source(sources).read_bytes()).hexdigest()[:32]


def matcher_source(sources: Path) -> Path:
    """The C file of the matcher."""
    return sources / f"{MATCHER.replace('.', '/')}.c"


def code_of(package: Path) -> Iterator[bytes]:
    """The name, the size and the text of every module of `package`, in one order. It takes 4 ms."""
    for folder, folders, files in os.walk(package):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                path = f"{folder}/{name}"
                text = Path(path).read_bytes()
                yield f"\n{path.removeprefix(f'{package}/')} {len(text)}\n".encode()
                yield text


@final
class Sources:
    """A finder that passes over compiled modules beside their sources, as an installed compiled wheel has
    them. `hidden`: whether the matcher, which has no source in Python, is hidden as well."""

    def __init__(self, *, hidden: bool) -> None:
        self._hidden = hidden

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the source of this name for `importlib` (`MetaPathFinder`); None: others may look."""
        if not fullname.startswith("gateway."):
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or not spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            return spec
        source = Path(spec.origin).with_name(f"{fullname.rpartition('.')[2]}.py")
        if source.exists():
            return spec_from_file_location(fullname, source)
        if self._hidden:
            raise ModuleNotFoundError(f"{VARIABLE} is {NOTHING}: {fullname} is hidden", name=fullname)
        return spec


@final
class CompiledModules:
    """The finder of one build's compiled modules. Python's own finders find all others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the compiled module of this name for `importlib` (`MetaPathFinder`); None: there is none."""
        if not fullname.startswith("gateway.") and not fullname.endswith("__mypyc"):
            return None
        file = self._folder / f"{fullname.replace('.', '/')}{EXTENSION_SUFFIXES[0]}"
        return spec_from_file_location(fullname, file) if file.exists() else None
