"""The ids by which requests are found in the logs of servers: their form and their headers, by API family.

It makes no id and reads no message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import final

from gateway.core.http.message import normalize_name

_OPENSTACK_ID = re.compile(r"req-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLAIN_ID = re.compile(r"[0-9A-Za-z._:/+=-]{1,128}")


@final
@dataclass(frozen=True, slots=True)
class RequestIds:
    """The ids by which an API family finds a request in the logs of its servers."""

    request_header: str
    """Canonical. Clients and the gateway send the id to backends in it."""
    response_headers: tuple[str, ...]
    """Canonical. Responses made by the gateway name the id in them."""
    prefix: str = "req-"
    """The beginning of an id that the gateway makes. A UUID follows."""
    form: re.Pattern[str] = _OPENSTACK_ID
    """What a well-formed id is. Its characters need no quotes, neither in a header nor in a line of a log."""
    normalized_header: str = field(init=False)
    """`request_header` as names are compared."""
    line_start: bytes = field(init=False)
    """A line of `request_header` up to its value."""

    def __post_init__(self) -> None:
        """Compute what every request reads."""
        object.__setattr__(self, "normalized_header", normalize_name(self.request_header))
        object.__setattr__(self, "line_start", f"{self.request_header}: ".encode("ascii"))

    def is_valid(self, text: str) -> bool:
        """Whether `text` is an id as servers of this family accept it."""
        return self.form.fullmatch(text) is not None


PLAIN_IDS = RequestIds("X-Request-Id", ("X-Request-Id",), prefix="", form=_PLAIN_ID)
OPENSTACK_IDS = RequestIds("X-Openstack-Request-Id", ("X-Openstack-Request-Id",))
"""These two are what clients, and proxies in front of them, send to a service of any dialect."""
