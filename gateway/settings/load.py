"""From the text of a configuration to settings, or to every problem of the text in file order.

Everything that reads a configuration (`run`, `check`, reload) uses this module, so that what was checked is
what runs. It reads the environment only as it is given, and from the disk only the file itself.
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
from gateway.settings.checks.document import (
    check_addresses,
    check_admin,
    check_declared,
    check_default_version,
    check_limits,
    check_matches,
    check_option_paths,
    check_signed_paths,
    check_trust,
    check_untrusted_headers,
)
from gateway.settings.checks.services import read_services
from gateway.settings.model.document import Document
from gateway.settings.model.fields import shape_of
from gateway.settings.schema import document_model, schema_json
from gateway.settings.values import AdminSettings, Listen, Settings
from gateway.settings.yaml.document import Findings, read_document
from gateway.settings.yaml.problem import Problem, Severity, shown_lines, split_lines
from gateway.settings.yaml.tree import MappingNode, Node, child, plain, read_tree


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of reading a file. With an error there are no settings; with warnings alone there are."""

    filename: str
    settings: Settings | None
    problems: tuple[Problem, ...]
    """In file order."""
    lines: tuple[str, ...] = field(default=(), repr=False)
    """The lines of the file as they may be shown: without secrets."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the file from being used."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    def render(self) -> str:
        """Every problem with its source line, caret and hint, without a final line end. Empty without
        problems."""
        return "\n".join(problem.render(self.filename, self.lines) for problem in self.problems)

    def require(self) -> Settings:
        """The settings. Raises `SettingsError` with the text of `render`."""
        if self.settings is None:
            raise SettingsError(self.render(), self.problems)
        return self.settings


def read_file(
    path: str | Path, *, environ: Mapping[str, str], dialects: Mapping[str, type[Dialect]] | None = None
) -> Loaded:
    """Load the file at `path`. A file that cannot be read is a problem like any other. Blocks."""
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a valid file name"
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
    """Read a configuration. Never raises: the result has settings, or at least one error.

    `filename` is for messages. `environ` has the values of `${NAME}`. `dialects` are the known dialects; by
    default all of the package.
    """
    root, form_problems = read_tree(text, environ)
    findings = Findings(form_problems)
    settings = None
    secrets: list[tuple[int, int]] = []
    if isinstance(root, MappingNode):
        secrets = _secret_positions(root)
        settings = _read(root, text, findings, discover() if dialects is None else dialects)
    elif root is not None:
        shape = shape_of(plain(root))
        findings.add(
            root,
            "wrong-type",
            f"the file must be a mapping, not {shape}",
            "begin it with `listen:` and `services:`",
        )
    problems = tuple(sorted(set(findings.problems), key=lambda found: (found.line, found.column, found.code)))
    if any(problem.severity is Severity.ERROR for problem in problems):
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
    check_option_paths(services, root, findings)
    check_signed_paths(services, root, findings)
    check_default_version(services, root, findings)
    check_declared(services, root, findings)
    check_untrusted_headers(document, services, root, findings)
    return Settings(
        listen=tuple(Listen(address.host, address.port) for address in listen),
        services=services,
        admin=_admin(document),
        workers=document.workers,
        access_log=document.access_log,
        trusted_proxies=document.trusted_proxies,
        untrusted_headers=document.untrusted_headers,
        timeouts=document.timeouts,
        limits=document.limits,
        state=document.state,
        hash=sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12],
    )


def _admin(document: Document) -> AdminSettings:
    host, port = document.admin.listen
    return AdminSettings(host, port, document.admin.token)


def _secret_positions(root: MappingNode) -> list[tuple[int, int]]:
    """Where the values begin that are never shown: the admin token and the headers of probes."""
    nodes: list[Node | None] = [child(root, "admin", "token")]
    services = child(root, "services")
    for entry in services.entries.values() if isinstance(services, MappingNode) else ():
        headers = child(entry.value, "probe", "headers")
        if isinstance(headers, MappingNode):
            nodes += [header.value for header in headers.entries.values()]
        else:
            nodes.append(headers)
    return [(node.position.line, node.position.column) for node in nodes if node is not None]
