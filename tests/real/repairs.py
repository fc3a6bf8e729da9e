"""Old releases made to load on Python 3.11: what venerable sources use and the language no longer has.

What it does: `repair` rewrites, inside an environment that is being built, files that no longer parse
because they use `async` as a name, and adds a start-up module that gives back names which the standard
library has dropped. A list asks for it with a line `# repair: PACKAGE` (`wanted_by`).

Rules: only files that do not parse are touched, and each is replaced by a new file: the old one may share
its bytes with an installer's cache. What still does not parse afterwards is an error at once, not a
failure of a server later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

# A name, not a part of a longer one and not a quoted word.
ASYNC_AS_A_NAME = re.compile(r"""(?<!['"\w])async(?!['"\w])""")

# Python imports this module by itself when it starts.
START_UP = "sitecustomize.py"
START_UP_TEXT = '''\
"""Names that Python 3.11 has dropped and old releases still use."""

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
    """A file does not parse even after the repair. The text names it."""


def wanted_by(exact_list: Path) -> list[str]:
    """The packages that this list wants repaired: the words of its `# repair:` lines."""
    lines = exact_list.read_text().splitlines()
    return [word for line in lines if line.startswith("# repair:") for word in line.split(":")[1].split()]


def repair(site_packages: Path, packages: Iterable[str]) -> None:
    """Make these packages load. Raises BeyondRepair when one still would not."""
    (site_packages / START_UP).write_text(START_UP_TEXT)
    for package in packages:
        for source in sorted((site_packages / package).rglob("*.py")):
            if "tests" not in source.relative_to(site_packages).parts:
                _mend(source)


def _mend(source: Path) -> None:
    before = source.read_text("utf-8", "surrogateescape")
    if _parses(before):
        return
    after = ASYNC_AS_A_NAME.sub("async_", before)
    if not _parses(after):
        raise BeyondRepair(f"{source} does not parse on this Python, and not because of `async`")
    unfinished = source.with_suffix(".mended")
    unfinished.write_text(after, "utf-8", "surrogateescape")
    unfinished.replace(source)


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
