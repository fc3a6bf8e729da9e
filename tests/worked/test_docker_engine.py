"""config/examples/docker-engine.yaml: versions in the path, and a document with the range in two places."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kit.gateways import gateway_of
from tests.kit.waiting import PATIENCE, until
from tests.scenarios.fakes import read_head
from tests.scenarios.fakes import running as started
from tests.scenarios.testbed import REPEATS
from tests.worked.docker_streams import STDERR, STDOUT, frame
from tests.worked.fleet import WorkedTestbed, example, running
from tests.worked.path_servers import DockerEngine

LIST = "/containers/json"


@pytest.fixture
async def testbed() -> AsyncIterator[WorkedTestbed]:
    """A daemon of Docker 24, which serves 1.24 to 1.43."""
    async with running("docker-engine", DockerEngine("1.24", "1.43")) as testbed:
        assert testbed.offer == "1.24-1.43"
        yield testbed


@pytest.mark.parametrize("version", ["1.24", "1.30", "1.43"])
async def test_a_version_that_it_serves_is_executed_as_requested(
    testbed: WorkedTestbed, version: str
) -> None:
    response = await testbed.repeated(f"/v{version}{LIST}?all=1")

    assert (response.status, response.get("Api-Version")) == (200, "1.43")
    assert testbed.executed() == [version] * REPEATS
    assert {head.target for head in testbed.forwarded} == {f"/v{version}{LIST}?all=1"}


async def test_a_request_without_a_version_gets_the_newest(testbed: WorkedTestbed) -> None:
    response = await testbed.repeated(LIST)

    assert (response.status, response.get("Api-Version")) == (200, "1.43")
    assert testbed.executed() == ["1.43"] * REPEATS
    assert {head.target for head in testbed.forwarded} == {f"/v1.43{LIST}"}


TOO_NEW = "client version {} is too new. Maximum supported API version is 1.43"
TOO_OLD = (
    "client version {} is too old. Minimum supported API version is 1.24, please upgrade your client to a "
    "newer version"
)


@pytest.mark.parametrize("version, text", [("1.44", TOO_NEW), ("1.47", TOO_NEW), ("1.12", TOO_OLD)])
async def test_a_version_that_it_does_not_serve_is_refused_as_by_a_daemon(
    testbed: WorkedTestbed, version: str, text: str
) -> None:
    response = await testbed.repeated(f"/v{version}{LIST}")

    assert (response.status, json.loads(response.body)) == (400, {"message": text.format(version)})
    assert (response.get("Api-Version"), testbed.executed()) == ("1.43", [])


@pytest.mark.parametrize("segment", ["v1.043", "v1.x", "v1", "v1.43.1", "%761.43", "v1.43;x"])
async def test_a_malformed_version_is_a_page_that_does_not_exist(
    testbed: WorkedTestbed, segment: str
) -> None:
    response = await testbed.repeated(f"/{segment}{LIST}")

    assert (response.status, json.loads(response.body)) == (404, {"message": "page not found"})
    assert testbed.forwarded == []


async def test_a_path_that_begins_like_a_version_has_none(testbed: WorkedTestbed) -> None:
    response = await testbed.repeated("/volumes/create", method="POST")

    assert response.status == 201
    assert testbed.executed() == ["1.43"] * REPEATS


@pytest.mark.parametrize("target", ["/version", "/v1.30/version"])
async def test_the_document_shows_the_offer_in_both_places(testbed: WorkedTestbed, target: str) -> None:
    response = await testbed.repeated(target)

    assert (response.status, response.get("Api-Version")) == (200, "1.43")
    assert json.loads(response.body) == DockerEngine.version_document("1.24", "1.43")


async def test_a_ping_by_head_shows_the_newest_version(testbed: WorkedTestbed) -> None:
    """The first request of the `docker` command line."""
    response = await testbed.send("/_ping", method="HEAD", bodiless=True)

    assert (response.status, response.get("Api-Version")) == (200, "1.43")


async def test_the_offer_moves_when_the_daemon_is_upgraded(testbed: WorkedTestbed) -> None:
    (daemon,) = testbed.servers
    assert (await testbed.send(f"/v1.45{LIST}")).status == 400

    daemon.versions = ("1.24", "1.47")
    await testbed.until_offered("1.24-1.47")

    response = await testbed.repeated(f"/v1.45{LIST}")
    assert (response.status, response.get("Api-Version")) == (200, "1.47")
    assert testbed.executed() == ["1.45"] * REPEATS
    assert (await testbed.repeated(LIST)).status == 200
    assert testbed.executed() == ["1.47"] * REPEATS
    assert json.loads((await testbed.repeated("/version")).body) == DockerEngine.version_document(
        "1.24", "1.47"
    )


@pytest.mark.parametrize("strip", ["true", "false"])
@pytest.mark.parametrize(
    "target, sent",
    [
        (f"/v1.30{LIST}?all=1", f"/v1.30{LIST}?all=1"),
        (f"{LIST}?all=1", f"/v1.43{LIST}?all=1"),
        ("/v1.30//containers/%6Ason?", "/v1.30//containers/%6Ason?"),
    ],
)
async def test_after_a_prefix_that_backends_see_or_not(strip: str, target: str, sent: str) -> None:
    """The version is written where it was read: after the prefix."""
    match = f"    match: {{path: /engine, strip_prefix: {strip}}}\n"
    prefix = "" if strip == "true" else "/engine"
    async with running("docker-engine", DockerEngine("1.24", "1.43"), extra=match) as testbed:
        await testbed.send(f"/engine{target}")
        refused = await testbed.send(f"/engine/v1.44{LIST}")

        assert [head.target for head in testbed.forwarded] == [prefix + sent]
        assert refused.status == 400


@pytest.mark.parametrize("version, target", [("", "/v1.43"), ("/v1.30", "/v1.30")])
@pytest.mark.parametrize("body", ["", '{"Detach": false, "Tty": false}'])
async def test_attach_and_exec_are_tunnels_at_the_negotiated_version(
    testbed: WorkedTestbed, version: str, target: str, body: str
) -> None:
    """Standard input ends with a half-close, and output still comes after it."""
    path = "/exec/with-input/start" if body else "/containers/c1/attach?stdin=1&stream=1"
    lines = f"Host: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    reader, writer = await asyncio.open_connection(*testbed.gateway.addresses[0])
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(f"POST {version}{path} HTTP/1.1\r\n{lines}".encode())
            head = await read_head(reader)
            assert head is not None
            assert (head.start, head.get("Upgrade")) == ("HTTP/1.1 101 UPGRADED", "tcp")
            assert head.get("Content-Type") == "application/vnd.docker.raw-stream"
            assert head.get("Api-Version") == "1.43"
            writer.write(b"some input")
            expected = frame(STDOUT, b"some input")
            assert await reader.readexactly(len(expected)) == expected
            writer.write_eof()
            assert await reader.read() == frame(STDERR, b"end of input")
    finally:
        writer.close()

    assert testbed.executed() == [target.removeprefix("/v")]
    (forwarded,) = testbed.forwarded
    assert (forwarded.target, forwarded.body) == (f"{target}{path}", body.encode())


async def test_a_version_that_it_does_not_serve_is_refused_before_any_upgrade(testbed: WorkedTestbed) -> None:
    response = await testbed.send("/v1.45/containers/c1/attach?stdin=1", method="POST")

    assert (response.status, testbed.forwarded) == (400, [])


async def test_an_image_build_over_h2c_is_an_ordinary_request(testbed: WorkedTestbed) -> None:
    response = await testbed.send("/v1.43/session", ("Upgrade", "h2c"), method="POST")

    assert response.status == 404
    assert [head.get("Upgrade") for head in testbed.forwarded] == [None]


PINNED = ("User-Agent", "Traefik 2.11.0")
BRIDGED = "X-Skewgate-Bridged"


async def test_a_pinned_client_goes_on_when_the_daemon_has_dropped_its_version() -> None:
    """Its first request is for the document, at its version. It gets the range, and no refusal."""
    async with running("docker-engine", DockerEngine("1.44", "1.52")) as testbed:
        document = await testbed.send("/v1.24/version", PINNED)
        assert (document.status, document.get(BRIDGED)) == (200, "1.24 -> 1.44")
        assert json.loads(document.body) == DockerEngine.version_document("1.44", "1.52")
        listed = await testbed.send(f"/v1.24{LIST}?all=1", PINNED)
        assert (listed.status, listed.get(BRIDGED)) == (200, "1.24 -> 1.44")
        assert (testbed.executed(), testbed.forwarded[-1].target) == (["1.44"], f"/v1.44{LIST}?all=1")

        for version, lines in (("1.24", ()), ("1.53", (PINNED,)), ("1.x", (PINNED,))):
            refused = await testbed.send(f"/v{version}{LIST}", *lines)
            assert (refused.status // 100, refused.get(BRIDGED)) == (4, None)
        for target in (f"/v1.50{LIST}", LIST):
            served = await testbed.send(target, PINNED)
            assert (served.status, served.get(BRIDGED)) == (200, None)
        assert testbed.executed() == ["1.50", "1.52"]


async def test_a_tunnel_and_the_document_that_outlives_its_daemon_are_bridged_and_say_so() -> None:
    daemon = DockerEngine("1.44", "1.52")
    async with running("docker-engine", daemon) as testbed:
        await testbed.send("/v1.24/version", PINNED)
        reader, writer = await asyncio.open_connection(*testbed.gateway.addresses[0])
        lines = "Host: d\r\nUser-Agent: Traefik 2.11.0\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        async with asyncio.timeout(PATIENCE):
            writer.write(f"POST /v1.24/containers/c1/attach?stdin=1&stream=1 HTTP/1.1\r\n{lines}".encode())
            head = await read_head(reader)
        writer.close()
        assert head is not None
        assert (head.start, head.get(BRIDGED)) == ("HTTP/1.1 101 UPGRADED", "1.24 -> 1.44")

        await daemon.stop()
        document = await testbed.send("/v1.24/version", PINNED)
        assert (document.status, document.get(BRIDGED)) == (200, "1.24 -> 1.44")


class LocalDaemon(DockerEngine):
    """A daemon on a Unix socket, as most are."""

    def __init__(self, path: Path, *versions: str) -> None:
        super().__init__(*versions)
        self.path = path

    async def start(self) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(self.path))
        await self._server.start(sock=listening)


async def test_from_socket_to_socket(tmp_path: Path) -> None:
    """As the file is written: the daemon and the gateway both listen on Unix sockets."""
    inside, outside = tmp_path / "docker.sock", tmp_path / "skewgate.sock"
    environ = {
        "SKEWGATE_ADMIN": "127.0.0.1:0",
        "SKEWGATE_LISTEN": f"unix:{outside}",
        "API_1": f"unix:{inside}",
    }
    async with (
        started(LocalDaemon(inside, "1.44", "1.52")),
        gateway_of(example("docker-engine"), environ=environ) as gateway,
    ):
        await until(lambda: gateway.snapshot_holder.current.views["engine"].offer.versions)
        reader, writer = await asyncio.open_unix_connection(outside)
        async with asyncio.timeout(PATIENCE):
            writer.write(f"GET /v1.24{LIST} HTTP/1.1\r\nHost: d\r\nUser-Agent: Traefik\r\n\r\n".encode())
            head = await read_head(reader)
        writer.close()
    assert head is not None
    assert (head.start.split()[1], head.get(BRIDGED)) == ("200", "1.24 -> 1.44")
