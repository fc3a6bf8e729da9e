"""Loads a configuration: its text becomes settings, or every problem in file order.

`run`, `check` and reload all use this module, so that what was checked is what runs. It reads no environment
but the one that it is given, and no file but the configuration and those that it names: included files,
values, TLS. `Loaded.seen` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import final

from gateway.core.dialect import Dialect
from gateway.dialects import discover, find
from gateway.errors import SettingsError
from gateway.settings.files import Seen, SourceError, Sources, folder_of
from gateway.settings.own_addresses import check_own_addresses
from gateway.settings.schema import file_section, keys_of
from gateway.settings.sections.admin import check_admin
from gateway.settings.sections.agreement import read_agreement
from gateway.settings.sections.clients import check_clients, resolve_names
from gateway.settings.sections.file import (
    check_limits,
    check_matches,
    check_trust,
    check_untrusted_headers,
)
from gateway.settings.sections.include import Included, add_included
from gateway.settings.sections.listen import read_listeners
from gateway.settings.sections.service import SERVICE, read_services
from gateway.settings.sections.state import check_state_path
from gateway.settings.sections.usage import check_usage
from gateway.settings.sections.workers import check_shares, check_workers
from gateway.settings.values import Settings
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Problem, Severity, shown_lines, split_lines
from gateway.settings.yaml.reader import read_whole
from gateway.settings.yaml.tree import MappingNode, Node, Position, Scalar, child, read_tree, shape_of


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of reading a configuration: settings, or at least one error; with or without warnings."""

    filename: str
    settings: Settings | None
    problems: tuple[Problem, ...]
    """All problems of the configuration in file order, those of included files last."""
    lines: tuple[str, ...] = field(default=(), repr=False)
    """Lines of the configuration file for messages, cut where a secret begins."""
    included: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    positions: Mapping[str, Position] = field(default_factory=dict, repr=False)
    """Positions of the file's keys of the two upper levels, by dotted name: `listen`, `timeouts.drain`."""
    seen: Seen = field(default_factory=Seen, repr=False)
    """All files that were read for the configuration, even if it cannot be used."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the configuration from being used."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    def render(self) -> str:
        """The text of all problems, each with its source line, caret and hint. No line end at the end."""
        return "\n".join(self.shown(problem) for problem in self.problems)

    def shown(self, problem: Problem) -> str:
        """The text of one problem, with its source line, caret and hint."""
        lines = self.included.get(problem.file, ()) if problem.file else self.lines
        return problem.render(self.filename, lines)

    def require(self) -> Settings:
        """The settings, if there is no error. Raises `SettingsError` with all problems' text otherwise."""
        if self.settings is None:
            raise SettingsError(self.render(), self.problems)
        return self.settings


def read_file(
    path: str | Path,
    *,
    environ: Mapping[str, str],
    dialects: Mapping[str, type[Dialect]] | None = None,
    check_files: bool = True,
    again: bool = False,
) -> Loaded:
    """Load the file at `path`. A file that cannot be read is a problem like any other. Blocks. `again`: this
    is a reload, which never waits for a pipe or a device."""
    sources = Sources(folder_of(path))
    try:
        data = sources.read(str(path)) if again else sources.read_main(path)
    except SourceError as error:
        return Loaded(
            str(path), None, (Problem(1, 1, error.code, str(error), error.hint),), seen=sources.seen
        )
    return load(
        data,
        filename=str(path),
        environ=environ,
        dialects=dialects,
        check_files=check_files,
        sources=sources,
    )


def load(
    content: str | bytes,
    *,
    filename: str,
    environ: Mapping[str, str],
    dialects: Mapping[str, type[Dialect]] | None = None,
    check_files: bool = True,
    sources: Sources | None = None,
) -> Loaded:
    """Load a configuration from its text or UTF-8. Never raises: it gives settings, or at least one error.

    `filename` is for messages, `environ` for `${NAME}`. `dialects`: by default all of the package.
    `check_files`: whether certificates and the like are read. `sources`: by default of the folder of
    `filename`.
    """
    sources = sources or Sources(Path(filename).parent)
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = split_lines(error.object[: error.start].decode("utf-8", "replace"))
        problem = Problem(
            len(before), len(before[-1]) + 1, "not-utf-8", "the file is not UTF-8", "save it as UTF-8"
        )
        return Loaded(filename, None, (problem,), seen=sources.seen)
    root, form_problems = read_tree(text, environ, sources.read_value)
    findings = Findings(form_problems, check_files=check_files, filename=filename, note_file=sources.note)
    settings = None
    included = Included()
    secrets: list[Node] = []
    positions: dict[str, Position] = {}
    if isinstance(root, MappingNode):
        positions = _positions(root)
        included = add_included(root, text, sources, environ, findings)
        secrets = [node for each in (root, *included.roots) for node in _secrets(each)]
        settings = _read(root, sources.folder, findings, dialects)
    elif root is not None:
        shape = shape_of(root)
        message = f"the file must be a mapping, not {shape}"
        findings.add(root, "wrong-type", message, "begin it with `listen:` and `services:`")
    problems = tuple(
        sorted(
            dict.fromkeys(findings.problems),
            key=lambda found: (found.file, found.line, found.column, found.code),
        )
    )
    if any(problem.severity is Severity.ERROR for problem in problems):
        settings = None
    if settings is not None:
        settings = replace(settings, hash=_hash((text, *included.texts.values())))
    return Loaded(
        filename,
        settings,
        problems,
        _shown(text, "", secrets),
        {path: _shown(content, path, secrets) for path, content in included.texts.items()},
        positions,
        sources.seen,
    )


