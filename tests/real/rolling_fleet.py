"""Real Ironic processes of two releases on one database, exchanged one at a time.

What it does: four APIs (`RollingFleet.members`) and one conductor, each of which can be made another release
on the address that it has.

Rules: one database, made by the newer release: its changes to an older release's schema are not SQLite. All
end by SIGTERM to their process, as an operator ends them. The conductor keeps its address, too: on SQLite an
API of 39.0.0 never looks again who the conductors are. While it is restarted nobody takes the APIs' calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.real.environments import Environment
from tests.real.ironic import (
    NEW,
    Release,
    api_server,
    create_schema,
    ironic,
    ironic_process,
    member,
    wait_for_conductor,
)
from tests.real.launching import RunningServer
from tests.real.processes import Process, free_port, stop_all

# The specification's FromVer, ToVer-pinned and ToVer.
FROM = ironic("12.1.6", (1, 56))
TO_PINNED = ironic(NEW.number, FROM.maximum, pin="12.1")
TO = NEW

MEMBERS = ("one", "two", "three", "four")


class RollingFleet:
    """Four APIs of FROM and a conductor of TO_PINNED at first; everything lies in `folder`."""

    def __init__(self, environments: Mapping[str, Environment], folder: Path) -> None:
        folder.mkdir(parents=True)
        self._environments = environments
        self._folder = folder
        self._database = folder / "rolling.sqlite"
        self._calls = free_port()
        self._started: list[Process] = []
        self._conductor = self._new_conductor(TO_PINNED)
        self.members = {name: self._api(name, FROM, free_port()) for name in MEMBERS}

    def start(self) -> None:
        """All five side by side; returns once they answer."""
        with ThreadPoolExecutor() as pool:
            starts = [pool.submit(self._start_conductor)]
            starts += [pool.submit(self._start, server) for server in self.members.values()]
            for start in starts:
                start.result()

    def take_down(self, name: str) -> None:
        """SIGTERM to this API; returns once its process has ended. It must have ended of its own accord."""
        _end(self.members[name].process)

    def bring_up(self, name: str, release: Release) -> None:
        """The API that was taken down is this release now, on its old port; returns once it answers."""
        self.members[name] = self._api(name, release, self.members[name].port)
        self._start(self.members[name])

    def restart_conductor(self, release: Release) -> None:
        """The conductor is this release now; returns once it takes calls."""
        _end(self._conductor)
        self._conductor = self._new_conductor(release)
        self._start_conductor()

    def stop(self) -> None:
        stop_all(self._started)

    def _api(self, name: str, release: Release, port: int) -> RunningServer:
        home = self._folder / f"{name}-{_label(release)}"
        environment = self._environments[release.environment]
        server = api_server(release, environment, home, self._database, port=port, calls=self._calls)
        # What a write failed of is in the conductor's log.
        server.process.logs += self._conductor.logs
        return server

    def _new_conductor(self, release: Release) -> Process:
        home = self._folder / f"conductor-{_label(release)}"
        environment = self._environments[release.environment]
        settings = member(home, self._database, release, calls=self._calls)
        if not self._database.exists():
            create_schema(environment, settings, self._database)
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
    assert code == 0, f"{process.name} ended with {code} on SIGTERM\n{process.last_words()}"


def _label(release: Release) -> str:
    return release.number + ("" if release.pin is None else "-pinned")
