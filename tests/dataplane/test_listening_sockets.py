"""Listening sockets: one for each slot, bound all or none, inherited from whoever had them before."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.dataplane.edge.listening_sockets import Inherited, ListeningSockets, name_of
from gateway.dataplane.sockets.tcp import IDLE
from gateway.errors import AddressTakenError, StartupError
from gateway.settings.sections.listen import Listen
from gateway.tls.values import CertificateFiles, ServerTls

ANY = Listen("127.0.0.1", 0)


class Bound:
    """Everything that a test binds, and closes in the end."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(
        self,
        *listen: Listen,
        slots: int = 1,
        after: ListeningSockets | None = None,
        inherited: tuple[Inherited, ...] = (),
    ) -> ListeningSockets:
        if after is not None:  # as another process: with descriptors of its own
            inherited = tuple(one._replace(sock=one.sock.dup()) for one in after.all())
        try:
            found = await ListeningSockets.bind(listen, slots, inherited)
        except StartupError:
            for one in inherited if after is not None else ():
                one.sock.close()
            raise
        self._stack.callback(found.close)
        return found


@pytest.fixture
async def bind() -> AsyncIterator[Bound]:
    async with AsyncExitStack() as stack:
        yield Bound(stack)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_each_slot_has_a_socket_of_its_own(bind: Bound) -> None:
    found = await bind(ANY, Listen("::1", 0), slots=3)

    sockets = [dict(found.of_slot(slot)) for slot in range(3)]
    assert [sorted(each) for each in sockets] == [[0, 1]] * 3
    assert len({id(each[0]) for each in sockets}) == 3
    assert len({each[0].getsockname() for each in sockets}) == 1
    assert found.addresses[0] == sockets[0][0].getsockname()
    assert found.urls[1] == f"http://[::1]:{found.addresses[1][1]}"
    assert found.shared == ()
    for each in sockets:
        assert each[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE
        assert not each[0].getblocking()


async def test_connections_wait_in_all_of_them(bind: Bound) -> None:
    found = await bind(ANY, slots=2)
    clients = [socket.create_connection(found.addresses[0]) for _ in range(40)]

    accepted = []
    for slot in range(2):
        [(_, sock)] = found.of_slot(slot)
        count = 0
        try:
            while True:
                sock.accept()[0].close()
                count += 1
        except BlockingIOError:
            accepted.append(count)

    assert sum(accepted) == 40
    assert min(accepted) > 0
    for client in clients:
        client.close()


@pytest.mark.parametrize("slots", [1, 3])
async def test_a_foreign_listener_is_found(bind: Bound, slots: int) -> None:
    """Also one that shares its address with others."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        before = open_descriptors()
        taken = Listen("127.0.0.1", other.getsockname()[1])

        with pytest.raises(
            AddressTakenError, match=f"cannot listen on {taken}: address already in use; is an"
        ):
            await bind(ANY, taken, slots=slots)

        assert open_descriptors() == before


async def test_two_gateways_never_share_an_address(bind: Bound) -> None:
    first = await bind(ANY, slots=2)

    with pytest.raises(AddressTakenError):
        await bind(Listen(*first.addresses[0]), slots=2)


async def test_a_name_stands_for_all_its_addresses(bind: Bound) -> None:
    found = await bind(Listen("localhost", 0), slots=2)

    assert {host for host, _ in found.addresses} <= {"127.0.0.1", "::1"}
    assert {position for position, _ in found.of_slot(0)} == {0}


async def test_what_cannot_be_bound_says_why(bind: Bound) -> None:
    with pytest.raises(
        StartupError, match=r"cannot listen on 192\.0\.2\.1:80: .*this machine has no such address"
    ):
        await bind(Listen("192.0.2.1", 80))
    with pytest.raises(StartupError, match=r"cannot listen on no-such-name\.invalid:80: "):
        await bind(Listen("no-such-name.invalid", 80))


async def test_https_is_in_the_url(bind: Bound) -> None:
    found = await bind(Listen("127.0.0.1", 0, tls=ServerTls((CertificateFiles("a", "b"),))))

    assert found.urls[0].startswith("https://127.0.0.1:")


# --- inherited ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before, after", [(1, 1), (1, 3), (3, 3), (3, 1), (2, 3), (4, 2)])
async def test_no_connection_that_waits_is_lost_from_one_to_the_next(
    bind: Bound, before: int, after: int
) -> None:
    old = await bind(ANY, Listen("127.0.0.1", 0), slots=before)
    clients = [socket.create_connection(old.addresses[0]) for _ in range(20)]

    new = await bind(ANY, Listen("127.0.0.1", 0), slots=after, after=old)
    addresses = old.addresses
    old.release()
    old.close()

    assert new.addresses == addresses  # the ports of port 0, too
    accepted = 0
    for slot in range(after):
        for position, sock in new.of_slot(slot):
            assert sock.getsockname()[1] == addresses[position][1]
            try:
                while True:
                    sock.accept()[0].close()
                    accepted += 1
            except BlockingIOError:
                pass
    assert accepted == 20
    for client in clients:
        client.close()


async def test_an_address_that_is_no_longer_wanted_is_given_up(bind: Bound) -> None:
    old = await bind(ANY, Listen("::1", 0))

    new = await bind(Listen(*old.addresses[1]), after=old)

    assert new.surplus == ["127.0.0.1:0"]
    assert new.addresses == old.addresses[1:]


async def test_inherited_sockets_stay_open_if_others_cannot_be_bound(bind: Bound) -> None:
    old = await bind(ANY)
    inherited = [one._replace(sock=one.sock.dup()) for one in old.all()]

    with pytest.raises(StartupError):
        await bind(ANY, Listen("192.0.2.1", 80), inherited=tuple(inherited))

    assert inherited[0].sock.fileno() >= 0
    inherited[0].sock.close()


async def test_sockets_that_somebody_keeps_are_shared(bind: Bound) -> None:
    with socket.create_server(("127.0.0.1", 0)) as manager:
        listen = Listen(*manager.getsockname())
        found = await bind(listen, slots=3, inherited=(Inherited(manager.dup(), managed=True),))

        assert len({id(sock) for slot in range(3) for _, sock in found.of_slot(slot)}) == 1
        assert found.shared == found.urls
        assert found.all()[0].managed


async def test_both_stacks_are_not_taken_for_one(bind: Bound) -> None:
    old = await bind(Listen("::", 0, dual_stack=True))
    port = old.addresses[0][1]
    socket.create_connection(("127.0.0.1", port)).close()

    with pytest.raises(AddressTakenError):
        await bind(Listen("::", port), after=old)
    new = await bind(Listen("::", port, dual_stack=True), after=old)

    assert new.addresses == old.addresses


# --- Unix sockets ------------------------------------------------------------------------------------------


async def test_a_unix_socket_is_shared_and_goes_in_the_end(bind: Bound, tmp_path: Path) -> None:
    path = tmp_path / "s"
    found = await bind(Listen("", 0, str(path), mode=0o600), slots=2)

    assert found.of_slot(0) == found.of_slot(1)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert (found.addresses, found.urls, found.shared) == (((f"unix:{path}", 0),), (f"unix:{path}",), ())
    found.close()
    assert not path.exists()


async def test_the_file_belongs_to_whoever_serves(bind: Bound, tmp_path: Path) -> None:
    path = tmp_path / "s"
    old = await bind(Listen("", 0, str(path), mode=0o600))

    fails = await bind(Listen("", 0, str(path), mode=0o600), after=old)
    fails.close()  # it has not come up
    assert path.exists()
    new = await bind(Listen("", 0, str(path), mode=0o660), after=old)
    new.own()
    old.release()
    old.close()
    assert stat.S_IMODE(path.lstat().st_mode) == 0o660
    new.close()
    assert not path.exists()


async def test_the_file_of_the_service_manager_stays(bind: Bound, tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.create_server(str(path), family=socket.AF_UNIX) as manager:
        mode = path.lstat().st_mode
        one = Inherited(manager.dup(), managed=True)
        found = await bind(Listen("", 0, str(path), mode=0o600), inherited=(one,))
        found.own()
        found.close()

    assert path.lstat().st_mode == mode


async def test_a_file_that_is_in_the_way_stays(bind: Bound, tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")

    with pytest.raises(StartupError, match="not a socket"):
        await bind(Listen("", 0, str(path)))
    assert path.read_text() == "precious"


def test_names() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("\0skewgate-test-names")
        assert name_of(sock) == "unix:@skewgate-test-names"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as sock:
        assert name_of(sock) == f"[::1]:{sock.getsockname()[1]}"


async def test_a_start_that_is_given_up_leaves_nothing(bind: Bound, tmp_path: Path) -> None:
    path = tmp_path / "s"
    task = asyncio.create_task(bind(Listen("", 0, str(path)), Listen("localhost", 0)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not path.exists()
