"""The examples in docs/logs.md and those for log stores, against the tables of fields in that page."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import yaml

from tests.docs.log_fields import ACCESS_LOG, LEFT_OUT, PROCESS_LOG, LogField
from tests.docs.pages import blocks, page

PAGE: Final = page("docs/logs.md")
LOKI: Final = page("deploy/logs/loki.alloy")
ACCESS: Final = {field.name: field for field in ACCESS_LOG}
PROCESS: Final = {field.name: field for field in PROCESS_LOG}
BOTH: Final = ACCESS | PROCESS
MAPPINGS: Final = {
    "time": "date",
    "word": "keyword",
    "text": "keyword",
    "integer": "long",
    "seconds": "double",
}


def test_the_same_name_means_the_same() -> None:
    for name in ACCESS.keys() & PROCESS.keys():
        assert ACCESS[name].kind == PROCESS[name].kind


def test_the_line_that_is_shown_has_every_field() -> None:
    (shown,) = (json.loads(block.text) for block in blocks(PAGE) if block.language == "json")
    assert list(shown) == [name for name in ACCESS if name not in LEFT_OUT]


def loki_blocks(log: str, kind: str) -> list[str]:
    """The names in the blocks `kind` for one of the logs."""
    (process,) = re.findall(rf'^loki\.process "{log}" \{{\n(.*?)^\}}', LOKI, re.MULTILINE | re.DOTALL)
    stage = rf"stage\.{kind} \{{\n *(?:values|expressions) = \{{\n(.*?)^    \}}"
    found = re.search(stage, process, re.MULTILINE | re.DOTALL)
    assert found is not None, kind
    return re.findall(r"^ *(\w+) *=", found[1], re.MULTILINE)


def test_loki_reads_fields_that_exist_and_makes_streams_of_few() -> None:
    assert LOKI.count("{") == LOKI.count("}")
    for log, fields in (("access", ACCESS), ("process", PROCESS)):
        read = loki_blocks(log, "json")
        labels, metadata = loki_blocks(log, "labels"), loki_blocks(log, "structured_metadata")
        assert set(read) <= fields.keys()
        assert {"time", *labels, *metadata} == set(read)
        assert all(fields[name].kind == "word" for name in labels)
        assert set(labels) <= {"service", "level"}, "each value of a label is a stream"


def test_queries_ask_for_fields_that_exist() -> None:
    queries = "".join(block.text for block in blocks(PAGE) if block.language == "text")
    asked = re.findall(r"\{\{\.(\w+)\}\}|\| (\w+) [!=]|by \((\w+)\)|skewgate\.(\w+)", queries)
    names = {name for each in asked for name in each if name}
    assert len(names) >= 8
    assert names <= BOTH.keys()


def test_elasticsearch_maps_every_field_by_its_kind() -> None:
    template = json.loads(page("deploy/logs/index-template.json"))
    properties = template["template"]["mappings"]["properties"]["skewgate"]["properties"]
    assert properties.keys() == BOTH.keys()
    free = {"message": "text", "stack": "text"}
    for name, field in BOTH.items():
        assert properties[name]["type"] == free.get(name, mapping(field)), name


def mapping(field: LogField) -> str:
    return MAPPINGS[field.kind]


def test_filebeat_copies_fields_that_exist() -> None:
    document: Any = yaml.safe_load(page("deploy/logs/filebeat.yml"))
    timestamp, copies = document["processors"]
    assert timestamp["timestamp"]["field"].removeprefix("skewgate.") in ACCESS
    pairs = [(each["from"], each["to"]) for each in copies["copy_fields"]["fields"]]
    assert {before.removeprefix("skewgate.") for before, _ in pairs} <= BOTH.keys()
    assert len({after for _, after in pairs}) == len(pairs)
    assert all(each["parsers"][0]["ndjson"]["target"] == "skewgate" for each in document["filebeat.inputs"])
