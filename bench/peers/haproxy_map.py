"""HAProxy as the gateway drives it: its part of the configuration and the map, by the gateway's own rules.

No gateway runs beside it: every request of this load has a row. The backends' versions are declared, because
nobody probes them here.
"""

from pathlib import Path

from bench.slot import Slot

GLOBAL = """\
global
    nbthread {threads}
    maxconn {connections}
"""


def configuration(slot: Slot) -> Path:
    """Write the map and the configuration into the directory of this start."""
    # Imported here: the bench shows its help and its errors without the gateway's dependencies.
    from gateway.core.fleet.snapshot import Snapshot  # noqa: PLC0415
    from gateway.engines.haproxy.configuration import (  # noqa: PLC0415
        HaproxyOptions,
        configuration_text,
        map_text,
    )
    from gateway.engines.table import compile_table  # noqa: PLC0415
    from gateway.settings import load  # noqa: PLC0415

    members = [(address, "1.1-1.58") for address in slot.old] + [
        (address, "1.1-1.90") for address in slot.new
    ]
    backends = "\n".join(
        f'      - {{name: "{address}", url: "http://{address}:{slot.backends}", versions: "{versions}"}}'
        for address, versions in members
    )
    text = (
        f"listen: 127.0.0.1:{slot.admin}\nservices:\n  baremetal:\n    dialect: ironic\n"
        f"    offer: {{policy: reachable}}\n    backends:\n{backends}\n"
    )
    services = load(text, filename="haproxy-map.yaml", environ={}).require().services
    table = compile_table(Snapshot.configured(services, now=0.0))
    file, rows = slot.directory / "haproxy.cfg", slot.directory / "skewgate.map"
    rows.write_text(map_text(table))
    options = HaproxyOptions(
        map_path=str(rows), gateway=f"127.0.0.1:{slot.admin}", binds=(f"127.0.0.1:{slot.port} backlog 1024",)
    )
    start = GLOBAL.format(threads=slot.setting.threads or 1, connections=slot.setting.connections)
    file.write_text(start + configuration_text(table, options))
    return file
