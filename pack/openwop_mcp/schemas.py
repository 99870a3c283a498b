"""JSON Schema checks of arguments and structured results: sound, unsound, or not checked and why.

Owns the guards around the ``jsonschema`` library, of dialects 2020-12 and draft-07: bounds, RE2 for patterns, exact
numbers. Knows no network, no tool and nobody who acts on a verdict; schema and instance may be hostile.
"""

from __future__ import annotations

import decimal
import functools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

import re2
from jsonschema import Draft7Validator, Draft202012Validator, ValidationError
from jsonschema.exceptions import UnknownType
from jsonschema.validators import extend
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
"""Levels of schema or instance. The library recurses, and this many levels fit in Python's default stack."""

MAX_OBJECTS: Final = 5000
"""Objects in a schema: more than any sound tool has."""

MAX_SECONDS: Final = 0.5
"""Processor time to read a schema, and again to check by it: what a worker's event loop can bear."""

MAX_UNEVALUATED: Final = 256
"""Elements of an array under ``unevaluatedItems``, for which the library lists the index of each, again and again."""

MAX_PATTERN_WORK: Final = 100_000_000
"""Instructions of a pattern times bytes of a text: about a second of RE2 at its worst, which nothing interrupts."""

PATTERN_MEMORY: Final = 256 * 1024
"""Bytes that RE2 may spend on one pattern: far more than any written by hand takes."""

PATTERNS_KEPT: Final = 256
"""Compiled patterns kept: 64 MB at the most, in practice a hundredth of it."""

MAX_DIGITS: Final = 4300
"""Digits of an integer that stays one; Python's own limit for numbers as text, for the same reason."""

SCHEMAS_KEPT: Final = 64
"""Compiled schemas kept: a busy worker's tools; at the largest size allowed about 200 MB, in practice a few."""

MAX_PATH: Final = 256
"""Characters of a path; past them the nearest ancestor that fits is named."""


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
        return Verdict("unchecked", reason=compiled)
    try:
        fault = _fault(*compiled, _load("value", instance, MAX_INSTANCE_BYTES))
    except _UNUSABLE as error:
        return Verdict("unchecked", reason=_told(error))
    return Verdict("mismatch", *fault) if fault else Verdict("ok")


class _GivenUpError(Exception):
    """Why there will be no verdict."""


_UNUSABLE = (
    _GivenUpError, RecursionError, Unresolvable, UnknownType, ValueError, TypeError, AttributeError, LookupError
)  # fmt: skip
"""What ends a check: guards by the first, and the libraries by the others, for hostile identifiers and references."""


def _told(error: Exception) -> str:
    if isinstance(error, _GivenUpError):
        return str(error)
    if isinstance(error, RecursionError):
        return "the schema refers to itself, or on and on"
    if isinstance(error, Unresolvable):
        return f"the schema refers to {_shown_reference(error.ref)}, which is not in it and is not fetched"
    return "the schema has an identifier or a reference that cannot be read"


def _shown_reference(reference: str) -> str:
    """The place alone: the rest of an address may hold a key."""
    try:
        parts = urlsplit(reference)
    except ValueError:
        return "an address that cannot be read"
    return excerpt(_bytes(f"{parts.scheme}://{parts.hostname or ''}/…" if parts.scheme else reference))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- time, and texts whose every walk takes some ----------------------------------------------------------------------

_ends: ContextVar[float] = ContextVar("_ends")
"""Where this thread's processor time must not be gone past."""


def _tick() -> None:
    if time.thread_time() > _ends.get():
        raise _GivenUpError(f"the check takes more than {MAX_SECONDS:g} s")


