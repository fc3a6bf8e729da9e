"""Makes old releases load on Python 3.11.

What it does: `repair` changes an environment during its build. It rewrites files that do not parse because
they use `async` as a name, and adds a start-up module with names that the standard library has dropped. A
list requests it with a line `# repair: PACKAGE` (`requested_by`).

Rules: only files that do not parse are changed. Each is replaced by a new file, because the old one may share
its bytes with the cache of the installer. A file that still does not parse is an error at once, instead of a
failure of a server later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

# `async` as a whole name, not inside quotes.
ASYNC_AS_A_NAME = re.compile(r"""(?<!['"\w])async(?!['"\w])""")

# Python imports this module when it starts.
START_UP = "sitecustomize.py"
START_UP_TEXT = '''\
"""Names that Python 3.11 has dropped and that old releases use."""

import collections
import collections.abc
import inspect
import platform

for name in collections.abc.__all__:
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

if not hasattr(inspect, "getargspec"):
    Arguments = collections.namedtuple("Arguments", "args varargs keywords defaults")
    inspect.getargspec = lambda function: Arguments(*inspect.getfullargspec(function)[:4])

if not hasattr(platform, "linux_distribution"):
    platform.linux_distribution = lambda *arguments, **options: ("", "", "")
'''


class BeyondRepair(RuntimeError):
    """A file does not parse after the repair. The text names it."""


def requested_by(exact_list: Path) -> list[str]:
    """The packages that this list wants repaired, from its `# repair:` lines."""
    lines = exact_list.read_text().splitlines()
    return [word for line in lines if line.startswith("# repair:") for word in line.split(":")[1].split()]


def repair(site_packages: Path, packages: Iterable[str]) -> None:
    """Make these packages load. Raises BeyondRepair when one still does not parse."""
    (site_packages / START_UP).write_text(START_UP_TEXT)
    for package in packages:
        for source in sorted((site_packages / package).rglob("*.py")):
            if "tests" not in source.relative_to(site_packages).parts:
                _repair_file(source)


def _repair_file(source: Path) -> None:
    before = source.read_text("utf-8", "surrogateescape")
    if _parses(before):
        return
    after = ASYNC_AS_A_NAME.sub("async_", before)
    if not _parses(after):
        raise BeyondRepair(f"{source} does not parse on this Python, for another reason than `async`")
    unfinished = source.with_suffix(".repaired")
    unfinished.write_text(after, "utf-8", "surrogateescape")
    unfinished.replace(source)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
