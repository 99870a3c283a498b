"""JSON Schema checks of arguments and structured results: sound, unsound, or not checked and why.

Owns the guards around the ``jsonschema`` library: bounds, RE2 for patterns, exact numbers, nothing fetched. Knows no
tool and nobody who acts on a verdict; a schema and an instance come from a server and may be hostile.
"""

from __future__ import annotations

import decimal
import functools
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Literal

import re2
from jsonschema import Draft7Validator, Draft202012Validator, ValidationError, validators
from jsonschema.exceptions import UnknownType
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT202012

from openwop_mcp.jsontext import BigNumber, encode
from openwop_mcp.protocol.messages import excerpt

__all__ = ("Verdict", "check", "check_at_once")

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""A tool's schema is read by models too; the largest in use are a quarter of this."""

MAX_INSTANCE_BYTES: Final = 4 * 1024 * 1024
"""What decodes in about a tenth of a second; larger results are data, not structure."""

MAX_DEPTH: Final = 64
"""Levels of schema or instance. The library recurses, and this many levels fit in Python's default stack."""

MAX_SECONDS: Final = 0.5
"""Processor time to read a schema, and again to check by it: what a worker's event loop can bear."""

QUICK_SECONDS: Final = 0.005
"""Processor time for a check on an event loop: most take a tenth of it, and other calls do not notice."""

QUICK_BYTES: Final = 16 * 1024
"""Bytes of an instance that can be decoded on an event loop."""

LATE_KEPT: Final = 4096
"""Schemas remembered for the time that they take, a hundred bytes each: as many as tools of one server are."""

MAX_UNEVALUATED: Final = 256
"""Elements of an array under ``unevaluatedItems``: the library lists the indexes of all, once for each subschema."""

MAX_PATTERN_WORK: Final = 100_000_000
"""Instructions of a pattern times bytes of a text: about a second of RE2 at its worst, which nothing interrupts."""

PATTERN_MEMORY: Final = 256 * 1024
"""Bytes that RE2 may spend on one pattern: far more than any written by hand takes."""