class _Object(dict[str, Any]):
    """The library asks a schema for its items with each value, and walks through values: both count here."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        return _ticking(super().__iter__())

    def items(self) -> Any:
        _tick()
        return super().items()


class _Array(list[Any]):
    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return _ticking(super().__iter__())


def _ticking(steps: Iterator[Any]) -> Iterator[Any]:
    for step in steps:
        _tick()
        yield step


def _load(what: str, data: bytes, limit: int) -> Any:
    """Decode exactly, every number to an int or a Decimal, and start the clock. Refuse what is too large or deep."""
    _ends.set(time.thread_time() + MAX_SECONDS)
    if len(data) > limit:
        raise _GivenUpError(f"the {what} has {len(data)} bytes, over the {limit} that are checked")
    try:
        value = json.loads(data.decode(), parse_float=BigNumber, parse_int=_integer, parse_constant=_no_constant)
        return _counted(value, MAX_DEPTH)
    except ValueError:
        raise _GivenUpError(f"the {what} is not JSON") from None
    except RecursionError:
        raise _GivenUpError(f"the {what} is nested deeper than {MAX_DEPTH} levels") from None


def _counted(value: Any, room: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not room:
        raise RecursionError
    if isinstance(value, dict):
        return _Object((name, _counted(member, room - 1)) for name, member in value.items())
    return _Array(_counted(element, room - 1) for element in value)


def _integer(text: str) -> int | BigNumber:
    return int(text) if len(text) < MAX_DIGITS else BigNumber(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


# --- keywords that the library does not take from strangers, or not exactly -------------------------------------------


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
        raise _GivenUpError(f"the schema has a pattern that RE2 does not take: {excerpt(_bytes(text))}") from None


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def _matches(pattern: str, text: str) -> bool:
    _tick()
    compiled, data = _pattern(pattern), _bytes(text)
    if compiled.programsize * len(data) > MAX_PATTERN_WORK:
        raise _GivenUpError("the value has a text too long for the pattern it must match")
    return compiled.search(data) is not None


def _matching(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _matches(pattern, value):
        yield ValidationError("")


def _pattern_properties(validator: Any, schemas: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    for pattern, schema in schemas.items() if isinstance(value, dict) else ():
        yield from _members(validator, value, schema, (name for name in value if _matches(pattern, name)))


def _additional_properties(validator: Any, schema: Any, value: Any, around: Any) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        known, patterns = around.get("properties", ()), around.get("patternProperties", ())
        rest = (name for name in value if name not in known and not any(_matches(p, name) for p in patterns))
        yield from _members(validator, value, schema, rest)


def _members(validator: Any, value: Any, schema: Any, names: Iterable[str]) -> Iterator[ValidationError]:
    for name in names:
        for error in validator.descend(value[name], schema, path=name):
            if schema is False:  # where the library leaves out the last step
                error.path.append(name)
            yield error


def _unique_items(_validator: Any, wanted: bool, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(value, list) and len({_frozen(item) for item in value}) < len(value):
        yield ValidationError("")


def _frozen(value: Any) -> Any:
    """Make a value that is hashable and equal exactly where JSON Schema says so: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        return "array", *map(_frozen, value)
    return ("boolean", value) if isinstance(value, bool) else value


def _multiple_of(_validator: Any, divisor: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if not _is_number(None, value):
        return
    try:
        rest = _EXACT.remainder(decimal.Decimal(value), decimal.Decimal(divisor))
    except decimal.InvalidOperation:
        raise _GivenUpError(f"the value has a number of more than {_EXACT.prec} digits to divide") from None
    if rest:
        yield ValidationError("")


_EXACT = decimal.Context(
    prec=2 * MAX_DIGITS, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[decimal.InvalidOperation]
)
"""Remainders are exact as long as the quotient has no more digits than that."""


def _is_number(_checker: object, value: Any) -> bool:
    return isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)


def _is_integer(_checker: object, value: Any) -> bool:
    return _is_number(None, value) and (isinstance(value, int) or value == value.to_integral_value())


def _is_boolean(_checker: object, value: Any) -> bool:
    # Asked with each step of the library's search for what was evaluated, which calls no keyword for a reference.
    _tick()
    return isinstance(value, bool)


# --- the library, guarded ---------------------------------------------------------------------------------------------


def _guarded(keyword: str, rule: Callable[..., Iterable[ValidationError]]) -> Callable[..., Iterable[ValidationError]]:
    """Count a keyword's time, and keep the first of its errors, without the message: that holds the value."""

    def guarded(validator: Any, argument: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
        _tick()
        if keyword == "unevaluatedItems" and isinstance(value, list) and len(value) > MAX_UNEVALUATED:
            raise _GivenUpError(f"the value has over {MAX_UNEVALUATED} elements where {keyword} is asked")
        error = next(iter(rule(validator, argument, value, schema)), None)
        if error is None:
            return ()
        error.message, error.args = "", ()
        error.validator = error.validator or keyword
        return (error,)

    return guarded


_OWN: Mapping[str, Callable[..., Iterable[ValidationError]]] = {
    "pattern": _matching,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
}


def _validator(library: Any) -> Any:
    rules = {keyword: _guarded(keyword, rule) for keyword, rule in {**library.VALIDATORS, **_OWN}.items()}
    types = library.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer, "boolean": _is_boolean})
    return extend(library, rules, type_checker=types)({}, registry=Registry())


_VALIDATORS = {DRAFT202012: _validator(Draft202012Validator), DRAFT7: _validator(Draft7Validator)}

_METASCHEMAS = {DRAFT202012: "https://json-schema.org/draft/2020-12/", DRAFT7: "http://json-schema.org/draft-07/"}

