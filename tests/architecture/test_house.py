"""The rules of the house hold, and every rule notices the code that breaks it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterable
from typing import Final

import pytest

from tests.architecture import rules
from tests.architecture.source import (
    ROOT,
    Module,
    gateway_modules,
    imported_modules,
    project_files,
    project_texts,
    read_module,
)

# Spelled in pieces, so that this file is no finding of its own.
MARKERS = re.compile(r"\b(?:TO" + "DO|FIX" + "ME|X" + r"XX|HA" + r"CK)\b")
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(f"{host}.{domain}")
        for host, domain in [
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("registry.npmjs", "org"),
            ("crates", "io"),
            ("rubygems", "org"),
            ("proxy.golang", "org"),
            ("repo.maven.apache", "org"),
            ("docker", "io"),
            ("quay", "io"),
            ("ghcr", "io"),
        ]
    )
)


def test_the_package_has_modules() -> None:
    names = {module.name for module in gateway_modules()}

    assert any(name.startswith("gateway.core.") for name in names)
    assert len(names) >= 4


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: rules.Rule) -> None:
    complaints = [complaint for module in gateway_modules() for complaint in rule(module)]

    assert not complaints, "\n".join([str(rule.__doc__), *complaints])


LONG_FUNCTION = "def long() -> None:\n" + "    pass\n" * rules.FUNCTION_LIMIT
LONG_CONSTRUCTOR = (
    "class C:\n    def __init__(self) -> None:\n" + "        self.x = 1\n" * rules.FUNCTION_LIMIT
)


@pytest.mark.parametrize(
    "rule, path, text",
    [
        (rules.stays_pure, "gateway/core/x.py", "import asyncio"),
        (rules.stays_pure, "gateway/core/x.py", "def f():\n    from os import path"),
        (rules.stays_pure, "gateway/core/__init__.py", "import os.path"),
        (rules.stays_pure, "gateway/dialects/openstack/ironic.py", "from time import monotonic"),
        (rules.stays_pure, "gateway/dialects/openstack/ironic.py", "if TYPE_CHECKING:\n    import aiohttp"),
        (rules.stays_pure, "gateway/dialects/openstack/ironic.py", "open('x')"),
        (rules.stays_pure, "gateway/core/x.py", "async def f(): ..."),
        (rules.cuts_by_plain_bounds, "gateway/dataplane/x.py", "rest = rest[write(rest) :]"),
        (rules.cuts_by_plain_bounds, "gateway/core/x.py", "x = text[: (end := 3)]"),
        (rules.knows_no_dialect, "gateway/core/x.py", "if name == 'ironic': ..."),
        (rules.knows_no_dialect, "gateway/cli/x.py", "x = 'nova' != name"),
        (rules.knows_no_dialect, "gateway/cli/x.py", "x = name in ('a', 'chef')"),
        (rules.knows_no_dialect, "gateway/cli/x.py", "x = name.startswith('openstack')"),
        (rules.knows_no_dialect, "gateway/cli/x.py", "match name:\n    case 'a' | 'senlin': ..."),
        (rules.knows_no_dialect, "gateway/cli/x.py", "match x:\n    case Service(dialect='custom'): ..."),
        (rules.says_what_it_is, "gateway/core/x.py", "x = 1"),
        (rules.stays_small, "gateway/core/x.py", "x = 1\n" * (rules.FILE_LIMIT + 1)),
        (rules.stays_small, "gateway/core/x.py", LONG_FUNCTION),
        (
            rules.leaves_the_snapshot_alone,
            "gateway/dataplane/exchange/exchange.py",
            "holder.current = snapshot",
        ),
        (
            rules.leaves_the_snapshot_alone,
            "gateway/dataplane/exchange/exchange.py",
            "a, holder._current = 1, 2",
        ),
        (rules.leaves_the_snapshot_alone, "gateway/admin/api.py", "self.holder.current: int = 1"),
        (rules.leaves_the_snapshot_alone, "gateway/admin/api.py", "del self.holder.current"),
        (rules.reads_no_wall_clock, "gateway/dataplane/x.py", "now = time.time()"),
        (rules.reads_no_wall_clock, "gateway/dataplane/x.py", "from time import time"),
        (rules.uses_public_names_of_aiohttp, "gateway/cli/x.py", "from aiohttp.web_app import _A"),
        (
            rules.uses_public_names_of_aiohttp,
            "gateway/admin/x.py",
            "from aiohttp import web as w\nclass A(w.Response): ...",
        ),
    ],
)
def test_a_breach_is_noticed(rule: rules.Rule, path: str, text: str) -> None:
    assert list(rule(read_module(path, text)))


@pytest.mark.parametrize(
    "rule, path, text",
    [
        (rules.cuts_by_plain_bounds, "gateway/dataplane/x.py", "x = data[: len(data) - 1]"),
        (rules.cuts_by_plain_bounds, "gateway/cli/x.py", "x = data[: f(data)]"),
        (rules.stays_pure, "gateway/dataplane/x.py", "import asyncio"),
        (rules.stays_pure, "gateway/core/x.py", "from gateway.core.timetable import x\nimport osprey"),
        (rules.knows_no_dialect, "gateway/dialects/openstack/ironic.py", "x = name == 'ironic'"),
        (rules.knows_no_dialect, "gateway/demo/front.py", "settings = {'dialect': 'ironic'}"),
        (rules.says_what_it_is, "gateway/core/x.py", '"""What it is."""'),
        (
            rules.stays_small,
            "gateway/core/x.py",
            '"""What it is."""\n# why\nimport x\n\n' + "x = 1\n" * rules.FILE_LIMIT,
        ),
        (rules.stays_small, "gateway/core/x.py", LONG_CONSTRUCTOR),
        (
            rules.leaves_the_snapshot_alone,
            "gateway/controlplane/snapshot_holder.py",
            "self.current = snapshot",
        ),
        (
            rules.leaves_the_snapshot_alone,
            "gateway/dataplane/exchange/exchange.py",
            "snapshot = holder.current",
        ),
        (rules.reads_no_wall_clock, "gateway/admin/api.py", "now = time.time()"),
        (rules.reads_no_wall_clock, "gateway/dataplane/x.py", "now = time.monotonic()"),
        (
            rules.uses_public_names_of_aiohttp,
            "gateway/admin/x.py",
            "import asyncio\nfrom aiohttp import web\nclass A(asyncio.Protocol):\n    x: web.Server",
        ),
    ],
)
def test_what_is_allowed_passes(rule: rules.Rule, path: str, text: str) -> None:
    assert not list(rule(read_module(path, text)))


def circles(modules: Iterable[Module]) -> list[str]:
    """Modules that reach themselves by their imports, those for types included."""
    names = {module.name: module for module in modules}
    reached = {name: imported_modules(module, names) - {name} for name, module in names.items()}
    for middle in names:
        for after in reached.values():
            if middle in after:
                after |= reached[middle]
    return sorted(name for name, after in reached.items() if name in after)


def test_no_modules_import_each_other() -> None:
    """Also for types, and in a circle of several: what goes the other way is a protocol (decision 0024)."""
    assert circles(gateway_modules()) == []


def test_a_circle_is_noticed() -> None:
    first = read_module("gateway/dataplane/a.py", "from gateway.dataplane.b import B")
    second = read_module("gateway/dataplane/b.py", "if TYPE_CHECKING:\n    from gateway.dataplane.c import C")
    third = read_module("gateway/dataplane/c.py", "from gateway.dataplane import a")
    last = read_module("gateway/dataplane/d.py", "from gateway.dataplane import a")

    assert circles([first, second, third, last]) == [module.name for module in (first, second, third)]


_HEAVY_TESTS = tuple(f"tests/{name}/" for name in ("load", "real", "engines", "packaging", "browser"))
_OWN_DEADLINE = re.compile(
    r"asyncio\.timeout\([\d.]+\)|assert .*\b(?:monotonic|perf_counter|loop\.time)\(\) *-"
)
"""A deadline beside `tests.kit.waiting`, or an assertion about the time of the machine."""


def test_no_quick_test_depends_on_the_speed_of_the_machine() -> None:
    complaints = [
        f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for path, text in project_texts()
        if path.startswith("tests/") and path.endswith(".py") and not path.startswith(_HEAVY_TESTS)
        for found in _OWN_DEADLINE.finditer(text)
        if path != "tests/architecture/test_house.py"
    ]

    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(
    "text, is_breach",
    [
        ("async with asyncio.timeout(0.9):", True),
        ("assert time.monotonic() - began < 5", True),
        ("async with asyncio.timeout(PATIENCE):", False),
        ("assert time.monotonic() < deadline", False),
    ],
)
def test_a_deadline_of_its_own_is_noticed(text: str, is_breach: bool) -> None:
    assert bool(_OWN_DEADLINE.search(text)) == is_breach


_MEASURES: Final = {"process_time", "perf_counter"}


def measuring_tests(text: str) -> list[str]:
    """The tests of a module that measure CPU or time, themselves or by a helper, outside the group `load`."""
    functions = {
        node.name: node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    used = {
        name: {
            part.id if isinstance(part, ast.Name) else part.attr
            for part in ast.walk(node)
            if isinstance(part, ast.Name | ast.Attribute)
        }
        for name, node in functions.items()
    }
    measuring = set(_MEASURES)
    while found := {name for name, names in used.items() if names & measuring} - measuring:
        measuring |= found
    return [
        name
        for name in sorted(measuring & functions.keys())
        if name.startswith("test_")
        and not any(ast.unparse(mark) == "pytest.mark.load" for mark in functions[name].decorator_list)
    ]


def test_what_measures_runs_alone() -> None:
    """In the group `load`: beside other tests, on a busy machine, its figures mean nothing."""
    complaints = [
        f"{path}: {name}"
        for path, text in project_texts()
        if path.startswith("tests/") and path.endswith(".py") and not path.startswith(_HEAVY_TESTS)
        if any(name in text for name in _MEASURES)
        for name in measuring_tests(text)
    ]

    assert not complaints, "\n".join(complaints)


def test_what_measures_is_noticed() -> None:
    helper = "def cost():\n    return time.process_time()\n"
    quick = "async def test_cost():\n    assert cost() < 5\n"

    assert measuring_tests(helper + quick) == ["test_cost"]
    assert measuring_tests(helper + "@pytest.mark.load\n" + quick) == []


def test_nothing_is_left_for_later() -> None:
    findings = [
        f"{path}:{number}: {line.strip()}"
        for path, text in project_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if MARKERS.search(line)
    ]

    assert not findings, "\n".join(findings)


def test_no_file_names_a_registry() -> None:
    """Where packages come from is the business of whoever installs: mirrors and closed networks exist."""
    findings = [
        f"{path}:{number}: {line.strip()}"
        for path, text in project_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if REGISTRY_HOSTS.search(line)
    ]

    assert not findings, "\n".join(findings)


def test_every_shell_script_parses() -> None:
    scripts = [
        path
        for path in project_files()
        if path.suffix == ".sh"
        or path.read_bytes().startswith((b"#!/bin/sh", b"#!/bin/bash", b"#!/usr/bin/env bash"))
    ]
    assert {"run", "test"} <= {path.name for path in scripts}

    for script in scripts:
        shell = "bash" if b"bash" in script.read_bytes().split(b"\n", 1)[0] and shutil.which("bash") else "sh"
        checked = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("name", ["run", "test", ".ci/run", ".ci/packages", "requirements/compile"])
def test_what_people_start_can_be_started(name: str) -> None:
    assert (ROOT / name).stat().st_mode & 0o111 == 0o111
