"""One client that lives through an upgrade: nodes are created, shown, changed and deleted at a steady pace.

Runs inside the clients' environment, not the tests': nothing of this project is imported. The only
argument is a JSON object: `library` (`ironicclient` or `openstacksdk`), `endpoint`, `newest` (the version
that python-ironicclient begins with, as its command line does; the SDK chooses from what it discovers),
`interval` (seconds from the begin of a call to that of the next), `name` (of this client) and `header` (of
the request; gets the call's id). Every node's life is a new session of the library: connections, discovery
and negotiation begin anew. One line of JSON a call on the standard output: what it was, what came of it.
Ends, after the life that it is in, when its standard input does.
"""

import json
import select
import sys
import time
from typing import Any

plan = json.loads(sys.argv[1])


class Ironicclient:
    """python-ironicclient as its command line uses it: it begins with the newest and takes what there is."""

    def __init__(self) -> None:
        from ironicclient.v1 import client
        from keystoneauth1 import noauth, session

        self._ironic = client.Client(
            plan["endpoint"], session=session.Session(noauth.NoAuth(endpoint=plan["endpoint"])),
            os_ironic_api_version=plan["newest"], allow_api_version_downgrade=True, max_retries=0,
            retry_interval=1,
        )  # fmt: skip

    def label(self, call: str) -> None:
        self._ironic.http_client.session.additional_headers[plan["header"]] = call

    def create(self, name: str) -> None:
        self._ironic.node.create(driver="fake-hardware", name=name)

    def change(self, name: str, value: str) -> None:
        self._ironic.node.update(name, [{"op": "add", "path": "/extra/changed", "value": value}])

    def show(self, name: str) -> Any:
        return self._ironic.node.get(name).extra

    def names(self) -> list[str]:
        return [node.name for node in self._ironic.node.list()]

    def delete(self, name: str) -> None:
        self._ironic.node.delete(name)


class Openstacksdk:
    """openstacksdk as a program uses it."""

    def __init__(self) -> None:
        import openstack

        self._connection = openstack.connect(
            load_yaml_config=False, load_envvars=False, auth_type="none",
            auth={"endpoint": plan["endpoint"]},
            baremetal_status_code_retries=0, baremetal_connect_retries=0,
        )  # fmt: skip

    def label(self, call: str) -> None:
        # Of the session, not of the service: so the discovery, at the service's first use, has it, too.
        self._connection.session.additional_headers[plan["header"]] = call

    def create(self, name: str) -> None:
        self._connection.baremetal.create_node(driver="fake-hardware", name=name)

    def change(self, name: str, value: str) -> None:
        self._connection.baremetal.patch_node(name, [{"op": "add", "path": "/extra/changed", "value": value}])

    def show(self, name: str) -> Any:
        return self._connection.baremetal.get_node(name).extra

    def names(self) -> list[str]:
        return [node.name for node in self._connection.baremetal.nodes()]

    def delete(self, name: str) -> None:
        self._connection.baremetal.delete_node(name, ignore_missing=False)


LIBRARIES = {"ironicclient": Ironicclient, "openstacksdk": Openstacksdk}


class Loop:
    """Calls one after the other, each at its moment, each with an id of its own and a line about it."""

    def __init__(self) -> None:
        self._due = time.monotonic()
        self._count = 0

    def _ended(self, seconds: float = 0.0) -> bool:
        """True as soon as nobody wants more calls, false when the seconds are over."""
        return bool(select.select([sys.stdin], [], [], max(0.0, seconds))[0])

    def run(self) -> None:
        number = 0
        while not self._ended():
            number += 1
            self._life(number)

    def _life(self, number: int) -> None:
        """One node, from its first request to its last."""
        name = f"{plan['name']}-{number}"
        client = LIBRARIES[plan["library"]]()
        self._call(client, name, "create", lambda _: client.create(name))
        self._call(client, name, "show", lambda _: client.show(name))
        self._call(client, name, "change", lambda call: client.change(name, call))
        self._call(client, name, "show", lambda _: client.show(name))
        self._call(client, name, "list", lambda _: name in client.names())
        self._call(client, name, "delete", lambda _: client.delete(name))

    def _call(self, client: Any, name: str, what: str, run: Any) -> None:
        self._due = max(self._due + plan["interval"], time.monotonic())
        # Who is at an end does not wait between the last calls.
        self._ended(self._due - time.monotonic())
        self._count += 1
        call = f"{plan['name']}.{self._count}"
        client.label(call)
        said = {"call": call, "what": what, "node": name}
        try:
            said["value"] = run(call)
        except Exception as error:  # whatever the client raises is the result
            said |= {"error": type(error).__name__, "text": " ".join(str(error).split())}
        print(json.dumps(said), flush=True)


Loop().run()
