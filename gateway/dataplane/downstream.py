"""The connection to a client, as an exchange sees it.

Only the interface: `client_connection` implements it. So neither of the two imports the other's insides, and
an exchange can be used with another kind of connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from gateway.core.fleet.backend import Member
    from gateway.core.http.message import Response
    from gateway.dataplane.backend_pool import BackendPool
    from gateway.dataplane.context import Context
    from gateway.dataplane.forwarding import Peer


class Downstream(Protocol):
    """One connection, which has one exchange at a time."""

    context: Context
    transport: asyncio.Transport
    peer: Peer
    congested: bool
    """The client does not take what was written."""

    def pool(self, member: Member) -> BackendPool:
        """The connections to a member."""

    def await_body(self) -> None:
        """A request body begins."""

    def pause_reading(self) -> None:
        """Read no more from the client."""

    def resume_reading(self) -> None:
        """Read from the client again."""

    def must_close(self) -> bool:
        """Whether this response is the last one on this connection."""

    def connection_line(self, *, close: bool) -> bytes:
        """The `Connection` line of a response, or nothing."""

    def respond(self, response: Response, *, is_head_request: bool, close: bool) -> None:
        """Write a whole local response."""

    def abort(self) -> None:
        """Reset the connection."""

    def exchange_ended(self, *, keep: bool) -> None:
        """The exchange is over. `keep`: its response was written whole, and the connection stays open."""
