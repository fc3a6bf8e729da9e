"""`backends` of a service: keys, names and TLS of the backends, and sources of backends that come and go.

The file of a source is read as the gateway will read it. A mistake in it is a warning: the file may be
written later, and until it is valid the gateway uses the backends that it knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Final, final

from gateway.core.dialect import Dialect
from gateway.core.fleet.backend import Backend, BackendTls
from gateway.core.fleet.connections import QUEUE, Queue
from gateway.core.fleet.source import Source, SourceKind
from gateway.core.versions.ranges import VersionSet
from gateway.keys.addresses import DNS_URL, NETWORK, SRV_URL, URL, Address, BackendUrl
from gateway.keys.kinds import SHARED, ListOf, section
from gateway.keys.texts import (
    BACKEND_NAME,
    BACKEND_NAME_PATTERN,
    FILE_PATH,
    FLAG,
    VERSIONS,
    WAIT,
    count,
)
from gateway.settings.files import reader_of
from gateway.settings.sections.tls import WrittenTls, read_backend_tls
from gateway.settings.sections.versions import read_versions, versions_form
from gateway.settings.target_file import MAX_SIZE, TargetsError, read_targets
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Location, MappingNode, Node, Scalar, SequenceNode, child

PLACES: Final = ("url", "dns", "srv", "file")
"""Keys that give the address of a backend, of which each backend has exactly one."""
_OF_SOURCES: Final = {
    "leave_grace": "a backend with a url of its own never leaves by itself",
    "networks": "a backend with a url of its own may have any address",
}
_CREDENTIAL: Final = re.compile(
    "authori[sz]ation|token|secret|password|passwd|cookie|credential|api-?key|signature", re.IGNORECASE
)
"""Names of headers whose values are usually secret."""


@final
@dataclass(frozen=True, slots=True)
class WrittenBackend:
    """One replica's address, or a source of several: exactly one of `url`, `dns`, `srv` and `file`."""

    url: BackendUrl | None = URL.key(
        None,
        "http://HOST[:PORT][/base], https://HOST[:PORT][/base] or unix:/PATH of a socket. The base path is "
        "added before every path.",
        reason="A backend has no other identity than its address; `dns`, `srv` and `file` find several.",
        example="http://127.0.0.1:6385",
    )
    dns: BackendUrl | None = DNS_URL.key(
        None,
        "Instead of `url`: http://NAME:PORT, or https. Each address of the name is a backend, which comes "
        "and goes with it. A headless service of Kubernetes is such a name.",
        reason="For backends that never change, `url` is simpler.",
        example="http://ironic-api.openstack.svc.cluster.local:6385",
    )
    srv: BackendUrl | None = SRV_URL.key(
        None,
        "Instead of `url`: http://_SERVICE._tcp.NAME, or https. Each address of the targets of these SRV "
        "records is a backend, at the port of its record.",
        reason="For backends that never change, `url` is simpler.",
        example="http://_api._tcp.ironic-api.openstack.svc.cluster.local",
    )
    file: str | None = FILE_PATH.key(
        None,
        "Instead of `url`: a file with a list of backends in the form of Prometheus' file_sd, JSON or YAML. "
        "It is read again when it changes.",
        reason="For backends that never change, `url` is simpler.",
        example="/etc/skewgate/backends.json",
    )
    leave_grace: float = WAIT.key(
        "5m",
        "How long the versions of a backend still count for the offer after `dns`, `srv` or `file` stopped "
        "listing it. It gets no new requests in this time, and is then removed.",
        reason="Longer than it takes to replace a pod, so that a restart never changes the offer.",
        example="15m",
    )
    networks: tuple[IPv4Network | IPv6Network, ...] | None = ListOf(NETWORK).key(
        None,
        "Networks to which addresses from `dns`, `srv` or `file` must belong; others are ignored. Without "
        "this key: any address but link-local, multicast and unspecified ones.",
        reason="Otherwise the source could direct probes to the metadata service of a cloud.",
        example=["10.0.0.0/8", "fd00::/8"],
    )
    name: str | None = BACKEND_NAME.key(
        None,
        "The name in status, metrics and logs, unique in the service. Without it: HOST:PORT of the URL, or "
        "the last part of a socket's path.",
        reason="People look for HOST:PORT first.",
        example="api-1",
    )
    versions: str | None = VERSIONS.key(
        None,
        "The versions that it serves, for servers that cannot be probed: `1.1-1.58`, `1.1-1.58, 1.60`; dates "
        "and names as `a..b` or a list.",
        reason="A probe is always up to date; declared versions are not.",
        example="1.1-1.58",
    )
    weight: int = count(1, 1000, "to take a backend out, `skewgate drain SERVICE/BACKEND`").key(
        1,
        "Its share of the requests, relative to the other backends.",
        reason="Replicas are usually equal.",
        example=2,
    )
    backup: bool = FLAG.key(
        default=False,
        meaning="Whether it gets requests only if no other backend that serves the version is usable: all "
        "others are down, ejected, drained, unhealthy or unreachable. Its versions count for the offer.",
        reason="Replicas are usually equal.",
        example=True,
    )
    max_requests: int | None = count(1, 100_000).key(
        None,
        "How many requests it gets at the same time. When all backends that serve the version are full, "
        "requests wait in their queues (`queue`).",
        reason="API servers have limits of their own.",
        example=64,
        workers=f"{SHARED}: never more from all workers together. Workers lease each other what they do not "
        "use. If it is less than their number, they take turns",
    )
    max_connections: int | None = count(1, 100_000).key(
        None,
        "How many connections are open to it at the same time. A request needs one of its own, so this "
        "bounds requests, too.",
        reason="Most servers accept more connections than a gateway opens.",
        example=64,
        workers=f"{SHARED}, as `max_requests`",
    )
    queue: Queue = QUEUE.key(
        {},
        "How requests wait for it while it is full.",
        reason="A queue absorbs short bursts.",
        example={"length": 100},
    )
    tls: WrittenTls | None = section(WrittenTls, title="BackendTls").key(
        None,
        "TLS to the backend, for an https URL. The files are read at the start and at every reload.",
        reason="By default the CAs of the system verify the host of the URL.",
        example={"ca": "/etc/skewgate/backends-ca.crt"},
    )

    @property
    def place(self) -> str:
        """The key that gives the backend's address, one of `PLACES`; empty: none of them can be used."""
        return next((name for name in PLACES if getattr(self, name) is not None), "")

    @property
    def effective_name(self) -> str:
        """The name of a backend with a URL: its own, HOST:PORT, or the last part of a socket's path."""
        if self.name or self.url is None:
            return self.name or ""
        host, port, path = self.url.host, self.url.port, self.url.socket_path
        return path.rpartition("/")[2] if path else str(Address(host, port))


