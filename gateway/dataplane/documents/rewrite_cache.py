"""The cache of rewritten discovery documents: the same bytes are parsed once, not for each request (threats
R-B12).

It changes no result, only its cost: what the dialect does is pure, and the key is all of its arguments.
The client's Host and public address are part of the key, so no client is shown those of another one. Each
document is still fetched from a backend; `documents.cached` answers without one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple, TypeAlias, final

from gateway.core.dialect import Dialect, Endpoint, Links
from gateway.core.fleet.lifecycle import Line
from gateway.core.fleet.service import Service
from gateway.core.versions.ranges import VersionSet
from gateway.core.versions.version import Version

MAX_DOCUMENTS: Final = 64
MAX_SIZE: Final = 4 * 1024 * 1024
"""Maximum bytes of all cached documents, before and after rewriting. Clients choose the Hosts and backends
the bodies, so number and bytes are bounded. What is displaced is parsed again."""

_Key: TypeAlias = tuple[Dialect, Endpoint, Links, bytes, Line | None, Version]


class _Entry(NamedTuple):
    offered: VersionSet
    """Versions on offer in the rewritten document. Compared, not hashed: they may be a thousand ranges."""
    result: bytes | None
    size: int


@final
class RewriteCache:
    """Cache of one worker's rewritten discovery documents (LRU)."""

    def __init__(self) -> None:
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self.size = 0
        """Bytes of all cached documents, before and after rewriting."""

    def __len__(self) -> int:
        return len(self._entries)

    def rewrite(
        self, service: Service, endpoint: Endpoint, body: bytes, offered: VersionSet, links: Links
    ) -> bytes | None:
        """Rewritten document, from the cache or by `Dialect.rewrite_document` (None: not such a document)."""
        dialect, sunset = service.dialect, service.sunset
        # The highest version: clients with an own pace have a lower one.
        key = (dialect, endpoint, links, body, sunset, offered.highest)
        entry = self._entries.get(key)
        if entry is not None and entry.offered == offered:
            self._entries.move_to_end(key)
            return entry.result
        result = dialect.rewrite_document(endpoint, body, offered, links)
        if result is not None and sunset is not None:
            result = dialect.announce_sunset(result, sunset)
        if entry is not None:
            self._drop(key)
        size = len(body) + len(result or b"") + len(links.host) + len(links.public)
        if size <= MAX_SIZE:
            self._entries[key] = _Entry(offered, result, size)
            self.size += size
            while len(self._entries) > MAX_DOCUMENTS or self.size > MAX_SIZE:
                self._drop(next(iter(self._entries)))
        return result

    def _drop(self, key: _Key) -> None:
        self.size -= self._entries.pop(key).size
