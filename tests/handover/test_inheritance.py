"""Sockets that systemd passes, told apart by their addresses."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.dataplane.edge.listening_sockets import ListeningSockets
from gateway.errors import StartupError
from gateway.handover import inheritance
from gateway.handover.inheritance import Inheritance, passed_sockets
from gateway.keys.addresses import Address
from gateway.settings import Settings
from gateway.settings.sections.admin import Admin
from gateway.settings.sections.listen import Listen

SETTINGS = Settings((), ())


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A place for descriptors that nobody else has. What was read from there is closed."""
    monkeypatch.setattr(inheritance, "FIRST", 900)
    yield 900
    for number in range(900, 904):
        try:
            os.close(number)
        except OSError:
            continue


def environ(count: object, pid: int | None = None) -> dict[str, str]:
    owner = os.getpid() if pid is None else pid
    return {"LISTEN_PID": str(owner), "LISTEN_FDS": str(count), "LISTEN_FDNAMES": "a:b", "HOME": "/"}


def close(found: Inheritance) -> None:
    for one in (*found.clients, *found.admin, *found.metrics):
        one.sock.close()


async def test_they_are_sorted_by_address(first: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        os.dup2(a.fileno(), first)
        os.dup2(b.fileno(), first + 1)
        settings = replace(SETTINGS, admin=Admin(Address(*b.getsockname())))
        variables = environ(2)

        found = passed_sockets(settings, variables)

        assert [one.sock.getsockname() for one in found.clients] == [a.getsockname()]
        assert [one.sock.getsockname() for one in found.admin] == [b.getsockname()]
        assert variables == {"HOME": "/"}
        assert not os.get_inheritable(first)
        sockets = await ListeningSockets.bind([Listen(*a.getsockname())], 1, found.clients)
        assert sockets.all()[0].managed
        sockets.close()
        close(found)


def test_those_of_another_process_are_left_alone() -> None:
    assert passed_sockets(SETTINGS, environ(3, pid=1)) == Inheritance()
    assert passed_sockets(SETTINGS, {}) == Inheritance()


@pytest.mark.parametrize("count", ["x", "-1", "", "99999"])
def test_a_number_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(StartupError, match="LISTEN_FDS"):
        passed_sockets(SETTINGS, environ(count))


def test_what_accepts_no_connections_is_refused(first: int, tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("127.0.0.1", 0))
        os.dup2(datagrams.fileno(), first)
        with pytest.raises(StartupError, match="ListenStream= and Accept=no"):
            passed_sockets(SETTINGS, environ(1))
    with (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), first)
        with pytest.raises(StartupError, match="is not a socket"):
            passed_sockets(SETTINGS, environ(1))
    os.close(first)
    with pytest.raises(StartupError, match="is not a socket"):
        passed_sockets(SETTINGS, environ(1))
