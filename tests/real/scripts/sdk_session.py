"""Makes calls with one openstacksdk connection. Prints one line of JSON with their results.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `endpoint`; `version` (the default microversion in the configuration; null: the SDK chooses one from
the documents); `retries` of a 503; `tls` (`cacert`, `cert` and `key`, or none); `calls`, each `[name,
argument]`. A call that fails does not end the session: its entry is `{"error": class, "text": message}`.
"""

import json
import sys
from typing import Any

import openstack

plan = json.loads(sys.argv[1])
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


def discover() -> dict[str, str]:
    found = connection.baremetal.get_endpoint_data()
    return {
        "url": found.url,
        "minimum": ".".join(map(str, found.min_microversion or ())),
        "maximum": ".".join(map(str, found.max_microversion or ())),
    }


CALLS = {
    "discover": lambda _: discover(),
    "create": lambda name: describe(connection.baremetal.create_node(driver="fake-hardware", name=name)),
    "show": lambda name: describe(connection.baremetal.get_node(name)),
    "list": lambda _: [node.name for node in connection.baremetal.nodes()],
    # Without the SDK's own objects: the status of a list at one version, and no exception for a refusal.
    "list at": lambda version: {
        "status": connection.baremetal.get("/nodes", microversion=version).status_code
    },
    "delete": lambda name: connection.baremetal.delete_node(name, ignore_missing=False) and None,
}

results = []
for call, argument in plan["calls"]:
    try:
        results.append({"value": CALLS[call](argument)})
    except Exception as error:  # whatever the client raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(json.dumps({"results": results}))
