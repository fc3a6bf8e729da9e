"""How many client connections a process accepts, from its limit of file descriptors, and what it says."""

# ruff: noqa: N802 -- ids of findings are written with capitals

import resource

import pytest

from gateway.dataplane.worker import MAX_CLIENTS, MIN_CLIENTS, admission_limit
from tests.dataplane.testbed import Testbed, serve, until, wait_ticks


@pytest.mark.parametrize(
    "descriptors, clients",
    [
        (1024, 448),
        (256, 80),
        (110, 32),
        (70, MIN_CLIENTS),
        (10_000_000, MAX_CLIENTS),
        (resource.RLIM_INFINITY, MAX_CLIENTS),
    ],
)
def test_every_client_may_need_a_backend_connection_and_a_reserve_is_kept(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, clients: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    assert admission_limit() == clients


async def test_R_B11_closing_clients_to_make_room_is_said_once_a_minute(
    testbed: Testbed, caplog: pytest.LogCaptureFixture
) -> None:
    gateway, _ = await testbed.gateway_and_backend(serve, limits={"connections": 2})
    said = "client connections were closed to make room"

    for _ in range(5):
        await gateway.client()
    await until(lambda: said in caplog.text)
    for _ in range(3):
        await gateway.client()
    await wait_ticks(gateway)

    assert caplog.text.count(said) == 1
    assert "at most 2 are kept" in caplog.text


@pytest.mark.parametrize("descriptors", [256, 512, 1024, 4096, 65536])
def test_R_B7_the_admin_listener_has_descriptors_of_its_own(
    monkeypatch: pytest.MonkeyPatch, descriptors: int
) -> None:
    """Clients and their backend connections leave 64 for operators, fewer of few, and 64 for the rest."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    of_operators = min(64, descriptors // 8)
    assert descriptors - 2 * admission_limit() >= of_operators + 64
