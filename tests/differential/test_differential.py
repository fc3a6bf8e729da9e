"""The gateway and the frameworks of servers read the same version in a request, or the gateway refuses it.

Hostile, old and broken requests for all dialects go through a real worker. What it forwards is read by the
frameworks' own code: five in this process, three as processes with their own HTTP servers. A failure prints
the seed, what disagrees, and cases of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.differential.apis import APIS
from tests.differential.cases import cases
from tests.differential.comparison import Report, compare, explain
from tests.differential.readers.engines import engines
from tests.differential.readers.readers import PYTHON_READERS, Reader
from tests.differential.testbed import Testbed

SEED: Final = 10
SAMPLE: Final = 1_000
ALL: Final = 20_000


async def assert_agreement(readers: Sequence[Reader], number: int) -> Report:
    """All cases without a disagreement. And enough of them must be forwarded and read: refusing is easy."""
    async with Testbed().running() as testbed:
        report = await compare(testbed, readers, cases(SEED, number))
    assert not report.findings, f"seed {SEED}\n{explain(report)}"
    assert report.cases.total() == number
    assert report.forwarded.total() > number / 2, str(report)
    assert report.negotiated > number / 3, str(report)
    for api in APIS:
        assert report.forwarded[api] > report.cases[api] / 3, f"{api}: {report}"
    for reader in readers:
        assert report.readable[reader.name] > 0.97 * report.forwarded.total(), f"{reader.name}: {report}"
    return report


async def test_python_frameworks_read_the_negotiated_version() -> None:
    await assert_agreement(PYTHON_READERS, SAMPLE)


@pytest.mark.engines
async def test_all_frameworks_read_the_negotiated_version_in_20_000_cases() -> None:
    async with engines() as running:
        report = await assert_agreement((*PYTHON_READERS, *running), ALL)
    print(report)
