"""Values of the demonstration's display: a scene, which is everything shown at one moment, and the keys.

`side` and `director` make scenes, `view` and `report` show them. All texts and numbers are ready to be shown.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class KeyCommand(Enum):
    """A command by keyboard to the demonstration: its key, a lower-case letter, and its label."""

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
        """Return the command of a key, in either case; None if it has none."""
        return next((each for each in cls if each.key == key.lower()), None)


class BackendScene(NamedTuple):
    """An API server, as it is and as the gateway knows it."""

    name: str
    release: str
    serves: str
    """Range of versions that the gateway knows of the server, such as `1.1-1.58`; empty if it knows none."""
    share: float
    """Length of the server's range of versions as a share of the new release's, from 0 to 1."""
    freshness: str
    """Freshness in the gateway: `fresh`, `stale`, `down` or `unknown`; empty behind HAProxy."""
    state: str
    """State of the API server: `running`, `upgrading`, `killed` or `hanging`."""
    requests: int


class ServiceScene(NamedTuple):
    """A service with its offer and its servers."""

    name: str
    offer: str
    """Versions on offer, such as `1.1-1.58`. Behind HAProxy: the range in the last response."""
    share: float
    """Length of the offer as a share of the new release's range, from 0 to 1."""
    phase: str
    """Phase of the service's upgrade; empty behind HAProxy, which makes no offer."""
    held: str
    """Short sentence on what holds the offer, and which backends; empty if nothing does."""
    backends: tuple[BackendScene, ...]


class ClientScene(NamedTuple):
    """A kind of client, with the outcomes of its requests."""

    kind: str
    """Name of the kind of client, such as `old 1.31`: at most 14 characters."""
    program: str
    """Example of such a client program in real life, a few words."""
    answered: int
    refused: int
    """Number of requests for versions that were not on offer."""
    lost: int
    last_loss: str
    """Latest lost request of these clients, in a few words; empty if there is none."""


class DemoEvent(NamedTuple):
    """A line of the demonstration's event log."""

    number: int
    seconds: float
    text: str
    kind: str
    """Kind of the event: `step` (a change of the fleet), `offer` or `backend`."""


class FrontScene(NamedTuple):
    """The gateway or HAProxy, with the services behind it and its clients."""

    name: str
    services: tuple[ServiceScene, ...]
    clients: tuple[ClientScene, ...]
    losses: tuple[tuple[str, int], ...]
    """Reasons for lost requests with their numbers, the most frequent first."""

    @property
    def answered(self) -> int:
        return sum(each.answered for each in self.clients)

    @property
    def refused(self) -> int:
        return sum(each.refused for each in self.clients)

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.clients)

    @property
    def requests(self) -> int:
        return self.answered + self.refused + self.lost


class Scene(NamedTuple):
    """The whole demonstration at one moment, for its display."""

    seconds: float
    length: float | None
    """Seconds after which the demonstration ends; None: when the user quits."""
    seed: int
    paused: bool
    step: str
    """The current step of the upgrade, such as `3 of 12: api-2 is upgraded to Caracal`."""
    fronts: tuple[FrontScene, ...]
    events: tuple[DemoEvent, ...]
    """The latest events of the demonstration, the newest last."""
    curl_served: str
    """Command line to copy: a request with curl for a version that is always served."""
    curl_newest: str
    """Command line to copy: a request for the newest version, with 406, and 200 once it is on offer."""
    page: str

    @property
    def is_newest_offered(self) -> bool:
        """Whether the gateway offers the version of `curl_newest`."""
        return self.fronts[0].services[0].share >= 1.0
