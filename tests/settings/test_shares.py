"""What every limit means with several workers: said at its key, and warned of where it cannot be divided."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from gateway.core.fleet.limits import Limits, share_of
from gateway.keys.kinds import DIVIDED, PER_WORKER, SHARED
from gateway.settings.schema import dotted_path, file_section, keys_of
from gateway.settings.yaml.problem import Severity
from tests.docs.configuration_page import reference_text
from tests.settings.texts import load_text

OF_ONE: Final = frozenset(
    {
        *("limits.head", "limits.line", "limits.headers", "limits.body", "limits.replay_body"),
        *("limits.document", "limits.write_buffer", "limits.min_rate"),
        *("services.NAME.retry.attempts", "services.NAME.retry.on", "services.NAME.ejection.on"),
        "services.NAME.backends[].queue.timeout",
    }
)
"""What is about one request or connection, or about which kind of failure."""
ADDS_UP: Final = (
    *("limits.", "services.NAME.client_limits.", "services.NAME.ejection.", "services.NAME.retry."),
    *("services.NAME.backends[].queue.", "services.NAME.backends[].max_"),
)


def test_every_key_that_adds_up_says_what_it_means_with_several_workers() -> None:
    said = {dotted_path(path): key.workers for path, key in keys_of(file_section())}

    for path, words in said.items():
        if path.startswith(ADDS_UP) and path not in OF_ONE:
            assert words.startswith((DIVIDED, SHARED, PER_WORKER)), path
        if words:
            assert path.startswith(ADDS_UP) or path == "services.NAME.retry", path
    page = reference_text()
    for words in said.values():
        assert f"*Several workers: {words}.*" in page or not words


def test_the_part_of_a_worker() -> None:
    limits = Limits(connections=10, replay_total=1001)
    assert share_of(limits, 1) is limits
    part = share_of(limits, 4)
    assert (part.connections, part.replay_total) == (3, 251)
    assert share_of(Limits(), 4).connections is None
    assert replace(part, connections=10, replay_total=1001) == limits


FILE: Final = """\
listen: 127.0.0.1:8080
workers: {workers}
limits: {limits}
services:
  baremetal:
    dialect: plain
    backends:
      - url: http://127.0.0.1:6385
        max_requests: 1
        queue: {queue}
"""


@pytest.mark.parametrize(
    "workers, limits, queue, message",
    [
        (1, "{connections: 1, replay_total: 64KiB}", "{length: 1}", ""),
        (4, "{}", "{}", ""),
        (4, "{connections: 4, replay_total: 256KiB}", "{length: 4}", ""),
        (4, "{}", "{length: 0}", ""),
        (4, "{replay_total: 0B}", "{}", ""),
        (
            *(4, "{connections: 3}", "{}"),
            "each of 4 workers takes at least one connection, so up to 4 are open",
        ),
        (
            *(4, "{replay_total: 128KiB}", "{}"),
            (
                "the part of each of 4 workers is 32768 bytes, less than one body of replay_body: larger "
                "ones are streamed, and not sent again"
            ),
        ),
        (
            *(4, "{}", "{length: 3}"),
            "each of 4 workers has at least one place, so up to 4 wait",
        ),
    ],
)
def test_what_cannot_be_divided_is_a_warning(workers: int, limits: str, queue: str, message: str) -> None:
    text = FILE.replace("{workers}", str(workers)).replace("{limits}", limits).replace("{queue}", queue)
    loaded = load_text(text)
    loaded.require()
    found = [each for each in loaded.problems if each.code == "divided"]
    assert [each.message for each in found] == [message] * bool(message)
    assert {each.severity for each in found} <= {Severity.WARNING}
    assert all(each.line > 1 and each.hint for each in found)
