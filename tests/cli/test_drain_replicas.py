"""When a drained backend is idle for `drain --wait`: of several replicas, when every live one says so."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.cli.operator_commands import BackendName, _keeps_busy

TARGET = BackendName("baremetal", "api-1")


def state(about: dict[str, Any] | None, in_flight: int = 0) -> dict[str, Any]:
    service: dict[str, Any] = {"backends": {"api-1": {"drained": True, "in_flight": in_flight}}}
    return {
        "agreement": None if about is None else {},
        "services": {"baremetal": service | ({"agreement": about} if about is not None else {})},
    }


@pytest.mark.parametrize(
    "about, in_flight, why",
    [
        (None, 0, ""),
        (None, 2, "still has 2 requests in flight"),
        ({"attached": True, "drains": {"api-1": {"idle": True, "busy": []}}}, 0, ""),
        (
            {"attached": True, "drains": {"api-1": {"idle": True, "busy": []}}},
            1,
            "still has 1 request in flight",
        ),
        (
            {"attached": True, "drains": {"api-1": {"idle": False, "busy": ["gw-2"]}}},
            0,
            "other replicas still use it: gw-2",
        ),
        ({"attached": True, "drains": {}}, 0, "it is not known yet whether other replicas still use it"),
        (
            {"attached": False, "drains": {}},
            0,
            "it is not known yet whether other replicas still use it",
        ),
    ],
)
def test_why_a_backend_is_not_idle(about: dict[str, Any] | None, in_flight: int, why: str) -> None:
    assert _keeps_busy(TARGET, state(about, in_flight)) == why