BACKEND: Final = section(WrittenBackend, title="Backend", oneOf=[{"required": [name]} for name in PLACES])


def check_backends(
    written: Sequence[WrittenBackend], node: Node | None, at: Location, findings: Findings
) -> None:
    """Report problems of backends that concern no dialect. `node`: the key `backends`, `at`: its location."""
    if not written and not (isinstance(node, SequenceNode) and node.broken):
        findings.bad_value(node, "the service has no backend", "add `backends: [{url: http://HOST:PORT}]`")
    if written and all(backend.backup for backend in written):
        message = "every backend of the service is a backup, so they get all requests"
        hint = "remove the key from those that are to get the requests"
        findings.warn(child(node, 0, "backup"), "contradiction", message, hint)
    names: set[str] = set()
    urls: set[BackendUrl] = set()
    for index, backend in enumerate(written):
        item = child(node, index)
        _check_place(backend, item, (*at, index), findings)
        if backend.url is None:
            continue
        name, url_node = backend.effective_name, child(item, "url")
        if re.fullmatch(BACKEND_NAME_PATTERN, name, re.ASCII) is None:
            message = "the last part of this path cannot be a name"
            findings.bad_value(url_node, message, "add `name: ...`")
        if name in names:
            findings.add(
                child(item, "name") or url_node,
                "duplicate-backend",
                "two backends of the service have this name"
                if backend.name
                else "two backends of the service have the same name, which is that of their socket"
                if backend.url.socket_path
                else "two backends of the service have this address, which is also their name",
                "give each its own name" if backend.name else "remove one, or give each a name",
            )
        elif backend.url in urls:
            hint = "the replica would get twice its share of the requests"
            findings.warn(url_node, "duplicate-url", "another backend of the service has this URL", hint)
        names.add(name)
        urls.add(backend.url)


def _check_place(written: WrittenBackend, node: Node | None, at: Location, findings: Findings) -> None:
    """Report a backend without one address, and keys that do not fit it. `at`: the location of `node`."""
    entries = node.entries if isinstance(node, MappingNode) else {}
    found = [name for name in PLACES if name in entries]
    # One that was refused, or misspelt, is reported already.
    refused = [str(path[-1]) for path in findings.dropped if path[:-1] == at]
    if not found and not any(get_close_matches(name, PLACES, n=1) for name in refused):
        message = "the key 'url' is missing"
        findings.add(node, "missing-key", message, "add `url: ...`, or one of `dns`, `srv`, `file`")
    if len(found) > 1:
        hint = "write two items of `backends`, each with one of them"
        findings.contradiction(entries[found[1]].key, f"the backend has the key {found[0]!r} already", hint)
    elif found == ["url"]:
        for name, why in _OF_SOURCES.items():
            if name in entries:
                hint = "remove this key, or write dns, srv or file instead of url"
                findings.contradiction(entries[name].key, why, hint)
    elif found and written.name is not None:
        message = f"{found[0]} may find several backends, and each is named by its address"
        findings.contradiction(entries["name"].key, message, "remove this key")


