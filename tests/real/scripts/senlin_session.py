"""Makes calls with one python-senlinclient, as `session` says.

Of the plan also: `version` (null: the version that this release of the client is made for).
"""

from openstack import config
from senlinclient import client
from session import endpoint_of, plan, run, tell

address = {"auth_type": "none", "auth": {"endpoint": plan["endpoint"]}}


def connect():
    if plan["version"] is None:
        return client.Client("1", **address)
    region = config.OpenStackConfig(load_yaml_config=False, load_envvars=False).get_one(
        clustering_default_microversion=plan["version"], **address
    )
    return client.Client("1", cloud_region=region)


def profile(name):
    template = {"heat_template_version": "2014-10-16"}
    spec = {"type": "os.heat.stack", "version": "1.0", "properties": {"template": template}}
    made = connect().create_profile(name=name, spec=spec)
    return {"name": made.name, "microversion": made.microversion}


CALLS = {
    "discover": lambda _: endpoint_of(connect().service),
    "clusters": lambda _: [one.name for one in connect().clusters()],
    "profile types": lambda _: sorted(one.name for one in connect().profile_types()),
    "profiles": lambda _: sorted(one.name for one in connect().profiles()),
    "create profile": profile,
    "delete profile": lambda name: connect().delete_profile(name, ignore_missing=False) and None,
}

tell(run(CALLS))