def _shown(text: str, file: str, secrets: list[Node]) -> tuple[str, ...]:
    positions = (node.position for node in secrets)
    return tuple(shown_lines(text, [(at.line, at.column) for at in positions if at.file == file]))


def _hash(texts: Iterable[str]) -> str:
    """A short hash of the files as written, before variables are replaced: nobody can guess secrets by it."""
    written = "\0".join(texts)
    return sha256(written.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _positions(root: MappingNode) -> dict[str, Position]:
    found = {}
    for name, entry in root.entries.items():
        found[name] = entry.key.position
        if isinstance(entry.value, MappingNode):
            found |= {f"{name}.{below}": each.key.position for below, each in entry.value.entries.items()}
    return found


def _read(
    root: MappingNode, folder: str, findings: Findings, known: Mapping[str, type[Dialect]] | None
) -> Settings:
    dialects = named_dialects(child(root, "services")) if known is None else known
    written = read_whole(
        root,
        file_section(dialects),
        lambda: [path for path, _ in keys_of(file_section(known))],
        folder,
        findings,
    )
    assert written is not None  # each required key of a configuration has a filler
    services_node = child(root, "services")
    listen = read_listeners(written.listen, written.admin, written.trusted_proxies, root, findings)
    check_admin(written.admin, child(root, "admin"), findings)
    check_limits(written.limits, root, findings)
    check_trust(root, findings)
    services = read_services(
        written.services, written.timeouts, written.limits, services_node, dialects, findings
    )
    services = resolve_names(services, written.clients, root, findings)
    check_matches(services, root, findings)
    check_untrusted_headers(services, root, findings)
    check_clients(written.clients, listen, root, findings)
    check_own_addresses(listen, written.admin, services, root, findings)
    check_state_path(written.state, child(root, "state"), findings)
    check_usage(written.usage, written.state, root, findings)
    check_workers(written.workers, root, findings)
    check_shares(written.workers, written.limits, written.services, services, root, findings)
    has_state = written.state is not None or findings.is_dropped("state")
    agreement = read_agreement(written.agreement, child(root, "agreement"), findings, has_state=has_state)
    return Settings(
        listen=listen,
        services=services,
        admin=written.admin,
        workers=written.workers,
        agreement=agreement,
        access_log=written.access_log,
        log=written.log,
        metrics=written.metrics,
        trusted_proxies=tuple(peer for peer in written.trusted_proxies if not isinstance(peer, str)),
        untrusted_headers=written.untrusted_headers,
        clients=written.clients,
        timeouts=written.timeouts,
        limits=written.limits,
        state=written.state,
        usage=written.usage,
        watch=written.watch,
    )


def named_dialects(services: Node | None) -> Mapping[str, type[Dialect]]:
    """The dialects that the services name, which is all that a correct file needs; all dialects if a name is
    unknown, so that messages can list them."""
    found: dict[str, type[Dialect]] = {}
    for name in _names(services):
        dialect = find(name)
        if dialect is None:
            return discover()
        found[name] = dialect
    return found


def _names(services: Node | None) -> set[str]:
    """Words of the services that must be names of dialects: values of `dialect`, and unknown keys."""
    names: set[str] = set()
    for entry in services.entries.values() if isinstance(services, MappingNode) else ():
        if isinstance(service := entry.value, MappingNode):
            written = service.entries.get("dialect")
            names.add(written.value.text if written and isinstance(written.value, Scalar) else "")
            names |= service.entries.keys() - SERVICE.keys.keys()
    return names


def _secrets(root: Node) -> list[Node]:
    """Nodes of the file whose values are never shown: admin token, etcd password, headers to backends."""
    nodes: list[Node | None] = [child(root, "admin", "token"), child(root, "agreement", "etcd", "password")]
    services = child(root, "services")
    for entry in services.entries.values() if isinstance(services, MappingNode) else ():
        for path in (("probe", "headers"), ("headers", "request", "set"), ("headers", "request", "add")):
            headers = child(entry.value, *path)
            if isinstance(headers, MappingNode):
                nodes += [header.value for header in headers.entries.values()]
            else:
                nodes.append(headers)
    return [node for node in nodes if node is not None]
