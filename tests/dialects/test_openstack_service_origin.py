"""Which OpenStack service a document is from: read where it says so, refused where it says another one."""

# ruff: noqa: N802 -- ids of threats are written with capitals

from __future__ import annotations

import pytest

from gateway.core.dialect import Advertisement, Dialect, ProbeFault
from gateway.core.http.message import as_mapping
from gateway.dialects import discover
from gateway.dialects.openstack.guideline import OpenStack
from gateway.dialects.openstack.service_origin import Origin, origin
from gateway.settings import load
from tests.dialects import openstack_documents as documents
from tests.dialects.openstack_documents import Answer


def described_as(service_type: str) -> Dialect:
    return OpenStack.configured(OpenStack.Options(service_type=service_type))


@pytest.mark.parametrize("service_type", documents.NAMED)
def test_R3_N11_the_document_says_which_service_it_is(service_type: str) -> None:
    assert OpenStack.recognize(documents.NAMED[service_type].response) == {"service_type": service_type}


@pytest.mark.parametrize("actual", documents.NAMED)
@pytest.mark.parametrize("described", documents.NAMED)
def test_R3_N11_a_document_of_another_service_is_a_failed_probe(described: str, actual: str) -> None:
    step = described_as(described).probe((documents.NAMED[actual].response,), None)

    if described == actual:
        assert isinstance(step, Advertisement)
        assert step.versions
    else:
        assert isinstance(step, ProbeFault)
        assert step.reason == "document"
        assert step.detail.startswith(f"this is the service {actual}, according to ")
        assert step.detail.endswith(f"configure service_type: {actual}")


@pytest.mark.parametrize("name", ["nova", "senlin", "ironic"])
@pytest.mark.parametrize("actual", documents.NAMED)
def test_R3_N11_dialects_of_one_service_refuse_others(name: str, actual: str) -> None:
    """A Cinder with an entry v2.0 was a Nova without microversions."""
    dialect = discover()[name].configured(discover()[name].Options())

    step = dialect.probe((documents.NAMED[actual]._replace(status=200).response,), None)

    assert isinstance(step, ProbeFault)
    assert step.detail.endswith(f"configure service_type: {actual}")


def test_R3_N11_a_service_with_a_dialect_of_its_own_is_sent_there() -> None:
    step = described_as("volume").probe((documents.NOVA.response,), None)

    assert step == ProbeFault(
        "document", "this is the service compute, according to its version header: configure the dialect nova"
    )
    assert OpenStack.recognize(documents.NOVA.response) is None


def test_R3_N11_what_names_no_service_is_read_as_before_and_recognized_by_nobody() -> None:
    answer = documents.NAMELESS.response

    assert isinstance(described_as("instance-ha").probe((answer,), None), Advertisement)
    found = OpenStack.recognize(answer)
    assert isinstance(found, ProbeFault)
    assert "placement" in found.detail


def test_R3_N11_only_cinder_has_ranges_of_major_3() -> None:
    plain = Answer(300, {"versions": [documents.entry("v3.0", "3.0", "3.71")]})
    newer = Answer(300, {"versions": [documents.entry("v3.0", "3.0", "3.71", max_version="3.71")]})

    assert OpenStack.recognize(plain.response) == {"service_type": "volume"}
    assert isinstance(OpenStack.recognize(newer.response), ProbeFault)
    # Another service of that major may come: the guess is for `init`, which an operator reads.
    assert isinstance(described_as("backup").probe((plain.response,), None), Advertisement)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(401, documents.CINDER.document),
        Answer(200, {"versions": ["1", "2"]}),
        Answer(200, {"versions": [{"id": "v1", "links": []}]}),
        Answer(200, {}),
    ],
)
def test_R3_N11_other_documents_are_nobody_s(answer: Answer) -> None:
    assert OpenStack.recognize(answer.response) is None


@pytest.mark.parametrize(
    "lines, document, expected",
    [
        ([("openstack-api-version", "volume 3.0")], documents.MANILA.document, "volume"),
        ([("openstack-api-version", "container-infrastructure 1.1")], {}, "container-infra"),
        ([("openstack-api-version", "volume 3.0"), ("openstack-api-version", "share 2.0")], {}, None),
        ([("openstack-api-version", "volume")], {}, None),
        ([("vary", "Accept, X-OpenStack-Manila-API-Version")], {}, "shared-file-system"),
        ([], {"versions": [{"media-types": "application/vnd.openstack.volume+json"}]}, None),
        ([], {"versions": [{"media-types": [{"type": 7}]}]}, None),
        ([], {"versions": [{"media-types": [{"type": "application/vnd.openstack.weather-v1+json"}]}]}, None),
        ([], {"name": ["OpenStack Magnum API"]}, None),
    ],
)
def test_R3_N11_headers_precede_documents_and_what_contradicts_itself_says_nothing(
    lines: list[tuple[str, str]], document: dict[str, object], expected: str | None
) -> None:
    found = origin(as_mapping(lines), document)

    assert (None if found is None else found.service_type) == expected
    assert found is None or isinstance(found, Origin)


@pytest.mark.parametrize("options, at", [("", (5, 14)), ("    openstack: {latest: exact}\n", (6, 16))])
def test_R3_N11_openstack_without_a_service_type_is_an_error(options: str, at: tuple[int, int]) -> None:
    text = (
        "listen: 127.0.0.1:8080\nservices:\n  api:\n    backends: [{url: 'http://127.0.0.1:1'}]\n"
        f"    dialect: openstack\n{options}"
    )

    (problem,) = load(text, filename="x", environ={}).errors

    assert problem.message == "the dialect openstack needs the service type of the API"
    assert "volume, shared-file-system, placement" in (problem.hint or "")
    assert (problem.line, problem.column) == at
