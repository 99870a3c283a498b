"""The compact view of a tool's input schema: what its arguments are, in keywords that every reader of schemas knows.

Pure. It accepts whatever the full schema accepts, and often more: what it cannot say, it leaves open. It judges no
argument, fetches nothing, and knows neither tools nor descriptors. A schema comes from a server and may be hostile.
"""

from __future__ import annotations

import collections
import contextlib
import decimal
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

from openwop_mcp.jsontext import decode, encode, nests

__all__ = ("BARRED", "MAX_BYTES", "MAX_SCHEMA_BYTES", "compact_schema")

BARRED: Final = frozenset({"$ref", "oneOf", "allOf", "anyOf", "not", "patternProperties", "dependentSchemas"})
"""Names that no object in a compact view has as a key, not even among a tool's properties or in a default value:
whoever looks for the keywords need not know where a schema holds schemas (OpenWOP, tool catalog)."""

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""Bytes of a schema that is read: the largest in use are a quarter of this. The view of a larger one is open."""

MAX_BYTES: Final = 64 * 1024
"""Bytes of a view, or as many as the schema itself has: references say much in little, but a view is to be read."""

MAX_NESTING: Final = 256
"""Levels of a schema's text. Those in use have twenty; a reference is followed in the square of its own."""

DEPTHS: Final = (48, 12, 6, 3, 1)
"""Levels of schemas within schemas that a view shows, the first for which it is not too large. Each is a few frames of
Python's stack; and where references fan out, showing less of each leaves room for all of them."""

# --- keywords ---------------------------------------------------------------------------------------------------------

_EVERY: Final = frozenset({"null", "boolean", "object", "array", "number", "string"})

_TYPES: Final = _EVERY | {"integer"}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_type(value: Any) -> bool:
    return value in _TYPES if isinstance(value, str) else _is_filled(value) and all(_is_type(name) for name in value)


def _is_filled(value: Any) -> bool:
    return isinstance(value, list) and value != []


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_NOTES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "title": _is_text,
    "description": _is_text,
    "default": lambda _: True,
    "examples": lambda value: isinstance(value, list),
    "deprecated": _is_flag,
}
"""Keywords that restrict nothing, and whether a value is one that they can have."""

_PLAIN: Final[Mapping[str, tuple[frozenset[str], Callable[[Any], bool]]]] = {
    **{word: (_EVERY, fits) for word, fits in _NOTES.items()},
    "type": (_EVERY, _is_type),
    "enum": (_EVERY, _is_filled),
    "const": (_EVERY, lambda _: True),
    "format": (frozenset({"string", "number"}), _is_text),
    **dict.fromkeys(("pattern", "contentEncoding", "contentMediaType"), (frozenset({"string"}), _is_text)),
    **dict.fromkeys(("minLength", "maxLength"), (frozenset({"string"}), _is_number)),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        (frozenset({"number"}), _is_number),
    ),
    **dict.fromkeys(("minItems", "maxItems"), (frozenset({"array"}), _is_number)),
    "uniqueItems": (frozenset({"array"}), _is_flag),
    **dict.fromkeys(("minProperties", "maxProperties"), (frozenset({"object"}), _is_number)),
    "required": (frozenset({"object"}), _are_names),
}
"""Keywords that hold no schema: the types of value that they restrict, and whether a value is one they can have.

What is in neither of these tables is left out of a view, and what it would refuse is accepted.
"""

_NESTED: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("properties", "additionalProperties", "propertyNames"), frozenset({"object"})),
    **dict.fromkeys(("prefixItems", "items"), frozenset({"array"})),
}
"""Keywords that hold schemas, and the types of value that they restrict."""

_RESTRICTS: Final[Mapping[str, frozenset[str]]] = {**{word: types for word, (types, _) in _PLAIN.items()}, **_NESTED}


@dataclass(frozen=True)
class _Dialect:
    """How a schema is to be read.

    Attributes:
        rules: Where it holds schemas, identifiers and anchors.
        alone: Whether what stands beside a reference is ignored.
        unknown: Keywords that came later, or meant something else.
    """

    rules: Any
    alone: bool
    unknown: frozenset[str]


_LATER: Final = frozenset({"prefixItems"})

