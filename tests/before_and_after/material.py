"""What wrong configurations are made of: the good files, examples and tests of a checkout, and files to name.

checkout -> its YAML, the texts in its tests, its schema -> Material
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Final, NamedTuple

import yaml

from tests.before_and_after.faults import Words
from tests.before_and_after.keys import VARIABLES, Path, keys_of, schema_of
from tests.before_and_after.texts import Map, Tree, read
from tests.kit.certificates import Authority

WHOLE: Final = FilePath(__file__).with_name("whole.yaml")
PAIRS: Final = FilePath(__file__).with_name("pairs.yaml")

_BLOCK: Final = re.compile(r"^```ya?ml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
_PLACEHOLDER: Final = re.compile(r"\{[a-z_]*\}")
_DIALECTS_OF_TESTS: Final = {"plain": "ironic", "dated": "nova", "{}": "ironic", "{dialect}": "senlin"}
_LONGEST_WORD: Final = 80
_LONGEST_PIECE: Final = 3000


class Material(NamedTuple):
    """All of it, in the same order for the same checkout."""

    texts: tuple[str, ...]
    """Whole files as people write them."""
    trees: tuple[Map, ...]
    """The same as trees, and those in pages and tests."""
    pieces: tuple[Map, ...]
    """Parts of files, in tests: some keys with wrong values."""
    pairs: tuple[Tree, ...]
    """What is put over a short file: mistakes of two keys together."""
    words: Words
    variables: Mapping[str, str]
    """Environment variables, those that the texts name included."""


def material_of(checkout: FilePath, schema: str) -> Material:
    """`schema`: what `skewgate schema` prints there."""
    texts = [WHOLE.read_text(encoding="utf-8")]
    for pattern in (
        "config/*.yaml",
        "config/examples/*.yaml",
        "deploy/**/skewgate.yaml",
        "gateway/demo/*.yaml",
    ):
        texts += [_at_hand(path.read_text(encoding="utf-8")) for path in sorted(checkout.glob(pattern))]
    shown = [
        block
        for page in sorted(checkout.glob("docs/*.md"))
        for block in _BLOCK.findall(_at_hand(page.read_text("utf-8")))
    ]
    literals = list(dict.fromkeys(_literals(checkout)))
    trees: list[Map] = []
    pieces: list[Map] = []
    for text in (*texts, *shown, *literals):
        for name, known in _DIALECTS_OF_TESTS.items():
            text = text.replace(f"dialect: {name}", f"dialect: {known}")
        if (tree := _tree(text)) is not None:
            (trees if tree.get("services") is not None else pieces).append(tree)
    keys = tuple(keys_of(schema_of(schema)))
    names = sorted({key.path[-1] for key in keys} - {"*", "[]"})
    single = (literal for literal in literals if "\n" not in literal and len(literal) <= _LONGEST_WORD)
    words = dict.fromkeys(word for literal in single for word in (literal, *literal.split()))
    return Material(
        tuple(texts),
        tuple(trees),
        tuple(pieces),
        tuple(_items(read(PAIRS.read_text(encoding="utf-8")))),
        Words(keys, tuple(names), tuple(words), dict(_sections(trees[0], ()))),
        {**dict(_variables(texts)), **VARIABLES},
    )


def _items(tree: Tree) -> list[Tree]:
    assert isinstance(tree, list)
    return tree


def _at_hand(text: str) -> str:
    """With the files of `write_files` in place of those of an installation."""
    return text.replace("/etc/skewgate/", "").replace("/var/lib/skewgate/", "folder/")


def _sections(tree: Tree, path: Path) -> Iterator[tuple[Path, Tree]]:
    """Everything that holds something, by its place in the schema; the last one of a place counts."""
    if path and not isinstance(tree, str):
        yield path, tree
    if isinstance(tree, Map):
        for key, value in reversed(tree.pairs):
            yield from _sections(value, (*path, "*" if path == ("services",) else str(key)))
    elif isinstance(tree, list):
        for item in reversed(tree):
            yield from _sections(item, (*path, "[]"))


def _variables(texts: list[str]) -> Iterator[tuple[str, str]]:
    for number, name in enumerate(dict.fromkeys(_VARIABLE.findall("".join(texts)))):
        if "PORT" in name:
            yield name, f"{6000 + number}"
        else:
            yield (
                name,
                "5s" if name.endswith(("INTERVAL", "STABILIZATION")) else f"http://127.0.0.1:{7000 + number}",
            )


def _literals(checkout: FilePath) -> Iterator[str]:
    """The texts in the tests of configurations: most of them are wrong in one way."""
    for path in sorted(checkout.glob("tests/settings/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and len(node.value) <= _LONGEST_PIECE
            ):
                yield node.value


def _tree(text: str) -> Map | None:
    """The mapping that a text holds, templates for `str.format` included; None: it holds none."""
    if ":" not in text:
        return None
    for version in (text, _PLACEHOLDER.sub("x", text).replace("{{", "{").replace("}}", "}")):
        try:
            tree: Tree = read(version)
        except (yaml.YAMLError, ValueError):
            continue
        if isinstance(tree, Map) and all(_is_key(key) for key, _ in tree.pairs):
            return tree
    return None


def _is_key(key: Tree) -> bool:
    return isinstance(key, str) and key.replace("_", "").isalnum() and key.isascii()


def write_files(folder: FilePath) -> None:
    """What wrong configurations name: certificates, secrets, targets, included files."""
    authority = Authority()
    authority.write(folder)
    authority.server().write(folder)
    for name in ("clients-ca", "operators-ca", "backends-ca", "etcd-ca"):
        authority.write(folder, name)
    for name in ("gateway", "admin", "etcd-client"):
        authority.server().write(folder, name)
    Authority("Another CA").server().write(folder, "other")
    authority.server(days=-1).write(folder, "expired")
    authority.server(days=5.5).write(folder, "soon")
    (folder / "token").write_text(VARIABLES["TOKEN"] + "\n", encoding="utf-8")
    (folder / "short").write_text("short\n", encoding="utf-8")
    (folder / "empty").write_text("\n", encoding="utf-8")
    (folder / "latin1").write_bytes(b"na\xefve\n")
    (folder / "large").write_bytes(b"x" * (65 << 10))
    (folder / "targets.json").write_text(
        '[{"targets": ["10.0.0.1:6385", "10.0.0.2:6385"]}]', encoding="utf-8"
    )
    (folder / "targets.yaml").write_text("- targets: [10.0.0.1:6385]\n", encoding="utf-8")
    (folder / "wrong-targets.json").write_text('[{"targets": [1]}]', encoding="utf-8")
    for number, groups in enumerate(_WRONG_GROUPS, 1):
        (folder / f"groups-{number}.{'yaml' if groups.startswith('-') else 'json'}").write_text(
            groups, encoding="utf-8"
        )
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "folder").mkdir(mode=0o700)
    (folder / "folder" / "secret").write_text("a-secret-of-the-team\n", encoding="utf-8")
    (folder / "parts").mkdir()
    (folder / "parts" / "one.yaml").write_text(PART, encoding="utf-8")
    os.mkfifo(folder / "pipe")


_WRONG_GROUPS: Final = (
    '{"targets": []}',
    '[{"labels": {}}]',
    '[{"targets": ["a:1"], "labels": []}]',
    '[{"targets": ["a:1"], "labels": {"__scheme__": "ftp"}}]',
    '[{"targets": ["a:1", "https://a:1", "a:1"]}]',
    '[{"targets": ["unix:/a", "http://u:p@a:1"]}]',
    '[{"targets": ["http://unix:/a",',
    "- targets: [",
)
"""Files that are no lists of backends, each for another reason."""

PART: Final = """\
services:
  part:
    dialect: ironic
    match: {path: "/part${NUMBER}"}
    probe: {headers: {X-Auth-Token: "${FILE:folder/secret}"}}
    backends: [{url: "${URL}"}]
"""
"""A file that is included."""
