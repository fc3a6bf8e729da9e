"""Collects the problems of a configuration, each at the position of its node.

The reader and all checks share one `Findings`. It knows no key and does not judge what is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, final
from unicodedata import category

from gateway.settings.yaml.problem import Problem, Severity, quoted
from gateway.settings.yaml.tree import Location, Node, Position, Scalar, child

NO_BREAK: Final = "\u00a0\u202f\u2007"
"""Characters that look like spaces, but are none to YAML."""


@final
@dataclass(slots=True)
class Findings:
    """Collector of problems, shared by the reader and all checks of one configuration."""

    problems: list[Problem] = field(default_factory=list)
    dropped: set[Location] = field(default_factory=set)
    """Locations in the file whose value was refused and removed from the tree. A default is used there."""
    check_files: bool = True
    """Whether checks also read the files that the configuration names, such as certificates."""
    filename: str = ""
    """Name of the configuration file, for messages that are shown in another file."""
    note_file: Callable[[str], None] = lambda path: None
    """Function that is called with the path of each file that a check is about to read."""

    def is_dropped(self, *path: str | int) -> bool:
        """Whether a node at, above or below `path` in the file was removed: then its value means nothing."""
        return any(dropped[: len(path)] == path[: len(dropped)] for dropped in self.dropped)

    def is_any_dropped(self, *keys: str) -> bool:
        """Whether a node at or below these keys was removed, wherever in the file the keys are."""
        size = len(keys)
        return any(path[at : at + size] == keys for path in self.dropped for at in range(len(path)))

    def add(
        self,
        node: Node | None,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        severity: Severity = Severity.ERROR,
        quoting: str = "",
    ) -> None:
        """Report a problem of a node, unless one of it was reported before. `quoting`: a better hint, which
        quotes the value; not shown for a value from elsewhere."""
        if node is not None and node.broken:
            return
        if quoting and not (isinstance(node, Scalar) and node.substituted):
            hint = quoting
        if isinstance(node, Scalar) and severity is Severity.ERROR:
            more = _invisible(node) or _source(node, code)
            hint = f"{hint}; {more}" if hint and more else hint or more
        position = node.position if node is not None else Position()
        self.problems.append(
            Problem(
                position.line,
                position.column,
                code,
                message,
                hint or None,
                severity,
                width=position.width,
                file=position.file,
            )
        )

    def contradiction(self, node: Node | None, message: str, hint: str | None = None) -> None:
        self.add(node, "contradiction", message, hint)

    def bad_value(self, node: Node | None, message: str, hint: str | None = None) -> None:
        """Report a value of the file that is not valid or outside its limits."""
        self.add(node, "bad-value", message, hint)

    def warn(
        self,
        node: Node | None,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        quoting: str = "",
    ) -> None:
        """Report, as a warning, a value of the file that is allowed but probably not meant."""
        self.add(node, code, message, hint, severity=Severity.WARNING, quoting=quoting)

    def require_both(self, node: Node | None, one: str, other: str) -> None:
        """Report that a mapping has only one of two keys that belong together."""
        for name, missing in ((one, other), (other, one)):
            place = child(node, name)
            if place is not None and child(node, missing) is None:
                message = f"{name} and {missing} belong together"
                self.add(place, "missing-key", message, f"add `{missing}: ...`")

    def has_at(self, node: Node | None) -> bool:
        """Whether a problem was reported at the position of this node already."""
        at = None if node is None else (node.position.line, node.position.column)
        return any((problem.line, problem.column) == at for problem in self.problems)

    def line_of(self, node: Node, beside: Node | None) -> str:
        """The line of a node in the file, for a message that is shown at another node, `beside`."""
        line, file = node.position.line, node.position.file
        same = beside is None or file == beside.position.file
        return f"line {line}" if same else f"line {line} of {file or self.filename}"

    def refused(self, node: Node | None, message: str, hint: str | None = None) -> None:
        """Report a text that core or a dialect refused. The message may quote it, unless it is a secret."""
        secret = isinstance(node, Scalar) and node.substituted
        self.bad_value(node, "not a valid value" if secret else message, hint)


def _source(node: Scalar, code: str) -> str:
    """A hint that a refused text comes from the environment or from another file; empty: it does not."""
    if code not in {"bad-value", "wrong-type"}:
        return ""
    parts = [f"the environment: {', '.join(node.variables)}"] if node.variables else []
    parts += [f"the file {quoted(path)}" for path in node.files]
    return f"the value comes from {' and '.join(parts)}" if parts else ""


def _invisible(node: Scalar) -> str:
    """A hint about an invisible character, as text from a web page or a chat may have."""
    found = next((each for each in node.written if category(each) == "Cf" or each in NO_BREAK), None)
    return f"it has an invisible character, U+{ord(found):04X}: write the text anew" if found else ""
