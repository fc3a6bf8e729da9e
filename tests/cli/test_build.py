"""The compiled build: which one runs, when it is made, and what is said where it cannot be made."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.cli import build as verb
from gateway.cli import main
from gateway.errors import BuildError, SettingsError
from gateway.runtime import compiled
from gateway.runtime.compiled import (
    HOT_MODULE,
    MATCHER,
    MATCHER_ONLY,
    STALE,
    VARIABLE,
    CompiledModules,
    Sources,
    is_compiled,
    matcher_source,
    matcher_stamp,
    note,
    stamp,
)
from tests.kit.processes import ROOT

NEEDED_BY_RUN = ("sh", "dirname", "cat", "cksum", "env")
"""The programs that `./run` starts when the environment stands."""


EXTENSION = f"""\
#include <Python.h>
static struct PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "{MATCHER}"}};
PyMODINIT_FUNC PyInit_layout_matcher(void) {{ return PyModuleDef_Init(&definition); }}
"""
"""An extension module in place of the matcher, with nothing in it."""


class Checkout(NamedTuple):
    """A copy of the sources that differs from them, so that no build fits it."""

    root: Path
    python: Path
    """An interpreter that finds the copy."""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "gateway", root / "gateway", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        ROOT / "requirements", root / "requirements", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("pyproject.toml", "run", "hatch_build.py"):
        shutil.copy(ROOT / name, root / name)
    matcher_source(root).write_text(EXTENSION)
    with (root / "gateway" / "errors.py").open("a") as file:
        file.write("# another text\n")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return Checkout(root, python)


def settle(checkout: Checkout) -> None:
    """Write the stamp by which `./run` knows that its environment stands."""
    files = [
        *("pyproject.toml", "requirements/install.py", "requirements/runtime.txt"),
        str(matcher_source(Path())),
    ]
    sums = subprocess.run(["cksum", *files], cwd=checkout.root, capture_output=True, text=True, check=True)
    text = f"{checkout.root}\n{sums.stdout}".rstrip("\n")
    (checkout.root / ".venv" / ".skewgate-runtime").write_text(text)


def hook() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    return found


@pytest.mark.processes
async def test_without_a_compiler_it_says_so_and_the_gateway_runs_all_the_same(checkout: Checkout) -> None:
    programs = checkout.root / "programs"
    programs.mkdir()
    for name in NEEDED_BY_RUN:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    settle(checkout)
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith("SKEWGATE_") and key != "CC"
    }

    async def run(*argv: str) -> tuple[int | None, str, str]:
        process = await asyncio.create_subprocess_exec(
            checkout.root / "run",
            *argv,
            env={**kept, "PATH": str(programs)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    built, checked, version = await asyncio.gather(run("build"), run("build", "--check"), run("version"))

    assert built == checked
    assert built[:2] == (1, "")
    assert built[2].startswith("skewgate: no compiled build: the C compiler `")
    assert "apt-get install gcc libc6-dev python3-dev" in built[2]
    assert version[0] == 0
    assert "compiled           true\n" not in version[1]


@pytest.fixture
def environment(checkout: Checkout) -> Path:
    """An environment of the checkout as `./run` has left it before the C file was changed."""
    venv = checkout.root / ".venv"
    shutil.rmtree(venv)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (libraries,) = venv.glob("lib/python*/site-packages")
    (libraries / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    lock = (checkout.root / "requirements" / "runtime.txt").read_text()
    packages = f"{sys.version}\n{sys.base_prefix}\n{checkout.root}\n{lock}"
    (venv / ".skewgate-lock-runtime").write_text(packages)
    return venv


@pytest.mark.processes
def test_run_compiles_the_matcher_when_it_sets_up_and_says_so(checkout: Checkout, environment: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SKEWGATE_")}

    def version(**variables: str) -> tuple[str, str]:
        """The line about the matcher, and what is said by the way."""
        ended = subprocess.run(
            [checkout.root / "run", "version"],
            env={**kept, "SKEWGATE_PYTHON": sys.executable, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return next(line for line in ended.stdout.splitlines() if line.startswith("matcher")), ended.stderr

    assert version(CC=shutil.which("false") or "false") == ("matcher            false", "")
    if not has_compiler():
        return
    with matcher_source(checkout.root).open("a") as file:
        file.write("\n")
    line, said = version()
    assert line == "matcher            true"
    assert said.startswith("skewgate: compiled the matcher of message heads in ")
    assert (said.count("\n"), str(environment) in said) == (1, True)
    assert version() == (line, "")
    assert version(SKEWGATE_COMPILED="0") == ("matcher            false", "")

    with matcher_source(checkout.root).open("a") as file:
        file.write("an error\n")
    line, said = version()
    assert line == "matcher            false"
    assert "error" in said


def has_compiler() -> bool:
    try:
        verb.require_compiler()
    except BuildError:
        return False
    return True


def test_missing_headers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)  # is on every machine
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))

    with pytest.raises(BuildError, match=r"Python\.h"):
        verb.require_compiler()

    (tmp_path / "Python.h").touch()
    with pytest.raises(BuildError, match="does not work"):
        verb.require_compiler()


def test_an_installed_package_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "SOURCES", tmp_path)

    assert main(["build"]) == 1
    assert "is not a checkout" in capfd.readouterr().err


@pytest.mark.parametrize(
    "changed",
    [
        "gateway/errors.py",
        "gateway/dataplane/exchange/exchange.py",
        "gateway/new.py",
        "gateway/dataplane/http1/layout_matcher.c",
        "hatch_build.py",
        "requirements/build.txt",
        "pyproject.toml",
    ],
)
def test_a_stamp_is_of_all_that_a_build_is_made_from(checkout: Checkout, changed: str) -> None:
    before = stamp(checkout.root)
    (checkout.root / "README.md").write_text("not of this")
    assert stamp(checkout.root) == before

    path = checkout.root / changed
    text = path.read_text() if path.exists() else ""
    path.write_text(text.replace('"/gateway/core/",', "") if path.suffix == ".toml" else f"{text}#\n")

    assert stamp(checkout.root) != before


@pytest.mark.parametrize("changed", ["gateway/errors.py", "gateway/dataplane/http1/layout_matcher.c"])
def test_the_stamp_of_the_matcher_is_of_its_file(checkout: Checkout, changed: str) -> None:
    before = matcher_stamp(checkout.root)
    with (checkout.root / changed).open("a") as file:
        file.write("\n")

    assert (matcher_stamp(checkout.root) == before) == changed.endswith(".py")


def test_only_the_build_of_these_sources_is_used(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finders = list[object]()
    monkeypatch.setattr(compiled, "BUILDS", tmp_path / "builds")
    monkeypatch.setattr(compiled, "MATCHERS", tmp_path / "matchers")
    monkeypatch.setattr(compiled, "SOURCES", checkout.root)
    monkeypatch.setattr(compiled, "is_compiled", lambda: bool(finders))
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delenv(VARIABLE)

    compiled.use_compiled()
    assert (finders, note()) == ([], "")

    (tmp_path / "builds" / "of-other-sources").mkdir(parents=True)
    compiled.use_compiled()
    assert (finders, note()) == ([], STALE)

    (tmp_path / "builds" / stamp(checkout.root)).mkdir()
    (tmp_path / "matchers" / matcher_stamp(checkout.root)).mkdir(parents=True)
    for wish, expected in (
        ("0", [Sources]),
        (MATCHER_ONLY, [CompiledModules, Sources]),
        ("1", [CompiledModules]),
        ("", [CompiledModules]),
    ):
        finders.clear()
        monkeypatch.setenv(VARIABLE, wish)
        compiled.use_compiled()
        assert ([type(finder) for finder in finders], note()) == (expected, "")

    with (checkout.root / "gateway" / "errors.py").open("a") as file:
        file.write("# another text\n")
    finders.clear()
    monkeypatch.delenv(VARIABLE)
    compiled.use_compiled()
    assert [type(finder) for finder in finders] == [CompiledModules]  # the matcher fits all the same


def test_sources_are_found_beside_compiled_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed compiled wheel has both, and Python prefers what is compiled."""
    package = tmp_path / "gateway" / "dataplane" / "http1"
    package.mkdir(parents=True)
    for name in ("layouts", "layout_matcher"):
        (package / f"{name}{EXTENSION_SUFFIXES[0]}").touch()
    source = package / "layouts.py"
    source.touch()

    for hidden in (True, False):
        spec = Sources(hidden=hidden).find_spec("gateway.dataplane.http1.layouts", [str(package)])
        assert spec is not None
        assert spec.origin == str(source)
    spec = Sources(hidden=False).find_spec(MATCHER, [str(package)])
    assert spec is not None
    assert spec.origin == str(package / f"layout_matcher{EXTENSION_SUFFIXES[0]}")
    with pytest.raises(ModuleNotFoundError, match="is hidden"):
        Sources(hidden=True).find_spec(MATCHER, [str(package)])


