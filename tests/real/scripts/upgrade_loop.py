"""A client during an upgrade: it creates, shows, changes, lists and deletes nodes at a steady rate.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `library` (`ironicclient` or `openstacksdk`), `endpoint`, `newest` (the first version that
python-ironicclient requests, as its command line does; the SDK chooses one from the documents), `interval`
(seconds from the beginning of a call to that of the next), `name` (of this client) and `header` (the field
for the call's id). Each node gets a new session of the library, with new connections, discovery and
negotiation. It prints one line of JSON for each call. It ends when its standard input ends, after the current
node.
"""

import json
import select
import sys
import time
from typing import Any

plan = json.loads(sys.argv[1])


class Ironicclient:
    """python-ironicclient as in its command line: it requests the newest version first, and negotiates."""

    def __init__(self) -> None:
        from ironicclient.v1 import client
        from keystoneauth1 import noauth, session

        self._ironic = client.Client(
            plan["endpoint"],
            session=session.Session(noauth.NoAuth(endpoint=plan["endpoint"])),
            os_ironic_api_version=plan["newest"],
            allow_api_version_downgrade=True,
            max_retries=0,
            retry_interval=1,
        )

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
            load_yaml_config=False,
            load_envvars=False,
            auth_type="none",
            auth={"endpoint": plan["endpoint"]},
            baremetal_status_code_retries=0,
            baremetal_connect_retries=0,
        )

    def label(self, call: str) -> None:
        # On the session, not on the service: so the discovery has it too.
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
    """Calls one after the other, each at its time, with its own id and a line of output."""

    def __init__(self) -> None:
        self._due = time.monotonic()
        self._count = 0

    def _ended(self, seconds: float = 0.0) -> bool:
        """True as soon as the standard input has ended, false after these seconds."""
        return bool(select.select([sys.stdin], [], [], max(0.0, seconds))[0])

    def run(self) -> None:
        number = 0
        while not self._ended():
            number += 1
            self._lifecycle(number)

    def _lifecycle(self, number: int) -> None:
        """The lifecycle of one node."""
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
        # At the end, there is no wait between the last calls.
        self._ended(self._due - time.monotonic())
        self._count += 1
        call = f"{plan['name']}.{self._count}"
        client.label(call)
        line = {"call": call, "what": what, "node": name}
        try:
            line["value"] = run(call)
        except Exception as error:  # whatever the client raises is the result
            line |= {"error": type(error).__name__, "text": " ".join(str(error).split())}
        print(json.dumps(line), flush=True)


Loop().run()
