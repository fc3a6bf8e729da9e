"""Every file of `deploy/` that another program reads is run as it is, by that program, in front of gateways
with the configurations beside it: health checks of HAProxy, scrapes of Prometheus, the scripts of keepalived,
and the probes of the chart as the kubelet sends them (R3-V0). The machines have the addresses and names that
the files name.
"""
# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import yaml

from tests.architecture.source import ROOT
from tests.docs.pages import page, section
from tests.engines.equality.haproxy import program
from tests.engines.machines import Machine, apis, machines
from tests.kit.waiting import until
from tests.packaging.test_helm import objects

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final = DEPLOY / "compose"
NAME_SERVER: Final = """\
import asyncio, json, sys
from tests.kit.name_servers import name_server

async def serve():
    async with name_server("127.0.0.11", 53) as server:
        server.addresses = {name: (address,) for name, address in json.loads(sys.argv[1]).items()}
        await asyncio.Event().wait()

asyncio.run(serve())
"""
"""Compose has one at this address in each container."""


def configuration(source: Path, folder: Path, name: str, **replaced: str) -> Path:
    """A shipped configuration of the gateway, with a state file in `folder` and other addresses."""
    text = source.read_text(encoding="utf-8").replace("/var/lib/skewgate/", f"{folder}/{name}-")
    for before, after in replaced.items():
        text = text.replace(before, after)
    file = folder / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    return file


# --- HAProxy ------------------------------------------------------------------------------------------------


class Haproxy:
    """A running HAProxy, and what it finds out about its servers."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def servers(self, backend: str) -> dict[str, tuple[str, str]]:
        """State and result of the last check, by the name of the server."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(b"show stat\n")
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return {
            row["svname"]: (row["status"].partition(" ")[0], row["check_status"].removeprefix("* "))
            for row in csv.DictReader(text.removeprefix("# ").splitlines())
            if row["pxname"] == backend and row["svname"] != "BACKEND"
        }

    async def finds(self, backend: str, servers: Mapping[str, tuple[str, str]]) -> None:
        """Wait until it finds the servers so."""
        found: dict[str, tuple[str, str]] = {}

        async def is_so() -> bool:
            nonlocal found
            try:
                found = await self.servers(backend)
            except OSError:
                return False
            return found == servers

        try:
            await until(is_so, f"HAProxy finds {servers}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it finds {found}") from None


UP: Final = ("UP", "L7OK")
DOWN: Final = ("DOWN", "L4CON")


@asynccontextmanager
async def haproxy(machine: Machine, folder: Path, *files: Path) -> AsyncIterator[Haproxy]:
    """One that reads these files, and another one for a socket to ask it."""
    socket = folder / "haproxy.sock"
    (folder / "socket.cfg").write_text(f"global\n  stats socket {socket} mode 600 level admin\n")
    parts = [word for file in (*files, folder / "socket.cfg") for word in ("-f", file)]
    process = await machine.start(program(), "-db", *parts)
    running = Haproxy(socket)

    async def listens() -> bool:
        assert process.returncode is None, machine.log(process)
        return socket.exists()

    await until(listens, "HAProxy runs")
    yield running


def kolla(folder: Path) -> Path:
    """The file of kolla-ansible itself, for this machine: another group, no socket, fewer files."""
    text = (ROOT / "tests/engines/kolla/haproxy.cfg").read_text()
    text = text.replace("group kolla", "group haproxy").replace("maxconn 40000", "maxconn 1000")
    file = folder / "kolla.cfg"
    file.write_text(re.sub("(?m)^    stats socket.*\n", "", text))
    return file


async def test_R3_V0_haproxy_of_kolla_finds_the_gateways_up(tmp_path: Path) -> None:
    controllers = {f"control{number}": 10 + number for number in (1, 2, 3)}
    async with machines("192.0.2.", {**controllers, "client": 99}, tmp_path) as found:
        first = found["control1"]
        gateways = {}
        # HAProxy runs on the controller that has the address of kolla's keepalived.
        await first.call("ip", "addr", "add", "192.0.2.10/24", "dev", "eth0")
        async with (
            apis(first, "192.0.2.11"),
            apis(found["control2"], "192.0.2.12"),
            apis(found["control3"], "192.0.2.13"),
        ):
            for name, number in controllers.items():
                own = {f"192.0.2.11:{port}": f"192.0.2.{number}:{port}" for port in (6381, 6382)}
                file = configuration(DEPLOY / "kolla/skewgate.yaml", tmp_path, name, **own)
                gateways[name] = await found[name].gateway(file)
            for name, number in controllers.items():
                await found[name].answers(f"http://192.0.2.{number}:6382/readyz")
            async with haproxy(first, tmp_path, kolla(tmp_path), DEPLOY / "kolla/skewgate.cfg") as balancer:
                await balancer.finds("skewgate_ironic_back", dict.fromkeys(controllers, UP))
                assert (await found["client"].get("http://192.0.2.10:6380/v1/nodes"))[0] == 200
                gateways["control1"].terminate()
                await gateways["control1"].wait()
                away = {**dict.fromkeys(controllers, UP), "control1": DOWN}
                await balancer.finds("skewgate_ironic_back", away)
                assert (await found["client"].get("http://192.0.2.10:6380/v1/nodes"))[0] == 200


