"""One of two servers is down: the offer stays, and the other one serves what it can.

A server that is down counts with its last advertisement, so an outage makes no negotiated version invalid. A
version that only the missing server serves is 503, which clients retry. It is never 406, which they treat as
final. It has no `Retry-After`: python-ironicclient raises a TypeError at it.
"""

# ruff: noqa: N802 -- ids of findings are written with capitals

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.kit.networks import LOOPBACK
from tests.kit.waiting import wait_until
from tests.real.clients import LIBRARY_DEFAULT, Call, Clients
from tests.real.ironic import NEW, OLD
from tests.real.testbed import Testbed

pytestmark = pytest.mark.real

NODES = "/v1/nodes"
LIFECYCLE: list[Call] = [
    ("create", "alone"),
    ("show", "alone"),
    ("list", None),
    ("delete", "alone"),
    ("list", None),
]


def assert_whole_lifecycle(
    testbed: Testbed, clients: Clients, other: str, version: str | None = None
) -> None:
    """Create, show, list and delete a node with the library, all at the server that is up."""
    created, shown, listed, _, left = clients.ironicclient(testbed.url, LIFECYCLE, version=version).values()
    assert created["uuid"] == shown["uuid"]
    assert (listed, left) == (["alone"], [])
    assert testbed.forwarded(other) == []


def assert_offer_kept(testbed: Testbed, down: str) -> None:
    """/status shows that this server is down, and the same offer as before."""
    testbed.wait_until_not_fresh(down)
    offer = testbed.gateway.service()["offer"]
    assert (offer["min"], offer["max"]) == testbed.offer.range


def assert_unavailable(testbed: Testbed, version: str) -> None:
    """The response is a 503 in the shape of Ironic's errors, with a request id, as the real ones."""
    response = testbed.send(NODES, version)
    assert response.status == 503
    assert response.headers["Retry-After"] is None
    assert response.headers["X-Openstack-Request-Id"].startswith("req-")
    assert response.headers["Content-Type"].startswith("application/json")
    inner = json.loads(json.loads(response.body)["error_message"])
    assert inner["code"] == 503
    assert inner["description"]


@pytest.mark.parametrize("down, up", [("new", "old"), ("old", "new")], ids=["only-the-old", "only-the-new"])
class TestGuaranteed:
    @pytest.mark.parametrize("version", [None, "1.31", OLD.top, "latest"])
    def test_every_offered_version_is_served_by_the_other_server(
        self, guaranteed: Testbed, clients: Clients, down: str, up: str, version: str | None
    ) -> None:
        """At once: a refused connection is enough, no probe needs to fail first."""
        guaranteed.disconnect(down)
        guaranteed.start_records()
        assert_whole_lifecycle(guaranteed, clients, down, version)
        expected = {None: LIBRARY_DEFAULT, "latest": OLD.top}.get(version, version)
        assert {one.requested for one in guaranteed.forwarded(up) if one.path.startswith(NODES)} == {expected}

    def test_the_offer_stays(self, guaranteed: Testbed, clients: Clients, down: str, up: str) -> None:
        guaranteed.disconnect(down)
        assert_offer_kept(guaranteed, down)
        guaranteed.start_records()
        error = clients.ironicclient(guaranteed.url, [("list", None)], version="1.90").only_error()
        assert error.error == "UnsupportedVersion"
        assert f"1.1 to {OLD.top}" in error.text
        assert [one.path for one in guaranteed.forwarded(up)] == ["/v1"]

    def test_the_lifecycle_of_a_node_with_the_command_line_and_the_sdk(
        self, guaranteed: Testbed, clients: Clients, down: str, up: str
    ) -> None:
        guaranteed.disconnect(down)
        guaranteed.start_records()
        node = ("node", "create", "--driver", "fake-hardware", "--name", "alone")
        created = clients.baremetal(guaranteed.url, *node, "-f", "json").json()
        shown = clients.baremetal(guaranteed.url, "node", "show", "alone", "-f", "json").json()
        listed = clients.baremetal(guaranteed.url, "node", "list", "-f", "json").json()
        assert created["uuid"] == shown["uuid"] == listed[0]["uuid"]
        assert clients.baremetal(guaranteed.url, "node", "delete", "alone").code == 0
        found, made, got, names, _, left = clients.sdk(
            guaranteed.url, [("discover", None), *LIFECYCLE]
        ).values()
        assert found["maximum"] == OLD.top
        assert made["uuid"] == got["uuid"]
        assert (names, left) == (["alone"], [])
        assert {one.requested for one in guaranteed.forwarded(up) if one.path.startswith(NODES)} == {OLD.top}
        assert guaranteed.forwarded(down) == []


