"""Compact views: what they say, what they leave open, and that they refuse nothing that the schema accepts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema.validators import validator_for

from openwop_mcp.catalog.compact import BARRED, MAX_BYTES, MAX_SCHEMA_BYTES, compact_schema
from openwop_mcp.jsontext import JsonTextError

DRAFT4 = "http://json-schema.org/draft-04/schema#"
DRAFT7 = "http://json-schema.org/draft-07/schema#"
DRAFT2019 = "https://json-schema.org/draft/2019-09/schema"
LATEST = "https://json-schema.org/draft/2020-12/schema"

NOTHING = {"type": "object", "properties": {}}


def view(schema: Any) -> Any:
    return json.loads(compact_schema(json.dumps(schema).encode()))


def of(inner: Any, **root: Any) -> Any:
    """The view of a property."""
    return view({"type": "object", "properties": {"p": inner}, **root})["properties"]["p"]


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


def accepts(schema: Any, instance: Any) -> bool:
    return validator_for(schema, default=jsonschema.Draft202012Validator)(schema).is_valid(instance)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_view_has_the_properties_and_nothing_beside_them() -> None:
    schema = {
        "$schema": LATEST,
        "title": "Arguments",
        "type": "object",
        "properties": {"a": {"type": "string", "description": "an a"}},
        "required": ["a"],
        "additionalProperties": False,
        "x-more": 1,
    }
    assert view(schema) == {"type": "object", "properties": {"a": {"type": "string", "description": "an a"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "title": "t", "description": "d", "default": "x", "examples": ["y"], "deprecated": True},
        {"type": "string", "minLength": 1, "maxLength": 9, "pattern": "^a", "format": "date", "contentEncoding": "hex"},
        {"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMinimum": 0, "exclusiveMaximum": 9, "multipleOf": 2},
        {"type": ["string", "null"], "enum": ["a", None]},
        {"const": {"k": [1]}},
        {"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": True, "items": {"type": "string"}},
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        {
            "type": "object",
            "required": ["a"],
            "minProperties": 1,
            "maxProperties": 2,
            "properties": {"a": {"type": "number"}},
            "additionalProperties": {"type": "string"},
            "propertyNames": {"maxLength": 3},
        },
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {},
        False,
    ],
)
def test_what_the_view_can_say_stays_as_it_is(schema: Any) -> None:
    assert of(schema) == schema


def test_numbers_keep_their_spelling() -> None:
    schema = b'{"properties":{"n":{"minimum":1.10,"maximum":1E400,"default":9007199254740993,"const":-0.0}}}'
    assert compact_schema(schema) == b'{"type":"object",' + schema[1:]


@pytest.mark.parametrize("dialect", [None, DRAFT7, DRAFT2019, LATEST])
def test_references_are_replaced_by_what_they_lead_to(dialect: str | None) -> None:
    place = "$defs" if dialect in {None, LATEST} else "definitions"
    named = {"$schema": dialect} if dialect else {}
    schema = {"type": "array", "items": {"$ref": f"#/{place}/Q"}}
    full = {"type": "object", "properties": {"n": {"type": "number"}}, "additionalProperties": False}
    assert of(schema, **named, **{place: {"Q": full}}) == {"type": "array", "items": full}
    assert view({**named, "$ref": f"#/{place}/Q", place: {"Q": full}})["properties"] == full["properties"]


@pytest.mark.parametrize(
    ("reference", "definition"),
    [
        ("#/$defs/a~1b%20c", {"type": "string"}),
        ("#here", {"$anchor": "here", "type": "string"}),
        ("other", {"$id": "other", "type": "string"}),
        (
            "http://example.org/other#/$defs/in",
            {"$id": "http://example.org/other", "$defs": {"in": {"type": "string"}}},
        ),
        ("other", {"$id": "other", "$ref": "#/$defs/in", "$defs": {"in": {"type": "string"}}}),
    ],
)
def test_a_reference_finds_pointers_anchors_and_identifiers(reference: str, definition: Any) -> None:
    assert of({"$ref": reference}, **{"$defs": {"a/b c": definition}}) == {"type": "string"}


def test_a_reference_is_meant_as_from_where_it_stands() -> None:
    inner = {"$id": "inner", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}}
    assert of(inner, **{"$defs": {"a": {"type": "null"}}}) == {"items": {"type": "string"}}


@pytest.mark.parametrize(
    "reference", ["#/$defs/gone", "#gone", "http://127.0.0.1:9/s.json", "http://[", "#/type/x", "#/anyOf/x", 7]
)
def test_a_reference_that_leads_nowhere_is_open(reference: Any) -> None:
    assert of({"$ref": reference, "description": "d"}, anyOf=[{}]) == {"description": "d"}


def test_what_stands_beside_a_reference_counts_where_its_dialect_says_so() -> None:
    schema = {"$ref": "#/definitions/s", "maxLength": 1, "description": "d"}
    definitions = {"s": {"type": "string"}}
    assert of(schema, definitions=definitions) == {"type": "string", "maxLength": 1, "description": "d"}
    assert of(schema, definitions=definitions, **{"$schema": DRAFT7}) == {"type": "string", "description": "d"}


def test_a_schema_that_recurs_is_shown_once_and_then_by_its_own_words() -> None:
    node = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/Node"}}}
    inner = {"type": "object", "required": ["next"]}
    assert of({"$ref": "#/$defs/Node"}, **{"$defs": {"Node": node}}) == {**inner, "properties": {"next": inner}}
    assert view({"type": "object", "properties": {"me": {"$ref": "#"}}})["properties"] == {"me": {"type": "object"}}
    assert view({"$ref": "#"}) == NOTHING
    assert view({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}) == NOTHING


def test_a_value_that_may_be_null_keeps_what_else_is_said_of_it() -> None:
    null = {"type": "null"}
    word = {"type": "string", "minLength": 1, "description": "d"}
    assert of({"anyOf": [word, null], "default": None}) == {**word, "type": ["string", "null"], "default": None}
    assert of({"oneOf": [null, {"enum": ["a"], "type": "string"}]}) == {"type": ["null", "string"], "enum": [None, "a"]}
    array = {"type": "array", "items": {"type": "string"}, "prefixItems": [{"const": "a"}]}
    assert of({"anyOf": [array, null]}) == {**array, "type": ["array", "null"]}


def test_of_alternatives_stays_what_they_have_in_common() -> None:
    text = {"type": "string", "minLength": 1}
    assert of({"anyOf": [text, {"type": "string"}]}) == {"type": "string"}
    assert of({"anyOf": [text, {"type": "integer"}, {"type": "number"}]}) == {**text, "type": ["string", "number"]}
    assert of({"anyOf": [{"type": "number", "minimum": 1}, {"type": "integer"}]}) == {"type": "number"}
    assert of({"anyOf": [text, {}]}) == {}
    assert of({"anyOf": [{"enum": ["a"]}, {"type": "string"}]}) == {}
    assert of({"anyOf": [text, False]}) == text
    assert of({"anyOf": [False, False]}) is False
    assert of({"anyOf": [{"const": 1}, {"enum": [1, 2]}, {"type": "null"}]}) == {"enum": [1, 2, None]}
    tuples = [{"type": "array", "prefixItems": [{}], "items": {"type": kind}} for kind in ("string", "null")]
    assert of({"anyOf": tuples}) == {"type": "array"}
    lists = [{"type": "array", "items": {"type": kind}} for kind in ("string", "null")]
    assert of({"anyOf": lists}) == {"type": "array", "items": {"type": ["string", "null"]}}


def test_alternatives_of_one_object_show_all_their_properties() -> None:
    def one(kind: str, **more: Any) -> Any:
        properties = {"kind": {"const": kind}, kind: {"type": "string", "description": kind}}
        return {"type": "object", "properties": properties, "required": ["kind", kind], **more}

    kinds = {"enum": ["a", "b"]}
    schema = {"oneOf": [one("a", additionalProperties=False), one("b", additionalProperties=False)]}
    named = {name: {"type": "string", "description": name} for name in "ab"}
    closed = {"type": "object", "required": ["kind"], "additionalProperties": False}
    assert of(schema) == {**closed, "properties": {"kind": kinds, **named}}
    # Where more properties may be given, the one says nothing of those that the other lists.
    opened = {"kind": kinds, "a": {"description": "a"}, "b": {"description": "b"}}
    assert view({"anyOf": [one("a"), one("b")]})["properties"] == opened


def test_what_has_to_hold_together_is_one_schema() -> None:
    parts = [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"a": {"maxLength": 3}, "b": {}}, "required": ["b", "a"], "additionalProperties": False},
    ]
    assert of({"allOf": parts, "type": "object"}) == {
        "type": "object",
        "properties": {"a": {"type": "string", "maxLength": 3}, "b": {}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    places = [{"prefixItems": [{"type": "string"}]}, {"prefixItems": [{"maxLength": 1}, {"type": "null"}]}]
    assert of({"allOf": places}) == {"prefixItems": [{"type": "string", "maxLength": 1}, {"type": "null"}]}
    assert of({"allOf": [{}, False]}) is False


def test_items_of_the_dialects_before_are_told_in_the_words_of_the_latest() -> None:
    old = {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}}
    new = {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}}
    assert of(old, **{"$schema": DRAFT7}) == new
    assert of(old, **{"$schema": DRAFT2019}) == new
    assert of(old) == {"type": "array", "items": {}}
    assert of({"items": {"type": "string"}, "additionalItems": False}, **{"$schema": DRAFT7}) == {
        "items": {"type": "string"}
    }


def test_keywords_that_a_dialect_does_not_know_say_nothing_in_it() -> None:
    schema = {"minimum": 0, "exclusiveMinimum": True, "const": 1, "propertyNames": False, "prefixItems": [False]}
    assert of(schema, **{"$schema": DRAFT4}) == {"minimum": 0}
    assert of({"prefixItems": [False]}, **{"$schema": DRAFT7}) == {}
    assert view({"$schema": "https://example.org/mine", "properties": {"a": False}}) == NOTHING
    assert view({"$schema": 7, "properties": {"a": False}}) == NOTHING
    assert of({"$schema": DRAFT4, "const": 1}) == {}


# --- what is left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(BARRED))
def test_no_object_has_a_barred_name_as_a_key(name: str) -> None:
    odd = {"deep": [{name: 1}]}
    properties = {name: {"type": "string"}, "a": {"type": "object", "properties": {name: {}}, "required": [name]}}
    schema = {
        "properties": {
            **properties,
            "b": {"type": "object", "default": odd, "examples": [odd], "title": name},
            "c": {"enum": [odd, 1]},
            "d": {"const": odd},
            "e": {"type": "object", name: 7},
        }
    }
    assert view(schema)["properties"] == {
        "a": {"type": "object", "properties": {}, "required": [name]},
        "b": {"type": "object", "title": name},
        "c": {},
        "d": {},
        "e": {"type": "object"},
    }


def test_an_object_is_open_where_a_property_or_a_pattern_was_left_out() -> None:
    closed = {"type": "object", "additionalProperties": False}
    assert of({**closed, "properties": {"not": {}, "a": {}}}) == {"type": "object", "properties": {"a": {}}}
    assert of({**closed, "patternProperties": {"^x": {}}}) == {"type": "object"}
    assert of({"allOf": [{**closed, "patternProperties": {"^x": {}}}, {"properties": {"a": {}}}]}) == {
        "type": "object",
        "properties": {"a": {}},
    }


@pytest.mark.parametrize(
    "inner",
    [
        {"not": {"type": "string"}},
        {"if": {"type": "string"}, "then": {"minLength": 1}, "else": False},
        {"dependentSchemas": {"a": False}, "dependencies": {"a": False}, "dependentRequired": {"a": ["b"]}},
        {"unevaluatedProperties": False, "unevaluatedItems": False},
        {"$dynamicRef": "#x", "$recursiveRef": "#", "$anchor": "y", "$comment": "c", "$defs": {"a": False}},
        {"contains": False, "minContains": 1, "maxContains": 1},
        {"x-mcp-header": "Region", "nullable": True},
    ],
)
def test_what_cannot_be_said_is_open(inner: Any) -> None:
    assert of(inner) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "text"},
        {"type": ["string", 1]},
        {"type": []},
        {"enum": []},
        {"enum": "a"},
        {"required": True},
        {"required": [1]},
        {"minimum": "1"},
        {"minLength": True},
        {"pattern": 1},
        {"properties": []},
        {"allOf": {}, "anyOf": [], "oneOf": 1},
        {"title": 1, "examples": 1, "deprecated": 1},
        {"prefixItems": {}},
        "text",
        None,
        True,
    ],
)
def test_what_is_no_schema_says_nothing(schema: Any) -> None:
    assert of(schema) == {}


@pytest.mark.parametrize("schema", [True, False, None, 1, [], "text", {"type": "array", "items": {}}, {"$ref": 1}])
def test_the_view_of_what_describes_no_object_is_an_open_one(schema: Any) -> None:
    assert view(schema) == NOTHING


@pytest.mark.parametrize("broken", [{"$id": 7}, {"$anchor": [1]}, {"$defs": 1}, {"properties": [1]}])
def test_references_in_a_broken_schema_are_open(broken: Any) -> None:
    assert of({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"type": "string"}, "b": broken}}) == {}


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(JsonTextError):
        compact_schema(b'{"type":')


# --- never narrower ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "not", "$ref"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 2.5, "", "a", "ab"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])
SMALL = st.integers(0, 2)
REFERENCES = st.sampled_from(
    ["#/$defs/a", "#/$defs/b", "#/definitions/a", "#/definitions/b", "#/properties/a", "#", "#x", "y", "y#/$defs/a"]
)


def some_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A few keywords: with many at once nothing is accepted."""
    some = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(NAMES, inner, max_size=3)
    keywords = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minLength": SMALL,
        "maximum": SMALL,
        "pattern": st.sampled_from(["^a", "b"]),
        "description": st.just("d"),
        "default": VALUES,
        "properties": by_name,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "t"]), inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "maxProperties": SMALL,
        "items": inner | some,
        "prefixItems": some,
        "additionalItems": inner,
        "contains": inner,
        "maxContains": SMALL,
        "minItems": SMALL,
        "uniqueItems": st.booleans(),
        **dict.fromkeys(("allOf", "anyOf", "oneOf"), some),
        **dict.fromkeys(("not", "if", "then", "else"), inner),
        "dependentSchemas": by_name,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
        "nullable": st.booleans(),
        "$ref": REFERENCES,
        "$id": st.just("y"),
        "$anchor": st.just("x"),
        "$defs": by_name,
    }
    pairs = [st.tuples(st.just(word), values) for word, values in keywords.items()]
    return st.lists(st.one_of(pairs), max_size=4).map(dict)


