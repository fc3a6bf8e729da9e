"""Two networks of their own for a run: nothing of it is seen outside, and nothing of it can remain.

What it does: `isolated` makes a command run with its own network, mounts and process ids. In there,
`use_resolver` sets the name server, and `FarNetwork` is a second network behind a link that can be cut.

Rules: no namespace has a name. The kernel removes each with its last process, and all processes with the
first one. Needs unshare, nsenter and mount (util-linux) and ip (iproute2), as root or with user namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.kit.waiting import wait_until

PROGRAMS: Final = ("unshare", "nsenter", "mount", "prlimit", "ip")

NEAR_HOST: Final = "10.77.0.1"
FAR_HOST: Final = "10.77.0.2"
_NETWORK: Final = "/proc/{}/ns/net"
# Servers and tools of the system live in sbin, which the PATH of an ordinary user lacks.
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing_programs() -> list[str]:
    """The programs that are needed here and not installed."""
    return [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]


def isolated(command: Sequence[str]) -> list[str]:
    """The same command as the first process of new namespaces. They all end with it."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *user, *kinds, *command]


def use_loopback() -> None:
    """Inside: the loopback of a new network is down at first."""
    _run("ip", "link", "set", "lo", "up")


def use_resolver(host: str, folder: Path) -> None:
    """Inside: names are looked up at this server alone."""
    files = {"resolv.conf": f"nameserver {host}\n", "nsswitch.conf": "hosts: files dns\n"}
    for name, text in files.items():
        place = Path("/etc") / name
        if place.exists():
            mine = folder / name
            mine.write_text(text)
            _run("mount", "--bind", str(mine), str(place))


class FarNetwork:
    """A network with `FAR_HOST`, behind a link to this one. Use it as a context manager."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        try:
            self._connect(self._holder.pid)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def inside(self, *command: str) -> list[str]:
        """The same command in the far network."""
        assert self._holder is not None
        return ["nsenter", f"--net={_NETWORK.format(self._holder.pid)}", *command]

    def cut(self) -> None:
        """From now on packets vanish, both ways. Nobody is told: no reset, no unreachable host."""
        _run(*self.inside("ip", "link", "set", "far", "down"))

    def restore(self) -> None:
        _run(*self.inside("ip", "link", "set", "far", "up"))

    def _connect(self, holder: int) -> None:
        own, other = (Path(_NETWORK.format(process)) for process in ("self", holder))
        wait_until(lambda: other.readlink() != own.readlink(), "a second network")
        _run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(holder))
        _run("ip", "addr", "add", f"{NEAR_HOST}/24", "dev", "near")
        _run("ip", "link", "set", "near", "up")
        _run(*self.inside("ip", "addr", "add", f"{FAR_HOST}/24", "dev", "far"))
        _run(*self.inside("ip", "link", "set", "lo", "up"))
        self.restore()
        # Without this entry, the kernel would say after 3 s that the host is unreachable.
        hardware = _run(*self.inside("ip", "-o", "link", "show", "far")).split("link/ether ")[1].split()[0]
        _run("ip", "neigh", "replace", FAR_HOST, "lladdr", hardware, "dev", "near", "nud", "permanent")

    def _end(self) -> None:
        assert self._holder is not None
        self._holder.kill()
        self._holder.wait()


def _run(*command: str) -> str:
    ended = subprocess.run(
        command, env={**os.environ, "PATH": _PATH}, capture_output=True, text=True, check=False, timeout=10
    )
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr}"
    return ended.stdout
