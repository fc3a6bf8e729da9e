"""Makes calls with one python-ironicclient. Prints one line of JSON with their results.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `endpoint`; `version` (null for the library's own default, a version, `latest`, or a list); `retries`;
`tls` (`cacert`, `cert` and `key`, or none); `calls`, each `[name, argument]`. A call that fails does not end
the session, as in a program that catches the error: its entry is `{"error": class, "text": message}`.
"""

import json
import sys
from typing import Any

from ironicclient import client

plan = json.loads(sys.argv[1])
ironic = client.get_client(
    "1",
    endpoint=plan["endpoint"],
    os_ironic_api_version=plan["version"],
    max_retries=plan["retries"],
    **plan.get("tls", {}),
)


def describe(node: Any) -> dict[str, Any]:
    return {"name": node.name, "uuid": node.uuid, "fields": sorted(node.to_dict())}


CALLS = {
    "create": lambda name: describe(ironic.node.create(driver="fake-hardware", name=name)),
    "show": lambda name: describe(ironic.node.get(name)),
    "list": lambda _: [node.name for node in ironic.node.list()],
    # A version for one call, other than the client's own.
    "list at": lambda version: [node.name for node in ironic.node.list(os_ironic_api_version=version)],
    "owned by": lambda owner: [node.name for node in ironic.node.list(owner=owner)],
    "delete": ironic.node.delete,
}

results = []
for call, argument in plan["calls"]:
    try:
        results.append({"value": CALLS[call](argument)})
    except Exception as error:  # whatever the client raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(
    json.dumps(
        {
            "results": results,
            "version": ironic.current_api_version,
            "negotiated": ironic.is_api_version_negotiated,
        }
    )
)
