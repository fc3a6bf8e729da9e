"""/metrics, /status and responses of an old and a new checkout, under the same recorded traffic.

Only the numbers that depend on time, process or machine are masked. Names, help, types, labels, order and
every other number are compared byte for byte.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.before_and_after import servers
from tests.before_and_after.checkout import Checkout
from tests.before_and_after.report import Report
from tests.before_and_after.running import running
from tests.before_and_after.traffic import Traffic, configuration
from tests.kit.certificates import Authority
from tests.kit.networks import free_port

OWN_PORTS: Final = ("plain", "tls", "proxied", "admin", "metrics", "nobody")
"""Of the gateway, the same for both checkouts; nobody listens on the last one."""

RUNS: Final[Mapping[str, Mapping[str, object]]] = {
    "one worker": {"workers": 1, "per_backend": "true"},
    "two workers": {"workers": 2, "per_backend": "true"},
    "no series by backend": {"workers": 1, "per_backend": "false"},
}

_OF_TIME_OR_MACHINE: Final = re.compile(
    r"process_\w+"
    r"|skewgate_(?!certificate_expiry|backend_certificate_expiry)\w*timestamp_seconds"
    r"|skewgate_worker_(?:cpu_seconds_total|resident_memory_bytes|open_fds)"
    r"|skewgate_event_loop_lag_seconds_\w+"
    r"|skewgate_probe_duration_seconds_(?:bucket|sum)"
    r"|skewgate_discovery_looks_total"  # a file is looked at every second
    r"|skewgate_state_writes_total"  # changes that come together are written together
    r"|skewgate_deferred_facts_total"  # what comes too fast
)
"""Names of series whose numbers are masked."""

_LAGS: Final = re.compile(r"(?:skewgate_event_loop_lag_seconds_\w+\{.*\n)+")
_DURATION: Final = re.compile(r"\w+_duration_seconds_(?:bucket|sum)")
_SAMPLE: Final = re.compile(r"(?m)^([a-z_]+)(\{.*\})? (\S+)$")
_STATUS: Final = re.compile(
    r'"(pid|generation|loaded_at|last_probe_at|answered_at|since|until|version|python|loop)": '
    r'(?:-?[0-9][0-9.e+-]*|"[^"]*")'
)
"""Keys of /status whose values are masked, unless they are null: times, processes, and what runs."""


def masked_metrics(text: str) -> str:
    """What a scrape says, without what changes from run to run. The number of a histogram's values stays."""

    def mask(found: re.Match[str]) -> str:
        name, labels = found[1], found[2] or ""
        if name == "skewgate_build_info":
            return f"{name}~ {found[3]}"
        of_time = _OF_TIME_OR_MACHINE.fullmatch(name) is not None
        of_time |= _DURATION.fullmatch(name) is not None and 'le="+Inf"' not in labels
        return f"{name}{labels} ~" if of_time else found[0]

    def in_order(found: re.Match[str]) -> str:
        return "".join(sorted(found[0].splitlines(keepends=True), key=_worker_of))

    return _LAGS.sub(in_order, _SAMPLE.sub(mask, text))


def _worker_of(line: str) -> str:
    """Which worker was late first depends on chance."""
    return line.partition('worker="')[2]


def masked_status(text: str) -> str:
    return _STATUS.sub(r'"\1": ~', text).replace(", ", ",\n")


def compare(old: Checkout, new: Checkout, folder: Path, report: Report) -> None:
    """`folder`: an empty one, for the files of the gateways."""
    asyncio.run(_compare(old, new, folder, report))


async def _compare(old: Checkout, new: Checkout, folder: Path, report: Report) -> None:
    authority = Authority()
    authority.write(folder)
    authority.server().write(folder)
    authority.client().write(folder, "client")
    Authority("Another CA").client().write(folder, "foreign")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    ports = {name: free_port() for name in OWN_PORTS}
    async with servers.running(tls) as known:
        values = {**ports, **{name: server.port for name, server in known.items()}}
        (folder / "found.json").write_text(f'[{{"targets": ["127.0.0.1:{values["found"]}"]}}]', "utf-8")
        for name, run in RUNS.items():
            before, after = [
                await _results(side, folder, {**values, **run}, known, ports) for side in (old, new)
            ]
            _compare_results(name, before, after, report)


async def _results(
    side: Checkout,
    folder: Path,
    values: Mapping[str, object],
    known: Mapping[str, servers.Server],
    ports: Mapping[str, int],
) -> dict[str, str]:
    """What one gateway shows."""
    for path in folder.glob("state.json*"):  # noqa: ASYNC240 - nothing else runs
        path.unlink()
    for server in known.values():
        server.begin(closes=values["workers"] != 1)
    file = folder / "gateway.yaml"
    file.write_text(configuration(values), encoding="utf-8")
    async with running(side, folder, file, ports, int(str(values["workers"]))) as gateway:
        return await Traffic(gateway, known, file, values).run()


def _compare_results(run: str, before: Mapping[str, str], after: Mapping[str, str], report: Report) -> None:
    for what, text in before.items():
        shown = [text, after[what]]
        if what.startswith("/metrics"):
            shown = list(map(masked_metrics, shown))
        elif what.startswith("/status"):
            shown = list(map(masked_status, shown))
        report.compare(f"{run}: {what}", *shown)
    last = [text for what, text in before.items() if what.startswith("/metrics as text, before")]
    samples = [found for text in last for found in _SAMPLE.findall(text)]
    counted = sum(number not in ("0.0", "0") for _, _, number in samples)
    report.say(
        f"    {len(samples)} series of {len({name for name, _, _ in samples})} names, {counted} not zero"
    )
