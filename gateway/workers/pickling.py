"""Values as bytes for another process of this release, and back: `dumps` and `loads`.

Python's pickle, with two rules of its own. A frozen dataclass is made anew by its constructor: what follows
from its fields is not sent, and a compiled class can be filled in no other way. A read-only mapping is sent
as what it holds. Only for a channel to which nobody else can write: `loads` runs what it is told.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from io import BytesIO
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias, final

_Reducer: TypeAlias = Callable[[Any], Any]


def dumps(value: object) -> bytes:
    """Raises what `pickle` raises about a value that cannot be sent."""
    buffer = BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _REDUCERS
    pickler.dump(value)
    return buffer.getvalue()


def loads(data: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    """Raises whatever a wrong pickle raises."""
    return pickle.loads(data)  # noqa: S301 - from our own process


@final
class _Reducers(dict[type, _Reducer]):
    """How values are taken apart, by class. Found out when the first one of a class is sent."""

    def __missing__(self, kind: type) -> _Reducer:
        if is_dataclass(kind) and _is_frozen(kind) and not _has_own_way(kind):
            reducer = self[kind] = _by_constructor(kind)
            return reducer
        return copyreg.dispatch_table[kind]  # raises `KeyError`: as `pickle` does it


def _by_constructor(kind: type) -> _Reducer:
    names = [field.name for field in fields(kind) if field.init]
    if any(field.kw_only for field in fields(kind) if field.init):
        raise TypeError(f"{kind} takes its fields by name")
    if len(names) < 2:  # `attrgetter` gives a tuple for two and more
        return lambda value: (kind, tuple(getattr(value, name) for name in names))
    values = attrgetter(*names)
    return lambda value: (kind, values(value))


def _has_own_way(kind: Any) -> bool:  # noqa: ANN401 - as the next one
    return kind.__reduce__ is not object.__reduce__ or kind.__reduce_ex__ is not object.__reduce_ex__


def _is_frozen(kind: Any) -> bool:  # noqa: ANN401 - a dataclass, which has no type
    return bool(kind.__dataclass_params__.frozen)


def _read_only(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)  # which has no name by which `pickle` finds it


_REDUCERS: Final = _Reducers({MappingProxyType: lambda proxy: (_read_only, (dict(proxy),))})
