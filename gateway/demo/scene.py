"""What the demonstration shows at one moment, and what somebody who watches can tell it to do, as values.

`side` and `director` make scenes, `view` and `report` show them. Everything is of one moment and
already in words or numbers that need no further decision.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NamedTuple, Protocol


class KeyCommand(Enum):
    """One command: its key, a small letter, and a word or two for the line of keys."""

    NEXT = ("n", "next")
    ROLL_BACK = ("r", "roll back")
    KILL = ("k", "kill")
    HANG = ("h", "hang")
    PAUSE = ("p", "pause")
    QUIT = ("q", "quit")

    def __init__(self, key: str, label: str) -> None:
        self.key = key
        self.label = label

    @classmethod
    def of(cls, key: str) -> KeyCommand | None:
        """The command of `key`, in either case; None: it means nothing."""
        return next((each for each in cls if each.key == key.lower()), None)


class BackendScene(NamedTuple):
    """One API server, as it is and as the gateway knows it."""

    name: str
    release: str
    """What runs on it, or is about to."""
    serves: str
    """Range that the gateway knows, such as `1.1-1.58`; empty: nothing known."""
    share: float
    """Share that this range has of the new release's, 0 to 1. All ranges begin at the same version."""
    freshness: str
    """`fresh`, `stale`, `down` or `unknown`; empty behind HAProxy, which knows nothing of versions."""
    state: str
    """What was done to it: `running`, `upgrading`, `killed`, `hanging`."""
    requests: int
    """Requests that it got since the start."""


class ServiceScene(NamedTuple):
    """One service."""

    name: str
    offer: str
    """`1.1-1.58`; `nothing yet`. Behind HAProxy: the range that the last answer showed."""
    share: float
    """As `BackendScene.share`."""
    phase: str
    """Empty behind HAProxy, which makes no offer."""
    held: str
    """What holds the offer and who must move for it to rise, one short sentence; empty: nothing holds it."""
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
    """The newest loss in a few words; empty: there is none."""


class DemoEvent(NamedTuple):
    """A line of the event log."""

    number: int
    """Events are numbered from 1."""
    seconds: float
    """Since the start."""
    text: str
    kind: str
    """`step` (something was done to the fleet), `offer` or `backend`."""


class FrontScene(NamedTuple):
    """One thing that stands in front of the fleet: the gateway, or HAProxy to compare it with."""

    name: str
    """`skewgate`, `HAProxy 2.6.12, round robin`."""
    services: tuple[ServiceScene, ...]
    clients: tuple[ClientScene, ...]
    losses: tuple[tuple[str, int], ...]
    """Why requests were lost, a few words each with their number; the most frequent first."""

    @property
    def answered(self) -> int:
        """Requests of all clients that were answered."""
        return sum(each.answered for each in self.clients)

    @property
    def refused(self) -> int:
        """Requests of all clients that were refused honestly."""
        return sum(each.refused for each in self.clients)

    @property
    def lost(self) -> int:
        """Requests of all clients that were lost."""
        return sum(each.lost for each in self.clients)

    @property
    def requests(self) -> int:
        """All requests."""
        return self.answered + self.refused + self.lost


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
    events: tuple[DemoEvent, ...]
    """The newest last."""
    curl_served: str
    """A command line to copy: 200."""
    curl_refused: str
    """A command line to copy: 406 now, and 200 when the offer rises."""
    page: str
    """URL of the operations page."""


class Demonstration(Protocol):
    """Who runs the demonstration."""

    @property
    def over(self) -> asyncio.Event:
        """Set when the demonstration has ended."""

    def scene(self) -> Scene:
        """What is to be seen now."""

    def do(self, command: KeyCommand) -> None:
        """Begin with what somebody wants. It never waits and never raises."""
