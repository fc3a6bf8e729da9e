"""The real clients: python-ironicclient as a library, the `baremetal` command line, openstacksdk.

What it does: runs one of them as a process in the clients' environment and hands back what came of it.

Rules: each run starts with an empty home, so no version remembered from another run (python-ironicclient
keeps them on disk for five minutes, by host and port) and no user's settings have a say; proxies of the
environment are out of it. Clients retry a 503 by default for ten seconds: here they do not.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.environments import Environment

SCRIPTS = Path(__file__).resolve().parent / "scripts"
LIMIT = 60  # seconds: a client that takes longer hangs

# The newest version that python-ironicclient 6.3.0 knows: what its command line begins with.
NEWEST_KNOWN = "1.115"
# What the library sends when nobody says anything.
LIBRARY_DEFAULT = "1.9"

Call = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What one call of a session came to: a value, or the class and text of an error."""

    value: Any
    error: str | None
    text: str

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Result:
        return cls(entry.get("value"), entry.get("error"), entry.get("text", ""))


@dataclass(frozen=True, slots=True)
class Session:
    """What a library session came to. `version` is what the client holds at its end (ironicclient)."""

    results: list[Result]
    version: str | None
    negotiated: bool

    def values(self) -> list[Any]:
        """The value of every call; fails with the error's text when one has none."""
        for result in self.results:
            assert result.error is None, f"{result.error}: {result.text}"
        return [result.value for result in self.results]

    def only_error(self) -> Result:
        """The error of a session of one call."""
        (result,) = self.results
        assert result.error is not None, f"this call was to fail, and came to {result.value}"
        return result


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one command came to."""

    code: int
    output: str
    errors: str

    def json(self) -> Any:
        """What it printed, read as JSON; fails with its error output when it did not succeed."""
        assert self.code == 0, f"exit {self.code}: {self.errors}"
        return json.loads(self.output)


def surroundings(home: str) -> dict[str, str]:
    """The environment variables of a client that lives in `home`: no settings of ours, no proxy."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OS_", "IRONIC", "XDG_", "PYTHON")) and "proxy" not in name.lower()
    }
    return kept | {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}


class Clients:
    """Runs the clients of one environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def ironicclient(
        self, endpoint: str, calls: list[Call], *, version: str | list[str] | None = None, retries: int = 0
    ) -> Session:
        """A session of python-ironicclient; `version` None is its own default."""
        plan = {"endpoint": endpoint, "version": version, "retries": retries, "calls": calls}
        return self._session("ironicclient_session.py", plan)

    def sdk(
        self, endpoint: str, calls: list[Call], *, version: str | None = None, retries: int = 0
    ) -> Session:
        """A session of openstacksdk; `version` None lets it choose from what it discovers."""
        plan = {"endpoint": endpoint, "version": version, "retries": retries, "calls": calls}
        return self._session("sdk_session.py", plan)

    def baremetal(self, endpoint: str, *words: str, version: str | None = None) -> CommandResult:
        """One command of the `baremetal` command line; `version` None is its own default."""
        options = ["--os-auth-type", "none", "--os-endpoint", endpoint, "--max-retries", "0"]
        if version is not None:
            options += ["--os-baremetal-api-version", version]
        return self._run(self._environment.command("baremetal", *options, *words))

    def _session(self, script: str, plan: dict[str, Any]) -> Session:
        done = self._run([str(self._environment.python), str(SCRIPTS / script), json.dumps(plan)])
        assert done.code == 0, f"{script} itself failed (exit {done.code}):\n{done.errors}"
        said = json.loads(done.output.splitlines()[-1])
        results = [Result.read(entry) for entry in said["results"]]
        return Session(results, said.get("version"), said.get("negotiated", False))

    @staticmethod
    def _run(command: list[str]) -> CommandResult:
        with tempfile.TemporaryDirectory(prefix="skewgate-client-") as home:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                env=surroundings(home),
                cwd=home,
                check=False,
            )
        return CommandResult(done.returncode, done.stdout, done.stderr)
