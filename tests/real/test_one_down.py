"""Only the old server, only the new: the offer stays what it was, and what can be served still is.

A server that is down counts with its last advert, so nobody's negotiated version becomes wrong because
of an outage. What only the missing server serves is 503 with `Retry-After`, which clients retry, and
never 406, which they take for final."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.real.clients import LIBRARY_DEFAULT, Call, Clients
from tests.real.hop import LOOPBACK
from tests.real.ironic import NEW, OLD
from tests.real.processes import wait_for
from tests.real.stand import Stand

pytestmark = pytest.mark.real

NODES = "/v1/nodes"
LIFE: list[Call] = [
    ("create", "alone"),
    ("show", "alone"),
    ("list", None),
    ("delete", "alone"),
    ("list", None),
]


def assert_whole_life(stand: Stand, clients: Clients, other: str, version: str | None = None) -> None:
    """Create, show, list, delete: with the library, and everything at the one server that is up."""
    created, shown, listed, _, left = clients.ironicclient(stand.url, LIFE, version=version).values()
    assert created["uuid"] == shown["uuid"]
    assert (listed, left) == (["alone"], [])
    assert stand.arrived(other) == []


def assert_offer_kept(stand: Stand, down: str) -> None:
    """/status knows that this one is down, and the offer is what it was."""
    stand.notice(down)
    offer = stand.gateway.service()["offer"]
    assert (offer["min"], offer["max"]) == stand.offer


def assert_unavailable(stand: Stand, version: str) -> None:
    """503 in the shape of Ironic's errors, with a time to come back at, and the offer as ever."""
    reply = stand.ask(NODES, version)
    assert reply.status == 503
    assert int(reply.headers["Retry-After"]) >= 1
    assert reply.headers["Content-Type"].startswith("application/json")
    inner = json.loads(json.loads(reply.body)["error_message"])
    assert inner["code"] == 503
    assert inner["description"]


@pytest.mark.parametrize("down, up", [("new", "old"), ("old", "new")], ids=["only-the-old", "only-the-new"])
class TestGuaranteed:
    @pytest.mark.parametrize("version", [None, "1.31", OLD.top, "latest"])
    def test_every_version_on_offer_is_served_by_the_one_left(
        self, guaranteed: Stand, clients: Clients, down: str, up: str, version: str | None
    ) -> None:
        """At once: no probe has to have noticed, a refused connection is enough."""
        guaranteed.cut(down)
        guaranteed.mark()
        assert_whole_life(guaranteed, clients, down, version)
        expected = {None: LIBRARY_DEFAULT, "latest": OLD.top}.get(version, version)
        assert {one.asked for one in guaranteed.reached(up) if one.path.startswith(NODES)} == {expected}

    def test_the_offer_stays(self, guaranteed: Stand, clients: Clients, down: str, up: str) -> None:
        guaranteed.cut(down)
        assert_offer_kept(guaranteed, down)
        guaranteed.mark()
        error = clients.ironicclient(guaranteed.url, [("list", None)], version="1.90").only_error()
        assert error.error == "UnsupportedVersion"
        assert f"1.1 to {OLD.top}" in error.text
        assert [one.path for one in guaranteed.reached(up)] == ["/v1"]

    def test_a_node_s_life_with_the_command_line_and_the_sdk(
        self, guaranteed: Stand, clients: Clients, down: str, up: str
    ) -> None:
        guaranteed.cut(down)
        guaranteed.mark()
        node = ("node", "create", "--driver", "fake-hardware", "--name", "alone")
        created = clients.baremetal(guaranteed.url, *node, "-f", "json").json()
        shown = clients.baremetal(guaranteed.url, "node", "show", "alone", "-f", "json").json()
        listed = clients.baremetal(guaranteed.url, "node", "list", "-f", "json").json()
        assert created["uuid"] == shown["uuid"] == listed[0]["uuid"]
        assert clients.baremetal(guaranteed.url, "node", "delete", "alone").code == 0
        found, made, got, names, _, left = clients.sdk(guaranteed.url, [("discover", None), *LIFE]).values()
        assert found["maximum"] == OLD.top
        assert made["uuid"] == got["uuid"]
        assert (names, left) == (["alone"], [])
        assert {one.asked for one in guaranteed.reached(up) if one.path.startswith(NODES)} == {OLD.top}
        assert guaranteed.arrived(down) == []


