"""A secret is shown nowhere: not in a problem, a dump or a generated page (threats O9)."""

from __future__ import annotations

import copy
import pickle

import pytest

from gateway.keys.secrets import MaskedText, Secret
from gateway.settings import Loaded, schema_text
from tests.docs.configuration_page import reference_text
from tests.settings.texts import BASE, load_text

CANARY = "c4n4ry-in-the-mine"


def all_output(loaded: Loaded) -> str:
    parts = [loaded.render(), repr(loaded), str(loaded), repr(loaded.problems), "\n".join(loaded.lines)]
    if loaded.settings:
        parts += [repr(loaded.settings), str(loaded.settings.admin), repr(loaded.settings.services)]
    return "\n".join(parts)


@pytest.mark.parametrize(
    "more",
    [
        "admin: {token: CANARY}\n",
        "admin:\n  token: CANARY\n    nonsense\n",
        "admin:\n  token: CANARY ä\n",
        "admin:\n  token: 'CANARY\n",
        "admin:\n  token: CANARY: b\n",
        "admin:\n  token: [CANARY]\n",
        "admin:\n  token: {a: CANARY}\n",
        "admin:\n  token: &CANARY x\n",
        "admin:\n  token: !CANARY x\n",
        "admin:\n  token: |\n    CANARY\n   ä: {\n",
        "admin:\n  token:\n    CANARY ä\n",
        "admin:\n  token:\n  - CANARY\n",
        "admin:\n  tokens: CANARY\n",
        "admin:\n  password: CANARY\n",
        "admin: token CANARY\n",
        'admin: {"t\\x6fken": "CANARY", x: 1}\n',
        "token: CANARY\n",
        "    probe:\n      headers: {X-Anything: CANARY}\n",
        "    probe:\n      headers:\n        X-Anything: CANARY ä\n",
        "    probe:\n      headers:\n        X-Anything: >\n          CANARY\n          ä\n",
        "    probe:\n      headers:\n        X-Anything: 'CANARY\n",
        "    probe:\n      headers: CANARY\n",
        "    probe:\n      header: {X-Auth-Token: CANARY}\n",
        "      - url: http://user:CANARY@host\n",
        "      - url: https://CANARY@host/x?y\n",
    ],
)
def test_a_secret_in_the_file(more: str) -> None:
    assert CANARY not in all_output(load_text(BASE + more.replace("CANARY", CANARY)))


@pytest.mark.parametrize(
    "more",
    [
        "admin:\n  token: ${CANARY}\n",
        "admin:\n  token: ${CANARY} ä\n",
        "admin:\n  listen: ${CANARY}\n",
        "timeouts:\n  connect: ${CANARY}\n",
        "access_log:\n  format: ${CANARY}\n",
        "workers: ${CANARY}\n",
        "trusted_proxies:\n  - ${CANARY}\n",
        "    match:\n      path: ${CANARY}\n",
        "    match:\n      host: ${CANARY}/\n",
        "    offer:\n      ceiling: ${CANARY}\n",
        "    offer:\n      policy: ${CANARY}\n",
        "    offer:\n      ceiling:\n        release: ${CANARY}\n",
        "    releases:\n      x: ${CANARY}\n",
        "    default_version: ${CANARY}\n",
        "        versions: ${CANARY}\n",
        "      - url: ${CANARY}\n",
        "      - url: http://u:${CANARY}@host\n",
        "    retry:\n      on:\n        - ${CANARY}\n",
        "    probe:\n      headers:\n        X: ${CANARY}\n",
        "  b:\n    dialect: ${CANARY}\n    backends: []\n",
    ],
)
def test_a_secret_in_the_environment(more: str) -> None:
    loaded = load_text(BASE + more, CANARY=CANARY)

    assert CANARY not in all_output(loaded)
    assert loaded.settings or loaded.problems


def test_generated_pages_contain_no_secret() -> None:
    load_text(BASE + f"admin: {{token: {CANARY}}}\n")

    assert CANARY not in schema_text()
    assert CANARY not in reference_text()


def test_only_reveal_shows_a_secret() -> None:
    secret = Secret(CANARY)

    assert CANARY not in f"{secret} {secret!r} {secret!s} {[secret]} %s" % secret
    assert secret.reveal() == CANARY
    assert secret.matches(CANARY)
    assert not secret.matches(CANARY + "x")
    assert not secret.matches("\ud800")
    assert secret == Secret(CANARY)
    assert secret != Secret("x")
    assert secret != CANARY
    assert len({secret, Secret(CANARY)}) == 1
    assert copy.deepcopy(secret) is secret
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_a_header_of_a_probe_is_sent_as_it_is_and_hidden_in_dumps() -> None:
    text = MaskedText(CANARY)

    assert text == CANARY
    assert text.encode() == CANARY.encode()
    assert CANARY not in repr([text])


def test_the_rest_of_a_line_with_a_secret_is_still_shown() -> None:
    shown = load_text(BASE + f"admin: {{lissen: x, token: {CANARY}}}\n").render()

    assert "    7 | admin: {lissen: x, token: ***\n      |         ^^^^^^" in shown
