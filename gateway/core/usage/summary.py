"""Answers to questions about usage: the JSON object of `GET /usage` and `skewgate usage -o json`.

Pure: a running gateway answers as the command does from databases alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias, final

from gateway.core.days import DAY, text_of_day
from gateway.core.decision.decision import EXECUTED, NegotiationResult
from gateway.core.usage.record import Count, RowKey, Scope, UsageRecord

CLIENT, VERSION, OPERATION = BY = ("client", "version", "operation")
"""What the rows of an answer can stand for."""

NOT_REFUSED: Final = EXECUTED | {"", NegotiationResult.TRANSPARENT}
"""Values of `RowKey.result` for requests that were not refused."""

_KINDS: Final = {"": "not negotiated", "latest": "latest", "none": "no version", "malformed": "malformed"}
_LISTED: Final = 3
"""Maximum versions that `asked_for` lists; of more it has the first and the last."""
_NUMBERS: Final = re.compile(r"[0-9]{1,18}(?:[.-][0-9]{1,18})*", re.ASCII)

Order: TypeAlias = Callable[[str], tuple[bool, tuple[int, ...], str]]
"""Sort key of a service's versions. Begins with True for texts that are not known as one: they come last."""


class QuestionError(ValueError):
    """Error for a question that has no meaning; the message says why."""


@final
class Question(NamedTuple):
    """Question about usage. The fields are the parameters of `GET /usage`; None: it has no such condition."""

    service: str | None = None
    since: str | None = None
    by: str = CLIENT
    client: str | None = None
    version: str | None = None
    """Version that requests asked for, or at which they were executed."""
    below: str | None = None

    def days(self) -> int | None:
        """Number of whole days before today; None: all that is recorded. Raises `QuestionError`."""
        if self.by not in BY:
            raise QuestionError(f"`by` must be one of {', '.join(BY)}")
        if self.since is not None and not re.fullmatch("[1-9][0-9]{0,3}d", self.since, re.ASCII):
            raise QuestionError("`since` must be a number of days, such as 7d")
        return None if self.since is None else int(self.since[:-1])


def answer(record: UsageRecord, question: Question) -> dict[str, Any]:
    """Answers a question from the record of its days. Raises `QuestionError`."""
    of_days = question.days() is not None
    names = named_versions(record)
    orders = {each: order_of(names.get(each, ())) for each in {key.service for _, key in record.rows}}
    groups: defaultdict[tuple[object, ...], list[tuple[RowKey, Count]]] = defaultdict(list)
    for (_, key), count in record.rows.items():
        order = orders[key.service]
        if _fits(key, question, order):
            is_product = question.by == CLIENT and not key.named
            place = (key.service, is_product, order(_subject(key, question.by)), key.requested)
            groups[place].append((key, count))
    rows = [_row(groups[place], question.by, orders[str(place[0])]) for place in sorted(groups)]
    of_version = question.by == VERSION or question.version or question.below
    smallest = Scope.VERSIONS if of_version else Scope.CLIENTS
    scope = Scope.OPERATIONS if question.by == OPERATION else smallest
    incomplete = why_incomplete(record, question.service, scope, of_days=of_days)
    return {
        **question._asdict(),
        "first_day": text_of_day(record.since),
        "last_day": text_of_day(record.until),
        "complete": not incomplete,
        "incomplete": incomplete,
        "requests": sum(row["requests"] for row in rows),
        "refused": sum(row["refused"] for row in rows),
        "rows": [row for row in rows if row["requests"] > 0],  # 0: its requests have moved to another row
    }


def _row(members: Collection[tuple[RowKey, Count]], by: str, order: Order) -> dict[str, Any]:
    """Adds up the rows of a record that are one row of the answer."""
    versions, clients = Counter[str](), Counter[str]()
    for key, count in members:
        versions[version_of(key)] += count.requests
        clients[key.client] += count.requests
    key, _ = next(iter(members))
    bridged = sum(count.requests for key, count in members if key.result == NegotiationResult.BRIDGED)
    return {
        "service": key.service,
        by: _subject(key, by),
        **({"named": key.named} if by == CLIENT else {}),
        "requested": key.requested,
        "requests": sum(count.requests for _, count in members),
        "refused": sum(count.requests for key, count in members if key.result not in NOT_REFUSED),
        **({"bridged": bridged} if bridged else {}),
        "first": min(count.first for _, count in members),
        "last": max(count.last for _, count in members),
        "versions": {each: versions[each] for each in sorted(+versions, key=order) if each},
        "clients": dict((+clients).most_common()),
        "addresses": sorted({each for _, count in members for each in count.addresses}),
    }


