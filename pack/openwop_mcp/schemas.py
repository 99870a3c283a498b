"""JSON Schema checks of arguments and structured results: sound, unsound, or not checked and why.

Owns a bounded evaluator of dialects 2020-12 and draft-07 over exact numbers. Knows no network, no tool and nobody who
acts on a verdict; a schema and an instance come from a server and may be hostile.
"""

from __future__ import annotations

import decimal
import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

import re2
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT202012

from openwop_mcp.jsontext import BigNumber, encode
from openwop_mcp.protocol.messages import excerpt

__all__ = ("Verdict", "check")

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""A tool's schema is read by models too; the largest in use are a quarter of this."""

MAX_INSTANCE_BYTES: Final = 4 * 1024 * 1024
"""What decodes in about a tenth of a second; larger results are data, not structure."""

MAX_DEPTH: Final = 64
"""Levels of schema or instance. The evaluator recurses, and this many levels fit in Python's default stack."""

MAX_SUBSCHEMAS: Final = 5000
"""More than any sound tool has, and walked in a few milliseconds."""

MAX_SECONDS: Final = 0.5
"""Processor time for one check: the worker's event loop must not notice a hostile schema for longer."""

MAX_PATTERN_WORK: Final = 100_000_000
"""Instructions of a pattern times bytes of a text: about a second of RE2 at its worst, which nothing interrupts."""

PATTERN_MEMORY: Final = 256 * 1024
"""Bytes that RE2 may spend on one pattern: far more than any written by hand takes."""

PATTERNS_KEPT: Final = 256
"""Compiled patterns kept: 64 MB at the most, in practice a hundredth of it."""

MAX_DIGITS: Final = 4300
"""Digits of a number that is divided; Python's own limit for numbers as text, for the same reason."""

SCHEMAS_KEPT: Final = 64
"""Compiled schemas kept: a busy worker's tools; at the largest size allowed about 200 MB, in practice a few."""

MAX_PATH: Final = 256
"""Characters of a path; past them the nearest ancestor that fits is named."""

DIALECTS: Final = {"json-schema.org/draft/2020-12/schema": DRAFT202012, "json-schema.org/draft-07/schema": DRAFT7}
"""What ``$schema`` may name, without scheme and empty fragment; 2020-12 is MCP's default (basic, JSON Schema usage)."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a check. None of its texts echoes a value of the instance.

    Attributes:
        state: ``unchecked`` where the schema or the instance cannot be judged; that is no fault of the instance.
        path: JSON Pointer (RFC 6901) of the fault in the instance, or of its nearest ancestor that can be shown.
        reason: What is wrong, or why nothing was checked; bounded and printable.
    """

    state: Literal["ok", "mismatch", "unchecked"]
    path: str | None = None
    reason: str | None = None


def check(schema: bytes, instance: bytes) -> Verdict:
    """Check an instance against a schema, both JSON texts. Nothing is ever fetched, and ``format`` asserts nothing.

    Takes at most about a second of processor time and never raises for what the texts hold.
    """
    compiled = _compile(schema)
    if isinstance(compiled, str):
        return Verdict("unchecked", reason=f"the schema {compiled}")
    try:
        value = _load(instance, MAX_INSTANCE_BYTES)
        fault = compiled.find_fault(value)
    except _GivenUpError as given_up:
        return Verdict("unchecked", reason=f"the value {given_up}")
    except _UNUSABLE as error:
        return Verdict("unchecked", reason=f"the schema {_told(error)}")
    return Verdict("ok") if fault is None else Verdict("mismatch", fault.shown_path, fault.reason)


class _GivenUpError(Exception):
    """Why there will be no verdict; the message goes on after 'the schema' or 'the value'."""


# --- texts and numbers ------------------------------------------------------------------------------------------------


def _load(data: bytes, limit: int) -> Any:
    """Decode exactly: every number is an int or a Decimal. Refuse what is too large or too deep."""
    if len(data) > limit:
        raise _GivenUpError(f"has {len(data)} bytes, over the {limit} that are checked")
    try:
        value = json.loads(data.decode(), parse_float=BigNumber, parse_int=_integer, parse_constant=_no_constant)
    except ValueError:
        raise _GivenUpError("is not JSON") from None
    except RecursionError:
        raise _GivenUpError(f"is nested deeper than {MAX_DEPTH} levels") from None
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return value
        level = [child for holder in level for child in _children(holder)]
    raise _GivenUpError(f"is nested deeper than {MAX_DEPTH} levels")


