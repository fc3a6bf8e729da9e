"""Makes calls with one openstacksdk connection, as `session` says.

Of the plan also: `version` (the default microversion in the configuration; null: the SDK chooses one from the
documents); `retries` of a 503; `tls` (`cacert`, `cert` and `key`, or none).
"""

from typing import Any

import openstack
from session import announced_by, endpoint_of, plan, run, tell

settings = {} if plan["version"] is None else {"baremetal_default_microversion": plan["version"]}
connection = openstack.connect(
    load_yaml_config=False,
    load_envvars=False,
    auth_type="none",
    auth={"endpoint": plan["endpoint"]},
    baremetal_status_code_retries=plan["retries"],
    baremetal_connect_retries=0,
    **settings,
    **plan.get("tls", {}),
)


def describe(node: Any) -> dict[str, Any]:
    return {"name": node.name, "uuid": node.id, "microversion": node.microversion}


CALLS = {
    "discover": lambda _: endpoint_of(connection.baremetal),
    "announced": lambda _: announced_by(connection.baremetal),
    "create": lambda name: describe(connection.baremetal.create_node(driver="fake-hardware", name=name)),
    "show": lambda name: describe(connection.baremetal.get_node(name)),
    "list": lambda _: [node.name for node in connection.baremetal.nodes()],
    # Without the SDK's own objects: the status of a list at one version, and no exception for a refusal.
    "list at": lambda version: {
        "status": connection.baremetal.get("/nodes", microversion=version).status_code
    },
    "delete": lambda name: connection.baremetal.delete_node(name, ignore_missing=False) and None,
}

tell(run(CALLS))