SCHEMAS = st.recursive(st.booleans() | st.builds(lambda kind: {"type": kind}, TYPES), some_of, max_leaves=8)


@st.composite
def roots(draw: st.DrawFn) -> Any:
    root = draw(some_of(SCHEMAS))
    dialect = draw(st.sampled_from([None, DRAFT4, DRAFT7, DRAFT2019, LATEST]))
    definitions = draw(st.dictionaries(st.sampled_from("ab"), SCHEMAS, max_size=2))
    properties = draw(st.dictionaries(NAMES, SCHEMAS, max_size=2))
    place = draw(st.sampled_from(["$defs", "definitions"]))
    named = {"$schema": dialect} if dialect else {}
    return {**root, **({"properties": properties} if properties else {}), **named, place: definitions}


def verdict(schema: Any, instance: Any) -> bool:
    """Whether the reference implementation accepts it; what it cannot judge is not accepted."""
    try:
        return accepts(schema, instance)
    except Exception:  # noqa: BLE001 - generated schemas recur, refer to nothing, and misplace keywords
        return False


@settings(max_examples=200, deadline=None)
@given(roots(), st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=6))
def test_a_view_accepts_whatever_the_schema_accepts(schema: Any, instances: list[Any]) -> None:
    compact = view(schema)
    assert list(compact) == ["type", "properties"]
    assert BARRED.isdisjoint(keys(compact))
    jsonschema.Draft202012Validator.check_schema(compact)
    for instance in instances:
        assert accepts(compact, instance) or not verdict(schema, instance)