async def test_R3_V0_the_composition_of_replicas_serves_through_its_haproxy(tmp_path: Path) -> None:
    """Three gateways, three members of etcd and HAProxy, each by its command in compose.yaml."""
    services = yaml.safe_load((COMPOSE / "replicas/compose.yaml").read_text())["services"]
    hosts = {name: 10 + at for at, name in enumerate(services)}
    addresses = {name: f"172.30.16.{number}" for name, number in hosts.items()}
    backends = {f"BACKEND_{number}": f"http://172.30.16.{200 + number}:6385" for number in (1, 2)}
    async with machines("172.30.16.", {**hosts, "api": 200}, tmp_path) as found:
        api = found["api"]
        async with apis(api, "172.30.16.201", "172.30.16.202"):
            gateways = {}
            for name, service in services.items():
                if name.startswith("etcd"):
                    command = [
                        word.replace("/var/lib/etcd", str(tmp_path / name)) for word in service["command"]
                    ]
                    await found[name].start(*command)
                elif name.startswith("skewgate"):
                    file = configuration(COMPOSE / "replicas/skewgate.yaml", tmp_path, name)
                    gateways[name] = await found[name].gateway(file, **backends)
            asked = found["haproxy"]
            for name in gateways:
                await asked.answers(f"http://{addresses[name]}:9901/readyz")
            await asked.start(sys.executable, "-c", NAME_SERVER, json.dumps(addresses), PYTHONPATH=str(ROOT))
            async with haproxy(asked, tmp_path, COMPOSE / "replicas/haproxy.cfg") as balancer:
                await balancer.finds("skewgate", dict.fromkeys(gateways, UP))
                assert (await found["api"].get(f"http://{addresses['haproxy']}:8080/v1/nodes"))[0] == 200
                gateways["skewgate-2"].kill()
                away = {**dict.fromkeys(gateways, UP), "skewgate-2": DOWN}
                await balancer.finds("skewgate", away)
                assert (await found["api"].get(f"http://{addresses['haproxy']}:8080/v1/nodes"))[0] == 200


# --- Prometheus ---------------------------------------------------------------------------------------------


SERIES: Final = 'skewgate_backend_up{job="skewgate",service="baremetal"}'


async def scrapes(machine: Machine, url: str) -> None:
    """Wait until every target of the Prometheus at `url` is up, and it has the series of a gateway."""

    async def asked(path: str) -> Any:
        status, body = await machine.get(f"{url}/api/v1/{path}")
        return json.loads(body)["data"] if status == 200 else None

    targets: Any = None

    async def all_up() -> bool:
        nonlocal targets
        targets = await asked("targets")
        active = [] if targets is None else targets["activeTargets"]
        return bool(active) and all(each["health"] == "up" for each in active)

    try:
        await until(all_up, "all targets are up")
    except AssertionError as error:
        raise AssertionError(f"{error}; the targets: {targets}") from None

    async def has_series() -> bool:
        found = await asked(f"query?query={quote(SERIES)}")
        return len(found["result"]) == 2

    await until(has_series, "the series of two backends are there")
    groups = (await asked("rules"))["groups"]
    assert sum(len(group["rules"]) for group in groups) > 10


async def test_R3_V0_prometheus_of_the_composition_scrapes_its_gateway(tmp_path: Path) -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    backends = {f"BACKEND_{number}": f"http://172.30.17.{200 + number}:6385" for number in (1, 2)}
    mounted = tmp_path / "etc-prometheus"
    mounted.mkdir()
    for volume in services["prometheus"]["volumes"]:
        source, place, *_ = volume.split(":")
        if source.startswith("."):
            (mounted / Path(place).name).symlink_to((COMPOSE / source).resolve())
    hosts = {"skewgate": 11, "prometheus": 12, "api": 200}
    async with (
        machines("172.30.17.", hosts, tmp_path) as found,
        apis(found["api"], "172.30.17.201", "172.30.17.202"),
    ):
        file = configuration(COMPOSE / "skewgate.yaml", tmp_path, "skewgate")
        await found["skewgate"].gateway(file, **backends)
        command = [
            word.replace("=/prometheus", f"={tmp_path}/tsdb") for word in services["prometheus"]["command"]
        ]
        await found["prometheus"].start("prometheus", *command, mounts={"/etc/prometheus": mounted})
        await scrapes(found["prometheus"], "http://127.0.0.1:9090")


