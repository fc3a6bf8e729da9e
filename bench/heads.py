"""The heads of requests: what a fleet of python-ironicclient processes sends, three versions over six paths.

They are the one source of every load, and `RESPONSE` of what is measured without sockets. `@ID@` in them
stands for twelve hexadecimal digits that no other request has. All ids are well-formed, as real ones are.
"""

from dataclasses import dataclass

from bench.slot import Slot

ID = b"@ID@"
VERSION = "X-OpenStack-Ironic-API-Version"
VERSIONS = ("1.31", "1.58", "1.90")
NODE = "9f3c2b7e-5d51-4b0a-8c38-6f0e6a7f1d42"
PATHS = (
    "/v1/nodes?fields=uuid,name,power_state,provision_state&limit=50",
    f"/v1/nodes/{NODE}",
    f"/v1/nodes/{NODE}/states",
    f"/v1/ports?node={NODE}",
    "/v1/nodes/detail",
    "/v1/drivers",
)
#: The usual length of a Fernet token of Keystone.
TOKEN = "gAAAAABm" + "Zk3xQw9_" * 22
CLIENT = "203.0.113.7"
#: What an outer proxy has written.
OUTER = (
    ("Via", "1.1 edge"),
    ("X-Forwarded-For", CLIENT),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "api.example.org"),
)

#: What a backend of the bench answers, at `@VERSION@`.
RESPONSE = "\r\n".join(
    (
        "HTTP/1.1 200 OK",
        "Server: nginx/1.22.1",
        "Date: Sun, 06 Nov 1994 08:49:37 GMT",
        "Content-Type: application/json",
        "Content-Length: 2",
        "Connection: keep-alive",
        "X-OpenStack-Ironic-API-Minimum-Version: 1.1",
        "X-OpenStack-Ironic-API-Maximum-Version: 1.90",
        f"{VERSION}: @VERSION@",
        "X-Openstack-Request-Id: req-5e1f1a1c-52f0-4d0b-8f3c-@ID@",
        "",
        "{}",
    )
).encode()

Field = tuple[str, str]


@dataclass(frozen=True)
class Heads:
    """What clients send. By default each request has a request id, a trace id and a token of its own."""

    unique: bool = True
    #: Constant fields in addition.
    more: int = 0
    #: Programs whose fields differ in number, names and order. Each connection carries requests of all.
    kinds: int = 1
    #: An outer proxy has written its fields.
    proxied: bool = False

    def fields(self, host: str, version: str, kind: int = 0) -> list[Field]:
        token = f"{TOKEN}@ID@" if self.unique else TOKEN
        fields = [
            ("Host", host),
            ("User-Agent", "python-ironicclient keystoneauth1/5.8.0 python-requests/2.32.3 CPython/3.11.2"),
            ("Accept", "application/json"),
            ("Accept-Encoding", "gzip, deflate"),
            ("X-Auth-Token", token),
            (VERSION, version),
        ]
        if self.unique:
            fields += [
                ("X-Openstack-Request-Id", "req-9f3c2b7e-5d51-4b0a-8c38-@ID@"),
                ("Traceparent", "00-4bf92f35@ID@@ID@-00f0@ID@-01"),
            ]
        fields += [(f"X-Custom-{number}", f"value {number} of a field") for number in range(1, self.more + 1)]
        for number in range(1, kind + 1):
            fields.insert(number * 3 % len(fields) + 1, (f"X-Client-{kind}-{number}", "@ID@"))
        return [*fields, *(OUTER if self.proxied else ())]

    def heads(self, slot: Slot) -> list[bytes]:
        """All requests of this load, for every service of the setting."""
        return [
            self.head(slot, path, version, kind, service)
            for service in slot.services or (None,)
            for kind in range(self.kinds)
            for path in PATHS
            for version in (VERSIONS if service is None else VERSIONS[-1:])
        ]

    def head(
        self,
        slot: Slot,
        path: str,
        version: str,
        kind: int = 0,
        service: str | None = None,
        method: str = "GET",
    ) -> bytes:
        """One request, for a service by prefix or host if it is for one."""
        host = f"127.0.0.1:{slot.port}"
        if service and slot.setting.by == "host":
            host = f"{service}.example.org"
        if service and slot.setting.by == "prefix":
            path = f"/{service}{path}"
        fields = self.fields(host, version, kind)
        if service:
            fields.append(("X-Expected-Backend", service))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join([*lines, "", ""]).encode()


UNIQUE = Heads()
