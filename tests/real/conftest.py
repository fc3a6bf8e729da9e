"""The fixtures of the group `real`: real servers, the gateway before them, real clients.

    ./test --real        runs this folder

Servers and gateways are started once for the whole group and ended at its end by their own ids. A test
asks for a stand (`guaranteed`, `reachable`, ...) and for `clients`; whatever a test does, the recorders
are read after it and a request at the wrong server is an error of that test. Nothing is skipped: what is
missing on this machine is a failure that says what.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.real.client_libraries import OF_ALL, OF_ELASTICSEARCH_8, Libraries
from tests.real.clients import Clients
from tests.real.environments import Environment, build_all
from tests.real.goiardi import GOIARDI, WIRE, ChefServer, chef_servers
from tests.real.ironic import NEW, OLD, Family, whole_server
from tests.real.launching import RunningServer
from tests.real.pairs import Pair
from tests.real.park import Park
from tests.real.processes import stop_all
from tests.real.service_clients import ClusteringClients, ComputeClients, PlacementClients
from tests.real.stand import Stand

FIGURES = pytest.StashKey[list[tuple[str, ...]]]()
NOTES = pytest.StashKey[list[str]]()
HEADINGS = ("stand", "seen by", "requests", "probes", "406", "503", "served at version:times")

ENVIRONMENTS = (OLD.environment, NEW.environment, "client-new")

OF_OLD = ("1.1", OLD.top)
OF_NEW = ("1.1", NEW.top)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "real: real servers and clients, installed from the package index")
    config.stash[FIGURES] = []
    config.stash[NOTES] = []


@pytest.fixture(scope="session", autouse=True)
def _end_in_order() -> Iterator[None]:
    """SIGTERM ends the group as Ctrl-C does: fixtures are taken down, no server is left behind."""
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
    """Where everything that runs keeps its files."""
    return tmp_path_factory.mktemp("real")


@pytest.fixture(scope="session")
def servers(environments: dict[str, Environment], folder: Path) -> Iterator[dict[str, RunningServer]]:
    """Ironic 21.4.0 as `old` and 39.0.0 as `new`, each with a database of its own."""
    started: dict[str, RunningServer] = {}

    def launch(name: str) -> None:
        release = {"old": OLD, "new": NEW}[name]
        started[name] = whole_server(release, environments[release.environment], folder / name)
        started[name].start()

    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(launch, ("old", "new")))
        yield {name: started[name] for name in ("old", "new")}
    finally:
        stop_all(server.process for server in started.values())


@pytest.fixture(scope="session")
def family(environments: dict[str, Environment], folder: Path) -> Iterator[Family]:
    """39.0.0 twice on one database, one of them pinned to the API of 21.4."""
    members = Family(environments[NEW.environment], folder / "family")
    try:
        members.start()
        yield members
    finally:
        members.stop()


# -- the stands: a session fixture each, and for every test one that checks the records after it ------


def _standing(stand: Stand, config: pytest.Config) -> Iterator[Stand]:
    """Start a stand, lend it, and end it: SIGTERM must end the gateway with exit code 0."""
    try:
        stand.start()
        yield stand
    finally:
        config.stash[FIGURES] += stand.figures()
        code = stand.stop()
    assert code == 0, (
        f"the gateway {stand.name} ended with {code} on SIGTERM\n{stand.gateway.process.last_words()}"
    )


@pytest.fixture(scope="session")
def guaranteed_stand(
    servers: dict[str, RunningServer], folder: Path, pytestconfig: pytest.Config
) -> Iterator[Stand]:
    yield from _standing(Stand("guaranteed", folder, servers, {"policy": "guaranteed"}, OF_OLD), pytestconfig)


@pytest.fixture(scope="session")
def reachable_stand(
    servers: dict[str, RunningServer], folder: Path, pytestconfig: pytest.Config
) -> Iterator[Stand]:
    yield from _standing(Stand("reachable", folder, servers, {"policy": "reachable"}, OF_NEW), pytestconfig)


@pytest.fixture(scope="module")
def capped_stand(
    servers: dict[str, RunningServer], folder: Path, pytestconfig: pytest.Config
) -> Iterator[Stand]:
    policy = {"policy": "guaranteed", "ceiling": '"1.6"'}
    yield from _standing(Stand("capped", folder, servers, policy, ("1.1", "1.6")), pytestconfig)


@pytest.fixture(scope="module")
def family_stand(family: Family, folder: Path, pytestconfig: pytest.Config) -> Iterator[Stand]:
    members = {"pinned": family.pinned, "unpinned": family.unpinned}
    yield from _standing(Stand("family", folder, members, {"policy": "guaranteed"}, OF_OLD), pytestconfig)


@pytest.fixture(scope="module")
def bare_stand(
    servers: dict[str, RunningServer], folder: Path, pytestconfig: pytest.Config
) -> Iterator[Stand]:
    """The gateway speaks with the old server itself, so that ending the server is all that happens."""
    stand = Stand("bare", folder, servers, {"policy": "guaranteed"}, OF_OLD, bare=frozenset({"old"}))
    yield from _standing(stand, pytestconfig)


@pytest.fixture
def guaranteed(guaranteed_stand: Stand) -> Iterator[Stand]:
    """Both real servers; the offer is what both serve: 1.1 to 1.82."""
    with guaranteed_stand.test() as stand:
        yield stand


@pytest.fixture
def reachable(reachable_stand: Stand) -> Iterator[Stand]:
    """Both real servers; the offer is what one of them serves: 1.1 to 1.115."""
    with reachable_stand.test() as stand:
        yield stand


@pytest.fixture
def capped(capped_stand: Stand) -> Iterator[Stand]:
    """Both real servers under a ceiling of 1.6, below what the library sends by default."""
    with capped_stand.test() as stand:
        yield stand


@pytest.fixture
def one_database(family_stand: Stand) -> Iterator[Stand]:
    """Two APIs on one database; the offer is what both serve: 1.1 to 1.82."""
    with family_stand.test() as stand:
        yield stand


@pytest.fixture
def bare(bare_stand: Stand) -> Iterator[Stand]:
    with bare_stand.test() as stand:
        yield stand


# -- nova, placement, senlin (an old and a new one of each, started when first asked for) and Chef ----------


@pytest.fixture(scope="session")
def park(folder: Path, pytestconfig: pytest.Config) -> Iterator[Park]:
    with Park(folder) as everything:
        yield everything
        pytestconfig.stash[FIGURES] += everything.figures()


@pytest.fixture
def pair(park: Park, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A pair by its `(kind, policy)`: parametrize indirectly. Its records are checked after the test."""
    with park.pair(*request.param).test() as lent:
        yield lent