def test_a_finder_knows_what_its_folder_has(tmp_path: Path) -> None:
    package = tmp_path / "gateway" / "dataplane" / "exchange"
    package.mkdir(parents=True)
    files = [package / f"exchange{EXTENSION_SUFFIXES[0]}", tmp_path / f"shared__mypyc{EXTENSION_SUFFIXES[0]}"]
    for file in files:
        file.touch()
    finder = CompiledModules(tmp_path)

    found = [finder.find_spec(name) for name in (HOT_MODULE, "shared__mypyc")]

    assert [spec and spec.origin for spec in found] == list(map(str, files))
    for name in ("gateway.dataplane.exchange", "gateway.errors", "exchange", "other__mypyc"):
        assert finder.find_spec(name) is None


@pytest.mark.parametrize(
    "value, words",
    [
        ("1", "no compiled build"),
        ("matcher", "the matcher is not compiled"),
        ("yes", "must be 0, matcher or 1"),
    ],
)
def test_a_wish_that_cannot_be_granted_is_an_error(
    value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    monkeypatch.setattr(compiled, "is_compiled", lambda: False)
    monkeypatch.setattr(compiled, "has_matcher", lambda: False)

    with pytest.raises(SettingsError, match=words):
        compiled.require()
    assert main(["version"]) == 2


def test_the_list_of_what_is_compiled_names_what_there_is() -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gateway").rglob("*.py")}
    included, excluded = (
        {pattern: {module for module in modules if is_meant(pattern, module)} for pattern in hook()[key]}
        for key in ("include", "exclude")
    )

    assert [pattern for pattern, found in {**included, **excluded}.items() if not found] == []
    wanted = set().union(*included.values()) - set().union(*excluded.values())
    assert f"{HOT_MODULE.replace('.', '/')}.py" in wanted
    if is_compiled():
        folder = compiled.BUILDS / stamp(ROOT)
        built = {path.relative_to(folder).as_posix() for path in (folder / "gateway").rglob("*.so")}
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "gateway").rglob("*.c")}
        sources = {source.rpartition(".")[0] for source in wanted}
        assert {name.removesuffix(EXTENSION_SUFFIXES[0]) for name in built} == sources


def is_meant(pattern: str, module: str) -> bool:
    """By the rules of .gitignore, as far as the list needs them: a path from the root, a folder, a name."""
    if not pattern.startswith("/"):
        return module.endswith(f"/{pattern}")
    return f"/{module}".startswith(pattern) if pattern.endswith("/") else f"/{module}" == pattern
