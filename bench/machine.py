"""What the bench ran on: processor, kernel, interpreter. For the reader of the figures."""

import os
import platform
import sys
import sysconfig
from pathlib import Path


def machine() -> str:
    """Processor, cores and kernel."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


def interpreter() -> str:
    """The Python of all Python programs, with the file that it was installed as, and how it was built."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    built = "built with PGO" if _is_profiled() else "built without PGO"
    return f"{name} ({Path(sys.executable).resolve()}, {built})"


def _is_profiled() -> bool:
    """Whether this Python was compiled with a profile of its own runs (PGO).

    Debian makes a profile build without the usual option, and then removes the flag from what it installs.
    """
    option = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    debian = Path("/etc/debian_version").exists() and Path(sys.executable).resolve().parent == Path(
        "/usr/bin"
    )
    return option or (debian and not sysconfig.get_config_var("PGO_PROF_USE_FLAG"))
