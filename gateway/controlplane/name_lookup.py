"""Looks a name up as libc does: in the hosts file, else at the name servers of resolv.conf.

    hosts file -> localhost -> each name of the search list: AAAA and A -> Found or Failed
                               each name of the search list: SRV        -> Services or Failed

The library talks to the name servers on this event loop. No thread is made, so neither another lookup nor the
end of the process ever waits for one. Nothing is cached or retried here (`resolver` does that), except that
the two files are read again only when they change. nsswitch.conf is not read.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

if TYPE_CHECKING:
    import dns.asyncresolver
    import dns.exception
    import dns.name
    import dns.rdatatype
    import dns.resolver
    from dns.rdatatype import RdataType

HOSTS: Final = Path("/etc/hosts")
RESOLV_CONF: Final = Path("/etc/resolv.conf")
DNS_PORT: Final = 53

HOSTS_TTL: Final = 5.0
"""TTL of names in the hosts file, in seconds."""
MAX_ADDRESSES: Final = 16
"""Largest number of addresses of a name and family that are used: a response may hold thousands."""
DEFAULT_RESOLV_CONF: Final = "nameserver 127.0.0.1"
"""Meaning of an empty or missing resolv.conf, and of one without a name server (resolv.conf(5))."""
SETTINGS: Final = frozenset({"domain", "options", "search"})
"""Keywords besides `nameserver` that make a resolv.conf complete."""
LONGEST_TRY: Final = 30
"""Upper bound of `options timeout`, in seconds (resolv.conf(5))."""
NO_ANSWER: Final = "no name server answers"
NO_SUCH_NAME: Final = "there is no such name"
NO_ADDRESS: Final = "the name has no address"
INVALID_NAME: Final = "it is not a valid name"
NO_RECORD: Final = "the name has no SRV record"

Addresses: TypeAlias = tuple[str, ...]
Parsed = TypeVar("Parsed")


class Found(NamedTuple):
    """Successful lookup of a name: at least one address. None for a family: nothing was learned about it."""

    ipv6: Addresses | None
    ipv4: Addresses | None
    ttl: float
    """Seconds for which the addresses are valid: the shortest TTL on the way through aliases."""

    @property
    def all(self) -> Addresses:
        return (self.ipv6 or ()) + (self.ipv4 or ())

    def after(self, last: Found) -> Found:
        """Add the last addresses of a family about which this lookup learned nothing."""
        ipv6 = last.ipv6 if self.ipv6 is None else self.ipv6
        return Found(ipv6, last.ipv4 if self.ipv4 is None else self.ipv4, self.ttl)


NOTHING: Final = Found(None, None, 0.0)
"""Addresses of a name before its first lookup."""


class Failed(NamedTuple):
    """Failed lookup, or failed poll of a source."""

    reason: str
    """Reason for the failed lookup or poll, as a part of a sentence."""
    errno: int | None = None
    """Error number (errno) of the failed lookup or poll, where the system is its cause."""


Result: TypeAlias = Found | Failed


class SrvRecord(NamedTuple):
    """SRV record (RFC 2782)."""

    priority: int
    target: str
    """Full name in lower case, without the final dot. It is chosen by the name server."""
    port: int
    weight: int


class Services(NamedTuple):
    """SRV records of a name. They are empty if the only record says that there is no such service."""

    records: tuple[SrvRecord, ...]
    ttl: float


class _FamilyResult(NamedTuple):
    """Result of a query for one address family; no addresses: they are unknown, because of `problem`."""

    addresses: Addresses | None
    ttl: float
    problem: Failed


def _import_library() -> None:
    """Import the DNS library when it is needed: it costs a tenth of all imports."""
    global dns
    import dns.asyncresolver  # noqa: PLC0415
    import dns.exception  # noqa: PLC0415
    import dns.name  # noqa: PLC0415
    import dns.rdatatype  # noqa: PLC0415
    import dns.resolver  # noqa: PLC0415


@final
class NameLookup:
    """Looks up addresses and SRV records of names. For one event loop; keeps only the two parsed files."""

    def __init__(
        self,
        *,
        hosts: Path = HOSTS,
        resolv_conf: Path = RESOLV_CONF,
        port: int = DNS_PORT,
        max_addresses: int = MAX_ADDRESSES,
    ) -> None:
        self._max_addresses = max_addresses
        self._hosts = _File(hosts, _read_hosts, "")
        self._stub = _File(resolv_conf, lambda text: _read_resolv_conf(text, port), DEFAULT_RESOLV_CONF)

    async def __call__(self, name: str) -> Result:
        """Look up the addresses of a name in lower case that is no IP address."""
        addresses = self._hosts.current().get(name)
        if addresses is None and (name == "localhost" or name.endswith(".localhost")):
            addresses = ("::1", "127.0.0.1")  # never asked of a name server: RFC 6761 6.3
        if addresses is not None:
            ipv6 = tuple(address for address in addresses if ":" in address)
            return Found(ipv6, tuple(each for each in addresses if each not in ipv6), HOSTS_TTL)
        return await self.search(name)

    async def search(self, name: str, *, absolute: bool = False) -> Result:
        """Look a name up at the name servers. `absolute`: a full name from an SRV record, no search list.

        If no name server answers about a candidate the others are not tried: they may be other machines. One
        for which the servers report a failure is skipped, as by libc."""
        stub, candidates = self._asked(name, absolute=absolute)
        result = Failed(NO_SUCH_NAME if candidates else INVALID_NAME)
        for candidate in candidates:
            ipv6, ipv4 = await asyncio.gather(
                _query(stub, candidate, dns.rdatatype.AAAA, self._max_addresses),
                _query(stub, candidate, dns.rdatatype.A, self._max_addresses),
            )
            if ipv6.addresses or ipv4.addresses:
                return Found(ipv6.addresses, ipv4.addresses, min(ipv6.ttl, ipv4.ttl))
            for problem in (ipv6.problem, ipv4.problem):
                if problem.reason == NO_ANSWER:
                    return problem
                if problem.reason != NO_SUCH_NAME:
                    result = problem
        return result

    async def services(self, name: str) -> Services | Failed:
        """Look up the SRV records of a name in lower case."""
        stub, candidates = self._asked(name, absolute=False)
        result = Failed(NO_SUCH_NAME if candidates else INVALID_NAME)
        for candidate in candidates:
            answer = await _resolve(stub, candidate, dns.rdatatype.SRV)
            if not isinstance(answer, Failed):
                if answer.rrset:
                    return _services(answer)
                answer = Failed(NO_RECORD)
            if answer.reason == NO_ANSWER:
                return answer
            if answer.reason != NO_SUCH_NAME:
                result = answer
        return result

    def _asked(self, name: str, *, absolute: bool) -> tuple[dns.asyncresolver.Resolver, list[dns.name.Name]]:
        """The servers to ask, and the full names to try in this order; none: the name is invalid."""
        _import_library()
        stub = self._stub.current()
        try:
            return stub, [dns.name.from_text(name)] if absolute else _candidates(name, stub)
        except (dns.exception.DNSException, ValueError):
            return stub, []


def _services(answer: dns.resolver.Answer) -> Services:
    found = [
        SrvRecord(each.priority, each.target.to_text(omit_final_dot=True).lower(), each.port, each.weight)
        for each in answer.rrset or ()
        if each.port and each.target != dns.name.root
    ]
    return Services(tuple(sorted(found)), float(answer.chaining_result.minimum_ttl))


async def _query(
    stub: dns.asyncresolver.Resolver, name: dns.name.Name, family: RdataType, max_addresses: int
) -> _FamilyResult:
    no_ttl = float("inf")
    answer = await _resolve(stub, name, family)
    if isinstance(answer, Failed):
        return _FamilyResult(() if answer.reason == NO_SUCH_NAME else None, no_ttl, answer)
    addresses = tuple(record.to_text() for record in answer.rrset or ())[:max_addresses]
    ttl = float(answer.chaining_result.minimum_ttl) if addresses else no_ttl
    return _FamilyResult(addresses, ttl, Failed(NO_ADDRESS))


async def _resolve(
    stub: dns.asyncresolver.Resolver, name: dns.name.Name, kind: RdataType
) -> dns.resolver.Answer | Failed:
    """Send one DNS query. The only place where exceptions of the library become reasons for failures."""
    try:
        return await stub.resolve(name, kind, search=False, raise_on_no_answer=False)
    except dns.resolver.NXDOMAIN:
        return Failed(NO_SUCH_NAME)
    except dns.exception.Timeout:
        return Failed(NO_ANSWER)
    except dns.resolver.NoNameservers as error:
        return _failure(error)
    except (dns.exception.DNSException, OSError, ValueError) as error:
        return Failed(f"the lookup failed ({type(error).__name__})")


def _failure(error: dns.resolver.NoNameservers) -> Failed:
    """Reason why the last of the name servers failed."""
    errors = error.kwargs.get("errors") or ()
    cause = errors[-1][3] if errors else None
    if isinstance(cause, OSError) and cause.errno:
        return Failed(f"no name server can be reached: {os.strerror(cause.errno).lower()}", cause.errno)
    return Failed(f"the name servers fail ({cause if isinstance(cause, str) else type(cause).__name__})")


def _candidates(name: str, stub: dns.asyncresolver.Resolver) -> list[dns.name.Name]:
    """Full names to look up for `name`, by resolv.conf. Raises the library's exceptions if it is invalid."""
    relative = dns.name.from_text(name, None)
    absolute = relative.concatenate(dns.name.root)
    domains = stub.search or ([] if stub.domain == dns.name.root else [stub.domain])
    in_domains = []
    for domain in domains:
        with suppress(dns.name.NameTooLong):  # there is no such name, but there may be the others
            in_domains.append(relative.concatenate(domain))
    dots = len(relative) - 1
    has_enough = dots >= (1 if stub.ndots is None else stub.ndots)
    names = [absolute, *in_domains] if has_enough else [*in_domains, absolute]
    return list(dict.fromkeys(names))  # `search .` names the absolute one once more


