"""Makes calls with one openstacksdk connection to a compute API. Prints one line of JSON with their results.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `endpoint` (of `/v2.1`); `version` (the default microversion in the configuration; null: the SDK
chooses one from the documents); `calls`, each `[name, argument]`. A call that fails does not end the session:
its entry is `{"error", "text"}`.
"""

import json
import sys

import openstack

plan = json.loads(sys.argv[1])
settings = {} if plan["version"] is None else {"compute_default_microversion": plan["version"]}
connection = openstack.connect(
    load_yaml_config=False,
    load_envvars=False,
    auth_type="none",
    auth={"endpoint": plan["endpoint"]},
    **settings,
)


def discover():
    found = connection.compute.get_endpoint_data()
    return {
        "url": found.url,
        "minimum": ".".join(map(str, found.min_microversion or ())),
        "maximum": ".".join(map(str, found.max_microversion or ())),
    }


def create(name):
    flavor = connection.compute.create_flavor(name=name, ram=64, vcpus=1, disk=1, description="by the sdk")
    return {"name": flavor.name, "description": flavor.description, "microversion": flavor.microversion}


def delete(name):
    compute = connection.compute
    compute.delete_flavor(compute.find_flavor(name, ignore_missing=False))


CALLS = {
    "discover": lambda _: discover(),
    "create": create,
    "list": lambda _: [flavor.name for flavor in connection.compute.flavors()],
    "delete": delete,
}

results = []
for call, argument in plan["calls"]:
    try:
        results.append({"value": CALLS[call](argument)})
    except Exception as error:  # whatever the client raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(json.dumps({"results": results}))
