"""The middle of a real upgrade: two APIs of 39.0.0 on one database, one still pinned to the API of 21.4.

A node that was created through one member is visible through the other. So the lifecycle of a node is spread
over both, and no client notices.
"""

from __future__ import annotations

import pytest

from tests.real.clients import Call, Clients
from tests.real.ironic import OLD
from tests.real.testbed import Testbed

pytestmark = pytest.mark.real

NODES = "/v1/nodes"


def assert_both_were_used(testbed: Testbed) -> None:
    for member in testbed.recorders:
        paths = [exchange.path for exchange in testbed.forwarded(member)]
        assert any(path.startswith(NODES) for path in paths), f"{member} got no request"


def test_the_lifecycle_of_nodes_on_both_members_with_the_library(
    one_database: Testbed, clients: Clients
) -> None:
    names = [f"lib-{number}" for number in range(6)]
    calls: list[Call] = [(call, name) for name in names for call in ("create", "show")]
    calls += [("list", None), *(("delete", name) for name in names), ("list", None)]
    session = clients.ironicclient(one_database.url, calls, version="latest")
    results = session.values()
    created, shown = results[0:12:2], results[1:12:2]
    assert [node["uuid"] for node in created] == [node["uuid"] for node in shown]
    assert (sorted(results[12]), results[-1]) == (names, [])
    assert session.version == OLD.top
    assert_both_were_used(one_database)


def test_the_lifecycle_of_a_node_with_the_command_line(one_database: Testbed, clients: Clients) -> None:
    node = ("node", "create", "--driver", "fake-hardware", "--name", "cli")
    created = clients.baremetal(one_database.url, *node, "-f", "json").json()
    shown = clients.baremetal(one_database.url, "node", "show", "cli", "-f", "json").json()
    listed = clients.baremetal(one_database.url, "node", "list", "-f", "json", version="1.31").json()
    assert created["uuid"] == shown["uuid"] == listed[0]["uuid"]
    assert clients.baremetal(one_database.url, "node", "delete", "cli").code == 0
    assert clients.baremetal(one_database.url, "node", "list", "-f", "json").json() == []


def test_the_lifecycle_of_nodes_on_both_members_with_the_sdk(one_database: Testbed, clients: Clients) -> None:
    names = [f"sdk-{number}" for number in range(6)]
    calls = [(call, name) for name in names for call in ("create", "show", "delete")]
    results = clients.sdk(one_database.url, calls).values()
    assert [node["name"] for node in results[0::3]] == names
    assert {node["microversion"] for node in results[1::3]} == {OLD.top}
    assert_both_were_used(one_database)
