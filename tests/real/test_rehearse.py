"""`rehearse` against the histories of real APIs: Ironic 39.0.0, Nova 34.0.0 and Placement 16.0.0.

`HISTORY` has what a GET of the objects below shows anew at a version. Each line is from the entry of that
version in the project's own "REST API Version History", for Ironic after 1.82 from the list in its
`api/controllers/v1/versions.py`. Every line must appear between its version and the one before, and nothing
else between the first and the last version. What an API alone cannot hold is not compared: instances,
hypervisors, services, migrations, quotas of projects, firmware.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gateway.cli import main
from gateway.cli.rehearse.sending import Rehearsal, read_requests
from gateway.core.fleet.service import Service
from gateway.settings import Settings, read_file
from tests.kit.networks import LOOPBACK, free_port
from tests.real import ironic, nova, placement
from tests.real.apis import IRONIC, ServiceApi
from tests.real.environments import build_all
from tests.real.launcher import Launcher, Release, run_all
from tests.real.server_pool import KINDS

pytestmark = pytest.mark.real

UUID: Final = "11111111-2222-4333-8444-555555555555"
CONSUMER: Final = "21111111-2222-4333-8444-555555555555"
NEW: Final = "new"
"""The operation is new: 404 or 406 at the version before."""
KEY: Final = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEeWmIKoKQXJm9Yqz7cwLxu2H7cVbX1J6rJk1nN5QdZ4 a@b"

# Version, object, and members below `$.` or headers; `~` stands before what is changed, `-` before what is
# removed.
HISTORY: Final = {
    "ironic": """
1.3 node driver_internal_info
1.5 node name
1.6 node inspection_finished_at inspection_started_at
1.7 node clean_step
1.12 node raid_config target_raid_config
1.12 states raid_config target_raid_config
1.14 node states
1.14 driver properties
1.18 port internal_info
1.19 port local_link_connection pxe_enabled
1.20 node network_interface
1.21 node resource_class
1.22 root heartbeat lookup
1.23 root portgroups
1.23 portgroup new
1.24 node portgroups
1.24 port portgroup_uuid
1.26 portgroup mode properties
1.30 driver type default_boot_interface default_console_interface default_deploy_interface
1.30 driver default_inspect_interface default_management_interface default_network_interface
1.30 driver default_power_interface default_raid_interface default_vendor_interface
1.30 driver enabled_boot_interfaces enabled_console_interfaces enabled_deploy_interfaces
1.30 driver enabled_inspect_interfaces enabled_management_interfaces enabled_network_interfaces
1.30 driver enabled_power_interfaces enabled_raid_interfaces enabled_vendor_interfaces
1.31 node boot_interface console_interface deploy_interface inspect_interface management_interface
1.31 node power_interface raid_interface vendor_interface
1.32 root volume
1.32 node volume
1.32 connector new
1.33 node storage_interface
1.33 driver default_storage_interface enabled_storage_interfaces
1.34 port physical_network
1.37 node traits
1.37 traits new
1.38 node rescue_interface
1.38 driver default_rescue_interface enabled_rescue_interfaces
1.40 node bios_interface
1.40 driver default_bios_interface enabled_bios_interfaces
1.42 node fault
1.44 node deploy_step
1.46 node conductor_group
1.47 node automated_clean
1.48 node protected protected_reason
1.49 root conductors
1.49 node conductor
1.49 conductor new
1.50 node owner
1.51 node description
1.52 root allocations
1.52 node allocation_uuid
1.52 allocation new
1.53 port is_smartnic
1.54 root events
1.55 root deploy_templates
1.55 template new
1.60 allocation owner
1.61 node retired retired_reason
1.65 node lessee
1.66 node network_data
1.75 node boot_mode secure_boot
1.75 states boot_mode secure_boot
1.82 root shards
1.82 node shard
1.83 node parent_node
1.84 root continue_inspection
1.86 node firmware_interface
1.86 driver default_firmware_interface enabled_firmware_interfaces
1.87 node service_step
1.88 port name
1.92 root runbooks
1.92 runbook new
1.95 node disable_power_off
1.96 root inspection_rules
1.97 port description
1.100 port vendor
1.101 port category
1.102 portgroup physical_network
1.103 portgroup category
1.104 node instance_name
1.109 node health
1.111 port available_for_dynamic_portgroup
1.111 portgroup dynamic_portgroup
1.112 runbook description traits
""",
    "nova": """
