"""The record of usage: rows of counted requests, and what may be missing from them.

    worker  ->  UsageReport  ->  database  ->  UsageRecord  ->  usage, simulate, page

A row says what was decided about its requests. A record is exact, or one of its gaps says what is not: no
reader may answer about a day without looking at the gaps of that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, final

OTHER: Final = "other"
"""Client, version or operation of all requests that have no place of their own."""
NO_PRODUCT: Final = "none"
"""Client of requests without a name and without a product in `User-Agent`."""


@final
class RowKey(NamedTuple):
    """What the requests of one row have in common. The fields are the columns of the database."""

    service: str
    client: str
    """Name of the client from `clients`, or else the product of its User-Agent, `NO_PRODUCT` or `OTHER`."""
    named: bool
    """Whether `client` is a name from `clients`."""
    requested: str
    """Kind of the requested version (`RequestedKind`); empty: the endpoint knows no version."""
    asked: str
    """Requested version in canonical spelling, or `OTHER`; empty: none was named, or it is malformed."""
    result: str
    """Result of the negotiation (`NegotiationResult`), or `denied`; empty: nothing was negotiated."""
    version: str
    """Negotiated version in canonical spelling; empty: none was."""
    endpoint: str
    """Name of the endpoint's kind (`Endpoint.name`)."""
    signed: bool
    """Whether the client has signed its version header (Chef protocol 1.3)."""
    safe: bool
    """Whether the method is safe (RFC 9110 9.2.1)."""
    operation: str
    """Operation, as `GET /v1/nodes/{id}`, or `OTHER`."""


@final
class Count(NamedTuple):
    """Number of requests of one row on one day, with the times of the first and the last one."""

    requests: int
    first: float
    """Unix time of the first request, in seconds, to a second."""
    last: float
    addresses: tuple[str, ...] = ()
    """Addresses of the clients, at most `MAX_ADDRESSES`; empty unless they are recorded."""

    def plus(self, other: Count) -> Count:
        """Adds the requests of another count of the same row and day."""
        addresses = tuple(dict.fromkeys((*self.addresses, *other.addresses)))[:MAX_ADDRESSES]
        return Count(
            self.requests + other.requests,
            min(self.first, other.first),
            max(self.last, other.last),
            addresses,
        )


MAX_ADDRESSES: Final = 4
"""Most addresses that one row keeps."""


class Scope(IntEnum):
    """Questions that an incomplete day cannot answer. A higher scope includes the lower ones."""

    OPERATIONS = 1
    """Gap: operations were counted together as `OTHER`. Answers by client and version are exact."""
    VERSIONS = 2
    """Gap: refused requests were counted together, whatever version they asked for."""
    CLIENTS = 3
    """Gap: clients were counted together as `OTHER`. Answers about a service as a whole are exact."""
    ALL = 4
    """Gap: requests may be missing."""


@final
class Gap(NamedTuple):
    """Reason why the record of one day is incomplete."""

    day: int
    """UTC day, as the number of days since 1970-01-01."""
    service: str
    """Service whose record is incomplete; empty: all of them."""
    scope: Scope
    reason: str
    """Reason as a sentence without a full stop, for operators."""


@final
class UsageReport(NamedTuple):
    """Requests that one process has counted since its last report."""

    incarnation: str
    """Id of the process that counted, never used again."""
    sequence: int
    """Number of the report, from 1: a report counts once, however often it comes."""
    rows: Mapping[tuple[int, RowKey], Count]
    """Counts by day and row. A count may be negative: a request then belongs to another row."""
    gaps: tuple[Gap, ...] = ()


@final
class Period(NamedTuple):
    """Period that a database covers: one run of a gateway, in Unix time."""

    begins: float
    ends: float


@final
class Source(NamedTuple):
    """Database of one gateway that a record was read from."""

    id: str
    """Id of the database, drawn when it was made: the same one twice would count requests twice."""
    replica_ids: tuple[str, ...]
    """Ids of the replica in the agreement, one for each run; empty: the gateway is not one of several."""
    periods: tuple[Period, ...]
    replicas: Mapping[str, tuple[int, int]] = {}
    """First and last day on which each replica was registered, by id, as this gateway has seen it."""
    state: str = ""
    """Last state of the gateway's fleet, in the form of the state file; empty: none was written."""
    config: str = ""
    """Hash of the configuration in force when `state` was written (`Settings.hash`)."""


@final
class UsageRecord(NamedTuple):
    """Usage of one service, or of all, over a number of days, from one gateway or the sum of several."""

    since: int
    """First day that was asked for."""
    until: int
    """Last day, which is not over yet."""
    rows: Mapping[tuple[int, RowKey], Count]
    gaps: tuple[Gap, ...]
    sources: tuple[Source, ...]