@settings(max_examples=200, deadline=None)
@given(some_of(SCHEMAS), st.sampled_from([None, DRAFT7, DRAFT2019]), st.lists(VALUES, min_size=1, max_size=6))
def test_a_view_of_a_property_accepts_whatever_its_schema_accepts(
    inner: Any, dialect: str | None, instances: list[Any]
) -> None:
    schema = {"properties": {"p": inner}, **({"$schema": dialect} if dialect else {})}
    compact = view(schema)
    for instance in instances:
        assert accepts(compact, {"p": instance}) or not verdict(schema, {"p": instance})


# --- hostile schemas --------------------------------------------------------------------------------------------------


def chain(length: int, inner: Any) -> dict[str, Any]:
    """Definitions each of which refers to the next, as `inner` says."""
    return {f"d{at}": inner({"$ref": f"#/$defs/d{at + 1}"}) for at in range(length)}


def nested(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


FIRST = {"$ref": "#/$defs/d0"}
LONG_WORDS: Any = {}
for _ in range(40):
    LONG_WORDS = {"additionalProperties": LONG_WORDS}
WIDE = {f"p{at}": {"$ref": "#/$defs/big"} for at in range(3000)}
WEB = {
    f"d{at}": {"properties": {f"q{to}": {"$ref": f"#/$defs/d{at * 7 % 40 + to}"} for to in range(40)}}
    for at in range(80)
}
HOSTILE = {
    "properties that fan out": {"$defs": chain(60, lambda next_: {"properties": {"a": next_, "b": next_}}), **FIRST},
    "parts that fan out": {"$defs": chain(60, lambda next_: {"allOf": [next_, next_]}), **FIRST},
    "alternatives that fan out": {"$defs": chain(60, lambda next_: {"anyOf": [next_] * 20}), **FIRST},
    "references on and on": {"$defs": chain(3000, lambda next_: next_), **FIRST},
    "a web": {"$defs": WEB, **FIRST},
    "itself in all its parts": {"allOf": [{"$ref": "#"}] * 2000, "properties": {"a": {"$ref": "#"}}},
    "itself in many properties": {"properties": {f"p{at}": {"anyOf": [{"$ref": "#"}, {}]} for at in range(3000)}},
    "a long list told again and again": {"$defs": {"big": {"enum": list(range(20_000))}}, "properties": WIDE},
    "unknown words told again": {
        "$defs": {
            **chain(4, lambda next_: {"properties": dict.fromkeys("abcdefghij", next_)}),
            "d4": {f"x{at}": 0 for at in range(15_000)},
        },
        **FIRST,
    },
    "a long name told again": {"$defs": {"big": {"properties": {"x" * 120_000: {}}}}, "properties": WIDE},
    "long words told again": {"$defs": {"big": LONG_WORDS}, "properties": dict([*WIDE.items()][:400])},
    "a long way gone again": {
        "$defs": {"big": {"allOf": [{"$ref": "#/$defs/deep" + "/properties/a" * 100}] * 5}, "deep": nested(100)},
        "properties": WIDE,
    },
    "many identifiers": {
        "$defs": {f"d{at}": {"$id": f"i{at}", "properties": {"a": {"$ref": f"i{at + 1}"}}} for at in range(2000)},
        "$ref": "i0",
    },
    "many alternatives": {"anyOf": [{"properties": {f"p{at}": {}}} for at in range(8000)]},
    "many parts": {"allOf": [{"properties": {f"p{at}": {"type": "string"}}} for at in range(5000)]},
    "a huge list": {"properties": {"a": {"enum": [f"value {at}" for at in range(12_000)]}}},
    "a list that is too huge": {"properties": {"a": {"enum": [f"value {at}" for at in range(100_000)]}}},
    "many levels": nested(100),
    "very many levels": nested(400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_takes_little_time_and_gives_a_small_view(name: str) -> None:
    schema = json.dumps(HOSTILE[name]).encode()
    began = time.process_time()
    compact = compact_schema(schema)
    assert time.process_time() - began < 3
    assert len(compact) <= max(MAX_BYTES, len(schema))
    assert BARRED.isdisjoint(keys(json.loads(compact)))


def test_more_levels_than_anyone_writes_are_open() -> None:
    levels = 3000
    way = b'{"$ref":"#' + b"/properties/a" * levels + b'"}'
    deep = b'{"properties":{"a":' * levels + b"{}" + b"}}" * levels
    assert json.loads(compact_schema(b'{"properties":{"r":' + way + b',"a":' + deep + b"}}")) == NOTHING


def test_a_large_schema_without_references_is_shown_whole_and_a_larger_one_not_at_all() -> None:
    large = {"properties": {f"p{at}": {"type": "string", "maxLength": at} for at in range(5000)}}
    assert MAX_BYTES < len(json.dumps(large)) < MAX_SCHEMA_BYTES
    assert view(large) == {"type": "object", **large}
    assert view({**large, "description": "x" * MAX_SCHEMA_BYTES}) == NOTHING


def test_where_references_fan_out_every_argument_is_still_named() -> None:
    properties = {"first": {"$ref": "#/$defs/d0"}, "second": {"type": "string"}}
    definitions = chain(60, lambda next_: {"type": "object", "properties": {"a": next_, "b": next_}})
    shown = view({"properties": properties, "$defs": definitions})["properties"]
    assert shown["first"]["properties"]["a"]["type"] == "object"
    assert shown["second"] == {"type": "string"}
