"""Makes calls with one python-senlinclient. Prints one line of JSON with their results.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `endpoint`; `version` (null: the version that this release of the client is made for); `calls`, each
`[name, argument]`. A call that fails does not end the session: its entry is `{"error", "text"}`.
"""

import json
import sys

from openstack import config
from senlinclient import client

plan = json.loads(sys.argv[1])
address = {"auth_type": "none", "auth": {"endpoint": plan["endpoint"]}}


def connect():
    if plan["version"] is None:
        return client.Client("1", **address)
    region = config.OpenStackConfig(load_yaml_config=False, load_envvars=False).get_one(
        clustering_default_microversion=plan["version"], **address
    )
    return client.Client("1", cloud_region=region)


def discover():
    found = connect().service.get_endpoint_data()
    return {
        "url": found.url,
        "minimum": ".".join(map(str, found.min_microversion or ())),
        "maximum": ".".join(map(str, found.max_microversion or ())),
    }


def profile(name):
    template = {"heat_template_version": "2014-10-16"}
    spec = {"type": "os.heat.stack", "version": "1.0", "properties": {"template": template}}
    made = connect().create_profile(name=name, spec=spec)
    return {"name": made.name, "microversion": made.microversion}


CALLS = {
    "discover": lambda _: discover(),
    "clusters": lambda _: [one.name for one in connect().clusters()],
    "profile types": lambda _: sorted(one.name for one in connect().profile_types()),
    "profiles": lambda _: sorted(one.name for one in connect().profiles()),
    "create profile": profile,
    "delete profile": lambda name: connect().delete_profile(name, ignore_missing=False) and None,
}

results = []
for call, argument in plan["calls"]:
    try:
        results.append({"value": CALLS[call](argument)})
    except Exception as error:  # whatever the client raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(json.dumps({"results": results}))