2.2 keypairs keypairs[*].keypair.type
2.2 keypair keypair.type
2.13 group server_group.project_id server_group.user_id
2.36 limits -limits.absolute.maxSecurityGroupRules -limits.absolute.maxSecurityGroups
2.36 limits -limits.absolute.maxTotalFloatingIps -limits.absolute.totalFloatingIpsUsed
2.36 limits -limits.absolute.totalSecurityGroupsUsed
2.39 limits -limits.absolute.maxImageMeta
2.41 aggregate aggregate.uuid
2.50 class quota_class_set.server_group_members quota_class_set.server_groups
2.50 class -quota_class_set.fixed_ips -quota_class_set.floating_ips
2.50 class -quota_class_set.security_group_rules -quota_class_set.security_groups
2.55 flavors flavors[*].description
2.55 flavor flavor.description
2.57 limits -limits.absolute.maxPersonality -limits.absolute.maxPersonalitySize
2.57 class -quota_class_set.injected_file_content_bytes -quota_class_set.injected_file_path_bytes
2.57 class -quota_class_set.injected_files
2.61 flavor flavor.extra_specs
2.64 group server_group.policy server_group.rules -server_group.metadata -server_group.policies
2.75 flavor ~flavor.swap
2.102 flavor -flavor.OS-FLV-DISABLED:disabled -flavor.rxtx_factor
""",
    "placement": """
