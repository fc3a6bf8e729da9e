"""The container: its file without a finding, built on a Debian of the tests, and run as its page says: as
nobody, without a capability, with a root that it cannot write."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

import pytest

from tests.packaging.tools import COMPILER, LIMIT, ROOT, debian, run, tools, wheelhouse

pytestmark = pytest.mark.packaging

FILE: Final = ROOT / "deploy" / "container" / "Containerfile"
CONFIGURATION: Final = """\
listen: 127.0.0.1:8080
state: /var/lib/skewgate/state.json
services:
  baremetal:
    dialect: ironic
    backends:
      - {name: api-1, url: "http://127.0.0.1:6385", versions: "1.1-1.90"}
"""
IMAGE: Final = "localhost/skewgate:test"


def test_hadolint_finds_nothing() -> None:
    run(tools().home / "bin" / "hadolint", FILE)


@final
class Engine:
    """Podman with images of its own, below one folder. It builds by buildah and runs by runc: crun refuses
    machines with both generations of cgroups."""

    def __init__(self, folder: Path) -> None:
        self._command = (
            *("podman", "--root", folder / "images", "--runroot", folder / "run", "--runtime", "runc"),
            *("--cgroup-manager", "cgroupfs", "--events-backend", "none", "--storage-driver", "overlay"),
        )

    def __call__(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run(*self._command, *arguments, check=check)

    def load(self, root: Path, image: str) -> None:
        """Make an image of what is below `root`."""
        with subprocess.Popen(["tar", "-C", root, "-cf", "-", "."], stdout=subprocess.PIPE) as packed:
            command = [str(word) for word in (*self._command, "import", "-", image)]
            subprocess.run(command, stdin=packed.stdout, check=True, capture_output=True, timeout=LIMIT)

    def inspect(self, kind: str, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(self(kind, "inspect", name).stdout)
        return found[0]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Podman with the image of this checkout, built without the network."""
    folder = tmp_path_factory.mktemp("engine")
    pip = folder / "pip.conf"
    pip.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    engine = Engine(folder)
    try:
        engine.load(debian(), "localhost/base:test")
        engine.load(debian(*COMPILER), "localhost/builder:test")
        engine(
            "build",
            "--isolation",
            "chroot",
            "--format",
            "docker",
            "--file",
            FILE,
            "--tag",
            IMAGE,
            "--build-arg",
            "BASE=localhost/base:test",
            "--build-arg",
            "BUILDER=localhost/builder:test",
            "--volume",
            f"{wheelhouse()}:/wheels:ro",
            "--volume",
            f"{pip}:/etc/pip.conf:ro",
            ROOT,
        )
        yield engine
    finally:
        engine("rm", "--all", "--force", "--time", "0", check=False)
        engine("image", "rm", "--all", "--force", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_image_says_how_it_is_run(engine: Engine) -> None:
    image = engine.inspect("image", IMAGE)

    assert image["User"] == "10001:10001"
    assert image["Healthcheck"]["Test"] == [
        *("CMD", "skewgate", "healthcheck", "-c", "/etc/skewgate/skewgate.yaml"),
    ]
    every = 10_000_000_000  # nanoseconds
    assert (image["Healthcheck"]["Interval"], image["Healthcheck"]["Timeout"]) == (every, every)
    assert image["Config"]["Entrypoint"] == ["skewgate"]
    assert image["Config"]["StopSignal"] == "SIGTERM"


def test_the_image_holds_no_source_and_no_installer(engine: Engine) -> None:
    command = ("run", "--rm", "--network", "none", *LIMITS, "--entrypoint", "sh", IMAGE, "-c")
    listed = engine(*command, "ls / /opt/skewgate/bin").stdout.split()

    assert "skewgate" in listed
    assert not {"source", "tools", "wheel", "pip"} & set(listed)
    version = engine("run", "--rm", "--network", "none", *LIMITS, IMAGE, "version").stdout
    assert "\ncompiled           true\n" in version


LIMITS: Final = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--no-healthcheck")
"""Those by default are more than some machines of the tests may give. Without systemd, podman has no timer
for the health check, so the test runs it."""
RESTRICTED: Final = (
    *("--network", "none", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"),
    *("--security-opt", "no-new-privileges"),
)


def test_the_container_needs_no_right_and_writes_only_its_state(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "skewgate.yaml"
    file.write_text(CONFIGURATION)
    file.chmod(0o644)
    volumes = ("--volume", f"{file}:/etc/skewgate/skewgate.yaml:ro", "--volume", "state:/var/lib/skewgate")
    check = engine.inspect("image", IMAGE)["Healthcheck"]["Test"][1:]

    engine("run", "--detach", "--name", "gateway", *RESTRICTED, *LIMITS, *volumes, IMAGE)
    ready = "for _ in $(seq 100); do {} && exit 0; sleep 0.1; done; exit 1".format(" ".join(check))
    engine("exec", "gateway", "sh", "-c", ready)

    assert engine("exec", "gateway", "id", "-u").stdout == "10001\n"
    assert engine("exec", "gateway", "touch", "/opt/x", check=False).returncode == 1
    engine("exec", "gateway", "test", "-s", "/var/lib/skewgate/state.json")
    engine("stop", "--time", "60", "gateway")
    assert engine.inspect("container", "gateway")["State"]["ExitCode"] == 0
