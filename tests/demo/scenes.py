"""Sample scenes: the middle of an upgrade, its end, and the gateway beside a balancer."""

from __future__ import annotations

from gateway.demo.scene import (
    BackendScene,
    Bar,
    ClientScene,
    Event,
    FrontScene,
    Label,
    Scene,
    ServiceScene,
)

OLD, NEW = "Train (13.0)", "Caracal (24.1)"
ALL = (Bar(0.0, 1.0),)
LOW = (Bar(0.0, 58 / 90),)


def backend(
    name: str, release: str, bars: tuple[Bar, ...], serves: str, *, state: str = "running", rate: float = 11.6
) -> BackendScene:
    """One that the gateway knows."""
    freshness = {"running": "fresh", "upgrading": "stale", "killed": "lost", "hanging": "stale"}[state]
    return BackendScene(name, release, serves, bars, freshness, state, rate)


def baremetal(new: int = 2, *, state: str = "upgrading") -> ServiceScene:
    """Four backends, of which the first `new` run the new release; the next one is in `state`."""
    backends = []
    for number in range(4):
        name = f"api-{number + 1}"
        if number < new:
            backends.append(backend(name, NEW, ALL, "1.1-1.90", rate=14.2))
        elif number == new:
            backends.append(backend(name, NEW, LOW, "1.1-1.58", state=state, rate=0.0))
        else:
            backends.append(backend(name, OLD, LOW, "1.1-1.58", rate=9.7))
    whole = new == 4
    holders = " and ".join(f"api-{number + 1}" for number in range(new, 4))
    return ServiceScene(
        "baremetal",
        "1.1-1.90" if whole else "1.1-1.58",
        ALL if whole else LOW,
        "uniform" if whole else "mixed",
        "" if whole else f"{holders} hold back 1.59-1.90: upgrade them",
        (Label(0.5 / 90, "1.1"), Label(57.5 / 90, "1.58"), Label(89.5 / 90, "1.90")),
        tuple(backends),
    )


def inventory(*, whole: bool = False) -> ServiceScene:
    """Two backends."""
    low, high = (Bar(0.0, 0.6),), ALL
    return ServiceScene(
        "inventory",
        "1-5" if whole else "1-3",
        high if whole else low,
        "uniform" if whole else "stabilizing",
        "" if whole else "4-5 is offered when it has stood for 1.2 s",
        (Label(0.1, "1"), Label(0.5, "3"), Label(0.9, "5")),
        (
            backend("inv-1", "5.0", high, "1-5", rate=4.1),
            backend("inv-2", "5.0" if whole else "3.2", high if whole else low, "1-5" if whole else "1-3"),
        ),
    )


CLIENTS = (
    ClientScene("old 1.31", "a controller that was built against 1.31", 412, 0, 0, ""),
    ClientScene("new 1.90", "a command line that negotiates from 1.90", 388, 41, 0, ""),
    ClientScene("latest", "a script that wants the newest", 407, 0, 0, ""),
    ClientScene("none", "curl without a version", 399, 0, 0, ""),
    ClientScene("over-eager", "a client of a release to come", 0, 82, 0, ""),
    ClientScene("inventory 3", "a client of the other service", 203, 0, 0, ""),
)

EVENTS = (
    Event(1.2, "baremetal offers 1.1-1.58", "offer"),
    Event(1.3, "inventory offers 1-3", "offer"),
    Event(4.0, "api-1 stops and comes back with Caracal", "step"),
    Event(5.1, "api-1 serves 1.1-1.90 now", "backend"),
    Event(7.9, "api-2 stops and comes back with Caracal", "step"),
    Event(9.0, "api-2 serves 1.1-1.90 now", "backend"),
    Event(11.2, "api-3 stops; its clients are sent to the other three", "step"),
    Event(11.6, "api-3 is stale: connection refused", "backend"),
)

SERVED = "curl -iH X-OpenStack-Ironic-API-Version:1.58 127.0.0.1:34567/v1/nodes"
REFUSED = "curl -iH X-OpenStack-Ironic-API-Version:1.90 127.0.0.1:34567/v1/nodes"


def front(services: tuple[ServiceScene, ...], clients: tuple[ClientScene, ...] = CLIENTS) -> FrontScene:
    """The gateway in front of `services`, with the sums of `clients`."""
    answered, refused, lost = (
        sum(getattr(each, name) for each in clients) for name in ("answered", "refused", "lost")
    )
    losses = (("another version than promised", lost),) if lost else ()
    return FrontScene(
        "skewgate", services, clients, answered + refused + lost, answered, refused, lost, losses
    )


MIDDLE = Scene(
    seconds=12.4,
    length=30.0,
    seed=7,
    paused=False,
    step="5 of 12: api-3 is upgraded to Caracal",
    fronts=(front((baremetal(), inventory())),),
    events=EVENTS,
    curl_served=SERVED,
    curl_refused=REFUSED,
    page="http://127.0.0.1:9900/ui/",
)
"""The middle of a rolling upgrade."""

END = MIDDLE._replace(
    seconds=30.0,
    step="12 of 12: all backends are upgraded",
    fronts=(front((baremetal(4), inventory(whole=True))),),
    events=(*EVENTS, Event(21.0, "baremetal offers 1.1-1.90", "offer")),
)
"""Its end: everything is offered."""

PROBLEMS = MIDDLE._replace(
    paused=True,
    fronts=(
        front(
            (baremetal(1, state="killed"), inventory()),
            (
                CLIENTS[0]._replace(lost=3, last_loss="GET /v1/nodes at 1.31: 502 after bytes were sent"),
                *CLIENTS[1:],
            ),
        ),
    ),
)
"""What must not be: somebody's requests were lost."""


def _balancer() -> FrontScene:
    def blind(service: ServiceScene) -> ServiceScene:
        newest = service.backends[0]  # who answered last
        return service._replace(
            offer=newest.serves,
            offer_bars=newest.bars,
            phase="",
            held="",
            backends=tuple(each._replace(freshness="") for each in service.backends),
        )

    clients = tuple(
        each._replace(answered=each.answered * 4 // 5, lost=lost, last_loss="406 at a version it was shown")
        for each, lost in zip(CLIENTS, (0, 78, 47, 0, 0, 18), strict=True)
    )
    losses = (
        ("406 for a version that was negotiated", 78),
        ("executed at another version", 47),
        ("502, the server was down", 18),
        ("the range on show fell", 9),
    )
    sums = front((blind(baremetal()), blind(inventory())), clients)
    return sums._replace(name="HAProxy 2.6.12, round robin", losses=losses)


COMPARE = MIDDLE._replace(fronts=(*MIDDLE.fronts, _balancer()))
"""The same clients behind the gateway and behind a balancer."""
