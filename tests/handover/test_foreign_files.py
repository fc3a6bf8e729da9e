"""A state file in a folder that others may write (R3-T4): what somebody else has put there is not believed,
and nobody else's file is written."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.assembly import Gateway
from gateway.controlplane.state.file import StateFile, StateFileError
from gateway.handover.connection import PeerProcess, path_of
from gateway.handover.handover import Handover
from gateway.handover.take_over import take_over
from gateway.runtime.file_trust import ForeignFileError, others_write, real_path, trusted_users
from gateway.settings import read_file
from tests.handover.conftest import House
from tests.kit.waiting import until

NOBODY = 65534
SERVICE = 10001
"""The user of a container, or of a unit."""
of_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other users")


def started(state: Path) -> StateFile | None:
    """What a start does with these files, before it reads or binds anything else."""
    return Handover(str(state)).state_file()


def as_user(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    """This process takes itself for one of another user."""
    monkeypatch.setattr(os, "geteuid", lambda: user)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that every user may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def make_file(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o600)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(path))
    path.chmod(0o600)


FILES: dict[str, Callable[[Path], None]] = {"": make_file, ".lock": make_file, ".handover": make_socket}


@of_root
@pytest.mark.parametrize("suffix, make", FILES.items(), ids=["state", "lock", "socket"])
def test_R3_T4_a_file_of_another_user_is_an_error_that_says_what_to_do(
    shared: Path, suffix: str, make: Callable[[Path], None]
) -> None:
    path = shared / f"state.json{suffix}"
    make(path)
    assert started(shared / "state.json") is not None

    os.chown(path, NOBODY, NOBODY)

    with pytest.raises(
        ForeignFileError, match=f"{path} belongs to user {NOBODY}, and this gateway runs as user 0.*chown 0"
    ):
        started(shared / "state.json")


@pytest.mark.parametrize("suffix, make", FILES.items(), ids=["state", "lock", "socket"])
def test_R3_T4_a_file_that_every_user_may_write_is_an_error(
    tmp_path: Path, suffix: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / f"state.json{suffix}"
    make(path)
    path.chmod(0o666)

    with pytest.raises(ForeignFileError, match=f"every user may write {path}.*chmod o-w"):
        started(tmp_path / "state.json")


@of_root
def test_R3_T4_a_link_of_another_user_replaces_no_file(shared: Path, tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_text("x")
    link = shared / "state.json"
    link.symlink_to(other)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)

    with pytest.raises(ForeignFileError, match=f"{link} is a symbolic link of user {NOBODY}"):
        started(link)
    with pytest.raises(ForeignFileError):
        path_of(link)

    assert other.read_text() == "x"


@of_root
def test_R3_T4_a_link_on_the_way_to_the_folder_counts_too(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = shared / "folder"
    link.symlink_to("../real")
    assert real_path(link / "state.json", trusted_users()) == tmp_path / "real" / "state.json"

    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)

    with pytest.raises(ForeignFileError):
        real_path(link / "state.json", trusted_users())


@of_root
def test_R3_T4_in_a_folder_of_ones_own_the_link_of_another_user_is_followed(tmp_path: Path) -> None:
    """Who may write the folder has allowed it: as `chown -R` does, which changes what links lead to."""
    (tmp_path / "link").symlink_to("state.json")
    os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)

    assert real_path(tmp_path / "link", trusted_users()) == tmp_path / "state.json"


def test_R3_T4_links_are_followed_as_the_kernel_does(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "up").symlink_to("a/b/..")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "absolute").symlink_to(tmp_path / "up")
    for name in ("up/x", "absolute/../x", "a//b/./x", "nowhere/../x", "loop/x", "up/b/../../x"):
        path = tmp_path / name
        assert real_path(path, trusted_users()) == Path(os.path.realpath(path)), name


@of_root
def test_R3_T4_what_is_swapped_after_the_look_is_found_where_it_is_opened(shared: Path) -> None:
    path = shared / "state.json"
    make_file(path)
    file = StateFile(path)

    os.chown(path, NOBODY, NOBODY)
    with pytest.raises(StateFileError, match="belongs to user"):
        file.read()
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(StateFileError, match="symbolic links"):
        file.read()

    make_file(lock := shared / "state.json.lock")
    os.chown(lock, NOBODY, NOBODY)
    with pytest.raises(StateFileError, match="belongs to user"):
        file.replace("x")
    assert file.lock is None


@of_root
def test_R3_T4_the_empty_folder_of_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """emptyDir: root's, 0777, and with fsGroup setgid. What the gateway wrote before a restart is its own."""
    folder = tmp_path / "empty"
    folder.mkdir()
    os.chown(folder, 0, SERVICE)
    folder.chmod(0o2777)
    for suffix, make in FILES.items():
        make(folder / f"state.json{suffix}")
        os.chown(folder / f"state.json{suffix}", SERVICE, SERVICE)
    as_user(monkeypatch, SERVICE)

    file = started(folder / "state.json")

    assert file is not None
    assert file.read() == "{}"
    assert others_write(folder, trusted_users())