_LATEST: Final = "json-schema.org/draft/2020-12/schema"
"""MCP's default, and what a view is of."""

_DIALECTS: Final[Mapping[str, _Dialect]] = {
    _LATEST: _Dialect(DRAFT202012, alone=False, unknown=frozenset()),
    "json-schema.org/draft/2019-09/schema": _Dialect(DRAFT201909, alone=False, unknown=_LATER),
    "json-schema.org/draft-07/schema": _Dialect(DRAFT7, alone=True, unknown=_LATER),
    "json-schema.org/draft-06/schema": _Dialect(DRAFT6, alone=True, unknown=_LATER),
    "json-schema.org/draft-04/schema": _Dialect(
        DRAFT4,
        alone=True,
        unknown=_LATER | {"const", "propertyNames", "examples", "exclusiveMinimum", "exclusiveMaximum"},
    ),
}
"""What ``$schema`` may name, without scheme and empty fragment. A schema of another dialect says nothing for sure."""

# --- the view ---------------------------------------------------------------------------------------------------------

_Form: TypeAlias = dict[str, Any] | Literal[False]
"""A schema without what is barred; False accepts nothing."""

_OPEN: Final = b'{"type":"object","properties":{}}'


class _TooLargeError(Exception):
    """The view would be larger than it may be."""


def compact_schema(schema: bytes) -> bytes:
    """Derive the compact view of an input schema: ``{"type":"object","properties":{…}}`` with nothing :data:`BARRED`.

    It accepts every JSON object that the schema accepts. References within the schema are replaced by what they lead
    to, ``allOf`` is merged, and of ``anyOf`` and ``oneOf`` stays what all alternatives have in common. What recurs,
    leads elsewhere, or cannot be said without the barred names is open; so is a property with such a name. Literals
    keep the spelling of their numbers.

    Takes at most about a second of processor time, and never more bytes than the larger of :data:`MAX_BYTES` and the
    schema.

    Args:
        schema: JSON text of the schema, whatever it holds.

    Raises:
        JsonTextError: if the text is not JSON; of one too large or too deep to be read nothing is judged.
    """
    if len(schema) > MAX_SCHEMA_BYTES or nests(schema, MAX_NESTING):
        return _OPEN
    root = decode(schema)
    name = root.get("$schema", _LATEST) if isinstance(root, dict) else None
    dialect = _DIALECTS.get(re.sub("^https?://|#$", "", name)) if isinstance(name, str) else None
    if dialect is None:
        return _OPEN
    most = max(MAX_BYTES, len(schema))
    resolver = _resolver(dialect, root)
    for depth in DEPTHS:
        with contextlib.suppress(_TooLargeError):
            form = _Reading(dialect, root.get("$schema"), depth, most).form(root, resolver, ())
            view = encode({"type": "object", "properties": form.get("properties", {}) if form else {}})
            if len(view) <= most:
                return view
    return _OPEN


_UNREADABLE: Final = (Unresolvable, AttributeError, LookupError, TypeError, ValueError)
"""What the library of references raises for those that lead nowhere, and for a schema that is none."""


def _resolver(dialect: _Dialect, root: dict[str, Any]) -> Any:
    """What follows references within the schema; None where it is too broken for that."""
    if not _holds(root, frozenset({"$ref"})):
        return None
    with contextlib.suppress(*_UNREADABLE):
        resource = dialect.rules.create_resource(root)
        base = resource.id() or ""
        registry: Any = Registry()
        return registry.with_resource(base, resource).crawl().resolver(base)
    return None


def _holds(value: Any, names: frozenset[str]) -> bool:
    """Whether one of the names is a key of an object, at any depth."""
    waiting = [value]
    for inner in waiting:
        if isinstance(inner, dict):
            if not names.isdisjoint(inner):
                return True
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
    return False


