"""Sample scenes: the middle of an upgrade, its end, and the gateway beside HAProxy."""

from __future__ import annotations

from gateway.demo.scene import BackendScene, ClientScene, DemoEvent, FrontScene, Scene, ServiceScene

OLD, NEW = "Antelope (21.4)", "Caracal (24.1)"
LOW = 82 / 90


def backend(
    name: str, release: str, share: float, serves: str, *, state: str = "running", requests: int = 116
) -> BackendScene:
    """One that the gateway knows."""
    freshness = {"running": "fresh", "upgrading": "stale", "killed": "down", "hanging": "stale"}[state]
    return BackendScene(name, release, serves, share, freshness, state, requests)


def baremetal(new: int = 2, *, state: str = "upgrading") -> ServiceScene:
    """Four backends, of which the first `new` run the new release; the next one is in `state`."""
    backends = []
    for number in range(4):
        name = f"api-{number + 1}"
        if number < new:
            backends.append(backend(name, NEW, 1.0, "1.1-1.90", requests=1420))
        elif number == new:
            backends.append(backend(name, NEW, LOW, "1.1-1.82", state=state, requests=0))
        else:
            backends.append(backend(name, OLD, LOW, "1.1-1.82", requests=97))
    whole = new == 4
    return ServiceScene(
        name="baremetal",
        offer="1.1-1.90" if whole else "1.1-1.82",
        share=1.0 if whole else LOW,
        phase="uniform" if whole else "mixed",
        held="" if whole else f"1.83-1.90 waits for {', '.join(each.name for each in backends[new:])}",
        backends=tuple(backends),
    )


def inventory(*, whole: bool = False) -> ServiceScene:
    """Two backends."""
    serves, share = ("1-5", 1.0) if whole else ("1-3", 0.6)
    return ServiceScene(
        name="inventory",
        offer=serves,
        share=share,
        phase="uniform" if whole else "stabilizing",
        held="" if whole else "4-5 will be offered after the stabilization time",
        backends=(
            backend("inv-1", "5.0", 1.0, "1-5", requests=41),
            backend("inv-2", "5.0" if whole else "3.2", share, serves),
        ),
    )


CLIENTS = (
    ClientScene("old 1.31", "a controller of last year", 412, 0, 0, ""),
    ClientScene("new 1.90", "a command line", 388, 41, 0, ""),
    ClientScene("latest", "a dashboard", 407, 0, 0, ""),
    ClientScene("none", "curl without a version", 399, 0, 0, ""),
    ClientScene("over-eager", "a client to come", 0, 82, 0, ""),
    ClientScene("inventory 3", "of the other service", 203, 0, 0, ""),
)

EVENTS = (
    DemoEvent(1, 1.2, "baremetal offers 1.1-1.82", "offer"),
    DemoEvent(2, 4.0, "api-1 stops for its upgrade", "step"),
    DemoEvent(3, 5.1, "api-1 serves 1.1-1.90", "backend"),
    DemoEvent(4, 7.9, "api-2 stops for its upgrade", "step"),
    DemoEvent(5, 9.0, "api-2 serves 1.1-1.90", "backend"),
    DemoEvent(6, 11.2, "api-3 stops for its upgrade", "step"),
)

SERVED = "curl -iH 'X-OpenStack-Ironic-API-Version: 1.31' 127.0.0.1:34567/v1/nodes"
REFUSED = "curl -iH 'X-OpenStack-Ironic-API-Version: 1.90' 127.0.0.1:34567/v1/nodes"

MIDDLE = Scene(
    seconds=12.4,
    length=30.0,
    seed=7,
    paused=False,
    step="5 of 12: api-3 is upgraded to Caracal",
    fronts=(FrontScene("skewgate", (baremetal(), inventory()), CLIENTS, ()),),
    events=EVENTS,
    curl_served=SERVED,
    curl_newest=REFUSED,
    page="http://127.0.0.1:9900/ui/",
)
"""The middle of a rolling upgrade."""

END = MIDDLE._replace(
    seconds=30.0,
    step="12 of 12: all backends are upgraded",
    fronts=(MIDDLE.fronts[0]._replace(services=(baremetal(4), inventory(whole=True))),),
    events=(*EVENTS, DemoEvent(7, 21.0, "baremetal offers 1.1-1.90", "offer")),
)
"""Its end: everything is offered."""

PROBLEMS = MIDDLE._replace(
    paused=True,
    fronts=(
        FrontScene(
            "skewgate",
            (baremetal(1, state="killed"), inventory()),
            (CLIENTS[0]._replace(lost=3, last_loss="1.31: status 502"), *CLIENTS[1:]),
            (("status 502", 3),),
        ),
    ),
)
"""What must not be: somebody's requests were lost."""


def _balancer() -> FrontScene:
    def blind(service: ServiceScene) -> ServiceScene:
        newest = service.backends[0]  # who answered last
        return service._replace(
            offer=newest.serves,
            share=newest.share,
            phase="",
            held="",
            backends=tuple(each._replace(freshness="") for each in service.backends),
        )

    clients = tuple(
        each._replace(answered=each.answered * 4 // 5, lost=lost, last_loss="1.90: refused")
        for each, lost in zip(CLIENTS, (0, 78, 47, 0, 0, 18), strict=True)
    )
    losses = (("a version shown before was refused", 96), ("'latest' went backwards", 47))
    services = (blind(baremetal()), blind(inventory()))
    return FrontScene("HAProxy 2.6.12, round robin", services, clients, losses)


COMPARE = MIDDLE._replace(fronts=(*MIDDLE.fronts, _balancer()))
"""The same clients behind the gateway and behind HAProxy."""
