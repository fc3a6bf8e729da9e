"""The source `file`: what is read, when it is read again, and what a bad file means."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.controlplane.discovery.listers import FILE_INTERVAL, Answer, FileLister, Listed
from gateway.controlplane.name_lookup import Failed
from gateway.core.fleet.source import MAX_BACKENDS, Address
from gateway.settings.target_file import MAX_ITEMS, MAX_SIZE, MAX_YAML_SIZE, TargetsError, read_targets
from tests.kit.waiting import PATIENCE


def targets(*texts: object, **labels: str) -> bytes:
    return json.dumps([{"targets": texts, "labels": labels}]).encode()


def names(answer: Answer) -> list[str]:
    assert isinstance(answer, Listed), answer
    return [address.name for address in answer.addresses]


# --- what a list is -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        (targets("10.0.0.1:6385", "api-2.test:80"), ["http 10.0.0.1:6385", "http api-2.test:80"]),
        (targets("10.0.0.1:6385", "10.0.0.1:6385"), ["http 10.0.0.1:6385"]),
        (targets("API.test:1", "api.test:1"), ["http api.test:1"]),
        (targets("[fd00::1]:80", __scheme__="https", job="x"), ["https [fd00::1]:80"]),
        (targets("https://api:1/base"), ["https api:1/base"]),
        (b'[{"targets": ["a:1"]}, {"targets": ["a:1", "b:2"], "labels": {}}]', ["http a:1", "http b:2"]),
        (b"[]", []),
        (b'\xef\xbb\xbf[{"targets": ["a:1"]}]', ["http a:1"]),
    ],
)
def test_a_list_of_targets(text: bytes, expected: list[str]) -> None:
    found = read_targets(text, "backends.json")
    assert [f"{'https' if each.tls else 'http'} {each.name}{each.path or ''}" for each in found] == expected


def test_the_same_list_in_yaml() -> None:
    text = b"# by hand\n- targets: ['a:1', b:2]\n  labels: {__scheme__: https}\n"
    assert read_targets(text, "x.yml") == (Address("a", 1, tls=True), Address("b", 2, tls=True))


HOSTILE = 'x\x1b[31m\n"}} 1\nskewgate_up 1'


@pytest.mark.parametrize(
    "text, reason",
    [
        (b"", "it is empty"),
        (b"[", "line 1, column 2: it is not JSON"),
        (b'[\n{"targets": ["a:1",]}]', "line 2, column"),
        (b"\xff[]", "line 1: it is not UTF-8"),
        (b"{}", "it is not a list of groups"),
        (b"[[]]", "group 1 has no list `targets`"),
        (b'[{"targets": "a:1"}]', "group 1 has no list `targets`"),
        (b'[{"targets": [], "labels": []}, {"targets": [], "labels": [1]}]', "group 2: `labels` is not"),
        (targets("a:1", __scheme__="gopher"), "group 1: the label __scheme__ is not http or https"),
        (targets("a:1", 17), "group 1, target 2 is not a text"),
        (targets("a:1", "b:99999"), "group 1, target 2, 'b:99999': the port must be a number"),
        (targets("user:secret@a:1"), "must not contain a user or password"),
        (targets("unix:/run/x.sock"), "group 1, target 1"),
        (targets("https://a:1", "a:1"), "group 1, target 2: the same host and port"),
        (targets(HOSTILE + ":80"), "group 1, target 1, "),
        (targets("a" * 300 + ":1"), "…: not a valid host name"),
        (targets(*(f"10.0.0.1:{port}" for port in range(1, MAX_BACKENDS + 2))), "more than 1000 backends"),
        (targets(*["a:1"] * (MAX_ITEMS + 1)), f"more than {MAX_ITEMS} targets"),
        (b"[" * 100_000, "it is not JSON"),
        (b" " * (MAX_SIZE + 1), "it is larger than 4 MiB"),
        (b"[" + b"1" * 5000 + b"]", ""),
    ],
)
def test_what_is_no_list_is_refused_as_a_whole(text: bytes, reason: str) -> None:
    with pytest.raises(TargetsError) as refused:
        read_targets(text, "backends.json")
    message = str(refused.value)
    assert reason in message
    assert message.isprintable()
    assert len(message) < 250


@pytest.mark.parametrize(
    "text",
    [
        b"a: [",
        b"- targets: !!python/object:os.system [x]",
        b"- targets: &a [" + b"'a:1'," * 1000 + b"]\n" + b"- targets: *a\n" * 1000,
        b"x" * (MAX_YAML_SIZE + 1),
        b"- targets: [a:1]\n---\n- targets: []",
    ],
)
def test_yaml_that_is_no_list(text: bytes) -> None:
    with pytest.raises(TargetsError):
        read_targets(text, "backends.yaml")


def test_a_file_of_a_hundred_thousand_lines_is_refused_with_its_number() -> None:
    lines = ",\n".join(
        f'{{"targets": ["10.{at // 62500}.{at // 250 % 250}.{at % 250}:80"]}}' for at in range(100_000)
    )
    with pytest.raises(TargetsError, match="more than 1000 backends"):
        read_targets(f"[\n{lines}\n]".encode(), "backends.json")


# --- when it is read ----------------------------------------------------------------------------------------


async def test_a_change_is_seen_and_so_is_a_file_that_comes_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "backends.json"
    lister = FileLister(str(path))
    assert await lister.poll() == Failed("it cannot be read: no such file or directory")
    path.write_bytes(targets("a:1"))
    assert await lister.poll() == Listed((Address("a", 1, tls=False),), FILE_INTERVAL)
    path.write_bytes(targets("a:2"))
    assert names(await lister.poll()) == ["a:2"], "the same size, and perhaps the same time"
    path.write_text("{")
    assert await lister.poll() == Failed("line 1, column 2: it is not JSON")
    path.unlink()
    assert await lister.poll() == Failed("it cannot be read: no such file or directory")


async def test_the_swap_of_a_kubernetes_configmap_is_seen(tmp_path: Path) -> None:
    """NAME -> ..data/NAME, ..data -> ..FOLDER: only the inner link is replaced."""
    for folder, target in (("..one", "a:1"), ("..two", "b:1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "backends.json").write_bytes(targets(target))
        os.utime(tmp_path / folder / "backends.json", (1000, 1000))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "backends.json").symlink_to("..data/backends.json")
    lister = FileLister(str(tmp_path / "backends.json"))
    assert names(await lister.poll()) == ["a:1"]
    (tmp_path / "..new").symlink_to("..two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert names(await lister.poll()) == ["b:1"]


async def test_an_old_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "backends.json"
    path.write_bytes(targets("a:1"))
    os.utime(path, (1000, 1000))
    reads: list[str] = []

    def read(data: bytes, filename: str) -> tuple[Address, ...]:
        reads.append(filename)
        return read_targets(data, filename)

    monkeypatch.setattr("gateway.controlplane.discovery.listers.read_targets", read)
    lister = FileLister(str(path))
    assert names(await lister.poll()) == names(await lister.poll()) == ["a:1"]
    assert len(reads) == 1


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
async def test_what_is_no_file_holds_nothing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "backends.json")
    assert await FileLister(str(tmp_path / "backends.json")).poll() == Failed("it is not a regular file")


async def test_a_file_system_that_hangs_holds_neither_the_loop_nor_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "backends.json"
    path.write_bytes(targets("a:1"))
    read_end, write_end = os.pipe()
    opened = os.open

    def hang(*arguments: object) -> int:
        os.read(read_end, 1)
        return opened(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("gateway.controlplane.discovery.listers.os.open", hang)
    monkeypatch.setattr("gateway.controlplane.discovery.listers.PATIENCE", 0.01)
    lister = FileLister(str(path))
    for _ in range(3):
        assert await lister.poll() == Failed("it cannot be read: the file system does not answer")
    monkeypatch.undo()
    os.write(write_end, b"x")
    async with asyncio.timeout(PATIENCE):
        while isinstance(answer := await lister.poll(), Failed):
            pass
    assert names(answer) == ["a:1"]
    os.close(read_end)
    os.close(write_end)
