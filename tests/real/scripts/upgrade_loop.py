"""A client during an upgrade: it creates, shows, changes, lists and deletes nodes at a steady rate.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `library` (`ironicclient`, `openstacksdk` or `plain`), `endpoint`, `version` (python-ironicclient
requests it first, as its command line does; the SDK chooses one from the documents; a plain client sends it
always, or none), `interval` (seconds from the beginning of a call to that of the next), `name` (of this
client) and `header` (the field for the call's id). Each node gets a new session of the library, with new
connections, discovery and negotiation. A plain client keeps its connection. It prints one line of JSON for
each call, and ends when its standard input ends, after the current node.
"""

import http.client
import json
import select
import sys
import time
import urllib.parse
import uuid
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
            os_ironic_api_version=plan["version"],
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


class Refused(Exception):
    """A response to a plain client, with its status and text."""


class Plain:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(plan["endpoint"]).netloc, timeout=30)

    def __init__(self) -> None:
        self._headers = {"Content-Type": "application/json"}
        if plan["version"] is not None:
            self._headers["X-OpenStack-Ironic-API-Version"] = plan["version"]

    def label(self, call: str) -> None:
        self._headers[plan["header"]] = call

    def create(self, node: str) -> None:
        self._send("POST", "/v1/nodes", {"driver": "fake-hardware", "uuid": node})

    def change(self, node: str, value: str) -> None:
        self._send("PATCH", f"/v1/nodes/{node}", [{"op": "add", "path": "/extra/changed", "value": value}])

    def show(self, node: str) -> Any:
        return json.loads(self._send("GET", f"/v1/nodes/{node}"))["extra"]

    def names(self) -> list[str]:
        return [node["uuid"] for node in json.loads(self._send("GET", "/v1/nodes"))["nodes"]]

    def delete(self, node: str) -> None:
        self._send("DELETE", f"/v1/nodes/{node}")

    def _send(self, method: str, path: str, body: object = None) -> str:
        try:
            text = None if body is None else json.dumps(body)
            self.connection.request(method, path, text, self._headers)
            response = self.connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        if response.status >= 400:
            raise Refused(response.status, text)
        return text


LIBRARIES = {"ironicclient": Ironicclient, "openstacksdk": Openstacksdk, "plain": Plain}


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
        # At 1.1 a node has no name. A client can choose its id at every version.
        name = str(uuid.uuid4()) if plan["library"] == "plain" else f"{plan['name']}-{number}"
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
        except Refused as error:
            line |= {"error": str(error.args[0]), "text": error.args[1]}
        except Exception as error:  # whatever the client raises is the result
            line |= {"error": type(error).__name__, "text": " ".join(str(error).split())}
        print(json.dumps(line), flush=True)


Loop().run()
