"""What needs a C compiler is left out without one."""

from __future__ import annotations

from tests.dataplane.matcher_in_c import HAS_COMPILER

collect_ignore = [] if HAS_COMPILER else ["test_matcher.py"]
