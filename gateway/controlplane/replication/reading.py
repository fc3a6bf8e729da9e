"""One service in the store, as it was read at one revision: its keys, what they say, and what is wrong there.

Keys that nobody here knows are named and passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from gateway.controlplane.replication.texts import LiveWord, Who, read_live, read_names, read_who
from gateway.controlplane.stores.store import Entry
from gateway.core.agreement.document import FORM, Document, UnreadableDocument, read_document, write_document
from gateway.core.fleet.service import Service
from gateway.core.versions.version import Version

DOC: Final = "doc"
PIN: Final = "pin"
DRAINED: Final = "drained"
GONE: Final = "gone"
LIVE: Final = "live/"
KNOWN: Final = "known/"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What stands under `prefix`, all keys of one service."""

    service: Service
    prefix: str
    beats: str
    """The prefix of all beats, which are outside."""
    revision: int
    """Of the store when it was read."""
    entries: Mapping[str, Entry]
    """By what follows `prefix` in the key."""
    document: Document | None
    problem: str
    """Why what stands there cannot be followed, a sentence; empty: it can."""
    pin: Version | None
    drained: frozenset[str]
    unclear: tuple[str, ...]
    """Names of the keys of operators' words that cannot be read, `pin` or `drained`. What was in force here
    stays so, and nobody who cannot read them takes a step."""
    live: Mapping[str, LiveWord]
    """By id."""
    unreadable: tuple[str, ...]
    """Ids of live replicas whose word cannot be read: it may be a vote against everything."""
    known: Mapping[str, Who]
    """By id."""
    foreign: tuple[str, ...]

    def __contains__(self, key: str) -> bool:
        return key.removeprefix(self.prefix) in self.entries

    def revision_of(self, key: str) -> int:
        """Of the last change of a key; 0: it does not stand."""
        entry = self.entries.get(key.removeprefix(self.prefix))
        return 0 if entry is None else entry.revision

    def key(self, name: str) -> str:
        """The whole key."""
        return self.prefix + name

    def live_key(self, replica: str) -> str:
        """Where a live replica speaks."""
        return f"{self.prefix}{LIVE}{replica}"

    def known_key(self, replica: str) -> str:
        """Where it is registered."""
        return f"{self.prefix}{KNOWN}{replica}"

    def beat_key(self, replica: str) -> str:
        """Where it counts."""
        return self.beats + replica

    def written(self, document: Document, form: int = FORM) -> str:
        """As it is put there."""
        dialect = self.service.dialect
        return json.dumps(write_document(document, dialect.name, dialect.scheme, form), separators=(",", ":"))


def read_service(
    service: Service, prefix: str, beats: str, revision: int, entries: Mapping[str, Entry]
) -> Reading:
    """What `entries` say about `service`."""
    scheme = service.dialect.scheme
    problem = ""
    live, unreadable, foreign, unclear = {}, [], [], []
    document = pin = None
    drained: frozenset[str] | None = frozenset()
    for name, entry in entries.items():
        if name == DOC:
            try:
                document = read_document(_json(entry.text), service.dialect.name, scheme)
            except UnreadableDocument as error:
                problem = f"the document under {prefix}{DOC} cannot be followed: {error}"
        elif name == PIN:
            pin = scheme.parse(entry.text)
            if pin is None:
                unclear.append(PIN)
        elif name == DRAINED:
            drained = read_names(entry.text)
            if drained is None:
                unclear.append(DRAINED)
        elif name.startswith(LIVE):
            try:
                live[name.removeprefix(LIVE)] = read_live(entry.text, scheme)
            except UnreadableDocument:
                unreadable.append(name.removeprefix(LIVE))
        elif name != GONE and not name.startswith(KNOWN):
            foreign.append(prefix + name)
    known = {
        name.removeprefix(KNOWN): read_who(entry.text)
        for name, entry in entries.items()
        if name.startswith(KNOWN)
    }
    return Reading(
        *(service, prefix, beats, revision, entries, document, problem, pin, drained or frozenset()),
        *(tuple(sorted(unclear)), live, tuple(unreadable), known, tuple(foreign)),
    )


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UnreadableDocument("it is not JSON") from None
