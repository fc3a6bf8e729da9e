"""The options of `bench/run`, read and checked."""

import argparse
from pathlib import Path

from bench.scenarios import SCENARIOS, Scenario

DEFAULT_NAMES = ", ".join(scenario.name for scenario in SCENARIOS if scenario.default)
ALL_NAMES = ",".join(scenario.name for scenario in SCENARIOS)


def read(arguments: list[str] | None) -> argparse.Namespace:
    """`scenarios` has the chosen ones, `only` the names of the chosen peers; empty: all of them."""
    parser = argparse.ArgumentParser(
        prog="bench/run",
        description="Compares the gateway, interpreted and compiled, with other proxies. bench/README.md"
        " explains what is measured and how.",
    )
    add = parser.add_argument
    add("--scenario", metavar="NAMES", help=f"comma-separated: {ALL_NAMES} (default: {DEFAULT_NAMES})")
    add("--full", action="store_true", help="all scenarios, in about half an hour")
    add("--only", metavar="NAMES", default="", help="measure only these peers, such as gateway,nginx")
    add("--seconds", type=_positive, default=3, help="length of each measured run (default 3)")
    add("--warm-up", type=_positive, default=1, help="seconds of load before it (default 1)")
    add("--rounds", type=_positive, default=3, help="number of runs, of which the median counts (default 3)")
    add("--connections", type=_positive, default=32, help="connections of wrk (default 32)")
    add(
        "--earlier", metavar="DIR", type=Path, help="another checkout, whose gateway is measured as `earlier`"
    )
    add("--loop", choices=("uvloop", "asyncio"), help="event loop of the Python programs")
    add("--python", metavar="PATH", help="makes the environment of the bench (default /usr/bin/python3)")
    add("--markdown", metavar="FILE", type=Path, help="write the tables as Markdown")
    add("--page", action="store_true", help="write them into docs/performance.md, between its markers")
    add("--smoke", action="store_true", help="all scenarios, a second each, to look for errors only")
    chosen = parser.parse_args(arguments)
    if chosen.page and (chosen.smoke or chosen.only or chosen.scenario or chosen.earlier):
        parser.error("--page is for a whole measurement: without --smoke, --only, --scenario and --earlier")
    if chosen.smoke:
        chosen.seconds = chosen.warm_up = chosen.rounds = 1
    if chosen.earlier is not None:
        chosen.earlier = chosen.earlier.resolve()
        if not (chosen.earlier / "gateway" / "__main__.py").is_file():
            parser.error(f"not a checkout of this project: {chosen.earlier}")
    chosen.scenarios = _scenarios(parser, chosen)
    chosen.only = chosen.only.split(",") if chosen.only else []
    return chosen


def _scenarios(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> list[Scenario]:
    if chosen.scenario:
        known = {scenario.name: scenario for scenario in SCENARIOS}
        names = chosen.scenario.split(",")
        if unknown := [name for name in names if name not in known]:
            parser.error(f"no such scenario: {', '.join(unknown)} (there are {', '.join(known)})")
        return [known[name] for name in known if name in names]
    everything = chosen.full or chosen.smoke
    return [scenario for scenario in SCENARIOS if everything or scenario.default]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
