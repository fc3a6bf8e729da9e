"""The wheel and the source archive: complete, accepted by the registry's own check, and at home anywhere."""

from __future__ import annotations

import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from gateway import __version__
from tests.packaging.tools import LIMIT, ROOT, offline, run, tool, tools

pytestmark = pytest.mark.engines


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
    }


@pytest.fixture(scope="module")
def home(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment into which the wheel was installed, with the extra that README names."""
    folder = tmp_path_factory.mktemp("home") / "skewgate"
    run(tools().python, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--quiet", f"{wheel}[uvloop]", variables=offline())
    return folder


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
    assert run(program, "schema").stdout == schema
    run(program, "check", home / "share" / "skewgate" / "minimal.yaml")
    place = run(home / "bin" / "python", "-c", "import gateway; print(gateway.__file__)").stdout
    assert place.startswith(str(home))


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
    with subprocess.Popen(
        [home / "bin" / "skewgate", "run", "-c", file], cwd="/", stderr=subprocess.PIPE, text=True
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