def _integer(text: str) -> int | BigNumber:
    return int(text) if len(text) < MAX_DIGITS else BigNumber(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _children(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _is_integer(value: Any) -> bool:
    if isinstance(value, decimal.Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)


def _is_multiple(value: int | decimal.Decimal, of: int | decimal.Decimal) -> bool:
    """Divide exactly, and never write out what an exponent stands for."""
    (number, power), (divisor, divisor_power) = _scaled(value), _scaled(of)
    shift = power - divisor_power
    if shift >= 0:
        return number * pow(10, shift, divisor) % divisor == 0
    # A number with fewer digits than that is divisible by no such power of ten, unless it is zero.
    return number == 0 or (-shift <= MAX_DIGITS and number % (divisor * 10**-shift) == 0)


def _scaled(value: int | decimal.Decimal) -> tuple[int, int]:
    _, digits, exponent = decimal.Decimal(value).as_tuple()
    if len(digits) > MAX_DIGITS:
        raise _GivenUpError(f"has a number of more than {MAX_DIGITS} digits to divide")
    assert isinstance(exponent, int)
    return int(decimal.Decimal((0, digits, 0))), exponent


def _frozen(value: Any) -> Any:
    """Make a value that is hashable and equal exactly where JSON Schema says so: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        return "array", *map(_frozen, value)
    return ("boolean", value) if isinstance(value, bool) else value


# --- patterns ---------------------------------------------------------------------------------------------------------

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


@functools.lru_cache(PATTERNS_KEPT)
def _pattern(text: str) -> Any:
    """A pattern of ECMA-262 for RE2, whose time grows with the text alone; only escapes of four digits need respelling.

    Raises:
        _GivenUpError: if RE2 does not take it.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    spelled = _ESCAPE.sub(lambda found: f"\\x{{{found[1]}}}" if found[1] else found[0], text)
    try:
        return re2.compile(spelled.encode(), options)
    except (re2.error, UnicodeEncodeError):
        raise _GivenUpError(f"has a pattern that RE2 does not take: {excerpt(_bytes(text))}") from None


def _matches(pattern: str, text: str) -> bool:
    compiled, data = _pattern(pattern), _bytes(text)
    if compiled.programsize * len(data) > MAX_PATTERN_WORK:
        raise _GivenUpError("has a text too long for the pattern it must match")
    return compiled.search(data) is not None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- schemas ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(SCHEMAS_KEPT)
def _compile(data: bytes) -> _Compiled | str:
    """Read a schema and vouch for it: or say what it is that keeps it from being used."""
    try:
        return _judged(_load(data, MAX_SCHEMA_BYTES))
    except _GivenUpError as given_up:
        return str(given_up)
    except _UNUSABLE as error:
        return _told(error)


_UNUSABLE = (RecursionError, Unresolvable, ValueError, TypeError, AttributeError, LookupError)
"""What the resolver raises: by its contract, and for hostile identifiers and references."""


def _told(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "refers to itself, or on and on"
    if isinstance(error, Unresolvable):
        return f"refers to {_shown_reference(error.ref)}, which is not in it and is not fetched"
    return "has an identifier or a reference that cannot be read"


def _judged(schema: Any) -> _Compiled:
    dialect = _dialect(schema, DRAFT202012)
    meta = REGISTRY.contents(_METASCHEMAS[dialect])
    fault = _Compiled(meta, REGISTRY.resolver(_METASCHEMAS[dialect]), dialect, collects=False).find_fault(schema)
    if fault is not None:
        raise _GivenUpError(f"is not valid at '{fault.shown_path}': {fault.reason}")
    root = dialect.create_resource(schema)
    base = root.id() or ""
    # Crawled once: an anchor that is looked up in a registry that is not has it crawled every time.
    resolver: Any = Registry().with_resource(base, root).crawl().resolver(base)
    return _Compiled(schema, resolver, dialect, collects=_survey(root, resolver, dialect))


_METASCHEMAS = {
    DRAFT202012: "https://json-schema.org/draft/2020-12/schema",
    DRAFT7: "http://json-schema.org/draft-07/schema",
}


def _dialect(schema: Any, default: Any) -> Any:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if named is None:
        return default
    found = DIALECTS.get(re.sub(r"^https?://|#$", "", named)) if isinstance(named, str) else None
    if found is None:
        shown = excerpt(_bytes(named)) if isinstance(named, str) else "no text"
        raise _GivenUpError(f"is of a dialect that is not known here: {shown}")
    return found


def _survey(root: Any, resolver: Any, dialect: Any) -> bool:
    """Look at every subschema that can be reached; tell whether any asks what others left unevaluated.

    Raises:
        Unresolvable: if a reference leads out of the schema.
        _GivenUpError: if there are too many, one is of another dialect, or one has a pattern that cannot be used.
    """
    collects = False
    clock = _Clock()
    seen: set[int] = set()
    waiting = [(root, resolver, False)]
    while waiting:
        resource, around, enter = waiting.pop()
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        if len(seen) > MAX_SUBSCHEMAS:
            raise _GivenUpError(f"has more than {MAX_SUBSCHEMAS} subschemas")
        if _dialect(contents, dialect) is not dialect:
            raise _GivenUpError("mixes dialects")
        inside = around.in_subresource(resource) if enter else around
        patterns = [contents["pattern"]] if "pattern" in contents else []
        for pattern in (*patterns, *contents.get("patternProperties", ())):
            clock.tick()
            _pattern(pattern)
        collects |= not _LATE.isdisjoint(contents)
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in contents:
                clock.tick()
                target = inside.lookup(contents[keyword])
                waiting.append((dialect.create_resource(target.contents), target.resolver, False))
        waiting.extend((inner, inside, True) for inner in resource.subresources())
    return collects


def _shown_reference(reference: str) -> str:
    """The place alone: the rest of an address may hold a key."""
    try:
        parts = urlsplit(reference)
    except ValueError:
        return "an address that cannot be read"
    if parts.scheme:
        reference = f"{parts.scheme}://{parts.hostname or ''}/…"
    return excerpt(_bytes(reference))


# --- evaluation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fault:
    path: tuple[str | int, ...]
    keyword: str | None
    argument: Any
    missing: str | None

    @property
    def shown_path(self) -> str:
        shown = ""
        for step in self.path:
            longer = f"{shown}/{str(step).replace('~', '~0').replace('/', '~1')}"
            if len(longer) > MAX_PATH or not longer.isprintable():
                break
            shown = longer
        return shown

    @property
    def reason(self) -> str:
        if self.keyword is None:
            return "nothing may stand here"
        if self.missing is not None:
            return f"lacks the required member {excerpt(_bytes(self.missing))}"
        if self.keyword in _TOLD:
            return f"breaks {self.keyword}: {excerpt(encode(self.argument))}"
        return f"breaks {self.keyword}"


_TOLD = frozenset(
    {"type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"}
    | {f"{bound}{what}" for bound in ("min", "max") for what in ("Length", "Items", "Properties")}
)
"""Keywords whose argument says what is wanted, and comes from the schema."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A schema that may be used.

    Attributes:
        collects: Whether what was evaluated must be known in full, for ``unevaluated*``.
    """

    schema: Any
    resolver: Any
    dialect: Any
    collects: bool

    def find_fault(self, value: Any) -> _Fault | None:
        """Evaluate; the first fault found, or None.

        Raises:
            _GivenUpError: if it takes too long, or a number or a text is too long for what is asked of it.
            RecursionError: if references go round, or too deep.
        """
        walk = _Walk(self)
        walk.visit(self.schema, value, self.resolver, enter=False)
        return walk.fault


_NOTHING: frozenset[str | int] = frozenset()

Evaluated = frozenset[str | int] | set[str | int]


class _Clock:
    """The processor time that one check may take."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = time.thread_time() + MAX_SECONDS

    def tick(self) -> None:
        """End what takes too long. Called at least once for whatever a text can ask for many times."""
        if time.thread_time() > self._end:
            raise _GivenUpError(f"takes more than {MAX_SECONDS:g} s to check")


class _Walk(_Clock):
    """One evaluation: where it stands and what it found."""

    __slots__ = ("_path", "_quiet", "collects", "dialect", "draft7", "fault", "rules")

    def __init__(self, compiled: _Compiled) -> None:
        super().__init__()
        self.dialect = compiled.dialect
        self.draft7 = compiled.dialect is DRAFT7
        self.rules = _DRAFT7 if self.draft7 else _DRAFT202012
        self.collects = compiled.collects
        self.fault: _Fault | None = None
        self._path: list[str | int] = []
        self._quiet = 0

    def visit(self, schema: Any, value: Any, resolver: Any, *, enter: bool = True) -> Evaluated | None:
        """Apply a schema; which members or elements it evaluated, None if the value breaks it."""
        self.tick()
        if isinstance(schema, bool):
            if schema:
                return _NOTHING
            self._fail(None, None, value)
            return None
        if enter and "$id" in schema:
            resolver = resolver.in_subresource(self.dialect.create_resource(schema))
        at = _At(self, schema, value, resolver, set())
        # In draft-07 a reference stands alone, whatever stands beside it.
        keywords = ("$ref",) if self.draft7 and "$ref" in schema else sorted(schema, key=_LATE.__contains__)
        for keyword in keywords:
            kind, holds = self.rules.get(keyword, _NO_RULE)
            if isinstance(value, kind) and not holds(at, schema[keyword]):
                self._fail(keyword, schema[keyword], value)
                return None
        return at.seen

    def step(self, key: str | int, schema: Any, value: Any, resolver: Any) -> bool:
        """Apply a schema to a member or an element."""
        self._path.append(key)
        found = self.visit(schema, value, resolver)
        self._path.pop()
        return found is not None

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What fails inside is no fault yet."""
        self._quiet += 1
        yield
        self._quiet -= 1

    def _fail(self, keyword: str | None, argument: Any, value: Any) -> None:
        if self.fault is None and not self._quiet:
            missing = next((n for n in argument if n not in value), None) if keyword == "required" else None
            self.fault = _Fault(tuple(self._path), keyword, argument, missing)


@dataclass(slots=True)
class _At:
    """One schema applied to one value: what each of its keywords sees."""

    walk: _Walk
    schema: Mapping[str, Any]
    value: Any
    resolver: Any
    seen: set[str | int]

    def here(self, schema: Any) -> bool:
        """Apply a schema to the same value."""
        found = self.walk.visit(schema, self.value, self.resolver)
        self.seen.update(found or ())
        return found is not None

    def tried(self, schema: Any) -> bool:
        """The same, where to fail is no fault."""
        with self.walk.quiet():
            return self.here(schema)

    def there(self, key: str | int, schema: Any) -> bool:
        """Apply a schema to a member or an element."""
        self.seen.add(key)
        return self.walk.step(key, schema, self.value[key], self.resolver)

    def elements(self, start: int, schema: Any) -> bool:
        return all(self.there(index, schema) for index in range(start, len(self.value)))


def _reference(at: _At, reference: str) -> bool:
    target = at.resolver.lookup(reference)
    found = at.walk.visit(target.contents, at.value, target.resolver, enter=False)
    at.seen.update(found or ())
    return found is not None


def _any_of(at: _At, schemas: Sequence[Any]) -> bool:
    held = (at.tried(schema) for schema in schemas)
    return bool(sum(held)) if at.walk.collects else any(held)


def _one_of(at: _At, schemas: Sequence[Any]) -> bool:
    held = 0
    for schema in schemas:
        held += at.tried(schema)
        if held > 1:
            return False
    return held == 1


def _not(at: _At, schema: Any) -> bool:
    with at.walk.quiet():
        return at.walk.visit(schema, at.value, at.resolver) is None


def _if(at: _At, schema: Any) -> bool:
    return at.here(at.schema.get("then" if at.tried(schema) else "else", True))


def _contains(at: _At, schema: Any) -> bool:
    least, most = (1, None) if at.walk.draft7 else (at.schema.get("minContains", 1), at.schema.get("maxContains"))
    with at.walk.quiet():
        found = [i for i, item in enumerate(at.value) if at.walk.step(i, schema, item, at.resolver)]
    if not at.walk.draft7:
        at.seen.update(found)
    return len(found) >= least and (most is None or len(found) <= most)


def _properties(at: _At, schemas: Mapping[str, Any]) -> bool:
    return all(at.there(name, schema) for name, schema in schemas.items() if name in at.value)


def _pattern_properties(at: _At, schemas: Mapping[str, Any]) -> bool:
    return all(
        at.there(name, schema) for pattern, schema in schemas.items() for name in at.value if _named(at, pattern, name)
    )


def _named(at: _At, pattern: str, name: str) -> bool:
    at.walk.tick()
    return _matches(pattern, name)


def _additional_properties(at: _At, schema: Any) -> bool:
    known, patterns = at.schema.get("properties", {}), at.schema.get("patternProperties", ())
    return all(
        at.there(name, schema)
        for name in at.value
        if name not in known and not any(_named(at, pattern, name) for pattern in patterns)
    )


def _property_names(at: _At, schema: Any) -> bool:
    return all(at.walk.visit(schema, name, at.resolver) is not None for name in at.value)


def _items(at: _At, schema: Any) -> bool:
    return at.elements(len(at.schema.get("prefixItems", ())), schema)


def _prefix_items(at: _At, schemas: Sequence[Any]) -> bool:
    return all(at.there(index, schema) for index, schema in enumerate(schemas[: len(at.value)]))


def _items_of_draft7(at: _At, schema: Any) -> bool:
    return _prefix_items(at, schema) if isinstance(schema, list) else at.elements(0, schema)


def _additional_items(at: _At, schema: Any) -> bool:
    before = at.schema.get("items", True)
    return at.elements(len(before), schema) if isinstance(before, list) else True


def _dependencies(at: _At, wanted: Mapping[str, Any]) -> bool:
    return all(
        all(other in at.value for other in needs) if isinstance(needs, list) else at.here(needs)
        for name, needs in wanted.items()
        if name in at.value
    )


def _unique(at: _At, wanted: bool) -> bool:
    seen = set()
    for item in at.value if wanted else ():
        at.walk.tick()
        seen.add(_frozen(item))
    return not wanted or len(seen) == len(at.value)


def _unevaluated(at: _At, schema: Any) -> bool:
    keys = at.value if isinstance(at.value, dict) else range(len(at.value))
    return all(at.there(key, schema) for key in keys if key not in at.seen)


def _type(at: _At, names: str | Sequence[str]) -> bool:
    return any(_TYPES[name](at.value) for name in ([names] if isinstance(names, str) else names))


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": _is_integer,
}


def _enum(at: _At, values: Sequence[Any]) -> bool:
    wanted = _frozen(at.value)
    return any(_frozen(value) == wanted for value in values)


def _number(compare: Callable[[Any, Any], bool]) -> tuple[Any, Callable[[_At, Any], bool]]:
    return (int, decimal.Decimal), lambda at, bound: isinstance(at.value, bool) or compare(at.value, bound)


def _length(kind: type, compare: Callable[[Any, Any], bool]) -> tuple[Any, Callable[[_At, Any], bool]]:
    return kind, lambda at, bound: compare(len(at.value), bound)


_NO_RULE: tuple[Any, Callable[[_At, Any], bool]] = ((), lambda _at, _argument: True)

_LATE = frozenset({"unevaluatedItems", "unevaluatedProperties"})
"""Keywords that ask what the others evaluated."""

_COMMON: Mapping[str, tuple[Any, Callable[[_At, Any], bool]]] = {
    "$ref": (object, _reference),
    "type": (object, _type),
    "enum": (object, _enum),
    "const": (object, lambda at, value: _enum(at, [value])),
    "minimum": _number(lambda value, bound: value >= bound),
    "maximum": _number(lambda value, bound: value <= bound),
    "exclusiveMinimum": _number(lambda value, bound: value > bound),
    "exclusiveMaximum": _number(lambda value, bound: value < bound),
    "multipleOf": _number(_is_multiple),
    "minLength": _length(str, lambda length, bound: length >= bound),
    "maxLength": _length(str, lambda length, bound: length <= bound),
    "minItems": _length(list, lambda length, bound: length >= bound),
    "maxItems": _length(list, lambda length, bound: length <= bound),
    "minProperties": _length(dict, lambda length, bound: length >= bound),
    "maxProperties": _length(dict, lambda length, bound: length <= bound),
    "pattern": (str, lambda at, pattern: _matches(pattern, at.value)),
    "uniqueItems": (list, _unique),
    "required": (dict, lambda at, names: all(name in at.value for name in names)),
    "properties": (dict, _properties),
    "patternProperties": (dict, _pattern_properties),
    "additionalProperties": (dict, _additional_properties),
    "propertyNames": (dict, _property_names),
    "contains": (list, _contains),
    "allOf": (object, lambda at, schemas: all(at.here(schema) for schema in schemas)),
    "anyOf": (object, _any_of),
    "oneOf": (object, _one_of),
    "not": (object, _not),
    "if": (object, _if),
}

_DRAFT7 = {
    **_COMMON,
    "items": (list, _items_of_draft7),
    "additionalItems": (list, _additional_items),
    "dependencies": (dict, _dependencies),
}

_DRAFT202012 = {
    **_COMMON,
    "$dynamicRef": (object, _reference),
    "items": (list, _items),
    "prefixItems": (list, _prefix_items),
    "dependentRequired": (dict, _dependencies),
    "dependentSchemas": (dict, _dependencies),
    "unevaluatedItems": (list, _unevaluated),
    "unevaluatedProperties": (dict, _unevaluated),
}
