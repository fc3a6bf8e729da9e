"""Makes calls with one python-novaclient. Prints one line of JSON with their results.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `endpoint` (of `/v2.1`); `version` (`2.N`, or `2.latest` for the lower one of the client's newest
version and the maximum in the server's document, as its command line chose it); `calls`, each `[name,
argument]`. A call that fails does not end the session: its entry is `{"error", "text"}`.
"""

import json
import sys

from keystoneauth1 import session, token_endpoint
from novaclient import api_versions, client

plan = json.loads(sys.argv[1])
link = session.Session(auth=token_endpoint.Token(plan["endpoint"], "admin"))


def connect(version):
    return client.Client(version, session=link, endpoint_override=plan["endpoint"])


version = plan["version"]
if version.endswith("latest"):
    found = api_versions.discover_version(connect("2.1"), api_versions.APIVersion(version))
    version = found.get_string()
nova = connect(version)


def describe(flavor):
    return {"name": flavor.name, "description": getattr(flavor, "description", None)}


CALLS = {
    "create": lambda name: describe(nova.flavors.create(name, 64, 1, 1, flavorid=name)),
    "list": lambda _: [describe(flavor) for flavor in nova.flavors.list()],
    "delete": lambda name: nova.flavors.delete(name) and None,
}

results = []
for call, argument in plan["calls"]:
    try:
        results.append({"value": CALLS[call](argument)})
    except Exception as error:  # whatever the client raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(json.dumps({"results": results, "version": version}))