MAX_DIGITS: Final = 4300
"""Digits of an integer that is read as one; Python's own limit for numbers as text, for the same reason."""

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

    Takes at most about a second of processor time, that long only once for each schema, and never raises for what the
    texts hold. Safe to call from several threads.
    """
    return _within(MAX_SECONDS, _HOPELESS, schema, instance) or Verdict("unchecked", reason=_OUT_OF_TIME)


def check_at_once(schema: bytes, instance: bytes) -> Verdict | None:
    """The same within a few milliseconds, for an event loop; None where it takes longer, which is remembered."""
    if len(instance) > QUICK_BYTES:
        return None
    if _HOPELESS.expects(schema, instance):
        return Verdict("unchecked", reason=_OUT_OF_TIME)
    return _within(QUICK_SECONDS, _SLOW, schema, instance)


def _within(seconds: float, late: _Late, schema: bytes, instance: bytes) -> Verdict | None:
    """The verdict; None, and the reason for it remembered, where it is not there in time."""
    if late.expects(schema, instance):
        return None
    _allowed.set(seconds)
    compiled: tuple[Any, Any, Any] | str | None = None
    try:
        compiled = _compile(schema)
        if isinstance(compiled, str):
            return Verdict("unchecked", reason=compiled)
        fault = _fault(*compiled, _load("value", instance, MAX_INSTANCE_BYTES))
    except _OutOfTimeError:
        # Where another thread reads the schema to its end it is kept, and may then be quick to check by.
        if compiled is not None or late is _HOPELESS:
            late.add(schema, instance)
        return None
    except _UNUSABLE as error:
        return Verdict("unchecked", reason=_told(error))
    return Verdict("mismatch", *fault) if fault else Verdict("ok")


class _Late:
    """Which schemas took too long, and for instances of which size; the first are forgotten first."""

    def __init__(self) -> None:
        self._sizes: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def expects(self, schema: bytes, instance: bytes) -> bool:
        """Whether this would take too long again: the instance is about as large as one that did."""
        size = self._sizes.get(hashlib.sha256(schema).digest()) if self._sizes else None
        return size is not None and len(instance) >= size

    def add(self, schema: bytes, instance: bytes) -> None:
        """Remember that this took too long. Half of it might not have; what is small is hopeless at any size."""
        size = len(instance) // 2 if len(instance) > QUICK_BYTES else 0
        with self._lock:
            self._sizes[hashlib.sha256(schema).digest()] = size
            if len(self._sizes) > LATE_KEPT:
                del self._sizes[next(iter(self._sizes))]


_HOPELESS, _SLOW = _Late(), _Late()


class _GivenUpError(RuntimeError):
    """Why there will be no verdict."""


class _OutOfTimeError(RuntimeError):
    """There is no verdict yet."""


_OUT_OF_TIME = f"the check takes more than {MAX_SECONDS:g} s"


_LIBRARIES = (ArithmeticError, ValueError, TypeError, AttributeError, LookupError, Unresolvable, UnknownType)
_UNUSABLE = (RuntimeError, *_LIBRARIES)
"""What ends a check: the guards, and what the libraries raise by contract or for hostile identifiers and numbers."""


def _told(error: Exception) -> str:
    if isinstance(error, Unresolvable):
        # The address of another document may hold a key.
        shown = excerpt(_bytes(error.ref)) if error.ref.startswith("#") else "another document"
        return f"the schema refers to {shown}, which is not in it and is not fetched"
    if isinstance(error, RecursionError):
        return "the schema refers to itself, or on and on"
    if isinstance(error, ArithmeticError):
        return "the value has a number with too many digits to divide"
    return str(error) if isinstance(error, _GivenUpError) else "the schema has a reference that cannot be read"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_allowed: ContextVar[float] = ContextVar("_allowed")
"""Seconds of processor time to read a schema, and again to check by it."""

_ends: ContextVar[float] = ContextVar("_ends")
"""The end of this thread's processor time for a check."""


def _tick(passed: Any = None) -> Any:
    if time.thread_time() > _ends.get():
        raise _OutOfTimeError
    return passed


class _Array(list[Any]):
    """Each walk through it takes time that counts, also in the library's loops."""

    def __iter__(self) -> Iterator[Any]:
        return map(_tick, super().__iter__())


class _Object(dict[str, Any]):
    """The same; a schema's items are asked for with each value it is applied to."""

    def __iter__(self) -> Iterator[str]:
        return map(_tick, super().__iter__())

    def items(self) -> Any:
        _tick()
        return super().items()


def _load(what: str, data: bytes, limit: int) -> Any:
    """Start the clock and decode exactly: every number is an int or a Decimal. Refuse what is too large or too deep."""
    _ends.set(time.thread_time() + _allowed.get())
    if len(data) > limit:
        raise _GivenUpError(f"the {what} has {len(data)} bytes, over the {limit} that are checked")
    try:
        value = json.loads(data.decode(), parse_float=_real, parse_int=_integer, parse_constant=int)
        return _counted(value, MAX_DEPTH)
    except ValueError:
        raise _GivenUpError(f"the {what} is not JSON") from None
    except RecursionError:
        raise _GivenUpError(f"the {what} is nested deeper than {MAX_DEPTH} levels") from None


