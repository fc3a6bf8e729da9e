"""Real Ironic processes of several releases on one database, which are replaced one at a time.

What it does: some APIs (`RollingFleet.members`) and one conductor. Each can be replaced by another release on
the same address.

Rules: the newer release makes the one database, because its migrations of an older schema do not work on
SQLite. All processes end by SIGTERM, as an operator ends them. The conductor keeps its address as well,
because on SQLite an API of 39.0.0 looks up the conductors only once. While the conductor restarts, calls of
the APIs fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kit.networks import free_port
from tests.real.environments import Environment
from tests.real.ironic import (
    DATABASE,
    NEW,
    Release,
    api_server,
    create_schema,
    ironic,
    ironic_process,
    member,
    wait_for_conductor,
)
from tests.real.launcher import RunningServer
from tests.real.processes import Process, stop_all

# The specification's FromVer, ToVer-pinned and ToVer.
FROM = ironic("12.1.6", (1, 56))
TO_PINNED = ironic(NEW.number, FROM.maximum, pin="12.1")
TO = NEW

MEMBERS = ("one", "two", "three", "four")
AT_FIRST = dict.fromkeys(MEMBERS, FROM)


class RollingFleet:
    """At first, an API of each of these releases and a conductor of its release. A node that was created
    through one API is visible through all. All files are in `folder`."""

    def __init__(
        self,
        environments: Mapping[str, Environment],
        folder: Path,
        conductor: Release = TO_PINNED,
        releases: Mapping[str, Release] = AT_FIRST,
    ) -> None:
        folder.mkdir(parents=True)
        self._environments = environments
        self._folder = folder
        self._database = folder / DATABASE
        self._calls = free_port()
        self._started: list[Process] = []
        self._conductor = self._new_conductor(conductor)
        self.members = {name: self._api(name, release, free_port()) for name, release in releases.items()}

    def start(self) -> None:
        """Start all in parallel. Return when they respond."""
        with ThreadPoolExecutor() as pool:
            starts = [pool.submit(self._start_conductor)]
            starts += [pool.submit(self._start, server) for server in self.members.values()]
            for start in starts:
                start.result()

    def take_down(self, name: str) -> None:
        """Send SIGTERM to this API. Return when its process has ended, which it must do by itself."""
        _end(self.members[name].process)

    def bring_up(self, name: str, release: Release) -> None:
        """Start this API as `release` on its old port, after `take_down`. Return when it responds."""
        self.members[name] = self._api(name, release, self.members[name].port)
        self._start(self.members[name])

    def restart_conductor(self, release: Release, meanwhile: Callable[[], object] = object) -> None:
        """Replace the conductor by this release. Return when it accepts calls."""
        _end(self._conductor)
        meanwhile()
        self._conductor = self._new_conductor(release)
        self._start_conductor()

    def stop(self) -> None:
        stop_all(self._started)

    def _api(self, name: str, release: Release, port: int) -> RunningServer:
        home = self._folder / f"{name}-{_label(release)}"
        environment = self._environments[release.environment]
        server = api_server(release, environment, home, self._database, port=port, calls=self._calls)
        # The conductor's log has the cause of a failed write.
        server.process.logs += self._conductor.logs
        return server

    def _new_conductor(self, release: Release) -> Process:
        home = self._folder / f"conductor-{_label(release)}"
        environment = self._environments[release.environment]
        settings = member(home, self._database, release, calls=self._calls)
        if not self._database.exists():
            create_schema(self._environments[TO.environment], settings, self._database)
        return ironic_process("ironic-conductor", environment, settings)

    def _start(self, server: RunningServer) -> None:
        self._started.append(server.process)
        server.start()

    def _start_conductor(self) -> None:
        self._started.append(self._conductor)
        self._conductor.start()
        wait_for_conductor(self._conductor)


def _end(process: Process) -> None:
    code = process.terminate()
    assert code == 0, f"{process.name} ended with {code} on SIGTERM\n{process.log_tail()}"


def _label(release: Release) -> str:
    return release.number + ("" if release.pin is None else "-pinned")
