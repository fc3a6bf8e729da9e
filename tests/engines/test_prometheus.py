"""Prometheus as Debian has it: promtool runs the unit tests of the alert rules, and a server scrapes a
running gateway, evaluates every rule and answers every query of the dashboard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from gateway.assembly import Gateway
from gateway.assembly.admin import now
from gateway.settings import read_file
from gateway.telemetry.neighbours import AgreementReport, ServiceReport
from tests.architecture.source import ROOT
from tests.docs import promql
from tests.kit.backends import serve
from tests.kit.certificates import Authority
from tests.kit.messages import request
from tests.kit.networks import closed_port
from tests.kit.waiting import until
from tests.kit.workers import Testbed

pytestmark = pytest.mark.engines

DEPLOY: Final = ROOT / "deploy" / "prometheus"
RULES: Final = DEPLOY / "rules" / "skewgate.yml"
TOKEN: Final = "a-token-for-the-scraper"
CONFIGURATION: Final = """\
listen:
  - address: 127.0.0.1:0
  - address: 127.0.0.1:0
    tls: {{certificates: [{{certificate: {certificate}, key: {key}}}]}}
admin: {{listen: "127.0.0.1:0", token: {token}}}
access_log: {{format: "off"}}
workers: 2
state: {folder}/state.json
timeouts: {{drain: 1s}}
services:
  baremetal:
    dialect: ironic
    backends:
      - {{name: api-1, url: "http://127.0.0.1:{new}", versions: "1.1-1.90", max_connections: 8}}
      - {{name: api-2, url: "http://127.0.0.1:{old}", versions: "1.1-1.58"}}
"""


async def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Its exit code and all its output."""
    process = await asyncio.create_subprocess_exec(
        "promtool",
        *map(str, arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_promtool_takes_the_configuration_and_the_rules() -> None:
    for arguments in (("check", "config", DEPLOY / "prometheus.yml"), ("check", "rules", RULES)):
        code, said = await promtool(*arguments)
        assert code == 0, said


async def test_the_unit_tests_of_the_rules_succeed() -> None:
    code, said = await promtool("test", "rules", DEPLOY / "tests" / "skewgate.yml")
    assert code == 0, said


async def test_the_unit_tests_notice_rules_that_never_fire(tmp_path: Path) -> None:
    document = yaml.safe_load(RULES.read_text())
    (group,) = document["groups"]
    for rule in group["rules"]:
        rule["expr"] = "vector(1) > 2"
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(document))
    tests = yaml.safe_load((DEPLOY / "tests" / "skewgate.yml").read_text())
    tests["rule_files"] = ["rules.yml"]
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))

    code, said = await promtool("test", "rules", tmp_path / "tests.yml")

    assert code == 1
    for rule in group["rules"]:
        assert f"alertname: {rule['alert']}," in said


# --- a server -----------------------------------------------------------------------------------------------


def configuration(folder: Path, port: int) -> Path:
    """That of deploy/, with another target, a token and less patience."""
    document = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    often = ("scrape_interval", "scrape_timeout", "evaluation_interval")
    document["global"] = dict.fromkeys(often, "250ms")
    document["rule_files"] = [str(RULES)]
    (job,) = document["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"], "labels": {"service": "of-kubernetes"}}]
    token = folder / "token"
    token.write_text(TOKEN)
    job["authorization"] = {"credentials_file": str(token)}
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    return file


Ask = Callable[..., Awaitable[Any]]
"""(path, parameters of the query): the member `data` of a successful answer of its API."""


@asynccontextmanager
async def prometheus(folder: Path, target: int) -> AsyncIterator[Ask]:
    """A server that scrapes a port of loopback, once it answers."""
    port = closed_port()
    log = (folder / "prometheus.log").open("w")
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={configuration(folder, target)}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:

            async def ask(path: str, **parameters: str) -> Any:
                async with client.get(f"/api/v1/{path}", params=parameters) as response:
                    answer = await response.json()
                assert answer["status"] == "success", (parameters, answer)
                return answer["data"]

            async def ready() -> bool:
                assert process.returncode is None, (folder / "prometheus.log").read_text()
                try:
                    async with client.get("/-/ready") as response:
                        return response.status == 200
                except aiohttp.ClientConnectionError:
                    return False

            await until(ready)
            yield ask
    finally:
        log.close()
        if process.returncode is None:
            process.kill()
        await process.wait()


