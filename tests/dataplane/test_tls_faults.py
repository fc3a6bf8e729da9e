"""Backends over TLS that are slow, die or send what nobody asked for: the same tests as without TLS.

Every test here comes from the module of its subject; only the backends differ. What is special about TLS is
in `test_tls_backends`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dataplane import test_flow_control as flow_control
from tests.dataplane import test_hostile_backends as hostile_backends
from tests.dataplane import test_resends as resends
from tests.dataplane import test_timeouts as timeouts
from tests.dataplane.backend_tls import both_sides
from tests.kit.workers import Testbed

for module, names in {
    flow_control: (
        "test_a_body_that_the_backend_does_not_read_is_not_read_from_the_client",
        "test_a_drain_lets_a_response_stream_to_its_end",
        "test_a_large_response_arrives_whole_through_small_buffers",
        "test_a_response_that_the_client_does_not_read_is_not_read_from_the_backend",
    ),
    hostile_backends: (
        "test_a_connection_that_ended_with_its_response_is_no_failure",
        "test_B1_a_backend_that_dies_in_the_body_ends_the_client_connection",
        "test_B1_a_response_that_ends_with_the_connection_is_cut_by_a_reset",
        "test_B2_a_backend_that_closes_before_a_whole_head",
        "test_B4_endless_interim_responses",
        "test_B5_bytes_behind_a_response_reach_no_client",
        "test_B5_bytes_on_an_idle_connection_reach_no_client",
        "test_B9_malformed_chunks_later_in_the_body",
        "test_B17_a_slow_head_has_one_deadline_for_the_whole_head",
        "test_B18_a_refusal_before_the_end_of_the_body_is_forwarded",
    ),
    resends: (
        "test_a_backend_that_dies_under_traffic_loses_no_safe_request",
        "test_a_backend_that_hangs_fails_only_requests_that_are_not_idempotent",
        "test_R3_after_the_first_byte_of_a_response_nothing_is_sent_again",
    ),
    timeouts: (
        "test_a_backend_that_stalls_in_the_body_ends_both_connections",
        "test_a_backend_without_a_head_in_time_is_504_in_the_dialects_shape",
        "test_an_unused_backend_connection_is_closed_in_time",
        "test_the_gateways_own_pause_is_not_held_against_a_backend",
    ),
}.items():
    globals().update({name: getattr(module, name) for name in names})


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[Testbed]:
    testbed = Testbed()
    testbed.backend_tls = both_sides(tmp_path)
    yield testbed
    await testbed.close()
