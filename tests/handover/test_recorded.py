"""What another release says at STATE.handover, as it was recorded in form 1: these bytes are never changed.

A gateway that takes over from such a release, and one that such a release takes over from.
"""

from __future__ import annotations

import array
import asyncio
import json
import socket
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.errors import StartupError
from gateway.handover import messages
from gateway.handover.take_over import take_over
from tests.handover.conftest import House, OtherRelease

TAKE_OVER = b'{"kind": "take_over", "forms": [1], "release": "0.1.0", "pid": 9125}'
OFFER = (
    b'{"kind": "offer", "form": 1, "release": "0.1.0", "pid": 9091, "state": STATE, "sockets": ['
    b'{"role": "clients", "written": "127.0.0.1:0", "managed": false}, '
    b'{"role": "admin", "written": "127.0.0.1:0", "managed": false}, '
    b'{"role": "lock", "written": "", "managed": false}], '
    b'"manager": {"NOTIFY_SOCKET": "/run/systemd/notify"}}'
)
READY, STOPPED, SERVING = b'{"kind": "ready"}', b'{"kind": "stopped"}', b'{"kind": "serving"}'
STATE = """{
 "skewgate_state": 2,
 "services": {}
}
"""


class Earlier:
    """The old side, by hand. It gives two sockets and a lock."""

    def __init__(self, path: Path) -> None:
        self.clients = socket.create_server(("127.0.0.1", 0))
        self.admin = socket.create_server(("127.0.0.1", 0))
        self.lock = path.with_suffix(".lock").open("w")
        self.heard: list[bytes] = []
        self.line: socket.socket | None = None
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen(1)

    def talk(self, offer: bytes = OFFER, stopped: bytes = STOPPED) -> None:
        """In a thread."""
        self.line, _ = self.server.accept()
        self.line.settimeout(20)
        self._hear()
        offer = offer.replace(b"STATE", json.dumps(STATE).encode())
        self._say(offer)
        numbers = array.array("i", [self.clients.fileno(), self.admin.fileno(), self.lock.fileno()])
        with suppress(BrokenPipeError):  # the offer was enough
            self.line.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
        if self._hear():
            self._say(stopped)
            self._hear()

    def end(self) -> None:
        """As the end of its process."""
        for each in (self.clients, self.admin, self.lock, self.server, self.line):
            if each is not None:
                each.close()

    def _say(self, data: bytes) -> None:
        assert self.line is not None
        self.line.sendall(struct.pack("!I", len(data)) + data)

    def _hear(self) -> bytes:
        assert self.line is not None
        try:
            head = self.line.recv(4, socket.MSG_WAITALL)
        except ConnectionResetError:  # it has ended with something unread
            return b""
        if head:
            self.heard.append(self.line.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL))
        return head


async def test_an_earlier_release_is_taken_over(house: House) -> None:
    earlier = Earlier(house.path)
    try:
        talking = asyncio.create_task(asyncio.to_thread(earlier.talk))
        gateway = await house.start(house.write(), takes_over=True)
        await talking
        port = earlier.clients.getsockname()[1]
    finally:
        earlier.end()

    assert gateway.urls == (f"http://127.0.0.1:{port}",)
    said = [json.loads(each) for each in earlier.heard]
    assert said[0].items() >= {"kind": "take_over", "forms": [1]}.items()
    assert earlier.heard[1:] == [READY, SERVING]
    await house.known(gateway)
    assert await house.get(gateway) == 200


async def test_a_later_release_takes_over(house: House) -> None:
    old = await house.start(house.write())
    new = await OtherRelease.at(house.path)
    new.say(TAKE_OVER)
    offer = await new.hear()
    await new.hear_descriptors(len(offer["sockets"]))
    new.say(READY)
    assert await new.hear() == json.loads(STOPPED)
    new.say(SERVING)

    await house.one_ended()

    assert await new.gone()
    new.close()
    assert old.urls == ()
    assert set(offer) == {"kind", "form", "release", "pid", "state", "sockets", "manager"}
    assert [each["role"] for each in offer["sockets"]] == ["clients", "admin", "lock"]
    assert "baremetal" in json.loads(offer["state"])["services"]


@pytest.mark.parametrize(
    "said",
    [
        b"{}",
        b"[]",
        b"not JSON",
        b"[" * 10_000,
        b'{"kind": "ready"}',
        b'{"kind": "what?"}',
        b'{"kind": "take_over", "release": "9", "pid": 1}',
        b'{"kind": "take_over", "forms": [2], "release": "9", "pid": 1}',
        b'{"kind": "take_over", "forms": [1], "release": "9", "pid": "1"}',
        b'{"kind": "orphan", "forms": [1], "pid": 1, "slot": 0, "workers": 2, "sockets": {}}',
    ],
)
async def test_what_is_not_understood_is_refused_with_the_reason(house: House, said: bytes) -> None:
    await house.start(house.write())
    other = await OtherRelease.at(house.path)
    other.say(said)

    answer = await other.hear()
    assert (answer["kind"], bool(answer["reason"])) == ("refused", True)
    assert await other.gone()
    other.close()


async def test_too_much_is_not_read(house: House) -> None:
    await house.start(house.write())
    other = await OtherRelease.at(house.path)
    other.writer.write(struct.pack("!I", 2**31))

    assert (await other.hear())["kind"] == "refused"
    other.close()


@pytest.mark.parametrize(
    "offer, reason",
    [
        (
            OFFER.replace(b'"form": 1', b'"form": 2'),
            "its messages have form '2', and this release reads form 1",
        ),
        (
            OFFER.replace(b', {"role": "lock", "written": "", "managed": false}', b""),
            "descriptors instead of 2",
        ),
        (b'{"kind": "offer", "form": 1, "release": "x", "pid": 1, "state": 7, "sockets": []}', "`state`"),
        (b'{"kind": "refused", "reason": "it rains"}', "cannot be taken over now: it rains"),
        (STOPPED, "it has offered nothing"),
    ],
)
async def test_an_offer_that_is_none_is_not_taken(house: House, offer: bytes, reason: str) -> None:
    earlier = Earlier(house.path)
    try:
        talking = asyncio.create_task(asyncio.to_thread(earlier.talk, offer))
        with pytest.raises(StartupError, match=reason):
            await take_over(house.path)
        await talking
    finally:
        earlier.end()


async def test_one_that_does_not_stop_is_not_replaced(house: House) -> None:
    earlier = Earlier(house.path)
    try:
        talking = asyncio.create_task(asyncio.to_thread(earlier.talk, OFFER, READY))
        with pytest.raises(StartupError, match="does not stop accepting clients"):
            await house.start(house.write(), takes_over=True)
        await talking
    finally:
        earlier.end()


def test_what_is_written_is_read_again() -> None:
    for each in (
        messages.TakeOver(1, "9"),
        messages.HandoverOffer(1, "9", None, (messages.Described("clients", "a:1", True),), {"A": "b"}),
        messages.PlainMessage("refused", "no"),
        messages.SERVING,
    ):
        assert messages.read(json.loads(json.dumps(each.write()))) == each


def test_foreign_keys_are_ignored() -> None:
    said = {**json.loads(READY), "later": 1}
    assert messages.read(said) == messages.READY