class _Reading:
    """One attempt at a view, which ends where it has taken more than it may."""

    def __init__(self, dialect: _Dialect, named: Any, depth: int, most: int) -> None:
        self._dialect = dialect
        self._named = named
        self._depth = depth
        self._left = most

    def form(self, schema: Any, resolver: Any, inside: tuple[int, ...]) -> _Form:
        """What a schema says that can be said.

        Args:
            schema: The schema, or what stands where one should.
            resolver: Follows references as they are meant around it.
            inside: Identities of the schemas that are being read around it.
        """
        self._spend(2)
        if not isinstance(schema, dict):
            return False if schema is False else {}
        self._spend(len(schema))
        if schema.get("$schema", self._named) != self._named:
            return {}
        alone = self._dialect.alone and "$ref" in schema
        plain = self._plain(schema, _NOTES if alone else _PLAIN)
        if len(inside) == self._depth or id(schema) in inside:
            return plain
        inside = (*inside, id(schema))
        resolver = self._within(resolver, schema)
        target = self._target(schema, resolver, inside)
        if alone:
            return _all([plain, target])
        nested = self._nested(schema, resolver, inside)
        every, *choices = (
            [self.form(part, resolver, inside) for part in parts] if isinstance(parts, list) else []
            for parts in map(schema.get, ("allOf", "anyOf", "oneOf"))
        )
        return _all([plain | nested, target, *every, *(_any(forms) for forms in choices if forms)])

    def _spend(self, amount: int) -> None:
        """Pay for what is looked at; a schema without references has bytes enough for all of itself."""
        self._left -= amount
        if self._left < 0:
            raise _TooLargeError

    def _plain(self, schema: Mapping[str, Any], words: Iterable[str]) -> dict[str, Any]:
        kept = {}
        for word, value in schema.items():
            if word in words and word not in self._dialect.unknown:
                self._spend(len(value if isinstance(value, str) else encode(value)))
                if _PLAIN[word][1](value) and not _holds(value, BARRED):
                    kept[word] = value
        return kept

    def _nested(self, schema: Mapping[str, Any], resolver: Any, inside: tuple[int, ...]) -> dict[str, Any]:
        nested: dict[str, Any] = {}
        properties = schema.get("properties")
        barred = 0
        if isinstance(properties, dict):
            self._spend(sum(map(len, properties)))
            barred = len(BARRED & properties.keys())
            nested["properties"] = {
                name: self.form(inner, resolver, inside) for name, inner in properties.items() if name not in BARRED
            }
        places, rest = self._places(schema)
        if places:
            nested["prefixItems"] = [self.form(inner, resolver, inside) for inner in places]
        single = {"items": rest, "propertyNames": "propertyNames"}
        # Where a property is left out, what the schema says of all others is not said of it.
        if not barred and not schema.get("patternProperties"):
            single["additionalProperties"] = "additionalProperties"
        for word, source in single.items():
            if source in schema and word not in self._dialect.unknown:
                nested[word] = self.form(schema[source], resolver, inside)
        return nested

    def _places(self, schema: Mapping[str, Any]) -> tuple[list[Any], str]:
        """The schemas of an array's first places, and the name of the one for those after them."""
        if "prefixItems" not in self._dialect.unknown:
            places, rest = schema.get("prefixItems"), "items"
        else:
            places, rest = schema.get("items"), "additionalItems"
            if not isinstance(places, list):
                rest = "items"
        return (places if isinstance(places, list) else []), rest

    def _within(self, resolver: Any, schema: dict[str, Any]) -> Any:
        """The resolver for what stands in a schema, which may have an identifier of its own."""
        if resolver is None:
            return None
        with contextlib.suppress(*_UNREADABLE):
            return resolver.in_subresource(self._dialect.rules.create_resource(schema))
        return None

    def _target(self, schema: Mapping[str, Any], resolver: Any, inside: tuple[int, ...]) -> _Form:
        reference = schema.get("$ref")
        if resolver is None or not isinstance(reference, str):
            return {}
        self._spend(len(reference))
        try:
            found = resolver.lookup(reference)
        except _UNREADABLE:
            return {}
        return self.form(found.contents, found.resolver, inside)


# --- schemas together -------------------------------------------------------------------------------------------------

_Forms: TypeAlias = Sequence[_Form]


def _all(forms: _Forms) -> _Form:
    """What holds where all hold: of what they restrict differently, the first word counts."""
    found: dict[str, list[Any]] = {}
    for form in forms:
        if form is False:
            return False
        for word, value in form.items():
            found.setdefault(word, []).append(value)
    return {word: _MEET.get(word, _first)(values) for word, values in found.items()}


