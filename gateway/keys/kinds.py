"""The kinds of keys: how a value of the file is read, and what its JSON Schema is.

    @dataclass(frozen=True, slots=True)
    class Queue:
        length: int = count(0, 100_000).key(32, "How many requests may wait ...", reason="...", example=100)

    QUEUE = section(Queue, "Queue of the requests that wait for a full backend.")

A kind is a text, a list, a table (names that the operator chooses), a section (names that the gateway knows),
or either of two of these. The values of a file are walked together with the kinds by `settings.yaml.reader`,
which knows positions. Nothing here knows a key, a position or a file.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Final, Generic, NoReturn, TypeVar, final

from gateway.errors import TextRefused

T = TypeVar("T")
Schema = dict[str, Any]
Definitions = dict[str, Schema]
"""JSON Schemas of sections by title, the targets of `$ref`."""

DIVIDED: Final = "divided"
"""Word for a limit of which each of several workers has an equal part."""
SHARED: Final = "shared"
"""Word for a limit that holds for all workers together."""
PER_WORKER: Final = "per worker"
"""Word for a limit that each worker has as a whole."""

VARIABLE_PATTERN: Final = r"\$\{"
"""Pattern by which the schema accepts a value that contains a variable."""
TEXT: Final = {"type": "string", "minLength": 1}

_KEY: Final = "key"
_REQUIRED: Final = object()


@final
@dataclass(frozen=True, slots=True)
class Key:
    """Declaration of a configuration key. `default` and `example` are written as operators write them."""

    kind: Kind[Any]
    meaning: str
    reason: str
    """Reason for the key's default, or for having none."""
    example: object
    default: object = _REQUIRED
    workers: str = ""
    """Meaning of a limit for several workers: `divided`, `shared` or `per worker` first. Empty: no limit."""
    whole_file: str = ""
    """Reason why the key has no meaning in a service, although its section may be written there."""
    form: str = ""
    """Form of the key's value, if it is required, for hints: placeholders are in capitals."""
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_required(self) -> bool:
        return self.default is _REQUIRED

    def schema(self, definitions: Definitions) -> Schema:
        """JSON Schema of the key, without entries that only repeat those of the section that it refers to."""
        about: Schema = {"description": self.meaning, "examples": [self.example], "x-reason": self.reason}
        if self.workers:
            about["x-workers"] = self.workers
        if not self.is_required and self.default is not None:
            about["default"] = self.default
        schema = {**self.kind.schema(definitions), **about, **self.more}
        if "$ref" in schema:
            section: Schema = definitions[schema["$ref"].rpartition("/")[2]]
            return {
                name: part for name, part in schema.items() if name not in section or section[name] != part
            }
        return schema


class Kind(ABC, Generic[T]):
    """Kind of configuration key: the reader and JSON Schema of its value. `T` is the type of the value."""

    about: str = ""
    """Default meaning of a key of this kind. Only sections have one."""

    @abstractmethod
    def value(self, written: Any) -> T:  # noqa: ANN401 - as an operator writes it
        """The value of a key's default. Raises `TextRefused` and the like: a wrong default is a bug."""

    @abstractmethod
    def schema(self, definitions: Definitions) -> Schema:
        """The JSON Schema of a key of this kind. Sections are added to `definitions`."""

    def key(
        self,
        default: object,
        meaning: str = "",
        *,
        reason: str,
        example: object,
        workers: str = "",
        whole_file: str = "",
    ) -> Any:  # noqa: ANN401 - a dataclass field has the type of its value
        """A dataclass field for an optional key. `default` None: without the key there is no value."""
        metadata = {_KEY: Key(self, meaning or self.about, reason, example, default, workers, whole_file)}
        if default is None:
            return field(default=None, metadata=metadata)
        value = self.value(default)
        if type(value).__hash__ is None:
            return field(default_factory=lambda: self.value(default), metadata=metadata)
        return field(default=value, metadata=metadata)

    def required(
        self, meaning: str = "", *, reason: str, example: object, form: str = "", **more: int
    ) -> Mapping[str, Key]:
        """Metadata of a required key: `field(metadata=KIND.required(...))`. `more`: for its schema."""
        return {_KEY: Key(self, meaning or self.about, reason, example, form=form, more=more)}