async def test_R3_V0_the_prometheus_configuration_scrapes_the_admin_listener(tmp_path: Path) -> None:
    file = configuration(
        COMPOSE / "skewgate.yaml", tmp_path, "skewgate", **{"metrics_listen: 0.0.0.0:9901": ""}
    )
    backends = {f"BACKEND_{number}": f"http://192.0.2.{200 + number}:6385" for number in (1, 2)}
    async with (
        machines("192.0.2.", {"gateway": 11, "api": 200}, tmp_path) as found,
        apis(found["api"], "192.0.2.201", "192.0.2.202"),
    ):
        machine = found["gateway"]
        await machine.gateway(file, **backends)
        await machine.start(
            "prometheus",
            f"--config.file={DEPLOY / 'prometheus/prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        )
        await scrapes(machine, "http://127.0.0.1:9090")


# --- keepalived ---------------------------------------------------------------------------------------------


async def test_R3_V0_keepalived_gives_the_address_to_the_machine_whose_gateway_is_ready(
    tmp_path: Path,
) -> None:
    (block,) = re.findall(
        r"```yaml\n(.*?)```", section(page("docs/deploy.md"), "Two machines with keepalived"), re.DOTALL
    )
    source = tmp_path / "page.yaml"
    source.write_text(re.sub("(?m)^   ", "", block))
    file = configuration(source, tmp_path, "gw-1")
    shipped = DEPLOY / "keepalived/keepalived.conf"
    scripts = re.findall(r'script "(.*)"', shipped.read_text())
    async with (
        machines("192.0.2.", {"gw-1": 11, "api": 20}, tmp_path) as found,
        apis(found["api"], "192.0.2.21", "192.0.2.22", "192.0.2.23"),
    ):
        machine = found["gw-1"]

        async def exit_codes() -> list[int]:
            """Of the scripts, as the user who runs them."""
            ran = [await machine.call("setpriv", "--reuid=nobody", *script.split()) for script in scripts]
            return [code for code, _ in ran]

        async def has_address() -> bool:
            return "192.0.2.10/24" in (await machine.call("ip", "addr", "show", "dev", "eth0"))[1]

        async def lacks_address() -> bool:
            return not await has_address()

        assert 0 not in await exit_codes()
        gateway = await machine.gateway(file)
        await machine.answers("http://127.0.0.1:9900/readyz")
        assert await exit_codes() == [0] * len(scripts)
        pids = [f"--{name}={tmp_path / name}" for name in ("pid", "vrrp_pid", "checkers_pid", "bfd_pid")]
        keepalived = await machine.start(
            "keepalived", "--dont-fork", "--log-console", "--no-syslog", f"--use-file={shipped}", *pids
        )
        try:
            await until(has_address, "keepalived gives the address to the ready machine")
            gateway.kill()
            await gateway.wait()
            await until(lacks_address, "keepalived takes it away")
            assert 0 not in await exit_codes()
        finally:
            keepalived.terminate()  # its children are processes of their own
            await keepalived.wait()


# --- Kubernetes ---------------------------------------------------------------------------------------------


async def test_R3_V0_the_chart_s_probes_are_answered_as_the_kubelet_sends_them(tmp_path: Path) -> None:
    rendered = objects(everything=False)
    (container,) = rendered["Deployment"]["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    source = tmp_path / "values.yaml"
    source.write_text(rendered["ConfigMap"]["data"]["skewgate.yaml"])
    file = configuration(source, tmp_path, "pod")
    pods = {"ironic-api.openstack.svc": "10.42.0.21"}
    async with (
        machines("10.42.0.", {"pod": 11, "node": 1, "api": 20}, tmp_path, pods) as found,
        apis(found["api"], "10.42.0.21"),
    ):
        gateway = await found["pod"].gateway(file)
        kubelet = ("--user-agent", "kube-probe/1.31", "--header", "Connection: close")

        async def succeed(probe: str) -> bool:
            asked = container[probe]["httpGet"]
            url = f"http://10.42.0.11:{ports[asked['port']]}{asked['path']}"
            return (await found["node"].get(url, *kubelet))[0] == 200

        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            await until(lambda: succeed(probe), f"the {probe} succeeds")  # noqa: B023 - in this turn only
        gateway.kill()
        await gateway.wait()
        assert not await succeed("readinessProbe")