def _first(values: Sequence[Any]) -> Any:
    return values[0]


def _meet_each(values: Sequence[Any]) -> Any:
    """Schemas by name or by place."""
    found: dict[Any, list[_Form]] = {}
    for value in values:
        for key, form in value.items() if isinstance(value, dict) else enumerate(value):
            found.setdefault(key, []).append(form)
    met = {key: _all(forms) for key, forms in found.items()}
    return met if isinstance(values[0], dict) else [met[place] for place in range(len(met))]


_MEET: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    "required": lambda values: list(dict.fromkeys(itertools.chain(*values))),
    # What one schema says of the properties or places that it does not list is then said of fewer.
    **dict.fromkeys(("properties", "prefixItems"), _meet_each),
    **dict.fromkeys(("additionalProperties", "propertyNames", "items"), _all),
}


def _any(forms: _Forms) -> _Form:
    """What holds where any holds. A keyword stays if no alternative without it takes what it restricts."""
    some = [form for form in forms if form is not False]
    if len(some) < 2:  # noqa: PLR2004 - nothing to join
        return some[0] if some else False
    joined: dict[str, Any] = {}
    for word in dict.fromkeys(itertools.chain(*some)):
        joined |= _JOIN.get(word, _join_same)(word, [form for form in some if _RESTRICTS[word] & _types(form)])
    return joined


def _types(form: dict[str, Any]) -> frozenset[str]:
    """The types of value that a form may accept; whole numbers are numbers."""
    return frozenset("number" if name == "integer" else name for name in _names(form)) or _EVERY


def _names(form: dict[str, Any]) -> list[str]:
    named = form.get("type", [])
    return [named] if isinstance(named, str) else named


_Join: TypeAlias = Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]
"""From a keyword and the alternatives that take what it restricts: the keyword and what they have in common, if any."""


def _join_same(word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values = [form[word] for form in forms if word in form]
    same = len({encode(value) for value in values}) == 1
    return {word: values[0]} if same and (word in _NOTES or len(values) == len(forms)) else {}


def _join_type(word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not all(word in form for form in forms):
        return {}
    names = dict.fromkeys(itertools.chain(*map(_names, forms)))
    if "number" in names:
        names.pop("integer", None)
    return {word: list(names) if len(names) > 1 else next(iter(names))}


def _join_values(_word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    values: dict[bytes, Any] = {}
    for form in forms:
        listed = form.get("enum") or (
            [form["const"]] if "const" in form else [None] if _names(form) == ["null"] else []
        )
        if not listed:
            return {}
        values |= {encode(value): value for value in listed}
    return {"enum": list(values.values())}


def _join_required(word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first, *others = (dict.fromkeys(form.get(word, ())) for form in forms) if forms else ({},)
    common = [name for name in first if all(name in other for other in others)]
    return {word: common} if common else {}


def _join_properties(word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Each name, also one that some alternatives do not list: these take anything there, or refuse it."""
    listed: dict[str, list[_Form]] = {}
    taken = collections.Counter[str]()
    takers = [form for form in forms if form.get("additionalProperties") is not False]
    for form in forms:
        for name, inner in form.get(word, {}).items():
            listed.setdefault(name, []).append(inner)
    for form in takers:
        taken.update(list(form.get(word, ())))
    return {
        word: {name: _any([*inner, *([{}] if taken[name] < len(takers) else [])]) for name, inner in listed.items()}
    }


def _join_schema(word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    common = forms and all(word in form and (word != "items" or "prefixItems" not in form) for form in forms)
    return {word: _any([form[word] for form in forms])} if common else {}


def _join_places(word: str, forms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Lists of places are kept whole or not at all, with what is said of those after them."""
    return {name: forms[0][name] for name in (word, "items") if name in forms[0]} if len(forms) == 1 else {}


_JOIN: Final[Mapping[str, _Join]] = {
    "type": _join_type,
    "enum": _join_values,
    "const": _join_values,
    "required": _join_required,
    "properties": _join_properties,
    **dict.fromkeys(("additionalProperties", "propertyNames", "items"), _join_schema),
    "prefixItems": _join_places,
}
