"""What the rest of the group stands on: the servers are what they are said to be, the recorder sees it all.

No gateway here. The golden examples' ids are those of the dialect's tests."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.real.clients import LIBRARY_DEFAULT, NEWEST_KNOWN, Clients
from tests.real.hop import LOOPBACK, OWN_HEADER, STANDARD_HEADER, Hop
from tests.real.ironic import NEW, OLD
from tests.real.launching import RunningServer
from tests.real.stand import Backend, Stand, violations
from tests.real.wire import MessageReader

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])


@pytest.fixture
def hop(servers: dict[str, RunningServer], name: str) -> Iterator[Hop]:
    """A recorder of this test's own before one server."""
    with Hop(f"direct-{name}", servers[name].port) as relay:
        yield relay


def ask(
    port: int, *headers: tuple[str, str], path: str = "/v1/nodes"
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.putrequest("GET", path)
        for header, value in headers:
            connection.putheader(header, value)
        connection.endheaders()
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()
    finally:
        connection.close()


@BOTH
@pytest.mark.parametrize(
    "asked, served",
    [
        pytest.param(None, "1.1", id="I1"),
        pytest.param("1.31", "1.31", id="I2"),
        pytest.param("latest", "the maximum", id="I3"),
        pytest.param("LATEST", "the maximum", id="I3-any-case"),
    ],
)
def test_a_server_serves_what_its_release_serves(
    hop: Hop, servers: dict[str, RunningServer], name: str, asked: str | None, served: str
) -> None:
    top = servers[name].release.top
    status, headers, body = ask(hop.port, *([] if asked is None else [(OWN_HEADER, asked)]))
    (seen,) = hop.exchanges()
    assert (status, seen.status) == (200, 200)
    assert seen.served == headers[OWN_HEADER] == (top if served == "the maximum" else served)
    assert seen.offered == ("1.1", top)
    assert "nodes" in json.loads(body)


@BOTH
@pytest.mark.parametrize("asked", [pytest.param("1.999", id="I4"), pytest.param("1.0", id="I5")])
def test_a_server_refuses_what_its_release_does_not_serve(
    hop: Hop, servers: dict[str, RunningServer], name: str, asked: str
) -> None:
    top = servers[name].release.top
    status, _, body = ask(hop.port, (OWN_HEADER, asked))
    (seen,) = hop.exchanges()
    inner = json.loads(json.loads(body)["error_message"])
    assert (status, seen.served, seen.offered) == (406, None, ("1.1", top))
    assert inner["description"] == (
        f"Version {asked} was requested but the minor version is not supported by this service."
        f" The supported version range is: [1.1, {top}]."
    )


@BOTH
def test_i8_only_the_new_release_knows_the_standard_header(hop: Hop, name: str) -> None:
    ask(hop.port, (STANDARD_HEADER, "compute 2.1, baremetal 1.31"))
    (seen,) = hop.exchanges()
    assert (seen.asked, seen.asked_standard) == (None, "1.31")
    assert seen.served == {"old": "1.1", "new": "1.31"}[name]


@BOTH
def test_the_clients_reach_a_server_through_the_recorder(hop: Hop, clients: Clients, name: str) -> None:
    """A whole life of a node with the library, and what each client sends by default."""
    session = clients.ironicclient(hop.url, [("create", "direct"), ("list", None), ("delete", "direct")])
    created, listed, _ = session.values()
    assert created["name"] in listed
    assert [(one.method, one.asked, one.status) for one in hop.exchanges()] == [
        ("POST", LIBRARY_DEFAULT, 201),
        ("GET", LIBRARY_DEFAULT, 200),
        ("DELETE", LIBRARY_DEFAULT, 204),
    ]
    before = hop.count()
    assert clients.baremetal(hop.url, "node", "list", "-f", "json").json() == []
    assert hop.exchanges(before)[0].asked == NEWEST_KNOWN


def test_the_recorder_relays_a_kept_connection_and_refuses_when_stopped(
    servers: dict[str, RunningServer],
) -> None:
    with Hop("kept", servers["old"].port) as hop:
        connection = http.client.HTTPConnection(LOOPBACK, hop.port, timeout=30)
        for method, path in (("GET", "/v1"), ("HEAD", "/"), ("GET", "/v1/nodes?limit=1")):
            connection.request(method, path)
            connection.getresponse().read()
        connection.close()
        assert [(one.method, one.path, one.status) for one in hop.exchanges()] == [
            ("GET", "/v1", 200),
            ("HEAD", "/", 200),
            ("GET", "/v1/nodes", 200),
        ]
        hop.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, hop.port), timeout=5)
        hop.start()
        assert ask(hop.port)[0] == 200


def test_the_recorder_refuses_as_a_server_that_ends_and_lets_go_on_what_is_open(
    servers: dict[str, RunningServer],
) -> None:
    with Hop("ending", servers["old"].port) as hop:
        connection = http.client.HTTPConnection(LOOPBACK, hop.port, timeout=30)
        connection.request("GET", "/v1")
        connection.getresponse().read()
        hop.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, hop.port), timeout=5)
        connection.request("GET", "/v1/nodes")
        assert connection.getresponse().status == 200
        connection.close()
        assert [one.status for one in hop.exchanges()] == [200, 200]


def test_the_recorder_finds_every_head_however_the_bytes_arrive() -> None:
    stream = (
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nGET /\r\n0\r\nTrailer: /b\r\n\r\n"
        b"PUT /c HTTP/1.1\r\nContent-Length: 8\r\n\r\nGET /d\r\n"
        b"DELETE /e HTTP/1.1\r\nX: y\r\n\r\n"
        b"POST /f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        b"GET /g HTTP/1.1\r\n\r\n"
    )
    for size in (1, 2, 3, 7, len(stream)):
        reader = MessageReader(lambda head: False, until_close=False)
        pieces = (stream[start : start + size] for start in range(0, len(stream), size))
        found = [head.start.split(" ")[1] for piece in pieces for head in reader.feed(piece)]
        assert found == ["/a", "/c", "/e", "/f", "/g"]


@pytest.mark.parametrize(
    "headers, complaint",
    [
        ([("Via", "1.1 x"), (OWN_HEADER, "1.90")], "this release serves 1.1 to 1.82"),
        ([("Via", "1.1 x")], "no explicit version"),
        (
            [("Via", "1.1 x"), (OWN_HEADER, "1.5"), (STANDARD_HEADER, "baremetal 1.6")],
            "two versions in one request",
        ),
        ([(OWN_HEADER, "1.5")], "neither a probe of the gateway nor a client's request"),
        ([("Via", "1.1 x"), (OWN_HEADER, "1.5")], None),
    ],
)
def test_a_request_at_the_wrong_server_is_found(
    servers: dict[str, RunningServer], headers: list[tuple[str, str]], complaint: str | None
) -> None:
    """The check that runs after every other test can fail: here it does."""
    with Hop("judged", servers["old"].port) as hop:
        ask(hop.port, *headers)
        judged: Any = SimpleNamespace(
            name="judged", offer=("1.1", NEW.top), backends={"old": Backend(OLD, hop)},
            seen=list, arrived=lambda member: hop.exchanges(),
        )  # fmt: skip
        found = violations(cast(Stand, judged))
    assert (complaint is None) == (found == [])
    assert complaint is None or complaint in found[0]
