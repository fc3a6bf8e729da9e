"""The connection to a client, as an exchange sees it: an interface that `client_connection` implements.

It is a class to derive from, and so are the other interfaces that a request passes through more than once:
the compiled build calls through a `typing.Protocol` as slowly as interpreted code does (5 % of its own work).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from gateway.dataplane.backends.pools import ConnectionPools
    from gateway.dataplane.context import Context
    from gateway.dataplane.http1.forwarding import Peer
    from gateway.telemetry.usage import UsageSubtotal


class Downstream:
    """Interface of a client connection, which has one exchange at a time."""

    __slots__ = ("subtotal",)

    context: Context
    opened: float
    """Time by the coarse clock at which the client connection was made."""
    transport: asyncio.Transport
    peer: Peer
    congested: bool
    """Whether the client does not take what was written."""
    pools: ConnectionPools
    subtotal: UsageSubtotal | None
    """Subtotal of usage in which the last request of the client connection counts; None: there is none."""

    def await_body(self) -> None:
        """Begin to wait for a request body from the client."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        """Read from the client again."""
        raise NotImplementedError

    def bound_writes(self, size: int) -> None:
        """Set the number of bytes waiting for the client from which nothing more is read from the backend."""
        raise NotImplementedError

    def must_close(self) -> bool:
        """Whether this response is the last one on the client connection, for a reason of its own."""
        raise NotImplementedError

    def hand_over(self) -> tuple[bytes, bool]:
        """Give the client connection to a tunnel; returns bytes behind the request, and if no more come."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the client connection."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close the client connection with a reset."""
        raise NotImplementedError

    def exchange_ended(self, *, keep: bool) -> None:
        """Go on with the client connection after an exchange. `keep`: the response is whole; it stays."""
        raise NotImplementedError
