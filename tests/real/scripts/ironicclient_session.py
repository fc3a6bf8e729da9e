"""Makes calls with one python-ironicclient, as `session` says.

Of the plan also: `version` (null for the library's own default, a version, `latest`, or a list); `retries`;
`tls` (`cacert`, `cert` and `key`, or none).
"""

from typing import Any

from ironicclient import client
from session import plan, run, tell

ironic = client.get_client(
    "1",
    endpoint=plan["endpoint"],
    os_ironic_api_version=plan.get("version"),
    max_retries=plan.get("retries", 0),
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

tell(run(CALLS), version=ironic.current_api_version, negotiated=ironic.is_api_version_negotiated)
