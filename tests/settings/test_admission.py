"""`access`, `client_limits`, `maintenance` of a service and `limits.shed_lag`: what they come to, and every
way to write them wrong."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from gateway.core.fleet.admission import ClientLimits, Maintenance
from gateway.core.fleet.timeouts import NO_TIMEOUT
from gateway.settings import load

FILE = """\
listen: 127.0.0.1:8080
services:
  metal:
    dialect: {dialect}
    backends: [{{url: "http://127.0.0.1:6385"}}]
{more}"""


def loaded(*lines: str, dialect: str = "ironic"):  # type: ignore[no-untyped-def]  # noqa: ANN201
    more = "".join(f"    {line}\n" for line in lines)
    return load(FILE.format(dialect=dialect, more=more), filename="f", environ={})


def test_nothing_is_on_by_default() -> None:
    (service,) = loaded().require().services

    assert (service.access, service.maintenance, service.client_limits) == (None, None, ClientLimits())
    assert loaded().require().limits.shed_lag == 0.5


def test_access() -> None:
    (service,) = (
        loaded("access: {allow: [10.0.0.0/8, '2001:db8::/32'], deny: [10.9.0.0/16]}").require().services
    )

    assert service.access is not None
    allowed = {
        text: service.access.allows(ip_address(text)) for text in ("10.1.1.1", "10.9.1.1", "192.0.2.1")
    }
    assert allowed == {"10.1.1.1": True, "10.9.1.1": False, "192.0.2.1": False}


@pytest.mark.parametrize(
    "written, limits, burst",
    [
        ("{rate: 100/s}", ClientLimits(100.0), 200),
        ("{rate: 30/m}", ClientLimits(0.5), 10),
        ("{rate: 36/h, burst: 3}", ClientLimits(0.01, 3), 3),
        ("{concurrency: 50}", ClientLimits(concurrency=50), 10),
        ("{rate: 100/s, burst: 1, concurrency: 1}", ClientLimits(100.0, 1, 1), 1),
        ("{}", ClientLimits(), 10),
    ],
)
def test_client_limits(written: str, limits: ClientLimits, burst: int) -> None:
    (service,) = loaded(f"client_limits: {written}").require().services

    assert service.client_limits == limits
    assert service.client_limits.effective_burst == burst


def test_maintenance() -> None:
    for written, expected in (
        ("{}", Maintenance()),
        ("{status: 410, body: Gone to lunch}", Maintenance(410, "Gone to lunch")),
    ):
        (service,) = loaded(f"maintenance: {written}").require().services
        assert service.maintenance == expected
    (service,) = loaded("maintenance: {retry_after: 90s}", dialect="chef").require().services
    assert service.maintenance == Maintenance(retry_after=90)


@pytest.mark.parametrize("written, seconds", [("250ms", 0.25), ("2s", 2.0), ("off", NO_TIMEOUT)])
def test_shed_lag(written: str, seconds: float) -> None:
    text = FILE.format(dialect="ironic", more=f"limits: {{shed_lag: {written}}}\n")

    assert load(text, filename="f", environ={}).require().limits.shed_lag == seconds


@pytest.mark.parametrize(
    "line, position, code",
    [
        ("access: {allow: []}", (6, 21), "bad-value"),
        ("access: {deny: [10.0.0.1/8]}", (6, 21), "bad-value"),
        ("access: {allow: [example.org]}", (6, 22), "bad-value"),
        ("access: {allow: [10.0.0.0/8], deny: [10.0.0.0/8]}", (6, 42), "contradiction"),
        ("access: {allowed: [10.0.0.0/8]}", (6, 14), "unknown-key"),
        ("client_limits: {rate: 100}", (6, 27), "bad-value"),
        ("client_limits: {rate: 0/s}", (6, 27), "bad-value"),
        ("client_limits: {rate: 1.5/s}", (6, 27), "bad-value"),
        ("client_limits: {rate: 100/d}", (6, 27), "bad-value"),
        ("client_limits: {rate: 100/s, burst: 0}", (6, 41), "bad-value"),
        ("client_limits: {burst: 5}", (6, 28), "contradiction"),
        ("client_limits: {rate: fast, burst: 5}", (6, 27), "bad-value"),
        ("client_limits: {concurrency: 0}", (6, 34), "bad-value"),
        ("client_limits: {concurrency: many}", (6, 34), "bad-value"),
        ("maintenance: {status: 200}", (6, 27), "bad-value"),
        ("maintenance: {status: 600}", (6, 27), "bad-value"),
        ("maintenance: {body: ''}", (6, 25), "bad-value"),
        ("maintenance: {retry_after: soon}", (6, 32), "bad-value"),
        ("maintenance: yes", (6, 18), "wrong-type"),
        ('maintenance: {body: "a\\0b"}', (6, 25), "bad-value"),
        (f"maintenance: {{body: {'x' * (64 * 1024 + 1)}}}", (6, 25), "bad-value"),
    ],
)
def test_each_mistake_is_one_error_at_its_place(line: str, position: tuple[int, int], code: str) -> None:
    (problem,) = loaded(line).errors

    assert ((problem.line, problem.column), problem.code) == (position, code)


def test_a_lag_of_zero_is_refused() -> None:
    text = FILE.format(dialect="ironic", more="limits: {shed_lag: 0s}\n")
    (problem,) = load(text, filename="f", environ={}).errors

    assert (problem.line, problem.code) == (6, "bad-value")


def test_retry_after_that_is_not_sent_is_a_warning() -> None:
    (problem,) = loaded("maintenance: {retry_after: 10m}").problems
    assert (problem.line, problem.column, problem.code) == (6, 32, "no-effect")
    assert not loaded("maintenance: {retry_after: 10m}", "retry_after: true").problems
    assert not loaded("maintenance: {retry_after: 10m}", dialect="chef").problems