def _counted(value: Any, room: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if room == 0:
        raise RecursionError
    if isinstance(value, dict):
        return _Object((name, _counted(member, room - 1)) for name, member in value.items())
    return _Array(_counted(element, room - 1) for element in value)


def _real(text: str) -> BigNumber:
    return BigNumber(_tick(text))


def _integer(text: str) -> int | BigNumber:
    return int(text) if len(text) < MAX_DIGITS else BigNumber(text)


@functools.lru_cache
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
    work = compiled.programsize * len(data)
    if work > MAX_PATTERN_WORK * _allowed.get() / MAX_SECONDS:
        if work <= MAX_PATTERN_WORK:
            raise _OutOfTimeError
        raise _GivenUpError("the value has a text too long for the pattern it must match")
    return compiled.search(data) is not None


_Rule = Callable[[Any, Any, Any, Any], Iterable[ValidationError]]
"""A keyword as the library calls it: validator, argument, value, schema around the argument."""


def _leaf(breaks: Callable[[Any, Any], bool]) -> _Rule:
    return lambda _validator, argument, value, _schema: [ValidationError("")] if breaks(argument, value) else []


def _pattern_properties(validator: Any, schemas: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    for pattern, schema in schemas.items() if isinstance(value, dict) else ():
        yield from _members(validator, schema, value, (name for name in value if _matches(pattern, name)))


def _additional_properties(validator: Any, schema: Any, value: Any, around: Any) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        known, patterns = around.get("properties", ()), around.get("patternProperties", ())
        rest = (name for name in value if name not in known and not any(_matches(p, name) for p in patterns))
        yield from _members(validator, schema, value, rest)


def _members(validator: Any, schema: Any, value: Any, names: Iterable[str]) -> Iterator[ValidationError]:
    for name in names:
        for error in validator.descend(value[name], schema, path=name):
            if schema is False:  # for which the library leaves the step out
                error.path.append(name)
            yield error


def _frozen(value: Any) -> Any:
    """Make a value that is hashable and equal exactly where JSON Schema says so: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _frozen(member)) for name, member in value.items())
    if isinstance(value, list):
        return "array", *map(_frozen, value)
    return ("boolean", value) if isinstance(value, bool) else value


def _guarded(keyword: str, rule: _Rule) -> _Rule:
    """Count a keyword's time, and keep the first of its errors alone, without the message: that shows the value."""

    def guarded(validator: Any, argument: Any, value: Any, schema: Any) -> Iterable[ValidationError]:
        _tick()
        if keyword == "unevaluatedItems" and isinstance(value, list) and len(value) > MAX_UNEVALUATED:
            raise _GivenUpError(f"the value has more than {MAX_UNEVALUATED} elements for {keyword}")
        for error in rule(validator, argument, value, schema):
            error.message, error.args, error.validator = "", (), error.validator or keyword
            return (error,)
        return ()

    return guarded


_OWN: Mapping[str, _Rule] = {
    "pattern": _leaf(lambda pattern, value: isinstance(value, str) and not _matches(pattern, value)),
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _leaf(lambda on, value: on and isinstance(value, list) and len({*map(_frozen, value)}) < len(value)),
}
"""Keywords for which the library uses expressions that backtrack, or compares all with all."""


def _guard(library: Any) -> Any:
    rules = {keyword: _guarded(keyword, rule) for keyword, rule in {**library.VALIDATORS, **_OWN}.items()}
    types = {
        "integer": lambda _, value: (
            type(value) is int or (isinstance(value, BigNumber) and value == value.to_integral_value())
        ),
        # The library's search for what was evaluated follows references without a keyword; this it asks at each step.
        "boolean": lambda _, value: isinstance(_tick(value), bool),
    }
    checker = library.TYPE_CHECKER.redefine_many(types)
    extended: Any = validators.extend(library, rules, type_checker=checker)  # type: ignore[no-untyped-call]
    return extended({}, registry=Registry())


_LATEST = "json-schema.org/draft/2020-12/schema"
"""MCP's default (basic, JSON Schema usage)."""

_DIALECTS = {
    _LATEST: (DRAFT202012, _guard(Draft202012Validator)),
    "json-schema.org/draft-07/schema": (DRAFT7, _guard(Draft7Validator)),
}
"""What ``$schema`` may name, without scheme and empty fragment."""

_META: Any = (
    Registry()
    .with_resources(
        (uri, known.create_resource({name: value for name, value in resource.contents.items() if name != "$schema"}))
        for uri, resource in REGISTRY.items()
        for dialect, (known, _) in _DIALECTS.items()
        if dialect.removesuffix("schema") in uri
    )
    .crawl()
)
"""The metaschemas without ``$schema``, at which the library would leave the guarded validator for its own."""


def _fault(validator: Any, schema: Any, resolver: Any, value: Any) -> tuple[str, str] | None:
    """The first fault found: its path and what is wrong there."""
    with decimal.localcontext(_EXACT):
        error = next(validator.descend(value, schema, resolver=resolver), None)
    if error is None:
        return None
    path = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in error.absolute_path)
    while len(path) > MAX_PATH or not path.isprintable():
        path = path.rpartition("/")[0]
    keyword, argument = error.validator or "the schema false", error.validator_value
    if keyword == "required":
        missing = next(name for name in argument if name not in error.instance)
        return path, f"lacks the required member {excerpt(_bytes(missing))}"
    return path, f"breaks {keyword}: {excerpt(encode(argument))}" if _TOLD.fullmatch(keyword) else f"breaks {keyword}"


_EXACT = decimal.Context(2 * MAX_DIGITS, None, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=[decimal.InvalidOperation])
"""Remainders, for ``multipleOf``, are exact in it, or refused where the quotient would have more digits than that."""

_TOLD = re.compile("type|const|enum|multipleOf|pattern|(exclusiveM|m)(in|ax)imum|m(in|ax)(Length|Items|Properties)")
"""Keywords whose argument says what is wanted, and comes from the schema."""


@functools.lru_cache(SCHEMAS_KEPT)
def _compile(data: bytes) -> tuple[Any, Any, Any] | str:
    """Read a schema and vouch for it: validator, schema and resolver, or what keeps it from being used.

    Raises:
        _OutOfTimeError: if that takes too long; it is not kept, as another time more may be allowed.
    """
    try:
        schema = _load("schema", data, MAX_SCHEMA_BYTES)
        named = schema.pop("$schema", None) if isinstance(schema, dict) else None
        name = _LATEST if named is None else re.sub("^https?://|#$", "", str(named))
        if name not in _DIALECTS:
            raise _GivenUpError(f"the schema is of a dialect that is not known here: {excerpt(_bytes(name))}")
        dialect, validator = _DIALECTS[name]
        text = json.dumps(schema, default=str)
        if '"$schema": "' in text:
            raise _GivenUpError("the schema states a dialect inside")
        if '"patternProperties": {' in text and '"unevaluatedProperties": ' in text:
            # Together they have the library match with Python's own regular expressions, which backtrack.
            raise _GivenUpError("the schema has both patternProperties and unevaluatedProperties")
        metaschema = validator.META_SCHEMA["$id"].rstrip("#")
        fault = _fault(validator, _META.contents(metaschema), _META.resolver(metaschema), schema)
        if fault:
            raise _GivenUpError(f"the schema is not valid at '{fault[0]}': {fault[1]}")
        return validator, schema, _survey(dialect, schema)
    except _OutOfTimeError:
        raise
    except _UNUSABLE as error:
        return _told(error)


def _survey(dialect: Any, schema: Any) -> Any:
    """Look at every subschema that can be reached, and make the resolver of references within the schema.

    Raises:
        Unresolvable: if a reference leads out of the schema.
        _GivenUpError: if a pattern cannot be used.
    """
    root = dialect.create_resource(schema)
    base = root.id() or ""
    # Crawled once: an anchor that is looked up in a registry that is not has it crawled every time.
    resolver: Any = Registry().with_resource(base, root).crawl().resolver(base)
    seen: set[int] = set()
    waiting = [(root, resolver)]
    for resource, inside in waiting:
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in seen:
            continue
        seen.add(id(contents))
        for pattern in (contents.get("pattern", ""), *contents.get("patternProperties", ())):
            _pattern(pattern)
        for keyword in {"$ref", "$dynamicRef"} & contents.keys():
            target = inside.lookup(contents[keyword])
            waiting.append((dialect.create_resource(target.contents), target.resolver))
        waiting.extend((inner, inside.in_subresource(inner)) for inner in resource.subresources())
    return resolver
