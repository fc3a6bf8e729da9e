"""One listener for clients in the file: its address, and what comes before HTTP on its connections."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, final

from gateway.keys.addresses import CLIENT_ADDRESS, Address, UnixAddress
from gateway.keys.kinds import Text, reject, section
from gateway.keys.texts import one_of
from gateway.tls.values import LISTENER_TLS, ServerTls

_MODE: Final = "0?[0-7]{3}"


def read_mode(text: str) -> int:
    """The mode of a file, in octal digits."""
    if re.fullmatch(_MODE, text, re.ASCII) is None:
        reject("not a valid mode of a file", 'write octal digits, such as "0660"')
    return int(text, 8)


MODE: Final = Text(read_mode, {"type": ["string", "integer"], "pattern": f"^{_MODE}$"})


@final
@dataclass(frozen=True, slots=True)
class Listener:
    """One address on which clients are served."""

    address: Address | UnixAddress = field(
        metadata=CLIENT_ADDRESS.required(
            "HOST:PORT; IPv6 as [HOST]:PORT; unix:PATH.",
            reason="Only the operator knows where clients may reach the services.",
            example="0.0.0.0:8080",
        )
    )
    tls: ServerTls | None = LISTENER_TLS.key(
        None,
        "TLS on this listener.",
        reason="It needs a certificate.",
        example={"certificates": [{"certificate": "/etc/skewgate/tls.crt", "key": "/etc/skewgate/tls.key"}]},
    )
    proxy_protocol: str = one_of("off", "on").key(
        "off",
        "Whether peers in `trusted_proxies` begin each connection with a PROXY header, version 1 or 2, "
        "that names the client. One that does not is refused. Other peers are served without one.",
        reason="It may never be guessed: a client could write one.",
        example="on",
    )
    mode: int = MODE.key(
        "0660",
        "The mode of a Unix socket. Who may write to it may connect.",
        reason="Owner and group of the gateway, and nobody else on the machine.",
        example="0600",
    )


LISTENER: Final = section(Listener)