1.1 provider links[*]
1.1 aggregates new
1.2 class new
1.6 provider links[*]
1.6 traits new
1.9 used new
1.10 candidates new
1.11 provider links[*]
1.12 allocations project_id user_id
1.12 candidates ~allocation_requests[*].allocations
1.14 provider parent_provider_uuid root_provider_uuid
1.15 provider header:cache-control header:last-modified
1.15 inventories header:cache-control header:last-modified
1.15 usages header:cache-control header:last-modified
1.15 allocated header:cache-control header:last-modified
1.15 aggregates header:cache-control header:last-modified
1.15 traits header:cache-control header:last-modified
1.15 allocations header:cache-control header:last-modified
1.15 candidates header:cache-control header:last-modified
1.15 class header:cache-control header:last-modified
1.15 used header:cache-control header:last-modified
1.17 candidates provider_summaries.*.traits
1.19 aggregates resource_provider_generation
1.27 candidates provider_summaries.*.resources.*
1.28 allocated allocations.*.consumer_generation
1.28 allocations consumer_generation
1.29 candidates provider_summaries.*.parent_provider_uuid provider_summaries.*.root_provider_uuid
1.34 candidates allocation_requests[*].mappings
1.38 allocations consumer_type
1.38 used usages.* -usages.*
""",
}

Call = Callable[..., Any]
Objects = Mapping[str, str]
"""The path of each object, by the name in `HISTORY`."""


def ironic_objects(call: Call) -> Objects:
    chassis = call("POST", "/v1/chassis", {"description": "c"})["uuid"]
    node = call("POST", "/v1/nodes", {"name": "n", "driver": "fake-hardware", "chassis_uuid": chassis})[
        "uuid"
    ]
    group = call("POST", "/v1/portgroups", {"node_uuid": node, "address": "52:54:00:cf:2d:32"})["uuid"]
    link = {"address": "52:54:00:cf:2d:31", "portgroup_uuid": group}
    port = call("POST", "/v1/ports", {"node_uuid": node, **link})["uuid"]
    volume = {"node_uuid": node, "type": "iqn", "connector_id": "iqn.2017-07.org.openstack:x"}
    connector = call("POST", "/v1/volume/connectors", volume)["uuid"]
    step = {"interface": "deploy", "step": "deploy", "args": {}}
    call("PUT", f"/v1/nodes/{node}/traits/CUSTOM_T")
    call("POST", "/v1/deploy_templates", {"name": "CUSTOM_D", "steps": [{**step, "priority": 1}]})
    call("POST", "/v1/runbooks", {"name": "CUSTOM_R", "steps": [{**step, "order": 1}]})
    call("POST", "/v1/allocations", {"name": "al", "resource_class": "CUSTOM_Y"})
    return {
        "root": "/v1",
        "node": f"/v1/nodes/{node}",
        "states": f"/v1/nodes/{node}/states",
        "traits": f"/v1/nodes/{node}/traits",
        "port": f"/v1/ports/{port}",
        "portgroup": f"/v1/portgroups/{group}",
        "chassis": f"/v1/chassis/{chassis}",
        "driver": "/v1/drivers/fake-hardware",
        "connector": f"/v1/volume/connectors/{connector}",
        "allocation": "/v1/allocations/al",
        "template": "/v1/deploy_templates/CUSTOM_D",
        "runbook": "/v1/runbooks/CUSTOM_R",
        "conductor": f"/v1/conductors/{LOOPBACK}",
    }


def nova_objects(call: Call) -> Objects:
    flavor = {"name": "small", "ram": 64, "vcpus": 1, "disk": 1, "id": "small"}
    call("POST", "/v2.1/flavors", {"flavor": flavor})
    call("POST", "/v2.1/os-keypairs", {"keypair": {"name": "key", "type": "ssh", "public_key": KEY}})
    group = call("POST", "/v2.1/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}})
    call("POST", "/v2.1/os-aggregates", {"aggregate": {"name": "agg", "availability_zone": "z"}})
    return {
        "flavors": "/v2.1/flavors",
        "flavor": "/v2.1/flavors/small",
        "keypairs": "/v2.1/os-keypairs",
        "keypair": "/v2.1/os-keypairs/key",
        "group": f"/v2.1/os-server-groups/{group['server_group']['id']}",
        "aggregate": "/v2.1/os-aggregates/1",
        "limits": "/v2.1/limits",
        "class": "/v2.1/os-quota-class-sets/default",
    }


def placement_objects(call: Call) -> Objects:
    provider = f"/resource_providers/{UUID}"
    totals = {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 1024}}
    call("POST", "/resource_providers", {"name": "rp", "uuid": UUID})
    call("PUT", f"{provider}/inventories", {"resource_provider_generation": 0, "inventories": totals})
    call("PUT", f"{provider}/traits", {"resource_provider_generation": 1, "traits": ["HW_CPU_X86_AVX2"]})
    call("PUT", f"{provider}/aggregates", {"resource_provider_generation": 2, "aggregates": [CONSUMER]})
    consumer = {"project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
    allocations = {UUID: {"resources": {"VCPU": 1}}}
    call("PUT", f"/allocations/{CONSUMER}", {"allocations": allocations, **consumer})
    return {
        "provider": provider,
        "inventories": f"{provider}/inventories",
        "usages": f"{provider}/usages",
        "allocated": f"{provider}/allocations",
        "aggregates": f"{provider}/aggregates",
        "traits": f"{provider}/traits",
        "allocations": f"/allocations/{CONSUMER}",
        "candidates": "/allocation_candidates?resources=VCPU:1",
        "class": "/resource_classes/VCPU",
        "used": "/usages?project_id=p",
    }


class Api(NamedTuple):
    release: Release
    launcher: Launcher
    api: ServiceApi
    objects: Callable[[Call], Objects]
    exit_code: int
    """Of a rehearsal from the first version to the last."""


APIS: Final = {
    "ironic": Api(ironic.NEW, ironic.whole_server, IRONIC, ironic_objects, 3),
    "nova": Api(nova.NEW, nova.nova_server, KINDS["nova"].api, nova_objects, 3),
    "placement": Api(placement.NEW, placement.placement_server, KINDS["placement"].api, placement_objects, 3),
}


class Rehearsed(NamedTuple):
    """The service of a configuration with one server, and the paths of its objects."""

    service: Service
    settings: Settings
    objects: Objects

    def compared(self, older: str, newer: str, names: Iterable[str]) -> dict[str, set[str]]:
        """What is different, in the words of `HISTORY`, for each object."""
        service, named = self.service, list(names)
        require = service.dialect.scheme.require
        lines = [f"GET {self.objects[name]}" for name in named]
        versions, headers = (require(older), require(newer)), [("X-Auth-Token", "admin")]
        rehearsal = Rehearsal(service, service.backends[0], *versions, headers, 1000)
        found = asyncio.run(rehearsal.comparisons(read_requests(lines, service, self.settings)))
        signs = {"added": "", "changed": "~", "removed": "-"}
        return {
            name: ({NEW} if each.why in {"404, then 200", "406, then 200"} else {each.why} - {""})
            | {
                signs[kind] + path.removeprefix("$.").replace("header ", "header:")
                for path, kind in each.differences
            }
            for name, each in zip(named, found, strict=True)
        }


def history_of(kind: str) -> dict[str, dict[str, set[str]]]:
    found: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for version, name, *members in map(str.split, HISTORY[kind].strip().splitlines()):
        found[version][name].update(members)
    return {version: dict(of_one) for version, of_one in found.items()}


@pytest.mark.parametrize("kind", HISTORY)
def test_every_documented_addition_appears_and_nothing_else(
    kind: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    release, launcher, api, objects, exit_code = APIS[kind]
    environments = build_all([release.environment])
    with run_all({"rehearsed": release}, environments, folder, launcher) as servers:
        server = servers["rehearsed"]

        def call(method: str, path: str, body: object = None) -> Any:
            connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=60)
            fields = {**api.headers(release.top), "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), fields)
            response = connection.getresponse()
            content = response.read()
            connection.close()
            assert response.status < 300, (method, path, content)
            return json.loads(content or b"null")

        file = folder / f"rehearse-{kind}.yaml"
        backends = f"    backends: [{{name: one, url: '{server.url}'}}]"
        dialect = [f"    {line}" for line in api.dialect]
        head = [f"admin: {{listen: {LOOPBACK}:{free_port()}}}", "services:", "  api:"]
        file.write_text("\n".join(["listen: 127.0.0.1:1", *head, *dialect, backends, ""]))
        settings = read_file(file, environ={}).require()
        rehearsal = Rehearsed(settings.services[0], settings, objects(call))

        history = history_of(kind)
        for version, expected in history.items():
            major, minor = version.split(".")
            before = f"{major}.{int(minor) - 1}"
            assert (version, rehearsal.compared(before, version, expected)) == (version, expected)

        begins = dict.fromkeys(rehearsal.objects, release.bottom)
        total: dict[str, set[str]] = {name: set() for name in begins}
        for version, of_one in history.items():
            begins |= {name: version for name, members in of_one.items() if members == {NEW}}
            for name, members in of_one.items():
                total[name] |= members - {NEW}
        found: dict[str, set[str]] = {}
        for begin in sorted(set(begins.values())):
            names = [name for name in begins if begins[name] == begin]
            found |= rehearsal.compared(begin, release.top, names)
        assert found == total

        listed = folder / f"rehearse-{kind}.txt"
        listed.write_text("".join(f"GET {path}\n" for path in rehearsal.objects.values()))
        options = ["-c", str(file), "--from", release.bottom, "--to", release.top, "--rate", "1000/s"]
        options += ["--requests", str(listed), "-H", "X-Auth-Token: admin"]
        assert main(["rehearse", "api", *options]) == exit_code
        assert max(map(len, capfd.readouterr().out.splitlines())) <= 80
