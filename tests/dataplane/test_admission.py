"""How many client connections a process accepts, from its limit of file descriptors."""

import resource

import pytest

from gateway.dataplane.worker import MAX_CLIENTS, MIN_CLIENTS, admission_limit


@pytest.mark.parametrize(
    "descriptors, clients",
    [(1024, 480), (70, MIN_CLIENTS), (10_000_000, MAX_CLIENTS), (resource.RLIM_INFINITY, MAX_CLIENTS)],
)
def test_every_client_may_need_a_backend_connection_and_a_reserve_is_kept(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, clients: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    assert admission_limit() == clients
