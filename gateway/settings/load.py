"""A configuration's text -> settings, or every problem that it has, in file order.

The only door: whatever reads a configuration (`run`, `check`, reload) comes through here, so that what was
checked is what is run. Reads the environment from what it is given, and of the disk only the file itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import final

from gateway.core.dialect import Dialect
from gateway.dialects import discover
from gateway.errors import SettingsError
from gateway.settings.checks import (
    check_addresses,
    check_admin,
    check_declared,
    check_limits,
    check_matches,
    check_own_paths,
    check_signed_paths,
    check_silence,
    check_trust,
)
from gateway.settings.model import Document
from gateway.settings.problem import Problem, Severity, shown_lines, split_lines
from gateway.settings.reading import shape_of
from gateway.settings.schema import document_model, schema_json
from gateway.settings.services import read_services
from gateway.settings.shape import Findings, read_document
from gateway.settings.values import AdminSettings, Listen, Settings
from gateway.settings.yaml_tree import MappingNode, Node, child, plain, read_tree


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of a file. With an error there are no settings; warnings leave them."""

    filename: str
    settings: Settings | None
    problems: tuple[Problem, ...]
    """In file order."""
    lines: tuple[str, ...] = field(default=(), repr=False)
    """The file as it may be shown: without secrets."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the file from being used."""
        return tuple(each for each in self.problems if each.severity is Severity.ERROR)

    def render(self) -> str:
        """Every problem with its source line, caret and hint; empty without problems. No line end at the
        end."""
        return "\n".join(each.render(self.filename, self.lines) for each in self.problems)

    def require(self) -> Settings:
        """The settings. Raises `SettingsError`, whose text is `render`'s."""
        if self.settings is None:
            raise SettingsError(self.render(), self.problems)
        return self.settings


def read_file(
    path: str | Path, *, environ: Mapping[str, str], dialects: Mapping[str, type[Dialect]] | None = None
) -> Loaded:
    """Load the file at `path`. One that cannot be read is a problem like any other. Blocks."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is no file's"
        return Loaded(str(path), None, (Problem(1, 1, "unreadable", f"the file cannot be read: {reason}"),))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = split_lines(data[: error.start].decode("utf-8", "replace"))
        problem = Problem(
            len(before), len(before[-1]) + 1, "not-utf-8", "the file is not UTF-8", "save it as UTF-8"
        )
        return Loaded(str(path), None, (problem,))
    return load(text, filename=str(path), environ=environ, dialects=dialects)


def load(
    text: str,
    *,
    filename: str,
    environ: Mapping[str, str],
    dialects: Mapping[str, type[Dialect]] | None = None,
) -> Loaded:
    """Read a configuration. Never raises: ends in settings, or in problems of which one is an error at least.

    `filename` is for messages; `environ` answers `${NAME}`; `dialects` are those there are, if not all.
    """
    root, form_problems = read_tree(text, environ)
    findings = Findings(form_problems)
    settings = None
    secrets: list[tuple[int, int]] = []
    if isinstance(root, MappingNode):
        secrets = list(_secret_places(root))
        settings = _read(root, text, findings, discover() if dialects is None else dialects)
    elif root is not None:
        shape = shape_of(plain(root))
        findings.add(
            root,
            "wrong-type",
            f"the file must be a mapping, not {shape}",
            "it begins with `listen:` or `services:`",
        )
    problems = tuple(sorted(set(findings.problems), key=lambda each: (each.line, each.column, each.code)))
    if any(each.severity is Severity.ERROR for each in problems):
        settings = None
    return Loaded(filename, settings, problems, tuple(shown_lines(text, secrets)))


def _read(
    root: MappingNode, text: str, findings: Findings, dialects: Mapping[str, type[Dialect]]
) -> Settings | None:
    document = read_document(root, document_model(dialects), schema_json(dialects), findings)
    if document is None:
        return None
    listen = check_addresses(document, root, findings)
    check_admin(document, root, findings)
    check_limits(document.limits, root, findings)
    check_trust(root, findings)
    services = read_services(document, root, dialects, findings)
    check_matches(services, root, findings)
    check_own_paths(services, root, findings)
    check_signed_paths(services, root, findings)
    check_silence(services, root, findings)
    check_declared(services, root, findings)
    return Settings(
        listen=tuple(Listen(each.host, each.port) for each in listen),
        services=services,
        admin=_admin(document),
        workers=document.workers,
        access_log=document.access_log,
        trusted_proxies=document.trusted_proxies,
        timeouts=document.timeouts,
        limits=document.limits,
        state=document.state,
        hash=sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12],
    )


def _admin(document: Document) -> AdminSettings:
    host, port = document.admin.listen
    return AdminSettings(host, port, document.admin.token)


def _secret_places(root: MappingNode) -> list[tuple[int, int]]:
    """Where a value begins that is never shown: the admin token, and the headers of probes."""
    nodes: list[Node | None] = [child(root, "admin", "token")]
    services = child(root, "services")
    for entry in services.entries.values() if isinstance(services, MappingNode) else ():
        headers = child(entry.value, "probe", "headers")
        if isinstance(headers, MappingNode):
            nodes += [each.value for each in headers.entries.values()]
        else:
            nodes.append(headers)
    return [(node.mark.line, node.mark.column) for node in nodes if node is not None]