def test_with_only_the_old_server_a_version_of_the_new_one_is_503_and_not_406(
    reachable: Testbed, clients: Clients
) -> None:
    reachable.disconnect("new")
    assert_offer_kept(reachable, "new")
    assert_unavailable(reachable, "1.90")
    assert_unavailable(reachable, "latest")
    error = clients.ironicclient(reachable.url, [("list", None)], version="1.90").only_error()
    assert error.error == "ServiceUnavailable"
    assert "No connection could be made" in error.text
    assert clients.baremetal(reachable.url, "node", "list").code == 1
    error = clients.sdk(reachable.url, [("list", None)], version="1.90").only_error()
    assert error.error == "HttpException"
    assert "503" in error.text
    assert [one for one in reachable.forwarded("old") if one.path == NODES] == []
    assert_whole_lifecycle(reachable, clients, "new", "1.31")


def test_a_client_that_retries_is_served_when_the_new_server_is_back(
    reachable: Testbed, clients: Clients
) -> None:
    """The SDK repeats the request after pauses of its own."""
    reachable.disconnect("new")
    reachable.wait_until_not_fresh("new")
    with ThreadPoolExecutor() as pool:
        session = pool.submit(clients.sdk, reachable.url, [("list", None)], version="1.90", retries=5)
        # The server comes back after the client has seen a 503, not before.
        wait_until(lambda: 503 in statuses(reachable) or session.done(), "the client has seen a 503")
        reachable.recorders["new"].start()
        assert session.result().values() == [[]]
    seen = statuses(reachable)
    assert (seen[0], seen[-1]) == (503, 200)


def statuses(testbed: Testbed) -> list[int | None]:
    """The statuses of all lists of nodes so far."""
    return [exchange.status for exchange in testbed.seen() if exchange.path == NODES]


def test_with_only_the_new_server_every_offered_version_is_served(
    reachable: Testbed, clients: Clients
) -> None:
    reachable.disconnect("old")
    assert_offer_kept(reachable, "old")
    reachable.start_records()
    for version in (None, "1.31", "1.90", "latest"):
        assert_whole_lifecycle(reachable, clients, "old", version)
    assert {one.requested for one in reachable.forwarded("new") if one.path.startswith(NODES)} == {
        LIBRARY_DEFAULT,
        "1.31",
        "1.90",
        NEW.top,
    }


def test_with_neither_server_the_response_is_503(guaranteed: Testbed) -> None:
    for member in guaranteed.recorders:
        guaranteed.disconnect(member)
    assert_unavailable(guaranteed, "1.31")
    # A version outside the offer is refused without a server.
    assert guaranteed.send(NODES, "1.90").status == 406


def test_a_real_server_that_is_stopped_and_started_again(direct: Testbed, clients: Clients) -> None:
    """The process of 21.4.0 ends itself. Clients continue, and it is used again after its restart."""
    old = direct.servers["old"]
    clients.ironicclient(direct.url, [("list", None)] * 24, version="latest").values()
    served_before = direct.gateway.metrics().total("skewgate_requests_total", backend="old")
    assert served_before > 0
    old.stop()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, old.port), timeout=5)
        created, shown, *_ = clients.ironicclient(direct.url, LIFECYCLE, version="latest").values()
        assert created["uuid"] == shown["uuid"]
        assert clients.baremetal(direct.url, "node", "list", "-f", "json").json() == []
        assert_offer_kept(direct, "old")
        assert (
            direct.gateway.metrics().total("skewgate_requests_total", backend="old", code="200")
            <= served_before
        )
    finally:
        old.start()
    direct.restore()
    clients.ironicclient(direct.url, [("list", None)] * 24, version="latest").values()
    assert direct.gateway.metrics().total("skewgate_requests_total", backend="old", code="200") > 0
    assert direct.gateway.metrics().total("skewgate_requests_total", backend="old") > served_before


def test_R_D2_python_ironicclient_retries_and_is_served_when_the_new_server_is_back(
    reachable: Testbed, clients: Clients
) -> None:
    """It repeats a 503 five times, every two seconds. At `Retry-After` it raised a TypeError at once."""
    reachable.disconnect("new")
    reachable.wait_until_not_fresh("new")
    with ThreadPoolExecutor() as pool:
        session = pool.submit(
            clients.ironicclient, reachable.url, [("list", None)], version="1.90", retries=5
        )
        wait_until(lambda: 503 in statuses(reachable) or session.done(), "the client has seen a 503")
        reachable.recorders["new"].start()
        assert session.result().values() == [[]]
    seen = statuses(reachable)
    assert (seen[0], seen[-1]) == (503, 200)
