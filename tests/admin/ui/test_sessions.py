"""Sessions are bounded in number and time, and end with what their operator has shown."""

from __future__ import annotations

from gateway.admin.ui.sessions import (
    IDLE,
    LONGEST,
    MAX_NOTICES,
    MAX_SESSIONS,
    Notice,
    Sessions,
    proof_of_certificate,
    proof_of_token,
)
from gateway.keys.secrets import Secret
from tests.admin.testbed import Clock

PROOF = proof_of_token(Secret("open-sesame-0123456789"))


def test_a_session_is_found_by_its_id_only() -> None:
    sessions = Sessions()
    session_id, session = sessions.begin(PROOF)

    assert sessions.find(session_id, {PROOF}) is session
    for other in ("", session_id[:-1], f"{session_id}x", session_id.swapcase(), "\udcff", "x" * 10_000):
        assert sessions.find(other, {PROOF}) is None
    assert sessions.find(session_id, {PROOF}) is session


def test_ids_and_csrf_tokens_have_256_bits_and_are_never_the_same() -> None:
    sessions = Sessions()
    begun = [sessions.begin(PROOF) for _ in range(MAX_SESSIONS)]
    texts = {session_id for session_id, _ in begun} | {session.csrf for _, session in begun}

    assert len(texts) == 2 * MAX_SESSIONS
    assert all(len(text) == 43 for text in texts)  # 32 bytes in base64


def test_over_the_bound_the_longest_unused_one_goes() -> None:
    sessions = Sessions()
    ids = [sessions.begin(PROOF)[0] for _ in range(MAX_SESSIONS)]
    assert sessions.find(ids[0], {PROOF}) is not None  # so the second one is the longest unused

    newest, _ = sessions.begin(PROOF)

    assert len(sessions) == MAX_SESSIONS
    assert sessions.find(ids[1], {PROOF}) is None
    assert all(sessions.find(each, {PROOF}) for each in (ids[0], *ids[2:], newest))


def test_it_ends_when_it_is_not_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session_id, _ = sessions.begin(PROOF)

    for _ in range(3):
        clock.now += IDLE - 1.0
        assert sessions.find(session_id, {PROOF}) is not None
    clock.now += IDLE
    assert sessions.find(session_id, {PROOF}) is None
    clock.now -= IDLE
    assert sessions.find(session_id, {PROOF}) is None


def test_it_ends_at_last_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    session_id, _ = sessions.begin(PROOF)
    end = clock.now + LONGEST

    while clock.now < end:
        assert sessions.find(session_id, {PROOF}) is not None
        clock.now += IDLE / 2
    assert sessions.find(session_id, {PROOF}) is None


def test_expired_ones_take_no_room() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    for _ in range(10):
        sessions.begin(PROOF)
    clock.now += IDLE
    sessions.begin(PROOF)
    assert len(sessions) == 1


def test_it_ends_with_the_token_that_was_shown() -> None:
    sessions = Sessions()
    session_id, _ = sessions.begin(PROOF)
    other = proof_of_token(Secret("another-0123456789abcd"))

    assert sessions.find(session_id, {other}) is None
    assert sessions.find(session_id, {PROOF}) is None  # also when the old token comes back
    assert len(sessions) == 0


def test_a_token_and_a_certificate_are_never_the_same_proof() -> None:
    assert proof_of_token(Secret("the same bytes, sixteen")) != proof_of_certificate(
        b"the same bytes, sixteen"
    )


def test_signing_out_ends_it() -> None:
    sessions = Sessions()
    session_id, _ = sessions.begin(PROOF)
    other_id, other = sessions.begin(PROOF)

    sessions.end(session_id)
    sessions.end("unknown")

    assert sessions.find(session_id, {PROOF}) is None
    assert sessions.find(other_id, {PROOF}) is other


def test_a_csrf_token_is_that_of_one_session() -> None:
    sessions = Sessions()
    (_, one), (_, other) = sessions.begin(PROOF), sessions.begin(PROOF)

    assert one.has_csrf(one.csrf)
    for text in ("", other.csrf, one.csrf[:-1], f"{one.csrf} ", "\u00e9", "\udcff"):
        assert not one.has_csrf(text)


def test_the_last_results_of_commands_are_remembered() -> None:
    _, session = Sessions().begin(PROOF)
    assert session.notice("0") is None

    numbers = [
        session.add_notice(Notice(float(each), str(each), attention=False)) for each in range(MAX_NOTICES + 2)
    ]

    assert numbers == [str(each) for each in range(MAX_NOTICES + 2)]
    found = [session.notice(str(number)) for number in range(-1, MAX_NOTICES + 3)]
    assert [None if each is None else each.text for each in found] == [
        *(None, None, None),
        *(str(each) for each in range(2, MAX_NOTICES + 2)),
        None,
    ]