_META: Any = (
    Registry()
    .with_resources(
        (
            uri,
            dialect.create_resource(
                {name: REGISTRY.contents(uri)[name] for name in REGISTRY.contents(uri) if name != "$schema"}
            ),
        )
        for dialect, base in _METASCHEMAS.items()
        for uri in REGISTRY
        if uri.startswith(base)
    )
    .crawl()
)
"""Without ``$schema``, by which the library would change from the guarded validator to its own."""


def _fault(dialect: Any, schema: Any, resolver: Any, value: Any) -> tuple[str, str] | None:
    """The first fault found, as the path and the reason of a verdict."""
    error = next(_VALIDATORS[dialect].descend(value, schema, resolver=resolver), None)
    if error is None:
        return None
    path = ""
    for step in error.absolute_path:
        longer = f"{path}/{str(step).replace('~', '~0').replace('/', '~1')}"
        if len(longer) > MAX_PATH or not longer.isprintable():
            break
        path = longer
    keyword, argument = error.validator, error.validator_value
    if keyword is None:
        return path, "nothing may stand here"
    if keyword == "required":
        missing = next(name for name in argument if name not in error.instance)
        return path, f"lacks the required member {excerpt(_bytes(missing))}"
    return path, f"breaks {keyword}: {excerpt(encode(argument))}" if keyword in _TOLD else f"breaks {keyword}"


_TOLD = frozenset(
    {"type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern"}
    | {f"{bound}{what}" for bound in ("min", "max") for what in ("Length", "Items", "Properties")}
)
"""Keywords whose argument says what is wanted, and comes from the schema."""


# --- schemas ----------------------------------------------------------------------------------------------------------


@functools.lru_cache(SCHEMAS_KEPT)
def _compile(data: bytes) -> tuple[Any, Any, Any] | str:
    """Read a schema and vouch for it: dialect, schema and resolver; or what keeps it from being used."""
    try:
        schema = _load("schema", data, MAX_SCHEMA_BYTES)
        dialect = _dialect(schema)
        _refuse_what_escapes(schema)
        base = f"{_METASCHEMAS[dialect]}schema"
        fault = _fault(dialect, _META.contents(base), _META.resolver(base), schema)
        if fault:
            return f"the schema is not valid at '{fault[0]}': {fault[1]}"
        return dialect, schema, _survey(dialect.create_resource(schema))
    except _UNUSABLE as error:
        return _told(error)


def _dialect(schema: Any) -> Any:
    """Take the dialect's name off the schema. MCP's default is 2020-12 (basic, JSON Schema usage)."""
    named = schema.pop("$schema", None) if isinstance(schema, dict) else None
    if named is None:
        return DRAFT202012
    bare = re.sub(r"^https?|#$", "", named) if isinstance(named, str) else ""
    for dialect, base in _METASCHEMAS.items():
        if bare == f"{base}schema".partition(":")[1] + f"{base}schema".partition(":")[2]:
            return dialect
    shown = excerpt(_bytes(named)) if isinstance(named, str) else "no text"
    raise _GivenUpError(f"the schema is of a dialect that is not known here: {shown}")


def _refuse_what_escapes(schema: Any) -> None:
    """Refuse what would make the library leave the guards, wherever it stands."""
    names: set[str] = set()
    objects, waiting = 0, [schema]
    for value in waiting:
        if isinstance(value, dict):
            objects += 1
            names.update(value)
            if isinstance(value.get("$schema"), str):
                raise _GivenUpError("the schema states a dialect inside")
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    if objects > MAX_OBJECTS:
        raise _GivenUpError(f"the schema has more than {MAX_OBJECTS} objects")
    if {"patternProperties", "unevaluatedProperties"} <= names:
        # There the library matches names with Python's own regular expressions, which may take forever.
        raise _GivenUpError("the schema has both patternProperties and unevaluatedProperties")


def _survey(root: Any) -> Any:
    """Look at every subschema that can be reached, and make the resolver of references within the schema.

    Raises:
        Unresolvable: if a reference leads out of the schema.
        _GivenUpError: if a pattern cannot be used.
    """
    base = root.id() or ""
    # Crawled once: an anchor that is looked up in a registry that is not has it crawled every time.
    resolver: Any = Registry().with_resource(base, root).crawl().resolver(base)
    seen: set[int] = set()
    waiting = [(root, resolver)]
    while waiting:
        resource, inside = waiting.pop()
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        for pattern in (*filter(None, [contents.get("pattern")]), *contents.get("patternProperties", ())):
            _pattern(pattern)
        for keyword in {"$ref", "$dynamicRef"} & contents.keys():
            _tick()
            target = inside.lookup(contents[keyword])
            waiting.append((resource._specification.create_resource(target.contents), target.resolver))
        waiting.extend((inner, inside.in_subresource(inner)) for inner in resource.subresources())
    return resolver
