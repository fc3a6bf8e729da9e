"""Makes calls with one python-novaclient, as `session` says.

Of the plan also: `version` (`2.N`, or `2.latest` for the lower one of the client's newest version and the
maximum in the server's document, as its command line chose it; if that fails, this is the only result). The
endpoint is that of `/v2.1`.
"""

import sys

from keystoneauth1 import session, token_endpoint
from novaclient import api_versions, client
from session import plan, result_of, run, tell

link = session.Session(auth=token_endpoint.Token(plan["endpoint"], "admin"))


def connect(version):
    return client.Client(version, session=link, endpoint_override=plan["endpoint"])


def chosen(version):
    if version.endswith("latest"):
        found = api_versions.discover_version(connect("2.1"), api_versions.APIVersion(version))
        version = found.get_string()
    return version


begun = result_of(chosen, plan["version"])
if "error" in begun:
    tell([begun], version=None)
    sys.exit()
version = begun["value"]
nova = connect(version)


def describe(flavor):
    return {"name": flavor.name, "description": getattr(flavor, "description", None)}


CALLS = {
    "create": lambda name: describe(nova.flavors.create(name, 64, 1, 1, flavorid=name)),
    "list": lambda _: [describe(flavor) for flavor in nova.flavors.list()],
    "delete": lambda name: nova.flavors.delete(name) and None,
}

tell(run(CALLS), version=version)