def read_backends(
    written: Sequence[WrittenBackend], dialect: Dialect, service: Node | None, findings: Findings
) -> tuple[tuple[Backend, ...], tuple[Source, ...]]:
    """The backends of a service that the file names, and the sources from which others are discovered."""
    backends: list[Backend] = []
    sources: list[Source] = []
    for index, each in enumerate(written):
        node = child(service, "backends", index)
        template = _template(each, dialect, node, findings)
        if each.url is not None:
            host, port, path, _, socket_path = each.url
            backend = replace(template, name=each.effective_name, host=host, port=port, path=path)
            tls = _tls(each, each.url, host, node, findings)
            backends.append(replace(backend, socket_path=socket_path, tls=tls))
        elif each.place:
            source = _source(each, template, node, findings)
            if any(source.key == other.key for other in sources):
                message = "the service has this source already"
                findings.add(child(node, each.place), "duplicate-backend", message, "remove one")
            sources.append(source)
    _warn_of_secrets(sources, child(service, "probe", "headers"), findings)
    return tuple(backends), tuple(sources)


def url_nodes(backends: Node | None) -> list[Node]:
    """The nodes of all URLs in `backends`, in order. Sources of backends have none."""
    items = backends.items if isinstance(backends, SequenceNode) else ()
    return [url for item in items if (url := child(item, "url")) is not None]


def _template(written: WrittenBackend, dialect: Dialect, node: Node | None, findings: Findings) -> Backend:
    """The template for backends of an item of `backends`: its settings but name, address and TLS."""
    declared = None
    if written.versions is not None:
        place, hint = child(node, "versions"), f"write `{versions_form(dialect.scheme)}`"
        declared = read_versions(VersionSet.read, written.versions, dialect, hint, place, findings)
    template = Backend(
        name="", host="", port=0, weight=written.weight, declared=declared, backup=written.backup
    )
    requests, connections = written.max_requests or 0, written.max_connections or 0
    if requests or connections:
        return replace(template, max_requests=requests, max_connections=connections, queue=written.queue)
    if (queue := child(node, "queue")) is not None:
        message = "without a bound nothing waits for this backend"
        findings.contradiction(queue, message, "add max_requests or max_connections, or remove this key")
    return template


def _tls(
    written: WrittenBackend, url: BackendUrl, server_name: str, node: Node | None, findings: Findings
) -> BackendTls | None:
    """The TLS settings of an item of `backends`; None: its URL is not https. `server_name`: the default."""
    if url.tls:
        return read_backend_tls(written.tls or WrittenTls(), server_name, child(node, "tls"), findings)
    if isinstance(node, MappingNode) and "tls" in node.entries:
        what, example = ("backend", "HOST:PORT") if written.place == "url" else ("source", "NAME")
        hint = f"write {written.place}: https://{example}, or remove this key"
        findings.contradiction(node.entries["tls"].key, f"the URL of this {what} is not https", hint)
    return None


def _source(written: WrittenBackend, template: Backend, node: Node | None, findings: Findings) -> Source:
    """The source that an item of `backends` describes. `template`: what the backends from it share."""
    kind = SourceKind(written.place)
    source = Source(
        kind,
        written.file or "",
        leave_grace=written.leave_grace,
        networks=written.networks or (),
        template=template,
    )
    url = written.dns or written.srv
    if url is None:
        _check_file(source.text, child(node, "file"), findings)
        if written.tls is None:
            return source
        return replace(source, tls=read_backend_tls(written.tls, "", child(node, "tls"), findings))
    # Certificates must have the name that was looked up, without the service and the protocol of SRV records
    # (RFC 6125 6.5). What a name server answers is no identity.
    server_name = url.host.split(".", 2)[2] if kind is SourceKind.SRV else url.host
    text = child(node, kind.value)
    return replace(
        source,
        text=text.text if isinstance(text, Scalar) else "",
        name=url.host,
        port=url.port,
        path=url.path,
        tls=_tls(written, url, server_name, node, findings),
    )


def _warn_of_secrets(sources: Sequence[Source], headers: Node | None, findings: Findings) -> None:
    """Warn of secrets that probes send unencrypted to addresses from a source."""
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
        message = f"probes send this secret over http to the addresses that {plain_source.kind} finds"
        hint = "use https for these backends, or probe without the header"
        findings.warn(node, "sent-in-clear", message, hint)


def _is_plain(source: Source, findings: Findings) -> bool:
    """Whether some backends of a source are reached without TLS. For a file its present targets decide."""
    if source.kind is not SourceKind.FILE:
        return source.tls is None
    if not findings.check_files:
        return False
    try:
        with Path(source.text).open("rb") as file:
            return not all(each.tls for each in read_targets(file.read(MAX_SIZE + 1), source.text))
    except (TargetsError, OSError):
        return False  # `_check_file` says so


def _check_file(path: str, node: Node | None, findings: Findings) -> None:
    if not findings.check_files:
        return
    until_then = "until then the gateway uses the backends that it knows"
    hint, quoting = f'write a list such as [{{"targets": ["10.0.0.1:6385"]}}]; {until_then}', ""
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
        problem = f"it cannot be read: {(error.strerror or 'unknown reason').lower()}"
        quoting = f"{reader_of(path)}; {until_then}"
    message = f"no backends from this file: {problem}"
    findings.warn(node, "bad-targets", message, hint, quoting=quoting)
