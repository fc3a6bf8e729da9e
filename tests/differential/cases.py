"""The cases of the differential test: requests of hostile, old or broken clients, all made from one seed.

A case starts as a correct request for one API. Then up to three mutations are applied to it. The same seed
gives the same cases. Nothing here knows what the gateway makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.differential.apis import APIS, OPENSTACK_APIS, Api, Header, Location, Parameter, Path, Query
from tests.differential.draft import Case, Draft, Mutation
from tests.differential.header_mutations import (
    HEADER_MUTATIONS,
    REQUEST_MUTATIONS,
    SIGNATURES,
    any_case,
    signature,
)
from tests.differential.media_type_mutations import MEDIA_TYPE_MUTATIONS, media_type
from tests.differential.target_mutations import PATH_MUTATIONS, QUERY_MUTATIONS

_MALFORMED: Final = (
    "x",
    "1.x",
    "01",
    "+1",
    "1_0",
    "9999999999999",
    "1.2.3.4.5",
    "latest ",
    "-",
    "1e0",
    "\xb2",
)
_NUMBER_OF_MUTATIONS: Final = (0, 1, 1, 1, 1, 2, 2, 3)
_ABSENT: Final = "absent"


def cases(seed: int, number: int) -> Iterator[Case]:
    """The first cases of a seed. More of them begin with the same ones."""
    mutations = {api.name: _mutations(api) for api in APIS.values()}
    # Servers of OpenStack read one header alike; what others read has more spellings.
    apis = [api for api in APIS.values() for _ in range(1 if api in OPENSTACK_APIS else 2)]
    for at in range(number):
        api = apis[at % len(apis)]
        yield _case(api, mutations[api.name], Random(f"{seed}:{at}"), at)


def cases_of(api: Api, seed: int, number: int) -> Iterator[Case]:
    """The first cases of a seed for one API."""
    mutations = _mutations(api)
    for at in range(number):
        yield _case(api, mutations, Random(f"{seed}:{api.name}:{at}"), at)


def _case(api: Api, mutations: list[tuple[str, Mutation]], random: Random, number: int) -> Case:
    draft = _request(api, random)
    applied = random.sample(mutations, random.choice(_NUMBER_OF_MUTATIONS))
    for _, mutation in applied:
        mutation(draft, random)
    return draft.case(number, tuple(name for name, _ in applied))


def _mutations(api: Api) -> list[tuple[str, Mutation]]:
    """Those that change something of this API. What concerns its locations is there more often."""
    found = [*REQUEST_MUTATIONS.items(), *PATH_MUTATIONS.items()]
    kinds = {type(location) for location in api.locations}
    if Header in kinds:
        found += 2 * [*HEADER_MUTATIONS.items()]
    if Query in kinds:
        found += 3 * [*QUERY_MUTATIONS.items()]
    if Parameter in kinds:
        found += 3 * [*MEDIA_TYPE_MUTATIONS.items()]
    if Path in kinds:
        found += 3 * [*PATH_MUTATIONS.items()]
    if api.method_override:
        found += 3 * [("method override", REQUEST_MUTATIONS["method override"])]
    if api.signed:
        found += 2 * [*SIGNATURES.items()]
    return found


def _request(api: Api, random: Random) -> Draft:
    """A request as a correct client sends it, with one version or none."""
    draft = Draft(api, _requested(api, random), random.choice(api.good))
    target = random.choice(api.targets)
    draft.path = target.format(_ABSENT if draft.version == _ABSENT else draft.version)
    if random.random() < 0.2:
        draft.method = random.choice(("POST", "HEAD", "DELETE", "PUT", "OPTIONS"))
    if random.random() < 0.3:
        draft.lines.append("User-Agent: client/1.0")
    if api.signed and random.random() < 0.5:
        signature(draft, random)
    if random.random() < 0.3:
        draft.query.append(random.choice(("limit=5", "a=b", "sort=name")))
    if draft.version == _ABSENT:
        draft.path = target.replace("/v{}", "").replace("/{}", "") or "/"
        draft.version = random.choice(api.good)
        return draft
    carriers = [each for each in api.locations if isinstance(each, Header | Query | Parameter)]
    if carriers:
        several = random.random() < 0.25
        for location in carriers if several else [random.choice(carriers)]:
            _write(draft, random, location)
    return draft


def _requested(api: Api, random: Random) -> str:
    """A version: mostly a good one."""
    chance = random.random()
    if chance < 0.62:
        return random.choice(api.good)
    if chance < 0.7:
        return api.newest
    if chance < 0.82:
        return _ABSENT
    return random.choice(api.outside) if chance < 0.92 else random.choice(_MALFORMED)


def _write(draft: Draft, random: Random, location: Location) -> None:
    """Write the requested version where servers look."""
    match location:
        case Header(name, spelling):
            name = any_case(random, name) if random.random() < 0.2 else name
            draft.lines.append(f"{name}: {spelling.format(draft.version)}")
        case Query(name):
            draft.query.append(f"{name}={draft.version}")
        case Parameter(name):
            fields = random.choice((("Accept",), ("Accept",), ("Content-Type",), ("Accept", "Content-Type")))
            for field in fields:
                kind = media_type(draft, random, location)
                draft.lines.append(f"{field}: {kind}; {name}={draft.version}")
        case _:
            pass
