"""Limits for each client of one service: requests a second, and requests in flight.

A client is an IPv4 address or an IPv6 /64, since a customer has at least as many addresses (RFC 6177). With
several workers each reports to the others what its clients have used, ten times a second or more often
(`sharing`). So a client may exceed its limits by what it does at several workers in that time; of a rate this
is subtracted afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final, final

from gateway.core.fleet.admission import ClientLimits, IpAddress
from gateway.dataplane.limits.rate_limiter import TokenBuckets

if TYPE_CHECKING:
    from gateway.dataplane.limits.sharing import SharedLimits

_INTERFACE_BITS: Final = 64
_IPV4: Final = 1 << 64
"""Bit added to the key of an IPv4 client, so that it equals none of an IPv6 network."""


def client_key(address: IpAddress) -> int:
    """Number that stands for the client with this address: an IPv4 address or an IPv6 /64."""
    return int(address) | _IPV4 if isinstance(address, IPv4Address) else int(address) >> _INTERFACE_BITS


def neighbourhood(key: int) -> int:
    """Number that a client shares with its neighbours: its /24 of IPv4, or /48 of IPv6."""
    return key >> 8 if key & _IPV4 else key >> 16


@final
class Use:
    """Use of one service by clients: here since the last report, and at the other workers."""

    def __init__(self, shared: SharedLimits) -> None:
        self._shared = shared
        self.tokens: dict[int, int] = {}
        self.in_flight_changed: set[int] = set()
        self.elsewhere: dict[int, int] = {}
        """Requests in flight at other workers, by client."""

    def took(self, client: int) -> None:
        """Note that a client has taken a token of its rate limit."""
        self.tokens[client] = self.tokens.get(client, 0) + 1
        self._shared.on_use()

    def changed(self, client: int) -> None:
        """Note that a client has more or fewer requests in flight."""
        self.in_flight_changed.add(client)
        self._shared.on_use()


@final
class CountedRequest:
    """A request in flight, counted for its client until `end`."""

    __slots__ = ("_client", "_in_flight", "_use")

    def __init__(self, in_flight: dict[int, int], client: int, use: Use | None) -> None:
        self._in_flight = in_flight
        self._client = client
        self._use = use
        in_flight[client] = in_flight.get(client, 0) + 1
        if use is not None:
            use.changed(client)

    def end(self) -> None:
        """Stop counting the request as in flight for its client."""
        left = self._in_flight[self._client] - 1
        if left:
            self._in_flight[self._client] = left
        else:
            del self._in_flight[self._client]
        if self._use is not None:
            self._use.changed(self._client)


@final
class ClientLimiter:
    """Client limits of one service, and what its clients have used."""

    def __init__(self, limits: ClientLimits, shared: SharedLimits | None = None) -> None:
        self.limits = ClientLimits()
        self._use = None if shared is None else Use(shared)
        self._buckets: TokenBuckets | None = None
        self._in_flight: dict[int, int] = {}
        self.configure(limits)

    def configure(self, limits: ClientLimits) -> None:
        """Use new client limits. What clients have used stays counted as far as it means the same."""
        before, self.limits = self.limits, limits
        if limits.rate is None:
            self._buckets = None
        elif (
            self._buckets is None
            or limits.rate != before.rate
            or limits.effective_burst != before.effective_burst
        ):
            self._buckets = TokenBuckets(limits.rate, limits.effective_burst)

    def has_room(self, client: int) -> bool:
        """Whether the client may have one more request in flight."""
        most = self.limits.concurrency
        if most is None:
            return True
        elsewhere = 0 if self._use is None else self._use.elsewhere.get(client, 0)
        return self._in_flight.get(client, 0) + elsewhere < most

    def wait(self, client: int, now: float) -> float:
        """Count a client's request: 0, or the seconds until one is allowed. A refused one is not counted."""
        if self._buckets is None:
            return 0.0
        wait = self._buckets.take(client, now, neighbourhood(client))
        if self._use is not None and not wait:
            self._use.took(client)
        return wait

    def hold(self, client: int) -> CountedRequest | None:
        """Count a client's request in flight; None: there is no limit for them."""
        return None if self.limits.concurrency is None else CountedRequest(self._in_flight, client, self._use)

    # -- where there are several workers

    def collect_tokens(self) -> dict[int, int]:
        """Tokens of the rate limit taken at this worker since the last call, by client."""
        if self._use is None:
            return {}
        tokens, self._use.tokens = self._use.tokens, {}
        return tokens

    def collect_in_flight(self) -> dict[int, int]:
        """Requests in flight at this worker, for clients whose number has changed since the last call."""
        if self._use is None:
            return {}
        changed, self._use.in_flight_changed = self._use.in_flight_changed, set()
        return {client: self._in_flight.get(client, 0) for client in changed}

    def take_elsewhere(self, tokens: Mapping[int, int], now: float) -> None:
        """Subtract the rate tokens that clients have taken at other workers."""
        if self._buckets is not None:
            for client, number in tokens.items():
                self._buckets.debit(client, number, now, neighbourhood(client))

    def count_elsewhere(self, in_flight: Mapping[int, int]) -> None:
        """Note the requests in flight at other workers, for clients whose number has changed."""
        if self._use is not None:
            for client, number in in_flight.items():
                if number:
                    self._use.elsewhere[client] = number
                else:
                    self._use.elsewhere.pop(client, None)

    def __len__(self) -> int:
        """Number of clients with a token bucket or a request in flight."""
        return len(self._in_flight) + (0 if self._buckets is None else len(self._buckets))
