"""The id by which a request is found in the logs of the gateway and of the servers (semantics, Sending).

A well-formed id of the client is kept. Where none came, or one that servers would ignore, one is made. Here
is only where the id comes from: the exchange sends and logs it, the dialect writes it into responses. An id
differs for every request, so it must never become a part of what is cached.
"""

from __future__ import annotations

from itertools import count
from random import getrandbits
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from gateway.core.decision.decision import Resolution
    from gateway.core.dialect import RequestIds
    from gateway.dataplane.http1.fields import RequestFieldSection


@final
class RequestIdSource:
    """Makes the ids of one worker, in the form of OpenStack's own: a UUID of version 4.

    The first half is random for the worker, the rest counts from a random number: ids are no secrets, and
    counting costs a third of drawing. Each worker makes its own source, after it was forked.
    """

    def __init__(self) -> None:
        digits = f"{getrandbits(72):018x}"
        self._worker = f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-a{digits[15:]}-"
        self._numbers = count(getrandbits(40))

    def of(self, resolution: Resolution, ids: RequestIds, section: RequestFieldSection) -> str:
        """The id of a request with these fields. Empty in a transparent service whose client sent none:
        nothing is added there."""
        if section.request_ids:
            given = section.request_id(ids.normalized_header)
            if given and ids.is_valid(given):
                return given
        if resolution.view.offer.transparent:
            return ""
        return f"{ids.prefix}{self._worker}{next(self._numbers):012x}"
