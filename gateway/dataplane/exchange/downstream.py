"""The connection to a client, as an exchange sees it.

Only the interface: `client_connection` implements it. So neither of the two imports the other's insides, and
an exchange can be used with another kind of connection.

It is a class to derive from, and so are the other interfaces that a request passes through more than once:
the compiled build calls through a `typing.Protocol` as slowly as interpreted code does (5 % of its own work).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gateway.core.fleet.backend import Member
    from gateway.dataplane.backends.pool import ConnectionPool
    from gateway.dataplane.context import Context
    from gateway.dataplane.http1.forwarding import Peer


class Downstream:
    """One connection, which has one exchange at a time."""

    __slots__ = ()

    context: Context
    opened: float
    """When it was made, by the coarse clock."""
    transport: asyncio.Transport
    peer: Peer
    congested: bool
    """The client does not take what was written."""
    pool: Callable[[Member], ConnectionPool]
    """Gives the connections to a member."""

    def await_body(self) -> None:
        """A request body begins."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Read no more from the client."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        """Read from the client again."""
        raise NotImplementedError

    def bound_writes(self, size: int) -> None:
        """From `size` bytes that wait for the client, no more is read for it."""
        raise NotImplementedError

    def must_close(self) -> bool:
        """Whether this response is the last one, for a reason of the connection."""
        raise NotImplementedError

    def hand_over(self) -> tuple[bytes, bool]:
        """The connection becomes one end of a tunnel. Gives the bytes that came behind the request, and
        whether the client has closed its sending side."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        raise NotImplementedError

    def abort(self) -> None:
        """Reset the connection."""
        raise NotImplementedError

    def exchange_ended(self, *, keep: bool) -> None:
        """The exchange is over. `keep`: its response was written whole, and the connection stays open."""
        raise NotImplementedError
