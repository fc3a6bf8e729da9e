"""The fixtures of the group `real`: real servers, the gateway in front of them, real clients.

    ./test --real        runs this folder

Servers and gateways start once for the whole group, and end by their own ids. A test uses a testbed
(`guaranteed`, `reachable`, ...) and `clients`. After every test the recorders are read, and a request at the
wrong server is an error of that test. Nothing is skipped: a missing prerequisite is a failure that names it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import pytest

from tests.real.clients import Clients
from tests.real.environments import Environment, build_all
from tests.real.goiardi import API, GOIARDI, ChefServer, chef_servers
from tests.real.gophercloud import Gophercloud, compiled
from tests.real.ironic import NEW, NEW_PINNED, OLD, ironic, whole_server
from tests.real.launcher import Release, RunningServer, run_all
from tests.real.rolling_fleet import RollingFleet
from tests.real.server_pool import ServerPool
from tests.real.service_clients import OF_ALL, OF_ELASTICSEARCH_8, Libraries
from tests.real.testbed import Testbed

FIGURES = pytest.StashKey[list[tuple[str, ...]]]()
NOTES = pytest.StashKey[list[str]]()
HEADINGS = ("testbed", "seen by", "requests", "probes", "406", "503", "served at version:times")

ENVIRONMENTS = (OLD.environment, NEW.environment, "client-new")

CAPPED = ironic("", (1, 6))


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    config.stash[NOTES] = []


@pytest.fixture(scope="session", autouse=True)
def _end_processes() -> Iterator[None]:
    """SIGTERM ends the group as Ctrl-C does, with the teardown of fixtures, so that no server remains."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def environments() -> dict[str, Environment]:
    return build_all(ENVIRONMENTS)


@pytest.fixture(scope="session")
def clients(environments: dict[str, Environment]) -> Clients:
    return Clients(environments["client-new"])


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the files of all processes."""
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="session")
def servers(environments: dict[str, Environment], folder: Path) -> Iterator[dict[str, RunningServer]]:
    """Ironic 21.4.0 as `old` and 39.0.0 as `new`, each with its own database."""
    with run_all({"old": OLD, "new": NEW}, environments, folder, whole_server) as started:
        yield started


@pytest.fixture(scope="module")
def one_database_servers(
    environments: dict[str, Environment], folder: Path
) -> Iterator[dict[str, RunningServer]]:
    """39.0.0 twice on one database. One is pinned to the API of 21.4."""
    releases = {"pinned": NEW_PINNED, "unpinned": NEW}
    fleet = RollingFleet(environments, folder / "one-database", NEW, releases)
    try:
        fleet.start()
        yield fleet.members
    finally:
        fleet.stop()


# -- testbeds: each runs for the session or a module, and checks its records after every test ----------------


RunTestbed = Callable[[Testbed], AbstractContextManager[Testbed]]


@pytest.fixture(scope="session")
def run_testbed(pytestconfig: pytest.Config) -> RunTestbed:
    @contextmanager
    def run(testbed: Testbed) -> Iterator[Testbed]:
        """Its figures are in the final table."""
        with testbed.running():
            yield testbed
            pytestconfig.stash[FIGURES] += testbed.figures()

    return run


def _running(
    name: str,
    offer: Release,
    *,
    scope: Literal["session", "module"] = "module",
    servers: str = "servers",
    policy: str = "guaranteed",
    keys: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> Any:
    """A fixture with a running testbed. `servers`: the fixture with its servers. `keys`: more of `offer`."""

    @pytest.fixture(scope=scope)
    def running(request: pytest.FixtureRequest, folder: Path, run_testbed: RunTestbed) -> Iterator[Testbed]:
        members = request.getfixturevalue(servers)
        with run_testbed(
            Testbed(name, folder, members, {"policy": policy, **keys}, offer, **more)
        ) as testbed:
            yield testbed

    return running


guaranteed_testbed = _running("guaranteed", OLD, scope="session")
reachable_testbed = _running("reachable", NEW, scope="session", policy="reachable")
capped_testbed = _running("capped", CAPPED, keys={"ceiling": '"1.6"'})
one_database_testbed = _running("one-database", OLD, servers="one_database_servers")
# The gateway connects to the old server itself, so that a test can end that server.
direct_testbed = _running("direct", OLD, direct=frozenset({"old"}))
chef_testbed = _running("chef-guaranteed", GOIARDI, servers="goiardis", api=API)


def _tested(name: str) -> Any:
    """A fixture for one test with the testbed that the fixture `name` runs."""

    @pytest.fixture
    def tested(request: pytest.FixtureRequest) -> Iterator[Testbed]:
        with request.getfixturevalue(name).test() as testbed:
            yield testbed

    return tested


guaranteed = _tested("guaranteed_testbed")
"""Both real servers. The offer is what both serve: 1.1 to 1.82."""
reachable = _tested("reachable_testbed")
"""Both real servers. The offer is what one of them serves: 1.1 to 1.115."""
capped = _tested("capped_testbed")
"""Both real servers under a ceiling of 1.6, below the default version of the library."""
one_database = _tested("one_database_testbed")
"""Two APIs on one database. The offer is what both serve: 1.1 to 1.82."""
direct = _tested("direct_testbed")
chef_pair = _tested("chef_testbed")
"""Two goiardis behind the gateway."""


# -- nova, placement, senlin (an old and a new one of each, started when first used) and Chef ---------------


@pytest.fixture(scope="session")
def server_pool(folder: Path, pytestconfig: pytest.Config) -> Iterator[ServerPool]:
    with ServerPool(folder) as pool:
        yield pool
        pytestconfig.stash[FIGURES] += pool.figures()


@pytest.fixture
def pair(server_pool: ServerPool, request: pytest.FixtureRequest) -> Iterator[Testbed]:
    """The pair of a parameter `(kind, policy)`. Its records are checked after the test."""
    with server_pool.pair(*request.param).test() as pair:
        yield pair


@pytest.fixture(scope="session")
def clustering_clients() -> Clients:
    return Clients(build_all(["client-senlin"])["client-senlin"])


@pytest.fixture(scope="session")
def libraries() -> Libraries:
    names = (OF_ALL, OF_ELASTICSEARCH_8)
    return Libraries(build_all(names))


@pytest.fixture(scope="session")
def gophercloud() -> Gophercloud:
    return Gophercloud(compiled())


@pytest.fixture(scope="module")
def goiardis(folder: Path) -> Iterator[dict[str, ChefServer]]:
    """Two goiardis that know the same user with the same key."""
    with chef_servers(folder, ("one", "two")) as servers:
        yield servers


# -- reports ------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the exchanges of the testbed and the ends of all its logs to a failure."""
    report = yield
    if report.failed:
        values = getattr(item, "funcargs", {}).values()
        testbeds = [value for value in values if isinstance(value, Testbed)]
        for testbed in {testbed.name: testbed for testbed in testbeds}.values():
            report.sections.append((f"exchanges of the testbed {testbed.name}", testbed.records()))
            for process in (
                testbed.gateway.process,
                *(server.process for server in testbed.servers.values()),
            ):
                report.sections.append((f"log of {process.name}", process.log_tail(1500)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[FIGURES]
    if not rows:
        return
    terminalreporter.section("exchanges of real servers and real clients")
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    for row in [HEADINGS, *rows]:
        cells = map(str.ljust, row, widths)
        terminalreporter.write_line("  ".join(cells).rstrip())
    for line in config.stash[NOTES]:
        terminalreporter.write_line(line)
