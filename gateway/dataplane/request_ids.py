"""The id by which a request is found in the logs of the gateway and of the servers (semantics, Sending).

A well-formed id of the client is kept. Where none came, or one that servers would ignore, one is made. Here
is only where the id comes from: the exchange sends and logs it, the dialect writes it into responses. An id
differs for every request, so it must never become a part of what is cached.
"""

from __future__ import annotations

from random import getrandbits
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.dialect import RequestIds
    from gateway.dataplane.http1.fields import RequestFieldSection


def request_id_for(resolution: Resolution, ids: RequestIds, section: RequestFieldSection) -> str:
    """The id of a request with these fields. Empty in a transparent service whose client sent none: nothing
    is added there."""
    given = section.request_id(ids.request_header.lower()) if section.request_ids else ""
    if given and ids.is_valid(given):
        return given
    return "" if resolution.view.offer.transparent else new_request_id(ids.prefix)


def new_request_id(prefix: str) -> str:
    """`prefix` and a random UUID of version 4 (RFC 9562 5.4). It is no secret, so it need not be unguessable.

    This takes a sixth of the time of `uuid.uuid4`, and it runs for every request.
    """
    digits = f"{getrandbits(120):030x}"
    return f"{prefix}{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:18]}-{digits[18:]}"
