"""What the demonstration shows at one moment, as values: `performance` and `director` make them.

Everything is of one moment and already in words or numbers that need no further decision. Pure.
"""

from __future__ import annotations

from typing import NamedTuple


class Bar(NamedTuple):
    """A range of versions on the axis of its service, in shares of its length: 0 to 1."""

    begin: float
    end: float


class Label(NamedTuple):
    """A version that the axis names."""

    at: float
    text: str


class BackendScene(NamedTuple):
    """One API server, as it is and as the gateway knows it."""

    name: str
    release: str
    """What runs on it, or is about to."""
    serves: str
    """The range that the gateway knows, such as `1.1-1.58`; empty: nothing known."""
    bars: tuple[Bar, ...]
    freshness: str
    """`fresh`, `stale`, `lost` or `unknown`; a balancer knows nothing and has an empty one."""
    state: str
    """What was done to it: `running`, `upgrading`, `killed`, `hanging`."""
    rate: float
    """Requests per second that it got lately."""


class ServiceScene(NamedTuple):
    """One service."""

    name: str
    offer: str
    """`1.1-1.58`; `nothing yet`."""
    offer_bars: tuple[Bar, ...]
    phase: str
    held: str
    """What holds the offer and who must move for it to rise, one short sentence; empty: nothing holds it."""
    labels: tuple[Label, ...]
    backends: tuple[BackendScene, ...]


class ClientScene(NamedTuple):
    """One kind of client, and what it saw since the start."""

    kind: str
    """`old 1.31`, `new`, `latest`, `none`: at most 14 characters."""
    program: str
    """What such a client is in real life, a few words."""
    answered: int
    refused: int
    """Refused honestly: the version was not on offer, and the client was told so."""
    lost: int
    """A promise to this client was broken. Must stay 0."""
    last_loss: str
    """One sentence about the newest loss; empty: there is none."""


class Event(NamedTuple):
    """A line of the event log."""

    seconds: float
    """Since the start."""
    text: str
    kind: str
    """`step` (something was done to the fleet), `offer`, `backend` or `lost`."""


class FrontScene(NamedTuple):
    """One thing that stands in front of the fleet: the gateway, or a balancer to compare it with."""

    name: str
    """`skewgate`, `HAProxy 2.6.12, round robin`."""
    services: tuple[ServiceScene, ...]
    clients: tuple[ClientScene, ...]
    requests: int
    answered: int
    refused: int
    lost: int
    losses: tuple[tuple[str, int], ...]
    """Why requests were lost, a few words each with their number; the most frequent first."""


class Scene(NamedTuple):
    """Everything."""

    seconds: float
    """Since the start."""
    length: float | None
    """Seconds after which the demonstration ends; None: when somebody quits."""
    seed: int
    paused: bool
    step: str
    """The step of the upgrade that happens now: `3 of 12: api-2 is upgraded to Caracal`."""
    fronts: tuple[FrontScene, ...]
    """The gateway first. A second one only where they are compared."""
    events: tuple[Event, ...]
    """The newest last."""
    curl_served: str
    """A command line to copy: 200."""
    curl_refused: str
    """A command line to copy: 406 now, and 200 when the offer rises."""
    page: str
    """URL of the operations page."""
