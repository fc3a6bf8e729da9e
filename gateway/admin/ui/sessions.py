"""Sessions of the operations page, with the results of commands that it shows.

In memory only: a restart or a take-over ends all sessions. Bounded in number and in time. A session is bound
to its operator's token or certificate, and ends when that is not valid any more. No request is known here;
the clock is a parameter.
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
"""Maximum sessions: a gateway has a handful of operators, each with a browser or two."""

IDLE: Final = 30 * 60.0
"""Seconds without use after which a session ends. An open page that follows the gateway counts as use."""

LONGEST: Final = 12 * 3600.0
"""Maximum seconds of a session from the sign-in: a long shift."""

MAX_NOTICES: Final = 8
"""Maximum results of commands kept in a session, so that going back in the browser shows them again."""

RANDOM_BYTES: Final = 32
MAX_ID: Final = 64
"""Maximum characters of a session id that are read: 32 bytes are 43."""

Proof = NewType("Proof", bytes)
"""Proof of identity: checksum of the token or certificate that an operator has shown."""


def proof_of_token(token: Secret) -> Proof:
    """Makes the proof of identity of an operator who knows `token`."""
    return Proof(hashlib.sha256(b"token " + token.reveal().encode()).digest())


def proof_of_certificate(certificate: bytes) -> Proof:
    """Makes the proof of identity of an operator with `certificate`, in DER."""
    return Proof(hashlib.sha256(b"certificate " + certificate).digest())


class Notice(NamedTuple):
    """Result of a command, for the operator who gave it."""

    at: float
    """Wall-clock seconds at which the result was known."""
    text: str
    attention: bool
    """Whether the notice says more than that the command was carried out."""


@final
class Session:
    """Session of one browser of one operator."""

    __slots__ = ("_given", "_notices", "begun_at", "csrf", "proof", "used_at")

    def __init__(self, proof: Proof, now: float) -> None:
        self.proof = proof
        self.csrf = secrets.token_urlsafe(RANDOM_BYTES)
        """CSRF token that forms must repeat: no page of another origin can read it."""
        self.begun_at = now
        self.used_at = now
        self._notices: dict[str, Notice] = {}
        self._given = 0
        """Number of notices (results of commands) that the session was given so far."""

    def has_csrf(self, text: str) -> bool:
        """Whether `text` is the CSRF token of this session. Compares in constant time."""
        return hmac.compare_digest(self.csrf.encode(), text.encode(errors="replace"))

    def add_notice(self, notice: Notice) -> str:
        """Adds the result of a command and returns its number, as text."""
        number, self._given = str(self._given), self._given + 1
        self._notices[number] = notice
        if len(self._notices) > MAX_NOTICES:
            del self._notices[next(iter(self._notices))]
        return number

    def notice(self, number: str) -> Notice | None:
        """Returns the result of a command by its number; None: there is none, or it is not kept any more."""
        return self._notices.get(number)


@final
class Sessions:
    """All sessions of the operations page, the longest unused first. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        """Sessions by the hash of their id: the time of a lookup reveals nothing about existing ids."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, proof: Proof) -> tuple[str, Session]:
        """Starts a session and returns its random id with it. Over the limit the longest unused one ends."""
        now = self._clock()
        for key in [key for key, session in self._sessions.items() if _has_expired(session, now)]:
            del self._sessions[key]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session_id, session = secrets.token_urlsafe(RANDOM_BYTES), Session(proof, now)
        self._sessions[_key(session_id)] = session
        return session_id, session

    def find(self, session_id: str, proofs: Collection[Proof]) -> Session | None:
        """Returns the session with this id, unless it has expired or its proof is not among `proofs`."""
        key = _key(session_id)
        session = self._sessions.pop(key, None)
        now = self._clock()
        if session is None or _has_expired(session, now) or session.proof not in proofs:
            return None
        session.used_at = now
        self._sessions[key] = session
        return session

    def end(self, session_id: str) -> None:
        self._sessions.pop(_key(session_id), None)


def _has_expired(session: Session, now: float) -> bool:
    return now >= session.used_at + IDLE or now >= session.begun_at + LONGEST


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id[:MAX_ID].encode(errors="replace")).digest()