def reject(message: str, hint: str = "", quoting: str = "") -> NoReturn:
    """Refuse a text of the file. Only `quoting` may quote it: shown unless it is from the environment."""
    raise TextRefused(message, hint, quoting)


def matching(pattern: str) -> Schema:
    """JSON Schema of a text that matches a pattern as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


# --- texts


class Text(Kind[T]):
    """Kind of configuration key: one text, read strictly: `1_000`, `5.0` and ` 5` are no whole numbers."""

    def __init__(
        self,
        read: Callable[[str], T],
        schema: Mapping[str, object],
        *,
        has_commas: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        self.read = read
        self.json = schema
        """JSON Schema of the text, without the variable that any value may be."""
        self.has_commas = has_commas
        """Whether the text may hold several values, with commas between them."""
        self.may_be_empty = may_be_empty

    def value(self, written: Any) -> T:  # noqa: ANN401
        return self.read(str(written).lower() if isinstance(written, bool) else str(written))

    def read_in(self, folder: str, text: str) -> T:
        """Read a text of a file whose relative paths begin in `folder`."""
        return self.read(text)

    def schema(self, definitions: Definitions) -> Schema:
        schema = dict(self.json)
        if schema.get("type") in ("string", ["string", "integer"]) and "enum" not in schema:
            if "pattern" in schema:
                schema["pattern"] = f"{schema['pattern']}|{VARIABLE_PATTERN}"
            return schema
        return {"anyOf": [schema, {"type": "string", "pattern": VARIABLE_PATTERN}]}


@final
class PathText(Text[T]):
    """Kind of configuration key: the path of a file. A relative one begins in the configuration's folder."""

    def __init__(
        self,
        read: Callable[[str], T],
        schema: Mapping[str, object],
        *,
        before: str = "",
        unplaced: Iterable[str] = (),
    ) -> None:
        super().__init__(read, schema)
        self._before = before
        """Prefix before a file's path in the text, such as `unix:`. A text without it has no path."""
        self._unplaced = frozenset(unplaced)
        """Texts that are allowed in the place of a file's path and are none."""

    def read_in(self, folder: str, text: str) -> T:
        found = self.read(text)  # as it is written: `.` is no name of a file, whatever the folder
        path = text.removeprefix(self._before)
        if path.startswith("/") or not text.startswith(self._before) or text in self._unplaced:
            return found
        return self.read(f"{self._before}{PurePath(folder, path)}")


# --- shapes of several values


@final
@dataclass(frozen=True, eq=False)
class ListOf(Kind[Any]):
    """Kind of configuration key: a list of one kind. `into`: makes its value. `least`: fewest items."""

    item: Kind[Any]
    into: Callable[[list[Any]], Any] = tuple
    least: int = 0

    def value(self, written: Any) -> Any:  # noqa: ANN401
        return self.into([self.item.value(each) for each in written])

    def schema(self, definitions: Definitions) -> Schema:
        schema = {"type": "array", "items": self.item.schema(definitions)}
        return {**schema, "minItems": self.least} if self.least else schema


@final
@dataclass(frozen=True, eq=False)
class Table(Kind[Mapping[str, Any]]):
    """Kind of configuration key: a mapping in which the operator chooses the names, without variables."""

    name: Text[str]
    item: Kind[Any]

    def value(self, written: Any) -> Mapping[str, Any]:  # noqa: ANN401
        return {self.name.value(name): self.item.value(each) for name, each in written.items()}

    def schema(self, definitions: Definitions) -> Schema:
        names, item = dict(self.name.json), self.item.schema(definitions)
        if "pattern" in names:
            return {
                "type": "object",
                "patternProperties": {names["pattern"]: item},
                "additionalProperties": False,
            }
        names.pop("type")
        return {"type": "object", "propertyNames": names, "additionalProperties": item}


