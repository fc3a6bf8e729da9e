"""The wheel and the source archive: complete, accepted by the registry's own check, and at home anywhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from gateway import __version__
from gateway.runtime.compiled import MATCHER_ONLY, NOTHING, VARIABLE, WHOLE
from tests.packaging.conftest import wheel_settings
from tests.packaging.tools import LIMIT, ROOT, offline, run, tool, tools

pytestmark = pytest.mark.packaging


def test_twine_accepts_what_is_built(built: Path) -> None:
    files = sorted(built.iterdir())

    assert [file.name for file in files] == [
        f"skewgate-{__version__}-py3-none-any.whl",
        f"skewgate-{__version__}.tar.gz",
    ]
    assert tool("twine", "check", "--strict", *files).stdout.count("PASSED") == 2


def test_the_archives_are_complete(built: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    for file in (ROOT / "gateway").rglob("*"):
        if file.is_file() and file.suffix not in (".pyc", ".so"):
            assert file.relative_to(ROOT).as_posix() in packed
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "run",
        "test",
        "requirements/runtime.txt",
        "deploy/debian/build",
        "tests/conftest.py",
        "LICENSE",
        "hatch_build.py",
    }


def test_a_compiled_wheel_needs_nothing_but_the_c_library(compiled_wheel: Path) -> None:
    """So cibuildwheel has nothing to add to it."""
    said = " ".join(tool("auditwheel", "show", compiled_wheel).stdout.split())

    assert re.search(r'is consistent with the following platform tag: "manylinux_\d+_\d+_', said), said
    assert (
        "references external versioned symbols in these system-provided shared libraries: libc.so.6" in said
    )


def test_wheels_are_built_for_each_release_of_python_on_two_machines() -> None:
    options = ("--print-build-identifiers", "--platform", "linux", "--archs", "x86_64,aarch64")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    releases = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)

    assert set(tool("cibuildwheel", *options, ROOT).stdout.split()) == {
        f"cp{release.replace('.', '')}-manylinux_{machine}"
        for release in releases
        for machine in ("x86_64", "aarch64")
    }


def test_the_hosted_ci_builds_with_the_tools_of_the_tests() -> None:
    workflow = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    tools = (ROOT / "tests" / "real" / "constraints" / "packaging.txt").read_text(encoding="utf-8").split()

    assert yaml.safe_load(workflow)["permissions"] == {"contents": "read"}
    installed = re.findall(r"pip install (\S+)", workflow)
    assert [tool.partition("==")[0] for tool in installed] == ["cibuildwheel", "build"]
    assert set(installed) <= set(tools)


@pytest.fixture(scope="module", params=["wheel", "compiled_wheel"])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment into which a wheel was installed, with the extra that README names."""
    folder = tmp_path_factory.mktemp("home") / str(request.param)
    wheel: Path = request.getfixturevalue(request.param)
    run(tools().python, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", f"{wheel}[uvloop]", variables=offline())
    return folder


def is_compiled(home: Path) -> bool:
    return home.name == "compiled_wheel"


def test_every_file_of_an_installation_is_there(home: Path) -> None:
    unit = (home / "lib" / "systemd" / "system" / "skewgate.service").read_text(encoding="utf-8")
    share = home / "share" / "skewgate"

    assert unit == (ROOT / "deploy" / "skewgate.service").read_text(encoding="utf-8")
    assert json.loads((share / "schema.json").read_text(encoding="utf-8"))["title"]
    for file in (ROOT / "config").rglob("*.yaml"):
        copy = share / file.relative_to(ROOT / "config")
        assert copy.read_bytes() == file.read_bytes()
    assert (share / "logrotate").exists()
    for copied, original in (
        ("prometheus/skewgate.yml", "prometheus/rules/skewgate.yml"),
        ("grafana/skewgate.json", "grafana/skewgate.json"),
    ):
        assert (share / copied).read_bytes() == (ROOT / "deploy" / original).read_bytes()
    assert (home / "share" / "man" / "man1" / "skewgate.1").exists()


def test_the_command_runs_outside_the_checkout(home: Path) -> None:
    program = home / "bin" / "skewgate"
    schema = (home / "share" / "skewgate" / "schema.json").read_text(encoding="utf-8")

    said = run(program, "version").stdout
    assert said.split()[:2] == ["skewgate", __version__]
    assert "uvloop" in said
    for name in ("compiled", "matcher"):
        assert f"\n{name:<19}{str(is_compiled(home)).lower()}\n" in said
    assert run(program, "schema").stdout == schema
    run(program, "check", home / "share" / "skewgate" / "minimal.yaml")
    place = run(home / "bin" / "python", "-c", "import gateway; print(gateway.__file__)").stdout
    assert place.startswith(str(home))


def test_what_is_compiled_can_be_left_out(home: Path) -> None:
    def said(wish: str) -> subprocess.CompletedProcess[str]:
        program = home / "bin" / "skewgate"
        return run(program, "version", "-o", "json", check=False, variables={VARIABLE: wish})

    nothing = json.loads(said(NOTHING).stdout)
    assert (nothing["compiled"], nothing["matcher"]) == ("false", "false")
    assert said(WHOLE).returncode == said(MATCHER_ONLY).returncode == (0 if is_compiled(home) else 2)
    if is_compiled(home):
        matcher = json.loads(said(MATCHER_ONLY).stdout)
        assert (matcher["compiled"], matcher["matcher"]) == ("false", "true")


def test_the_command_of_the_hosted_ci_tells_the_wheels_apart(home: Path) -> None:
    path = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    ended = run("sh", "-c", wheel_settings()["test-command"], check=False, variables=path)

    assert (ended.returncode == 0) == is_compiled(home)


def test_the_demonstration_runs_outside_the_checkout(home: Path) -> None:
    said = run(home / "bin" / "skewgate", "demo", "--for", "3", "--seed", "1").stdout

    assert "lost" in said


def test_a_gateway_runs_outside_the_checkout(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "skewgate.yaml"
    socket = tmp_path / "http.sock"
    configuration = {
        "listen": f"unix:{socket}",
        "admin": {"listen": "127.0.0.1:0"},
        "services": {
            "a": {"dialect": "ironic", "backends": [{"url": "http://127.0.0.1:1", "versions": "1.1-1.9"}]}
        },
    }
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    wish = {VARIABLE: WHOLE if is_compiled(home) else ""}  # not what is wished for these tests
    command = [str(home / "bin" / "skewgate"), "run", "-c", str(file)]
    with subprocess.Popen(
        command, cwd="/", env={**os.environ, **wish}, stderr=subprocess.PIPE, text=True
    ) as gateway:
        try:
            assert gateway.stderr is not None
            assert any("serves on" in line for line in gateway.stderr)
            answer = run(
                "curl",
                "--silent",
                "--unix-socket",
                socket,
                "--header",
                "X-OpenStack-Ironic-API-Version: 9.99",
                "--write-out",
                "%{http_code}",
                "--output",
                "/dev/null",
                "http://localhost/v1/nodes",
            ).stdout
            gateway.terminate()
            code = gateway.wait(LIMIT)
        finally:
            gateway.kill()

    assert answer == "406"
    assert code == 0