@of_root
def test_R3_T4_the_state_directory_of_a_dynamic_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd: /var/lib/skewgate is root's link to private/skewgate, of the user of this run."""
    (tmp_path / "private" / "skewgate").mkdir(parents=True)
    os.chown(tmp_path / "private" / "skewgate", SERVICE, SERVICE)
    (tmp_path / "skewgate").symlink_to("private/skewgate")
    make_file(state := tmp_path / "private" / "skewgate" / "state.json")
    os.chown(state, SERVICE, SERVICE)
    as_user(monkeypatch, SERVICE)

    file = started(tmp_path / "skewgate" / "state.json")

    assert file is not None
    assert (file.path, file.read()) == (state, "{}")
    assert not others_write(state.parent, trusted_users())


def test_R3_T4_var_run_is_roots_link(monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, SERVICE)
    path = Path("/var/run/skewgate/state.json")

    assert real_path(path, trusted_users()) == Path(os.path.realpath(path))


@of_root
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
async def test_R3_T4_a_database_of_another_user_is_not_opened(house: House, suffix: str) -> None:
    path = Path(f"{house.state}.usage{suffix}")
    make_file(path)
    os.chown(path, NOBODY, NOBODY)

    with pytest.raises(ForeignFileError, match=f"{path} belongs to user {NOBODY}"):
        await house.start(house.write())


@of_root
async def test_R3_T4_root_takes_over_from_the_gateway_of_another_user(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody else can have put its socket there. What it has written is believed, and replaced."""
    file = house.write()
    old = await house.start(file)
    await house.known(old)
    await house.admin(old, "PUT", "/services/baremetal/ceiling", {"version": "1.31"})
    os.chown(house.folder, SERVICE, SERVICE)
    for path in house.folder.glob("state.json*"):
        os.chown(path, SERVICE, SERVICE)
    taken = await take_over(house.path)
    assert taken is not None
    taken.user = SERVICE  # in this test both are one process

    gateway = Gateway(
        read_file(file, environ=os.environ).require(), handover=Handover(str(house.state), taken=taken)
    )
    async with gateway:
        await house.one_ended()
        await until(lambda: house.state.stat().st_uid == 0)
        assert (await house.offer(gateway))["max"] == "1.31"


@of_root
@pytest.mark.parametrize("mode, believed", [(0o755, True), (0o777, False)])
def test_R3_T4_root_takes_over_from_nobody_whose_socket_others_could_have_put_there(
    tmp_path: Path, mode: int, believed: bool
) -> None:
    os.chown(tmp_path, SERVICE, SERVICE)
    tmp_path.chmod(mode)

    assert PeerProcess(1, SERVICE).may_be_taken_over(tmp_path / "state.json.handover") is believed
    assert PeerProcess(1, NOBODY).may_be_taken_over(tmp_path / "state.json.handover") is False
    assert PeerProcess(1, 0).may_be_taken_over(tmp_path / "state.json.handover")


def test_the_files_of_a_gateway_pass_the_next_start(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "state.json")
    file.replace("x")
    file.close()

    again = started(tmp_path / "state.json")

    assert again is not None
    assert again.read() == "x"
    assert not stat.S_IWOTH & (tmp_path / "state.json.lock").stat().st_mode
