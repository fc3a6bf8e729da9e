"""Hooks of mkdocs.yml: what GitHub shows by itself, and MkDocs does not.

A link to a file or folder outside docs/ leads to the repository, and anchors are spelled as on GitHub. The
decisions get a page that lists them, and the navigation has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT: Final = Path(__file__).resolve().parents[2]
REPOSITORY: Final = "https://github.com/skewgate/skewgate"
DECISIONS: Final = "decisions/"
LIST_OF_DECISIONS: Final = "decisions/index.md"
_LINK: Final = re.compile(r"\]\(((?:\.\./)*[\w./-]+)((?:#[^)]*)?)\)")


def titles() -> dict[str, str]:
    """Title of every decision by its path below docs/."""
    records = sorted((ROOT / "docs" / DECISIONS).glob("*.md"))
    return {
        f"{DECISIONS}{record.name}": record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        for record in records
    }


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the folder of decisions in the navigation by its files, and set how anchors are spelled."""
    assert config.nav is not None
    *others, last = config.nav
    assert last == {"Decisions": DECISIONS}
    listed = [{name: path} for path, name in titles().items()]
    config.nav = [*others, {"Decisions": [LIST_OF_DECISIONS, *listed]}]
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page that lists the decisions."""
    listed = "".join(f"- [{name}]({path.removeprefix(DECISIONS)})\n" for path, name in titles().items())
    files.append(File.generated(config, LIST_OF_DECISIONS, content=f"# Decisions\n\n{listed}"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files outside docs/ to the repository, and those to the decisions to their list."""

    def led(found: re.Match[str]) -> str:
        target = normpath(join("docs", dirname(page.file.src_uri), found[1]))
        if target == "docs/decisions":
            return f"]({found[1]}index.md)"
        if target.startswith("docs/") or not (ROOT / target).exists():
            return found[0]  # MkDocs checks it
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{target}{found[2]})"

    return _LINK.sub(led, markdown)
