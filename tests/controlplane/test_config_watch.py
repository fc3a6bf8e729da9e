"""Files that change are read again: once they rest, once for each change, whatever swaps them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.controlplane.config_watch import MAX_UNSTABLE_CHECKS, ConfigWatch
from gateway.controlplane.reload import Reloader
from gateway.settings import Loaded, read_file
from tests.controlplane.test_reload import Recorder
from tests.kit.ironic import holder_of
from tests.kit.waiting import until

MAIN = "listen: 127.0.0.1:8080\ninclude: {files: conf.d/*.yaml, folders: [.]}\nservices:\n"
SERVICE = """\
  {name}:
    dialect: ironic
    match: {{path: /{name}}}
    headers: {{request: {{set: {{X-Key: "${{FILE:{folder}/key}}"}}}}}}
    backends: [{{url: "http://127.0.0.1:6385"}}]
"""


class Watched(NamedTuple):
    folder: Path
    main: Path
    reloader: Reloader
    watch: ConfigWatch
    recorder: Recorder

    async def checks(self, number: int = 2) -> list[bool]:
        """The results of all reloads up to now, after so many checks."""
        for _ in range(number):
            await self.watch.check_for_changes()
        return [result == "success" for result in self.recorder.reloads]

    def names(self) -> list[str]:
        return [each.name for each in self.reloader.settings.services]

    def service(self, name: str) -> str:
        return SERVICE.format(name=name, folder=self.folder)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.controlplane.config_watch.INTERVAL", 0.01)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "key").write_text("first")
    main = tmp_path / "main.yaml"
    main.write_text(MAIN + SERVICE.format(name="one", folder=tmp_path))
    return make(tmp_path, main)


def make(folder: Path, main: Path, before_end: Callable[[], object] = lambda: None) -> Watched:
    (folder / "conf.d").mkdir(exist_ok=True)

    def read() -> Loaded:
        loaded = read_file(main, environ={})
        before_end()
        return loaded

    started = read_file(main, environ={})
    recorder = Recorder()
    settings = started.require()
    reloader = Reloader(
        read,
        settings,
        snapshot_holder=holder_of(*settings.services),
        resolver=recorder.resolver,
        prober=recorder,
        metrics=recorder,
        seen=started.seen,
    )
    return Watched(folder, main, reloader, ConfigWatch(reloader), recorder)


async def test_nothing_happens_while_nothing_changes(watched: Watched) -> None:
    watched.main.touch()
    watched.main.write_text(watched.main.read_text())

    assert await watched.checks(4) == []


async def test_a_change_is_in_force_once_it_has_rested(watched: Watched) -> None:
    watched.main.write_text(MAIN + watched.service("one") + watched.service("two"))

    assert await watched.checks(1) == []
    assert await watched.checks(1) == [True]
    assert watched.names() == ["one", "two"]
    assert await watched.checks(3) == [True]


async def test_a_file_that_is_still_written_is_not_read(watched: Watched) -> None:
    """Every beginning of the text is another content; most of them are broken, one is whole and wrong."""
    text = MAIN + watched.service("one") + watched.service("two")
    for end in range(len(text) - 40, len(text)):
        watched.main.write_text(text[:end])
        assert await watched.checks(1) == []
    watched.main.write_text(text)

    assert await watched.checks() == [True]
    assert watched.names() == ["one", "two"]


async def test_a_broken_file_is_refused_once_and_its_mending_is_a_change(watched: Watched) -> None:
    watched.main.write_text("listen: nowhere\n")

    assert await watched.checks(6) == [False]
    assert watched.names() == ["one"]
    assert watched.reloader.config.error is not None
    assert watched.reloader.config.error.startswith(f"{watched.main}:1:1: error[missing-key]")
    watched.main.write_text(MAIN + watched.service("one"))
    assert await watched.checks(4) == [False, True]
    assert watched.reloader.config.error is None


async def test_a_file_that_is_gone_changes_nothing(watched: Watched) -> None:
    text = watched.main.read_text()
    watched.main.unlink()

    assert await watched.checks(4) == [False]
    assert watched.names() == ["one"]
    watched.main.write_text(text)
    assert await watched.checks(4) == [False, True]


async def test_included_files_come_change_and_go(watched: Watched) -> None:
    file = watched.folder / "conf.d" / "a.yaml"
    file.write_text("services:\n" + watched.service("two"))
    assert await watched.checks() == [True]
    assert watched.names() == ["one", "two"]

    file.write_text("services:\n" + watched.service("three"))
    assert await watched.checks() == [True] * 2
    assert watched.names() == ["one", "three"]

    (watched.folder / "conf.d" / "b.yaml").write_text("services:\n" + watched.service("three"))
    assert await watched.checks() == [True, True, False]
    assert watched.names() == ["one", "three"]

    (watched.folder / "conf.d" / "b.yaml").unlink()
    file.unlink()
    assert await watched.checks() == [True, True, False, True]
    assert watched.names() == ["one"]


async def test_a_value_in_a_file_is_read_again(watched: Watched) -> None:
    before = watched.reloader.settings.services[0].request_edits
    (watched.folder / "key").write_text("second")
    assert await watched.checks() == [True]
    assert watched.reloader.settings.services[0].request_edits != before

    (watched.folder / "key").unlink()
    assert await watched.checks(4) == [True, False]
    (watched.folder / "key").write_text("third")
    assert await watched.checks(4) == [True, False, True]


async def test_a_config_map_whose_links_are_swapped(tmp_path: Path) -> None:
    """The kubelet writes a new folder, and renames a link to it over the old one. Files are links, too."""

    def write(folder: str, *names: str) -> None:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "key").write_text("x")
        text = "".join(SERVICE.format(name=name, folder=tmp_path) for name in names)
        (tmp_path / folder / "main.yaml").write_text(MAIN + text)

    write("..1", "one")
    (tmp_path / "..data").symlink_to("..1")
    for name in ("main.yaml", "key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    watched = make(tmp_path, tmp_path / "main.yaml")
    assert await watched.checks(3) == []

    write("..2", "one", "two")
    (tmp_path / "..new").symlink_to("..2")
    os.replace(tmp_path / "..new", tmp_path / "..data")  # noqa: PTH105 - as the kubelet does it

    assert await watched.checks(4) == [True]
    assert watched.names() == ["one", "two"]


async def test_what_was_reloaded_by_a_signal_is_not_reloaded_again(watched: Watched) -> None:
    watched.main.write_text(MAIN + watched.service("two"))
    await watched.checks(1)
    await watched.reloader.reload()

    assert await watched.checks(4) == [True]

    watched.main.write_text("broken")
    await watched.reloader.reload()
    assert await watched.checks(4) == [True, False]


async def test_a_change_during_the_reload_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x")
    main = tmp_path / "main.yaml"
    main.write_text(MAIN + SERVICE.format(name="one", folder=tmp_path))
    changes = iter([MAIN + SERVICE.format(name="three", folder=tmp_path)])
    watched = make(tmp_path, main, lambda: [main.write_text(text) for text in changes])
    main.write_text(MAIN + SERVICE.format(name="two", folder=tmp_path))

    assert await watched.checks(2) == [True]
    assert watched.names() == ["two"]
    assert await watched.checks(2) == [True, True]
    assert watched.names() == ["three"]


async def test_a_file_that_never_rests_is_told_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for number in range(MAX_UNSTABLE_CHECKS + 3):
        watched.main.write_text(f"# {number}\n")
        await watched.checks(1)

    assert [record.getMessage() for record in caplog.records] == [
        "a file of the configuration keeps changing: reloading one second after its last change"
    ]


async def test_from_start_to_close(watched: Watched) -> None:
    watched.watch.start()
    watched.main.write_text(MAIN + watched.service("two"))
    await until(lambda: watched.names() == ["two"])
    await watched.watch.close()

    assert "configuration" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_our_own_bug_does_not_end_the_watch(
    watched: Watched, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, failed = watched.reloader.seen, asyncio.Event()

    async def fail() -> None:
        failed.set()
        raise ZeroDivisionError

    assert seen.files
    with monkeypatch.context() as patch:
        patch.setattr(watched.watch, "check_for_changes", fail)
        watched.watch.start()
        await asyncio.wait_for(failed.wait(), 5)
    watched.main.write_text(MAIN + watched.service("two"))
    await until(lambda: watched.names() == ["two"])
    await watched.watch.close()
    assert "checking the files of the configuration failed" in caplog.text


async def test_during_a_take_over_it_waits_and_reloads_afterwards(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await watched.reloader.hold("another gateway is taking over")
    watched.main.write_text(MAIN + watched.service("two"))
    assert await watched.checks(6) == []
    assert caplog.records == []

    watched.reloader.go_on()
    assert await watched.checks() == [True]
    assert watched.names() == ["two"]
