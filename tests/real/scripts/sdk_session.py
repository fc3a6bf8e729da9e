"""Makes calls with one openstacksdk connection, as `session` says.

Of the plan also: `service` (`baremetal` without it, or `compute`, whose endpoint is that of `/v2.1`);
`version` (the default microversion in the configuration; without it the SDK chooses one from the documents);
`retries` of a 503; `tls` (`cacert`, `cert` and `key`).
"""

from typing import Any

import openstack
from session import announced_by, endpoint_of, plan, run, tell

service = plan.get("service", "baremetal")
settings = {
    f"{service}_default_microversion": plan.get("version"),
    f"{service}_status_code_retries": plan.get("retries", 0),
    f"{service}_connect_retries": 0,
}
connection = openstack.connect(
    load_yaml_config=False,
    load_envvars=False,
    auth_type="none",
    auth={"endpoint": plan["endpoint"]},
    **{name: value for name, value in settings.items() if value is not None},
    **plan.get("tls", {}),
)


def proxy() -> Any:
    """The service's part of the connection, whose making may fail as any call does."""
    return getattr(connection, service)


def describe(resource: Any, **more: Any) -> dict[str, Any]:
    return {"name": resource.name, "microversion": resource.microversion, **more}


def node(found: Any) -> dict[str, Any]:
    return describe(found, uuid=found.id)


def create_flavor(name: str) -> dict[str, Any]:
    found = proxy().create_flavor(name=name, ram=64, vcpus=1, disk=1, description="by the sdk")
    return describe(found, description=found.description)


def delete_flavor(name: str) -> None:
    proxy().delete_flavor(proxy().find_flavor(name, ignore_missing=False))


CALLS = {
    "discover": lambda _: endpoint_of(proxy()),
    "announced": lambda _: announced_by(proxy()),
}
CALLS |= {
    "baremetal": {
        "create": lambda name: node(proxy().create_node(driver="fake-hardware", name=name)),
        "show": lambda name: node(proxy().get_node(name)),
        "list": lambda _: [found.name for found in proxy().nodes()],
        # Without the SDK's own objects: the status of a list at one version, no exception for a refusal.
        "list at": lambda version: {"status": proxy().get("/nodes", microversion=version).status_code},
        "delete": lambda name: proxy().delete_node(name, ignore_missing=False) and None,
    },
    "compute": {
        "create": create_flavor,
        "list": lambda _: [flavor.name for flavor in proxy().flavors()],
        "delete": delete_flavor,
    },
}[service]
tell(run(CALLS))
