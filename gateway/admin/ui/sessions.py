"""Sessions of the operations page: who has signed in, for how long, and what the page still has to tell them.

In memory only: a gateway that is started again, or taken over, knows none of them. Bounded in number and in
time. A session is bound to what its operator has shown, the token in force or a certificate, and ends when
that does not hold any more. Knows no request; the clock is given.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Collection
from time import monotonic
from typing import Final, NamedTuple, NewType, final

from gateway.keys.secrets import Secret

MAX_SESSIONS: Final = 64
"""Operators of one gateway are a handful, each with a browser or two."""

IDLE: Final = 30 * 60.0
"""Seconds without a use. An open page that follows the gateway is a use."""

LONGEST: Final = 12 * 3600.0
"""Seconds from the sign-in, however much it is used: a long shift."""

MAX_NOTICES: Final = 8
"""Results of commands that a session remembers, so that going back in the browser shows them again."""

RANDOM_BYTES: Final = 32
MAX_ID: Final = 64
"""Characters of an id that are looked at: 32 bytes are 43."""

Proof = NewType("Proof", bytes)
"""What an operator has shown, as a checksum."""


def proof_of_token(token: Secret) -> Proof:
    """That of whoever knows `token`."""
    return Proof(hashlib.sha256(b"token " + token.reveal().encode()).digest())


def proof_of_certificate(certificate: bytes) -> Proof:
    """That of whoever has the key of `certificate`, in DER."""
    return Proof(hashlib.sha256(b"certificate " + certificate).digest())


class Notice(NamedTuple):
    """The result of a command, for whoever gave it."""

    at: float
    """Wall-clock seconds."""
    text: str
    """Sentences."""
    attention: bool
    """Whether it says more than that it was done."""


@final
class Session:
    """One browser of one operator."""

    __slots__ = ("_first", "_notices", "begun_at", "csrf", "proof", "used_at")

    def __init__(self, proof: Proof, now: float) -> None:
        self.proof = proof
        self.csrf = secrets.token_urlsafe(RANDOM_BYTES)
        """What a form has to repeat: no page of another origin can read it."""
        self.begun_at = now
        self.used_at = now
        self._notices: list[Notice] = []
        self._first = 0
        """The number of the first notice that is remembered."""

    def has_csrf(self, text: str) -> bool:
        """Whether a form was made for this session. Compares in constant time."""
        return hmac.compare_digest(self.csrf.encode(), text.encode(errors="replace"))

    def add_notice(self, notice: Notice) -> int:
        """Remember it; the number by which it is found."""
        self._notices.append(notice)
        if len(self._notices) > MAX_NOTICES:
            del self._notices[0]
            self._first += 1
        return self._first + len(self._notices) - 1

    def notice(self, number: int) -> Notice | None:
        """The one with this number. None: there is none, or not any more."""
        index = number - self._first
        return self._notices[index] if 0 <= index < len(self._notices) else None


@final
class Sessions:
    """All of them, the longest unused first. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        """By the checksum of the id: the time of a lookup says nothing about ids that exist."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, proof: Proof) -> tuple[str, Session]:
        """The id, which nobody can guess, and the new session. Over the bound the longest unused one goes."""
        now = self._clock()
        for key in [key for key, session in self._sessions.items() if _has_expired(session, now)]:
            del self._sessions[key]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session_id, session = secrets.token_urlsafe(RANDOM_BYTES), Session(proof, now)
        self._sessions[_key(session_id)] = session
        return session_id, session

    def find(self, session_id: str, proofs: Collection[Proof]) -> Session | None:
        """The session with this id, which is used by that. `proofs`: those that hold at this moment. A
        session of another one, or one that was unused for too long, ends here. None: there is none."""
        key = _key(session_id)
        session = self._sessions.pop(key, None)
        now = self._clock()
        if session is None or _has_expired(session, now) or session.proof not in proofs:
            return None
        session.used_at = now
        self._sessions[key] = session
        return session

    def end(self, session_id: str) -> None:
        """Sign out. Unknown ids are fine."""
        self._sessions.pop(_key(session_id), None)


def _has_expired(session: Session, now: float) -> bool:
    return now >= session.used_at + IDLE or now >= session.begun_at + LONGEST


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id[:MAX_ID].encode(errors="replace")).digest()