def _read_hosts(text: str) -> Mapping[str, Addresses]:
    """Parse a hosts file: addresses by name in lower case, in the order of the file."""
    found: dict[str, Addresses] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        try:
            address = str(ip_address(address))
        except ValueError:
            continue
        for name in map(str.lower, names):
            known = found.get(name, ())
            if address not in known:  # a repeated line must not make it a second backend
                found[name] = (*known, address)
    return found


def _read_resolv_conf(text: str, port: int) -> dns.asyncresolver.Resolver:
    """Parse resolv.conf into a stub resolver that asks each server once. `attempts` is ignored, because
    lookups are repeated anyway. Raises `ValueError` for an unusable file."""
    stub = dns.asyncresolver.Resolver(configure=False)
    try:
        stub.read_resolv_conf(io.StringIO(text))
    except dns.resolver.NoResolverConfiguration:
        # As libc does. A file with no setting at all is one that is being written.
        if SETTINGS.isdisjoint(line.split()[0] for line in text.splitlines() if line.strip()):
            raise ValueError("no name server") from None
        stub.read_resolv_conf(io.StringIO(f"{text}\n{DEFAULT_RESOLV_CONF}"))
    except dns.exception.DNSException as error:
        raise ValueError(str(error)) from error
    stub.port = port
    stub.timeout = min(max(stub.timeout, 1), LONGEST_TRY)
    stub.lifetime = stub.timeout * len(stub.nameservers)
    return stub


@final
class _File(Generic[Parsed]):
    """System file that is parsed again when it has changed. An unreadable one keeps its content."""

    def __init__(self, path: Path, parse: Callable[[str], Parsed], default: str) -> None:
        self._path = path
        self._parse = parse
        self._default = default
        self._parsed: Parsed | None = None
        self._seen: tuple[int, int, int] | None = None

    def current(self) -> Parsed:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                text = self._path.read_text(encoding="utf-8", errors="replace")
                self._seen = seen
                self._parsed = self._parse(text)
        except (OSError, ValueError):
            pass
        if self._parsed is None:
            self._parsed = self._parse(self._default)
        return self._parsed
