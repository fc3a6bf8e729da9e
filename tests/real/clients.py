"""The real clients: python-ironicclient, -novaclient and -senlinclient and openstacksdk as libraries, and the
command lines `baremetal` and `openstack`.

What it does: it runs one of them as a process in the clients' environment, and returns its results.

Rules: each run starts with an empty home folder and without proxies. So neither a version from another run
(python-ironicclient keeps them on disk for five minutes, by host and port) nor a user's settings have an
effect. By default, the clients retry a 503 for ten seconds: here they do not.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.environments import Environment

SCRIPTS = Path(__file__).resolve().parent / "scripts"
LIMIT = 60  # seconds; a client that takes longer hangs

# The newest version that python-ironicclient 6.3.0 knows. Its command line requests it first.
NEWEST_KNOWN = "1.115"
# The default version of the library.
LIBRARY_DEFAULT = "1.9"
TOKEN = "admin"

Call = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one call: a value, or the class and the text of an error."""

    value: Any
    error: str | None
    text: str

    @classmethod
    def read(cls, entry: dict[str, Any]) -> Result:
        return cls(entry.get("value"), entry.get("error"), entry.get("text", ""))


@dataclass(frozen=True, slots=True)
class Session:
    """The results of a library session. `version`: the client's version at its end (ironicclient)."""

    results: list[Result]
    version: str | None
    negotiated: bool

    def values(self) -> list[Any]:
        """The value of every call. Fails with the text of the error when one has none."""
        for result in self.results:
            assert result.error is None, f"{result.error}: {result.text}"
        return [result.value for result in self.results]

    def only_error(self) -> Result:
        """The error of a session of one call."""
        (result,) = self.results
        assert result.error is not None, f"this call had to fail, and returned {result.value}"
        return result


@dataclass(frozen=True, slots=True)
class CommandResult:
    code: int
    output: str
    errors: str

    def json(self) -> Any:
        """Its output, read as JSON. Fails with its error output when it did not succeed."""
        assert self.code == 0, f"exit {self.code}: {self.errors}"
        return json.loads(self.output)


def client_environment(home: str) -> dict[str, str]:
    """The environment variables of a client with this home: without settings and proxies of this run."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OS_", "IRONIC", "XDG_", "PYTHON")) and "proxy" not in name.lower()
    }
    return inherited | {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}


class Clients:
    """Runs the clients of one environment."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def ironicclient(self, endpoint: str, calls: list[Call], **plan: Any) -> Session:
        """Run a session of python-ironicclient. Without `version`: at its own default."""
        return self.session("ironicclient_session.py", endpoint, calls, **plan)

    def sdk(self, endpoint: str, calls: list[Call], **plan: Any) -> Session:
        """Run a session of openstacksdk. Without `version`: it chooses one from the documents."""
        return self.session("sdk_session.py", endpoint, calls, **plan)

    def nova(self, url: str, calls: list[Call], *, version: str) -> Session:
        """Run a session of python-novaclient at `2.N` or `2.latest`. `url`: of the gateway or of a server."""
        return self.session("nova_session.py", f"{url}/v2.1", calls, version=version)

    def compute_sdk(self, url: str, calls: list[Call], **plan: Any) -> Session:
        """As `sdk`, for a compute API."""
        return self.session("sdk_session.py", f"{url}/v2.1", calls, service="compute", **plan)

    def senlin(self, url: str, calls: list[Call], *, version: str | None = None) -> Session:
        """Run a session of python-senlinclient. `version` None: the one that its release is made for."""
        return self.session("senlin_session.py", url, calls, version=version)

    def baremetal(self, endpoint: str, *arguments: str, version: str | None = None) -> CommandResult:
        """Run one command of the `baremetal` command line. `version` None: its own default."""
        options = ["--os-auth-type", "none", "--os-endpoint", endpoint, "--max-retries", "0"]
        return self._command("baremetal", "baremetal", options, arguments, version)

    def compute(self, url: str, *arguments: str, version: str | None = None) -> CommandResult:
        """Run one command of the `openstack` command line. `version` None: its own default."""
        options = ["--os-auth-type", "none", "--os-endpoint", f"{url}/v2.1"]
        return self._command("openstack", "compute", options, arguments, version)

    def placement(self, url: str, *arguments: str, version: str | None = None) -> CommandResult:
        """The same of osc-placement, its plug-in."""
        options = ["--os-auth-type", "admin_token", "--os-token", TOKEN, "--os-endpoint", url]
        return self._command("openstack", "placement", options, arguments, version)

    def _command(
        self, program: str, api: str, options: list[str], arguments: tuple[str, ...], version: str | None
    ) -> CommandResult:
        if version is not None:
            options = [*options, f"--os-{api}-api-version", version]
        return self._run(self._environment.command(program, *options, *arguments))

    def session(self, script: str, endpoint: str, calls: Sequence[Any], **plan: Any) -> Session:
        text = json.dumps({"endpoint": endpoint, "calls": calls, **plan})
        ended = self._run([str(self._environment.python), str(SCRIPTS / script), text])
        assert ended.code == 0, f"{script} itself failed (exit {ended.code}):\n{ended.errors}"
        session = json.loads(ended.output.splitlines()[-1])
        results = [Result.read(entry) for entry in session["results"]]
        return Session(results, session.get("version"), session.get("negotiated", False))

    @staticmethod
    def _run(command: list[str]) -> CommandResult:
        with tempfile.TemporaryDirectory(prefix="skewgate-client-") as home:
            ended = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                env=client_environment(home),
                cwd=home,
                check=False,
            )
        return CommandResult(ended.returncode, ended.stdout, ended.stderr)