async def use(gateway: Gateway) -> None:
    """Requests that are served, refused, and no HTTP."""
    host, port = gateway.addresses[0]
    for message in (
        *[request("GET", "/v1/nodes", "X-OpenStack-Ironic-API-Version: 1.58", "Connection: close")] * 5,
        request("GET", "/v1/nodes", "X-OpenStack-Ironic-API-Version: 1.91", "Connection: close"),
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(message)
        await reader.read()
        writer.close()
        await writer.wait_closed()


async def refused_reload(gateway: Gateway, file: Path) -> None:
    await asyncio.to_thread(file.write_text, "listen: nowhere\n")
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client,
        client.post(f"{gateway.admin_url}/-/reload") as response,
    ):
        assert response.status == 400


async def test_a_server_scrapes_evaluates_the_rules_and_fills_the_dashboard(tmp_path: Path) -> None:
    testbed = Testbed()
    new, old = [(await testbed.backend(serve, name=name)).backend.port for name in ("api-1", "api-2")]
    certificate, key = Authority().server().write(tmp_path)
    file = tmp_path / "skewgate.yaml"
    file.write_text(
        CONFIGURATION.format(certificate=certificate, key=key, token=TOKEN, folder=tmp_path, new=new, old=old)
    )
    try:
        async with Gateway(read_file(file, environ={}).require(), source=file) as gateway:
            # What several replicas would be.
            about = {"baremetal": ServiceReport(attached=True, since=0.0, seq=1)}
            report = AgreementReport("a", "", (), about)
            gateway.metrics.watch(
                gateway.snapshot_holder,
                lambda: now(gateway.parts, gateway._served.admin.connections())._replace(agreement=report),
            )
            await use(gateway)
            await refused_reload(gateway, file)
            async with prometheus(tmp_path, int(gateway.admin_url.rpartition(":")[2])) as ask:
                await use_again_once_scraped(gateway, ask)
                await check_target(ask)
                await check_rules(ask)
                await check_dashboard(ask)
    finally:
        await testbed.close()
    log = (tmp_path / "prometheus.log").read_text()
    assert "level=warn" not in log
    assert "level=error" not in log


async def use_again_once_scraped(gateway: Gateway, ask: Ask) -> None:
    """What happens between two scrapes is what a rate shows."""

    async def known(query: str) -> bool:
        return bool((await ask("query", query=query))["result"])

    await until(lambda: known("skewgate_requests_total"))
    await use(gateway)
    await until(lambda: known('sum(increase(skewgate_requests_total{code="200"}[1m])) > 4'))


async def check_target(ask: Ask) -> None:
    (target,) = (await ask("targets"))["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    # OpenMetrics: there a counter has its name without `_total`.
    (described,) = await ask("targets/metadata", metric="skewgate_requests", match_target='{job="skewgate"}')
    assert described["type"] == "counter"
    # Our label wins over that of the target.
    services = await ask("label/service/values", **{"match[]": "skewgate_phase"})
    assert services == ["baremetal"]


async def check_rules(ask: Ask) -> None:
    async def evaluated() -> bool:
        (group,) = (await ask("rules"))["groups"]
        return all(rule["health"] != "unknown" for rule in group["rules"])

    async def firing() -> bool:
        alerts = (await ask("alerts"))["alerts"]
        return any(each["labels"]["alertname"] == "SkewgateReloadFailed" for each in alerts)

    await until(evaluated)
    await until(firing)
    (group,) = (await ask("rules"))["groups"]
    for rule in group["rules"]:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]
    alerts = (await ask("alerts"))["alerts"]
    assert {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"} == {
        "SkewgateReloadFailed",
    }
    # Both wait for their time: the older backend keeps the maximum down.
    (held,) = [each for each in alerts if each["labels"]["alertname"] == "SkewgateOfferHeld"]
    assert (held["labels"]["backend"], held["state"]) == ("api-2", "pending")
    assert "(rule guaranteed)" in held["annotations"]["description"]


async def check_dashboard(ask: Ask) -> None:
    """Every query gives something, but for those that show what is wrong only, and what is not configured."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "skewgate.json").read_text())
    empty = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$__rate_interval", "1m")
            for name in promql.variables(query):
                query = query.replace(f"${name}", ".*")
            if not (await ask("query", query=query))["result"]:
                empty.append(query)
    assert [query for query in empty if not filters(query)] == []


def filters(query: str) -> bool:
    """It compares, or is about what this gateway does not have."""
    absent = ("discovery_", "resolver_", "backend_certificate_", "backend_advertisement_")
    return any(part in query for part in ("> 0", "== 1", "< +Inf", *absent))
