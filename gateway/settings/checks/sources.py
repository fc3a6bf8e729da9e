"""From `dns`, `srv` and `file` of the configuration to values of `core.fleet.source`.

A file is read as the gateway will read it. What is wrong with it is a warning: it may be written later, and
until it is there and whole the gateway goes by what it knows.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from gateway.core.fleet.backend import Backend
from gateway.core.fleet.backend_tls import BackendTls
from gateway.core.fleet.source import Source, SourceKind
from gateway.keys.addresses import BackendUrl
from gateway.settings.checks.backend_tls import read_section
from gateway.settings.model import service as service_model
from gateway.settings.target_file import MAX_SIZE, TargetsError, read_targets
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.problem import Severity
from gateway.settings.yaml.tree import MappingNode, Node, Scalar, child, plain

_CREDENTIAL: Final = re.compile(
    "authori[sz]ation|token|secret|password|passwd|cookie|credential|api-?key|signature", re.IGNORECASE
)
"""Names of headers whose values are usually secret."""
_OF_SOURCES: Final = {
    "leave_grace": "a backend with a url of its own never leaves by itself",
    "networks": "a backend with a url of its own may have any address",
}
PLACES: Final = ("url", "dns", "srv", "file")
"""The keys of which a backend has exactly one."""


def check_place(
    written: service_model.Backend, node: Node | None, findings: Findings, *at: str | int
) -> None:
    """Report a backend without a place, or with several; and keys that do not fit the place. `at`: the path
    of `node`."""
    entries = node.entries if isinstance(node, MappingNode) else {}
    found = [name for name in PLACES if name in entries]
    # One that was refused, or misspelt, is reported already.
    refused = [str(path[-1]) for path in findings.dropped if path[:-1] == at]
    if not found and not any(get_close_matches(name, PLACES, n=1) for name in refused):
        findings.add(
            node, "missing-key", "the key 'url' is missing", "add `url: ...`, or one of `dns`, `srv`, `file`"
        )
    if len(found) > 1:
        findings.add(
            entries[found[1]].key,
            "contradiction",
            f"the backend has the key {found[0]!r} already",
            "write two items of `backends`, each with one of them",
        )
    elif found == ["url"]:
        for name, why in _OF_SOURCES.items():
            if name in entries:
                hint = "remove this key, or write dns, srv or file instead of url"
                findings.add(entries[name].key, "contradiction", why, hint)
    elif found and found != ["url"] and written.name is not None:
        findings.add(
            entries["name"].key,
            "contradiction",
            f"{found[0]} may find several backends, and each is named by its address",
            "remove this key",
        )


def source_place(written: service_model.Backend) -> tuple[SourceKind, BackendUrl | None] | None:
    """What is to be looked up; None: it is a backend of its own, or nothing that can be used."""
    if written.url is not None:
        return None
    if written.dns is not None:
        return SourceKind.DNS, written.dns
    if written.srv is not None:
        return SourceKind.SRV, written.srv
    return None if written.file is None else (SourceKind.FILE, None)


def read_source(
    written: service_model.Backend, template: Backend, node: Node | None, findings: Findings
) -> Source:
    """The source. `template`: what its backends have in common; `node`: of the item of `backends`."""
    place = source_place(written)
    assert place is not None, "the caller has asked"
    kind, url = place
    if url is None:
        assert written.file is not None
        _check_file(written.file, child(node, "file"), findings)
        tls = None if written.tls is None else read_section(written.tls, "", child(node, "tls"), findings)
        return Source(
            kind,
            written.file,
            tls=tls,
            leave_grace=written.leave_grace,
            networks=written.networks or (),
            template=template,
        )
    return Source(
        kind,
        str(plain_text(node, kind)),
        url.host,
        url.port,
        url.path,
        _tls(written, url, kind, node, findings),
        written.leave_grace,
        written.networks or (),
        template,
    )


def check_sources(sources: tuple[Source, ...], nodes: tuple[Node | None, ...], findings: Findings) -> None:
    """Report a source that is there twice. `nodes`: of their items."""
    seen: set[str] = set()
    for source, node in zip(sources, nodes, strict=True):
        if source.key in seen:
            findings.add(
                child(node, source.kind.value),
                "duplicate-backend",
                "the service has this source already",
                "remove one",
            )
        seen.add(source.key)


def warn_of_secrets(sources: tuple[Source, ...], headers: Node | None, findings: Findings) -> None:
    """Warn of secrets that probes send unencrypted to addresses that a source names. `headers`: the node of
    `probe.headers`."""
    entries = headers.entries if isinstance(headers, MappingNode) else {}
    secrets = [
        entry.key
        for name, entry in entries.items()
        if _CREDENTIAL.search(name) or (isinstance(entry.value, Scalar) and entry.value.substituted)
    ]
    plain_source = next((each for each in sources if secrets and _is_plain(each, findings)), None)
    if plain_source is None:
        return
    for node in secrets:
        findings.add(
            node,
            "sent-in-clear",
            f"probes send this secret over http to the addresses that {plain_source.kind} finds",
            "use https for these backends, or probe without the header",
            severity=Severity.WARNING,
        )


def _is_plain(source: Source, findings: Findings) -> bool:
    """Whether some of its backends are spoken to without TLS. Of a file its present targets say so."""
    if source.kind is not SourceKind.FILE:
        return source.tls is None
    if not findings.check_files:
        return False
    try:
        with Path(source.text).open("rb") as file:
            return not all(each.tls for each in read_targets(file.read(MAX_SIZE + 1), source.text))
    except (TargetsError, OSError):
        return False  # `read_source` says so


def plain_text(node: Node | None, kind: SourceKind) -> object:
    """The source as it stands in the file, variables replaced."""
    place = child(node, kind.value)
    return plain(place) if place is not None else kind.value


def _tls(
    written: service_model.Backend,
    url: BackendUrl,
    kind: SourceKind,
    node: Node | None,
    findings: Findings,
) -> BackendTls | None:
    """TLS to its backends: their certificates must have the name that was looked up, without the service and
    the protocol of SRV records (RFC 6125 6.5). What a name server answers is no identity."""
    if not url.tls:
        if written.tls is not None:
            findings.add(
                node.entries["tls"].key if isinstance(node, MappingNode) and "tls" in node.entries else node,
                "contradiction",
                "the URL of this source is not https",
                f"write {kind}: https://NAME, or remove this key",
            )
        return None
    name = url.host.split(".", 2)[2] if kind is SourceKind.SRV else url.host
    if written.tls is None:
        return BackendTls(name)
    return read_section(written.tls, name, child(node, "tls"), findings)


def _check_file(path: str, node: Node | None, findings: Findings) -> None:
    if not findings.check_files:
        return
    try:
        if not Path(path).is_file() and Path(path).exists():
            problem = "it is not a regular file"
        else:
            with Path(path).open("rb") as file:
                read_targets(file.read(MAX_SIZE + 1), path)
            return
    except TargetsError as error:
        problem = str(error)
    except OSError as error:
        hidden = not isinstance(node, Scalar) or node.substituted or Path(node.text).is_absolute()
        where = "it" if hidden else f"{str(Path(path).absolute())!a}"
        problem = f"{where} cannot be read: {(error.strerror or 'unknown reason').lower()}"
    findings.add(
        node,
        "bad-targets",
        f"no backends from this file: {problem}",
        'write a list such as [{"targets": ["10.0.0.1:6385"]}]; until then the gateway goes by what it knows',
        severity=Severity.WARNING,
    )
