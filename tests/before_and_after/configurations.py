"""Configurations in an old and a new checkout: schema, reference page, and thousands of wrong files.

For each file every problem is compared: where it is, its severity, code, message and hint; and for a file
that can be used, what is known of its settings. Attributes may have another name or place in the new
checkout: `RENAMED` says so; those that only one side has are named and not compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.before_and_after.checkout import Checkout, both, end, ended
from tests.before_and_after.files import cases, write_cases
from tests.before_and_after.material import material_of, write_files
from tests.before_and_after.report import MOST_SHOWN, Report, difference

READER: Final = Path(__file__).with_name("read_files.py")

RENAMED: Final[Mapping[str, str]] = {
    r"\bqueue_(length|timeout)$": r"queue.\1",
    r"\.limits\.(?=(?:client|backend|tunnel)_|connect$)": ".timeouts.",
    r"\.limits\.reuse_": ".reuse.",
    r"\.client_limits\.burst$": ".client_limits.effective_burst",
    r"\.probe\.headers(?=$|\.\d+\.[01]$)": ".probe.headers (pairs)",
    r"\.match\.hosts$": ".match.host (none)",
    r"\.match\.hosts(?=\.)": ".match.host",
    r"^admin\.(host|port)$": r"admin.listen.\1",
    r"^admin\.metrics_listen\.0$": "admin.metrics_listen.host",
    r"^admin\.metrics_listen\.1$": "admin.metrics_listen.port",
}
"""Paths of settings in the old checkout, as regular expressions, with those in the new one."""

OF_NO_MEANING: Final = re.compile(r"services\.\d+\.written")
"""Paths of what no outsider sees: the checksum of a service is made of a `repr`."""

SHOWN_BY_CHECK: Final = 10
"""Every so many-th file is also shown by `skewgate check`."""

_DIGITS: Final = re.compile(r"\d+")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


def compare(old: Checkout, new: Checkout, folder: Path, report: Report, *, files: int, seed: int) -> None:
    """`folder`: an empty one, for the files."""
    schemas = both(old, new, "-m", "gateway", "schema")
    report.compare("skewgate schema", *schemas)
    # As it is committed: what writes it has moved, and each side's tests compare the page with the keys.
    pages = [(side.root / "docs" / "configuration.md").read_text(encoding="utf-8") for side in (old, new)]
    report.compare("the reference page", *pages)
    write_files(folder)
    material = material_of(old.root, schemas[0])
    given = folder / "cases.jsonl"
    with given.open("w", encoding="utf-8") as file:
        for case in write_cases(folder, cases(material, seed, files)):
            file.write(json.dumps(case) + "\n")
    _compare_read(old, new, given, report)
    _compare_shown(old, new, given, report)


def _compare_read(old: Checkout, new: Checkout, given: Path, report: Report) -> None:
    results = [given.with_name(f"{side.side}.jsonl") for side in (old, new)]
    processes = [side.start(READER, given, out) for side, out in zip((old, new), results, strict=True)]
    try:
        for process in processes:
            ended(process)
    finally:
        end(*processes)
    different, usable, one_sided = 0, 0, (Counter[str](), Counter[str]())
    told: list[Mapping[str, Any]] = []
    rows = zip(_lines(given), *map(_lines, results), strict=True)
    for number, (case, before, after) in enumerate(rows):
        usable += before["usable"]
        told += before["problems"]
        found = [*_differences(before, after), *_other_facts(before["facts"], after["facts"], one_sided)]
        if found:
            different += 1
            if different <= MOST_SHOWN:
                report.differs(
                    f"configuration {number}", [*found, "of this file:", *case["text"].splitlines()]
                )
    total = number + 1
    if different:
        report.differs(f"{different} of {total} configurations", ())
    report.say(
        f"{'DIFFERENT' if different else 'equal'}: {total} configurations, {usable} of them can be used"
    )
    templates = templates_of(told)
    quoteless = {tuple(_QUOTED.sub("_", text) for text in template) for template in templates}
    report.say(
        f"    {len(told)} problems of {len(templates)} templates (code, message and hint without digits),"
    )
    report.say(f"    {len(quoteless)} where names in quotation marks do not count")
    for side, paths in zip((old, new), one_sided, strict=True):
        if paths:
            report.say(f"    of settings only in {side.side}, not compared: {', '.join(sorted(paths))}")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def templates_of(problems: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Code, message and hint of problems, with digits masked."""
    return {(each["code"], _masked(each["message"]), _masked(each["hint"] or "")) for each in problems}


def _masked(text: str) -> str:
    return _DIGITS.sub("#", text)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Of problems, and whether the file can be used."""
    if (before["usable"], before["problems"]) == (after["usable"], after["problems"]):
        return []
    shown = [[f"usable: {each['usable']}", *map(_shown, each["problems"])] for each in (before, after)]
    return difference(*shown)


def _shown(problem: Mapping[str, Any]) -> str:
    at = f"{problem['file']}:{problem['line']}:{problem['column']}+{problem['width']}"
    return f"{at} {problem['severity']}[{problem['code']}] {problem['message']!a} ({problem['hint']!a})"


def _other_facts(
    before: Mapping[str, str], after: Mapping[str, str], one_sided: tuple[Counter[str], Counter[str]]
) -> Iterator[str]:
    """Facts that differ. Those of one side only are counted by what they are about."""
    renamed = {_new_path(path): text for path, text in before.items()}
    for path, text in renamed.items():
        if OF_NO_MEANING.fullmatch(path):
            continue
        if path not in after:
            one_sided[0][_generic(path)] += 1
        elif after[path] != text:
            yield f"{path}: {text} is now {after[path]}"
    for path in after.keys() - renamed.keys():
        one_sided[1][_generic(path)] += 1


def _new_path(path: str) -> str:
    for pattern, name in RENAMED.items():
        path = re.sub(pattern, name, path)
    return path


def _generic(path: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", "[]", path)


def _compare_shown(old: Checkout, new: Checkout, given: Path, report: Report) -> None:
    """What `skewgate check` prints for some of the files: source lines, carets, no secrets."""
    paths = []
    for number, case in enumerate(_lines(given)):
        if number % SHOWN_BY_CHECK == 0:
            paths.append(given.with_name(f"case-{number}.yaml"))
            paths[-1].write_text(case["text"], encoding="utf-8", errors="surrogatepass")
    for form in ("text", "json"):
        arguments: Iterable[str | Path] = ("-m", "gateway", "check", "--output", form, *paths)
        shown = [text.replace('"}, {"', '"},\n{"') for text in both(old, new, *arguments, codes=(0, 2))]
        report.compare(f"skewgate check --output {form}, {len(paths)} files", *shown)
