"""The basis of the group: the servers serve their stated ranges, and the recorder records every request.

There is no gateway here. The ids of the golden examples are those of the tests of the dialect.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kit.networks import LOOPBACK
from tests.real.apis import IRONIC
from tests.real.clients import LIBRARY_DEFAULT, NEWEST_KNOWN, Clients
from tests.real.ironic import NEW
from tests.real.launcher import RunningServer
from tests.real.recorder import OWN_HEADER, STANDARD_HEADER, MessageReader, Recorder
from tests.real.testbed import Testbed, violations

pytestmark = pytest.mark.real

BOTH = pytest.mark.parametrize("name", ["old", "new"])


@pytest.fixture
def recorder(servers: dict[str, RunningServer], name: str) -> Iterator[Recorder]:
    """A recorder in front of one server, for one test."""
    with Recorder(f"direct-{name}", servers[name].port) as relay:
        yield relay


def send(
    port: int, *headers: tuple[str, str], path: str = "/v1/nodes"
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    try:
        connection.putrequest("GET", path)
        for header, value in headers:
            connection.putheader(header, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


@BOTH
@pytest.mark.parametrize(
    "requested, served",
    [
        pytest.param(None, "1.1", id="I1"),
        pytest.param("1.31", "1.31", id="I2"),
        pytest.param("latest", "the maximum", id="I3"),
        pytest.param("LATEST", "the maximum", id="I3-any-case"),
    ],
)
def test_a_server_serves_the_range_of_its_release(
    recorder: Recorder, servers: dict[str, RunningServer], name: str, requested: str | None, served: str
) -> None:
    top = servers[name].release.top
    status, headers, body = send(recorder.port, *([] if requested is None else [(OWN_HEADER, requested)]))
    (seen,) = recorder.exchanges()
    assert (status, seen.status) == (200, 200)
    assert seen.served == headers[OWN_HEADER] == (top if served == "the maximum" else served)
    assert seen.offered == ("1.1", top)
    assert "nodes" in json.loads(body)


@BOTH
@pytest.mark.parametrize("requested", [pytest.param("1.999", id="I4"), pytest.param("1.0", id="I5")])
def test_a_server_refuses_versions_outside_the_range_of_its_release(
    recorder: Recorder, servers: dict[str, RunningServer], name: str, requested: str
) -> None:
    top = servers[name].release.top
    status, _, body = send(recorder.port, (OWN_HEADER, requested))
    (seen,) = recorder.exchanges()
    inner = json.loads(json.loads(body)["error_message"])
    assert (status, seen.served, seen.offered) == (406, None, ("1.1", top))
    assert inner["description"] == (
        f"Version {requested} was requested but the minor version is not supported by this service."
        f" The supported version range is: [1.1, {top}]."
    )


@BOTH
def test_i8_only_the_new_release_reads_the_standard_field(recorder: Recorder, name: str) -> None:
    send(recorder.port, (STANDARD_HEADER, "compute 2.1, baremetal 1.31"))
    (seen,) = recorder.exchanges()
    assert (seen.requested, seen.requested_standard) == (None, "1.31")
    assert seen.served == {"old": "1.1", "new": "1.31"}[name]


@BOTH
def test_the_clients_work_through_the_recorder(recorder: Recorder, clients: Clients, name: str) -> None:
    """The lifecycle of a node with the library, and the default version of each client."""
    session = clients.ironicclient(recorder.url, [("create", "direct"), ("list", None), ("delete", "direct")])
    created, listed, _ = session.values()
    assert created["name"] in listed
    assert [(one.method, one.requested, one.status) for one in recorder.exchanges()] == [
        ("POST", LIBRARY_DEFAULT, 201),
        ("GET", LIBRARY_DEFAULT, 200),
        ("DELETE", LIBRARY_DEFAULT, 204),
    ]
    before = recorder.count()
    assert clients.baremetal(recorder.url, "node", "list", "-f", "json").json() == []
    assert recorder.exchanges(before)[0].requested == NEWEST_KNOWN


def test_the_recorder_relays_a_kept_connection_and_refuses_when_stopped(
    servers: dict[str, RunningServer],
) -> None:
    with Recorder("kept", servers["old"].port) as recorder:
        connection = http.client.HTTPConnection(LOOPBACK, recorder.port, timeout=30)
        for method, path in (("GET", "/v1"), ("HEAD", "/"), ("GET", "/v1/nodes?limit=1")):
            connection.request(method, path)
            connection.getresponse().read()
        connection.close()
        assert [(one.method, one.path, one.status) for one in recorder.exchanges()] == [
            ("GET", "/v1", 200),
            ("HEAD", "/", 200),
            ("GET", "/v1/nodes", 200),
        ]
        recorder.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, recorder.port), timeout=5)
        recorder.start()
        assert send(recorder.port)[0] == 200


def test_the_recorder_refuses_new_connections_and_keeps_open_ones(
    servers: dict[str, RunningServer],
) -> None:
    with Recorder("ending", servers["old"].port) as recorder:
        connection = http.client.HTTPConnection(LOOPBACK, recorder.port, timeout=30)
        connection.request("GET", "/v1")
        connection.getresponse().read()
        recorder.refuse()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, recorder.port), timeout=5)
        connection.request("GET", "/v1/nodes")
        assert connection.getresponse().status == 200
        connection.close()
        assert [one.status for one in recorder.exchanges()] == [200, 200]


def test_the_recorder_finds_every_head_however_the_bytes_arrive() -> None:
    stream = (
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nGET /\r\n0\r\nTrailer: /b\r\n\r\n"
        b"PUT /c HTTP/1.1\r\nContent-Length: 8\r\n\r\nGET /d\r\n"
        b"DELETE /e HTTP/1.1\r\nX: y\r\n\r\n"
        b"POST /f HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        b"GET /g HTTP/1.1\r\n\r\n"
    )
    for size in (1, 2, 3, 7, len(stream)):
        reader = MessageReader()
        pieces = (stream[start : start + size] for start in range(0, len(stream), size))
        found = [head.target for piece in pieces for head in reader.feed(piece)]
        assert found == ["/a", "/c", "/e", "/f", "/g"]


@pytest.mark.parametrize(
    "headers, reason",
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
    servers: dict[str, RunningServer], headers: list[tuple[str, str]], reason: str | None
) -> None:
    """The check after every test can fail: here it does."""
    with Recorder("judged", servers["old"].port) as recorder:
        send(recorder.port, *headers)
        judged: Any = SimpleNamespace(
            api=IRONIC,
            offer=NEW,
            servers=servers,
            recorders={"old": recorder},
            seen=list,
            arrived=lambda member: recorder.exchanges(),
        )
        found = violations(cast(Testbed, judged))
    assert (reason is None) == (found == [])
    assert reason is None or reason in found[0]