def asked_for(row: Mapping[str, Any]) -> str:
    """Words how the requests of an answer's row asked for their versions: `1.1, 1.31`, `latest -> 1.58`."""
    kind, names = _KINDS.get(row["requested"], ""), list(row["versions"])
    some = ", ".join(names) if len(names) <= _LISTED else f"{names[0]} to {names[-1]} ({len(names)})"
    return " -> ".join(filter(None, (kind, some))) + (" (bridged)" if row.get("bridged") else "")


def version_of(key: RowKey) -> str:
    """Version at which the requests of a row were executed, or else, or if they were bridged, the one that
    they asked for. In a brown-out, a bridge may have been on the way, too."""
    is_other = key.result in {NegotiationResult.BRIDGED, NegotiationResult.BROWNOUT}
    return key.asked if key.asked and is_other else key.version or key.asked


def _subject(key: RowKey, by: str) -> str:
    return version_of(key) if by == VERSION else str(getattr(key, by))


def _fits(key: RowKey, question: Question, order: Order) -> bool:
    """Whether a row meets the conditions of a question. Raises `QuestionError`."""
    if question.service not in {None, key.service} or question.client not in {None, key.client}:
        return False
    if question.version not in {None, key.asked, key.version}:
        return False
    if question.below is None:
        return True
    version, limit = version_of(key), order(question.below)
    if limit[0] or question.service is None:
        raise QuestionError("`below` must be a version of one service, and this `service` must be given")
    # What cannot be compared may be below, unless it was refused for being above the offer.
    unknown = order(version)[0] and (version or key.result == NegotiationResult.TRANSPARENT)
    return order(version) < limit or bool(unknown and key.result != NegotiationResult.ABOVE_MAX)


def named_versions(record: UsageRecord) -> Mapping[str, Sequence[str]]:
    """Finds the versions of each service that has names for them, in the order that the state declares."""
    found: dict[str, Sequence[str]] = {}
    for source in record.sources:
        services: Mapping[str, Any] = {}
        with suppress(ValueError, LookupError, TypeError):
            services = dict(json.loads(source.state)["services"])
        for service, saved in services.items():
            with suppress(ValueError, LookupError, TypeError):
                scheme, *names = saved["scheme"]
                if scheme == "named":
                    found[service] = max(found.get(service, ()), names, key=len)
    return found


def order_of(names: Sequence[str]) -> Order:
    """Makes the order of a service's versions: that of their `names`; by number if there are none."""

    @cache  # the same few texts stand in many rows
    def order(text: str) -> tuple[bool, tuple[int, ...], str]:
        if text in names or (not names and _NUMBERS.fullmatch(text)):
            return (False, (names.index(text),) if names else tuple(map(int, re.split("[.-]", text))), text)
        return (True, (), text)

    return order


def why_incomplete(
    record: UsageRecord, service: str | None, scope: Scope, *, of_days: bool
) -> tuple[str, ...]:
    """Returns each reason why an answer about a service (None: all) may be wrong, with its days. `scope`:
    smallest gap that matters. `of_days`: whether the record was to reach back to its first day."""
    days: defaultdict[str, set[int]] = defaultdict(set)
    for gap in record.gaps:
        if gap.scope >= scope and (service is None or gap.service in {"", service}):
            days[gap.reason if gap.service in {"", service} else f"{gap.service}: {gap.reason}"].add(gap.day)
    read = {replica for source in record.sources for replica in source.replica_ids}
    for source in record.sources:
        whose = f" of {(*source.replica_ids, source.id)[0]}" if len(record.sources) > 1 else ""
        begins = [each.begins / DAY for each in source.periods] or [record.until + 0.5]
        end = max((int(each.ends // DAY) for each in source.periods), default=record.until)
        late = range(record.since, min(int(min(begins)), record.until) + 1)
        if of_days and min(begins) > record.since:
            days[f"the record{whose} begins only on the last of these days"].update(late)
        if end < record.until:
            after = range(max(end, record.since), record.until + 1)
            days[f"nothing is recorded{whose} (stopped, `usage` off, or an older copy)"].update(after)
        for replica in sorted(source.replicas.keys() - read):
            first, last = source.replicas[replica]
            served = range(max(first, record.since), min(last, record.until) + 1)
            days[f"the database of replica {replica} was not read: `--db` adds up several"].update(served)
    return tuple(f"{_text_of_days(each)}: {reason}" for reason, each in days.items() if each)


def _text_of_days(days: Collection[int]) -> str:
    first, last = min(days), max(days)
    some = "" if len(days) == last - first + 1 else f"{len(days)} days from "
    return text_of_day(first) if first == last else f"{some}{text_of_day(first)} to {text_of_day(last)}"