@pytest.fixture(scope="session")
def compute_clients() -> ComputeClients:
    return ComputeClients(build_all(["client-new"])["client-new"])


@pytest.fixture(scope="session")
def placement_clients() -> PlacementClients:
    return PlacementClients(build_all(["client-new"])["client-new"])


@pytest.fixture(scope="session")
def clustering_clients() -> ClusteringClients:
    return ClusteringClients(build_all(["client-senlin"])["client-senlin"])


@pytest.fixture(scope="session")
def libraries() -> Libraries:
    names = (OF_ALL, OF_ELASTICSEARCH_8)
    return Libraries(build_all(names))


@pytest.fixture(scope="module")
def chefs(folder: Path) -> Iterator[dict[str, ChefServer]]:
    """Two goiardis that know the same user by the same key."""
    with chef_servers(folder, ("one", "two")) as servers:
        yield servers


@pytest.fixture(scope="module")
def kitchen_stand(chefs: dict[str, ChefServer], folder: Path, pytestconfig: pytest.Config) -> Iterator[Pair]:
    with Pair(WIRE, "guaranteed", folder, chefs, GOIARDI).running() as lent:
        yield lent
        pytestconfig.stash[FIGURES] += lent.figures()


@pytest.fixture
def kitchen(kitchen_stand: Pair) -> Iterator[Pair]:
    """Two goiardis behind the gateway. Its records are checked after the test."""
    with kitchen_stand.test() as lent:
        yield lent


# -- what a person gets to see --------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure: what passed through the stand, and the ends of all its logs."""
    report = yield
    if report.failed:
        values = getattr(item, "funcargs", {}).values()
        stands = [value for value in values if isinstance(value, Stand | Pair)]
        for stand in {stand.name: stand for stand in stands}.values():
            report.sections.append((f"what passed through the stand {stand.name}", stand.records()))
            for process in (stand.gateway.process, *(server.process for server in stand.servers.values())):
                report.sections.append((f"log of {process.name}", process.last_words(1500)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[FIGURES]
    if not rows:
        return
    terminalreporter.section("real servers, real clients: what passed")
    widths = [max(len(row[column]) for row in [HEADINGS, *rows]) for column in range(len(HEADINGS))]
    for row in [HEADINGS, *rows]:
        cells = (
            cell.rjust(width) if 2 <= column <= 5 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        terminalreporter.write_line("  ".join(cells).rstrip())
    for line in config.stash[NOTES]:
        terminalreporter.write_line(line)
