"""How many client connections a process accepts, from its limit of file descriptors, and what it says."""

# ruff: noqa: N802 -- ids of findings are written with capitals

import resource

import pytest

from gateway.dataplane.edge.client_room import MAX_FILES, MIN_FILES, FileRoom, file_room
from tests.kit.backends import serve
from tests.kit.waiting import until
from tests.kit.workers import Testbed, wait_ticks


@pytest.mark.parametrize(
    "descriptors, room",
    [
        (1024, FileRoom(896, 24)),
        (256, FileRoom(160, 24)),
        (110, FileRoom(65, 12)),
        (70, FileRoom(MIN_FILES, 12)),
        (10_000_000, FileRoom(MAX_FILES, 24)),
        (resource.RLIM_INFINITY, FileRoom(MAX_FILES, 0)),
    ],
)
def test_R3_V8_the_reserve_shrinks_with_the_limit(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, room: FileRoom
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))

    assert file_room() == room


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
    assert descriptors - file_room().room >= of_operators + 64
