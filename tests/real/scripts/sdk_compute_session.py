"""Makes calls with one openstacksdk connection to a compute API, as `session` says.

Of the plan also: `version` (the default microversion in the configuration; null: the SDK chooses one from the
documents). The endpoint is that of `/v2.1`.
"""

import openstack
from session import endpoint_of, plan, run, tell

settings = {} if plan["version"] is None else {"compute_default_microversion": plan["version"]}
connection = openstack.connect(
    load_yaml_config=False,
    load_envvars=False,
    auth_type="none",
    auth={"endpoint": plan["endpoint"]},
    **settings,
)


def create(name):
    flavor = connection.compute.create_flavor(name=name, ram=64, vcpus=1, disk=1, description="by the sdk")
    return {"name": flavor.name, "description": flavor.description, "microversion": flavor.microversion}


def delete(name):
    compute = connection.compute
    compute.delete_flavor(compute.find_flavor(name, ignore_missing=False))


CALLS = {
    "discover": lambda _: endpoint_of(connection.compute),
    "create": create,
    "list": lambda _: [flavor.name for flavor in connection.compute.flavors()],
    "delete": delete,
}

tell(run(CALLS))