def test_with_only_the_old_what_only_the_new_serves_is_unavailable_and_not_refused(
    reachable: Stand, clients: Clients
) -> None:
    reachable.cut("new")
    assert_offer_kept(reachable, "new")
    assert_unavailable(reachable, "1.90")
    assert_unavailable(reachable, "latest")
    # python-ironicclient 6.3.0 cannot digest a `Retry-After` (its HttpError has no such parameter): its
    # error is a TypeError where ServiceUnavailable was meant. It fails; it does not go on at a wrong version.
    error = clients.ironicclient(reachable.url, [("list", None)], version="1.90").only_error()
    assert error.error == "TypeError"
    assert "retry_after" in error.text
    assert clients.baremetal(reachable.url, "node", "list").code == 1
    error = clients.sdk(reachable.url, [("list", None)], version="1.90").only_error()
    assert error.error == "HttpException"
    assert "503" in error.text
    assert [one for one in reachable.reached("old") if one.path == NODES] == []
    assert_whole_life(reachable, clients, "new", "1.31")


def test_a_client_that_retries_gets_through_when_the_new_is_back(reachable: Stand, clients: Clients) -> None:
    """The SDK waits as long as `Retry-After` says and asks again: nobody has to restart anything."""
    reachable.cut("new")
    reachable.notice("new")
    with ThreadPoolExecutor() as pool:
        session = pool.submit(clients.sdk, reachable.url, [("list", None)], version="1.90", retries=5)
        # The server comes back after the client has been told 503, not before.
        wait_for(lambda: 503 in statuses(reachable) or session.done(), "the client was told 503")
        reachable.backends["new"].hop.start()
        assert session.result().values() == [[]]
    told = statuses(reachable)
    assert (told[0], told[-1]) == (503, 200)


def statuses(stand: Stand) -> list[int | None]:
    """What clients that listed nodes have been told so far."""
    return [one.status for one in stand.seen() if one.path == NODES]


def test_with_only_the_new_everything_on_offer_is_served(reachable: Stand, clients: Clients) -> None:
    reachable.cut("old")
    assert_offer_kept(reachable, "old")
    reachable.mark()
    for version in (None, "1.31", "1.90", "latest"):
        assert_whole_life(reachable, clients, "old", version)
    assert {one.asked for one in reachable.reached("new") if one.path.startswith(NODES)} == {
        LIBRARY_DEFAULT, "1.31", "1.90", NEW.top,
    }  # fmt: skip


def test_with_neither_the_answer_is_503(guaranteed: Stand) -> None:
    for member in guaranteed.backends:
        guaranteed.cut(member)
    assert_unavailable(guaranteed, "1.31")
    # A version that nobody offers is refused as ever: that needs no server.
    assert guaranteed.ask(NODES, "1.90").status == 406


def test_a_real_server_that_is_stopped_and_started_again(bare: Stand, clients: Clients) -> None:
    """Not the recorder: the process of 21.4.0 ends, clients go on, and it takes part again afterwards."""
    old = bare.servers["old"]
    clients.ironicclient(bare.url, [("list", None)] * 24, version="latest").values()
    served_before = bare.gateway.metrics().total("skewgate_requests_total", backend="old")
    assert served_before > 0
    old.stop()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, old.port), timeout=5)
        created, shown, *_ = clients.ironicclient(bare.url, LIFE, version="latest").values()
        assert created["uuid"] == shown["uuid"]
        assert clients.baremetal(bare.url, "node", "list", "-f", "json").json() == []
        assert_offer_kept(bare, "old")
        assert (
            bare.gateway.metrics().total("skewgate_requests_total", backend="old", code="200")
            <= served_before
        )
    finally:
        old.start()
    bare.restore()
    clients.ironicclient(bare.url, [("list", None)] * 24, version="latest").values()
    assert bare.gateway.metrics().total("skewgate_requests_total", backend="old", code="200") > 0
    assert bare.gateway.metrics().total("skewgate_requests_total", backend="old") > served_before
