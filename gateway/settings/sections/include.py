"""`include`: further files, each of which adds services to those of the main file.

    include -> paths -> text -> tree -> its services, in the tree of the main file

An included file reads only the environment variables and value files that `include` lists, because its
authors need not be allowed to see every secret. This module knows no key but those of `include`, and
`services`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import Final, final

from gateway.keys.kinds import ListOf
from gateway.keys.texts import FILE_PATTERN, LINE, VARIABLE_NAME
from gateway.settings.files import MAX_FILES, SourceError, Sources, reader_of
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Problem, Severity, quoted
from gateway.settings.yaml.tree import (
    MAX_CHARACTERS,
    MappingEntry,
    MappingNode,
    Node,
    Scalar,
    SequenceNode,
    child,
    read_tree,
)

SERVICES: Final = "services"


@final
@dataclass(frozen=True, slots=True)
class Include:
    """Files with further services, and the values that they may read from elsewhere."""

    files: str = field(
        metadata=FILE_PATTERN.required(
            "A pattern of the files. `*`, `?` and `[ ]` as in a shell, relative to the folder of the main "
            "file, which is itself left out.",
            reason="There is no useful default.",
            example="conf.d/*.yaml",
        )
    )
    environment: tuple[str, ...] = ListOf(VARIABLE_NAME).key(
        (),
        "The environment variables that these files may read by `${NAME}`.",
        reason="The author of such a file could put secrets of the gateway into responses.",
        example=["TEAM_TOKEN"],
    )
    folders: tuple[str, ...] = ListOf(LINE).key(
        (),
        "The folders beneath which these files may read values by `${FILE:PATH}`, with symbolic links "
        "resolved. Relative to the folder of the main file.",
        reason="The author of such a file could put secrets of the gateway into responses.",
        example=["/run/secrets/team"],
    )


@final
@dataclass(slots=True)
class Included:
    """The texts and trees of the configuration's included files."""

    texts: dict[str, str] = field(default_factory=dict)
    roots: list[Node] = field(default_factory=list)


def add_included(
    root: MappingNode, text: str, sources: Sources, environ: Mapping[str, str], findings: Findings
) -> Included:
    """Add the services of the included files to `root`, the tree of the main file's `text`."""
    included = Included()
    include = child(root, "include")
    node = child(include, "files") if isinstance(include, MappingNode) else include
    variables, folders = _texts(child(include, "environment")), _texts(child(include, "folders"))
    if not isinstance(node, Scalar) or node.broken or not node.text:
        return included  # the reader says so
    left = MAX_CHARACTERS - len(text)
    before = len(findings.problems)
    for path in _paths(node, sources, findings):
        content = _read(path, sources, findings)
        if content is None:
            continue
        left -= len(content)
        if left < 0:
            message = f"with this file the configuration is larger than {MAX_CHARACTERS} characters"
            findings.problems.append(Problem(1, 1, "too-large", message, file=path))
            break
        included.texts[path] = content
        read_value = partial(sources.read_value, folders=folders)
        tree, problems = read_tree(content, environ, read_value, file=path, variables=variables)
        findings.problems.extend(problems)
        if tree is not None:
            included.roots.append(tree)
            _add_services(root, tree, node, findings)
    if SERVICES not in root.entries:
        reported = any(each.severity is Severity.ERROR for each in findings.problems[before:])
        key = Scalar(SERVICES, node.position)
        root.entries[SERVICES] = MappingEntry(key, MappingNode(key.position, broken=reported))
    return included


def _texts(node: Node | None) -> tuple[str, ...]:
    items = node.items if isinstance(node, SequenceNode) else ()
    return tuple(item.text for item in items if isinstance(item, Scalar) and item.text)


def _paths(node: Scalar, sources: Sources, findings: Findings) -> list[str]:
    pattern = node.text
    if "\0" in pattern or "**" in pattern:
        findings.bad_value(node, "not a valid pattern", "write one such as conf.d/*.yaml, without **")
        return []
    found = sources.match(pattern)
    if len(found) > MAX_FILES:
        findings.add(node, "too-large", f"more than {MAX_FILES} files match", "write a narrower pattern")
        return []
    if not found and findings.check_files:
        folder = Path(sources.resolve(pattern)).parent
        if not has_magic(pattern):
            path, hint = sources.resolve(pattern), "write a pattern: conf.d/*.yaml"
            findings.add(node, "unreadable", "there is no such file", hint, quoting=reader_of(path))
        elif not has_magic(str(folder)) and not folder.is_dir():
            message = "the folder of these files does not exist"
            findings.add(node, "unreadable", message, quoting=reader_of(folder))
        else:
            message = "no file matches"
            findings.add(node, "no-effect", message, "add files to the folder", severity=Severity.WARNING)
    return [path for path in found if not _same(path, findings.filename)]


def _same(path: str, main: str) -> bool:
    try:
        return Path(path).samefile(main)
    except OSError:
        return False


def _read(path: str, sources: Sources, findings: Findings) -> str | None:
    try:
        return sources.read(path).decode("utf-8-sig")
    except SourceError as error:
        findings.problems.append(Problem(1, 1, error.code, str(error), error.hint, file=path))
    except UnicodeDecodeError:
        message = "the file is not UTF-8"
        findings.problems.append(Problem(1, 1, "not-utf-8", message, "save it as UTF-8", file=path))
    return None


def _add_services(root: MappingNode, tree: Node, include: Scalar, findings: Findings) -> None:
    if not isinstance(tree, MappingNode):
        findings.add(tree, "wrong-type", "the file must be a mapping", "begin it with `services:`")
        return
    for name, entry in tree.entries.items():
        if name != SERVICES:
            hint = f"write it in {findings.filename}, or remove it"
            message = f"an included file has `services` and nothing else, not {quoted(name)}"
            findings.add(entry.key, "unknown-key", message, hint)
    added = child(tree, SERVICES)
    if added is None:
        if not tree.entries:
            findings.add(tree, "missing-key", "the key 'services' is missing", "add `services: ...`")
        return
    if not isinstance(added, MappingNode):
        findings.add(added, "wrong-type", "a mapping is expected here", "write a name, and the service below")
        return
    if SERVICES not in root.entries:
        at = include.position
        key = Scalar(SERVICES, at)
        root.entries[SERVICES] = MappingEntry(key, MappingNode(at))
    services = child(root, SERVICES)
    if not isinstance(services, MappingNode):
        return  # the reader says so
    for name, entry in added.entries.items():
        other = services.entries.get(name)
        if other is None:
            services.entries[name] = entry
            continue
        at = other.key.position
        hint = f"the first one is in {at.file or findings.filename}:{at.line}:{at.column}"
        findings.add(entry.key, "duplicate-key", f"there is another service of the name {quoted(name)}", hint)