@final
@dataclass(frozen=True, eq=False)
class Either(Kind[Any]):
    """Kind of configuration key: a text of one kind, or a list or mapping of another."""

    text: Text[Any]
    other: Kind[Any]

    def value(self, written: Any) -> Any:  # noqa: ANN401
        return (self.text if isinstance(written, str) else self.other).value(written)

    def schema(self, definitions: Definitions) -> Schema:
        return {"oneOf": [self.text.schema(definitions), self.other.schema(definitions)]}


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Section(Kind[T]):
    """Kind of configuration key: a mapping with a fixed set of keys; any other key in it is an error."""

    make: Callable[..., T]
    """Function that makes the section's value from those of the written keys. It has the others' defaults."""
    keys: Mapping[str, Key]
    about: str
    title: str
    """Title of the section's JSON Schema."""
    more: Mapping[str, object] = field(default_factory=dict)
    """Further entries of the section's JSON Schema."""
    whole_file: Mapping[str, str] = field(default_factory=dict)
    """Keys that only the section of the whole file has, each with the reason."""

    def value(self, written: Any) -> T:  # noqa: ANN401
        return self.make(**{name: self.keys[name].kind.value(each) for name, each in written.items()})

    def schema(self, definitions: Definitions) -> Schema:
        if self.title not in definitions:
            definitions[self.title] = {}  # a section in itself would lead here
            definitions[self.title] |= self.definition(definitions)
        return {"$ref": f"#/$defs/{self.title}"}

    def definition(self, definitions: Definitions) -> Schema:
        required = [name for name, key in self.keys.items() if key.is_required]
        return {
            "type": "object",
            "title": self.title,
            "description": self.about,
            "properties": {name: key.schema(definitions) for name, key in self.keys.items()},
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **self.more,
        }


def keys_of_class(of: type) -> dict[str, Key]:
    """Keys that a dataclass declares, in order, without its other fields. `for_` declares the key `for`."""
    declared = ((each.name.removesuffix("_"), each.metadata.get(_KEY)) for each in dataclasses.fields(of))
    return {name: key for name, key in declared if key is not None}


def section(of: type[T], about: str = "", *, title: str = "", **more: object) -> Section[T]:
    """Make the section that a frozen dataclass declares. `about`: one sentence; default: the docstring, which
    a compiled class lacks. `title`: default: the class name. `more`: further entries of its JSON Schema."""
    about = about or inspect.cleandoc(of.__doc__ or "")
    if not about:
        raise TypeError(f"the section of {of.__name__} needs a sentence about it")
    keys = keys_of_class(of)
    return Section(make=_maker(of), keys=keys, about=about, title=title or of.__name__, more=more)


def _maker(of: type[T]) -> Callable[..., T]:
    """A dataclass, or the function that makes one from keys if some are words of Python, as `for` is."""
    own = {name.removesuffix("_"): name for name in inspect.signature(of).parameters if name.endswith("_")}
    return (lambda **values: of(**{own.get(key, key): each for key, each in values.items()})) if own else of


def without(whole: Section[T], name: str, about: str, title: str) -> Section[T]:
    """A copy of a section without one of its keys, which keeps its default."""
    keys = {each: key for each, key in whole.keys.items() if each != name}
    return Section(make=whole.make, keys=keys, about=about, title=title, more=whole.more)


# --- inheritance


def inherited(whole: Section[Any], group: str, about: str, title: str) -> Section[Mapping[str, Any]]:
    """Section of a service with the keys of `whole`, the section of the whole file under `group`, but for
    those with a `whole_file`. Its value holds only the written keys, for `dataclasses.replace`."""
    keys = {
        name: dataclasses.replace(
            key,
            default=None,
            meaning=f"{key.meaning} Without this key: `{group}.{name}`.",
            reason="One value for all services, until one of them needs another.",
            workers="",
        )
        for name, key in whole.keys.items()
        if not key.whole_file
    }
    reasons = {name: key.whole_file for name, key in whole.keys.items() if key.whole_file}
    return Section(make=dict, keys=keys, about=about, title=title, whole_file=reasons)
