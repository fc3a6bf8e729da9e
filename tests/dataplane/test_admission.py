"""How many client connections a process takes: from its descriptors, unless the file says a number."""

import resource

import pytest

from gateway.dataplane.worker import FEWEST_CLIENTS, MOST_CLIENTS, admission_limit


@pytest.mark.parametrize(
    "descriptors, clients",
    [(1024, 480), (70, FEWEST_CLIENTS), (10_000_000, MOST_CLIENTS), (resource.RLIM_INFINITY, MOST_CLIENTS)],
)
def test_every_client_may_need_a_backend_connection_and_a_reserve_is_kept(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, clients: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    assert admission_limit() == clients
