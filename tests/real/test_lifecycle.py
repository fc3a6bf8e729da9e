"""Real clients meet the end of old versions, and do what docs/lifecycle.md says of them.

A gateway in the loop of the test, in front of one real server, or of a daemon of `tests/worked`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

import pytest

from gateway.core.fleet.fleet import Raise
from gateway.core.fleet.offer import Phase
from gateway.core.versions.version import Version
from tests.kit.gateways import gateway_of
from tests.real.clients import Clients, CommandResult, Session
from tests.real.launcher import RunningServer
from tests.real.recorder import Exchange, Recorder
from tests.real.server_pool import ServerPool
from tests.real.service_clients import Libraries
from tests.scenarios.fakes import running as started
from tests.scenarios.testbed import Testbed, configuration, service_of
from tests.worked.fleet import WorkedTestbed, environment, example
from tests.worked.path_servers import DockerEngine

pytestmark = pytest.mark.real

LIST: Final = [("list", None)]
LINK: Final = "https://docs.example/old"


def lifecycle(below: str, more: str = "") -> str:
    return (
        f"{{deprecated: {{below: '{below}', since: 2026-01-15, link: '{LINK}'}},"
        f" sunset: {{below: '{below}', at: 2099-06-30, link: '{LINK}'}}{more}}}"
    )


def open_window() -> str:
    """A brown-out that has begun before the gateway starts, and lasts longer than any test."""
    begun = datetime.now(UTC) - timedelta(minutes=5)
    return f", brownouts: [{{at: '{begun:%Y-%m-%dT%H:%MZ}', for: 2h}}]"


BRIDGE: Final = "[{clients: [all], match: nearest_later, until: 2099-12-31}]"


@final
class Front:
    """A gateway with one service, and the recorder through which its clients come."""

    def __init__(self, testbed: Testbed, recorder: Recorder) -> None:
        self._testbed = testbed
        self._recorder = recorder
        self._read = 0

    def raise_to(self, major: int, minor: int) -> None:
        self._testbed.gateway.snapshot_holder.apply(self._testbed.service, Raise(Version(major, minor)))

    async def session(self, run: Callable[..., Session], calls: list[Any], version: Any = None) -> Session:
        """One session of a client, while the gateway runs."""
        return await asyncio.to_thread(run, self._recorder.url, calls, version=version)

    async def command(self, run: Callable[..., CommandResult], *words: str, version: str) -> CommandResult:
        """One command of a client, while the gateway runs."""
        return await asyncio.to_thread(run, self._recorder.url, *words, version=version)

    def exchanges(self) -> list[Exchange]:
        """What clients have sent since the last call, and what they got."""
        found = self._recorder.exchanges(self._read)
        self._read += len(found)
        return found

    def bridged(self) -> list[str | None]:
        """What each response since the last call says about a bridge."""
        return [each.response.get("X-Skewgate-Bridged") for each in self.exchanges() if each.response]

    def announced(self) -> list[bool]:
        """Whether each response since the last call announces the end of its version."""
        return [
            bool(response.get("Deprecation") and response.get("Sunset"))
            for response in (exchange.response for exchange in self.exchanges())
            if response is not None
        ]


@asynccontextmanager
async def in_front_of(service: str, port: int, **keys: str) -> AsyncIterator[Front]:
    clients = "clients:\n  - {name: all, networks: [127.0.0.0/8]}\n"
    async with gateway_of(configuration(service_of(service, [port], **keys)) + clients) as gateway:
        testbed = Testbed(gateway, [], "", service)
        await testbed.until(lambda view: view.offer.phase is Phase.UNIFORM)
        with Recorder(service, gateway.addresses[0][1]) as recorder:
            yield Front(testbed, recorder)


# --- Ironic ------------------------------------------------------------------------------------------------


async def test_ironics_clients_work_on_while_the_end_is_announced(
    servers: dict[str, RunningServer], clients: Clients
) -> None:
    async with in_front_of("baremetal", servers["new"].port, lifecycle=lifecycle("1.46")) as front:
        for version, announced in ((None, True), ("1.30", True), ("1.60", False)):
            assert (await front.session(clients.ironicclient, LIST, version)).values() == [[]]
            assert front.announced() == [announced], version
        found = await front.session(clients.sdk, [("announced", None), *LIST])
        assert found.values() == [{"next": "1.46", "from": "2099-06-30"}, []]


async def test_ironics_clients_under_a_raised_floor(
    servers: dict[str, RunningServer], clients: Clients
) -> None:
    async with in_front_of("baremetal", servers["new"].port) as front:
        front.raise_to(1, 46)

        moved = await front.session(clients.ironicclient, LIST)
        assert (moved.values(), moved.version) == ([[]], "1.46"), "its default of 1.9 is a wish"
        assert (await front.session(clients.sdk, LIST)).values() == [[]]
        pinned = await front.session(clients.ironicclient, LIST, "1.30")
        assert pinned.only_error().error == "UnsupportedVersion"
        assert "Supported version range is 1.46 to 1.115" in pinned.only_error().text
        command = await front.command(clients.baremetal, "node", "list", version="1.30")
        assert "Supported version range is 1.46 to 1.115" in command.errors
        configured = (await front.session(clients.sdk, LIST, "1.30")).only_error()
        assert "only supports a minimum of 1.46 and a maximum of 1.115" in configured.text


async def test_ironics_clients_in_a_brown_out(servers: dict[str, RunningServer], clients: Clients) -> None:
    keys = lifecycle("1.46", open_window())
    async with in_front_of("baremetal", servers["new"].port, lifecycle=keys) as front:
        for version in (None, "1.30"):
            refused = (await front.session(clients.ironicclient, LIST, version)).only_error()
            assert refused.error == "UnsupportedVersion"
            assert "1.1 to 1.115" in refused.text, "it shows the range that it has asked for"
        configured = (await front.session(clients.sdk, LIST, "1.30")).only_error()
        assert configured.text.startswith("HttpException: 406"), "it reads no text of Ironic's"
        writes = [("create", "browned-out"), ("delete", "browned-out")]
        assert not any(
            each.error for each in (await front.session(clients.ironicclient, writes, "1.30")).results
        )
        assert (await front.session(clients.ironicclient, LIST, "1.60")).values() == [[]]
        assert (await front.session(clients.sdk, LIST)).values() == [[]]


async def test_ironics_clients_over_a_bridge(servers: dict[str, RunningServer], clients: Clients) -> None:
    async with in_front_of("baremetal", servers["new"].port, bridge=BRIDGE) as front:
        front.raise_to(1, 46)
        calls = [("create", "bridged"), ("show", "bridged"), ("delete", "bridged")]
        session = await front.session(clients.ironicclient, calls, "1.30")
        assert not any(each.error for each in session.results), session
        assert session.version == "1.30", "it does not know"
        assert front.bridged() == ["1.30 -> 1.46"] * 3
        assert (await front.command(clients.baremetal, "node", "list", version="1.30")).code == 0
        assert front.bridged() == ["1.30 -> 1.46"]
        configured = (await front.session(clients.sdk, LIST, "1.30")).only_error()
        assert configured.error == "ConfigException", "it asks for the range first"


# --- Nova --------------------------------------------------------------------------------------------------


@pytest.fixture
def nova_port(server_pool: ServerPool) -> int:
    return server_pool.servers("nova")["new"].port


async def test_novas_clients_while_the_end_is_announced_and_under_a_raised_floor(
    nova_port: int, clients: Clients
) -> None:
    async with in_front_of("compute", nova_port, dialect="nova", lifecycle=lifecycle("2.40")) as front:
        for version, announced in (("2.30", True), ("2.60", False)):
            assert (await front.session(clients.nova, LIST, version)).values() == [[]]
            assert front.announced() == [announced]
        front.raise_to(2, 40)

        for version in ("2.30", "2.latest"):  # `latest` asks for the document, at 2.1
            refused = (await front.session(clients.nova, LIST, version)).only_error()
            assert refused.error == "NotAcceptable"
            assert "Minimum is 2.40 and maximum is 2.104." in refused.text
        assert (await front.session(clients.nova, LIST, "2.60")).values() == [[]]
        assert (await front.session(clients.compute_sdk, LIST)).values() == [[]]


async def test_novas_clients_in_a_brown_out(nova_port: int, clients: Clients) -> None:
    keys = lifecycle("2.40", open_window())
    async with in_front_of("compute", nova_port, dialect="nova", lifecycle=keys) as front:
        refused = (await front.session(clients.nova, LIST, "2.30")).only_error()
        assert refused.error == "NotAcceptable"
        assert "below 2.40 are deprecated since 2026-01-15" in refused.text
        assert LINK in refused.text
        assert (await front.session(clients.nova, LIST, "2.latest")).values() == [[]]


async def test_novas_clients_over_a_bridge(nova_port: int, clients: Clients) -> None:
    async with in_front_of("compute", nova_port, dialect="nova", bridge=BRIDGE) as front:
        front.raise_to(2, 40)
        assert (await front.session(clients.nova, LIST, "2.30")).values() == [[]]
        assert front.bridged() == ["2.30 -> 2.40"]
        refused = (await front.session(clients.nova, LIST, "2.latest")).only_error()
        assert refused.error == "NotAcceptable", "a document is never bridged"


# --- Docker ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def dockers(more: str = "") -> AsyncIterator[WorkedTestbed]:
    """The worked file, whose pinned clients are those of PyPI's `docker`, and a daemon as of Docker 29."""
    daemon = DockerEngine("1.44", "1.51")
    text = example("docker-engine", more).replace("user_agent: Traefik", "user_agent: docker-sdk-python")
    async with started(daemon), gateway_of(text, environ=environment(daemon)) as gateway:
        testbed = WorkedTestbed(gateway, [daemon], "", "engine")
        await testbed.until_offered("1.44-1.51")
        yield testbed


async def test_docker_over_a_bridge(libraries: Libraries) -> None:
    async with dockers() as testbed:
        for version, executed in (("1.30", "1.44"), (None, "1.51")):
            session = await libraries.session("docker", testbed.base, "containers", "volume", version=version)
            assert (session.values(), session.version) == ([[], "data"], version or executed)
            assert testbed.executed() == [executed] * 2


async def test_docker_in_a_brown_out(libraries: Libraries) -> None:
    more = f"    lifecycle: {lifecycle('1.46', open_window())}\n"
    async with dockers(more) as testbed:
        refused = (await libraries.session("docker", testbed.base, "containers", version="1.45")).only_error()
        assert refused.error == "APIError"
        assert "below 1.46 are deprecated since 2026-01-15" in refused.text
        made = await libraries.session("docker", testbed.base, "volume", version="1.45")
        assert (made.values(), testbed.executed()) == (["data"], ["1.45"]), "it changes something"
