"""JSON Schema checks: verdicts that are right, reasons that tell, and hostile texts that come to nothing."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwop_mcp import schemas
from openwop_mcp.schemas import Verdict, check

DRAFT7 = "http://json-schema.org/draft-07/schema#"
LATEST = "https://json-schema.org/draft/2020-12/schema"


def judge(schema: Any, instance: Any) -> Verdict:
    """Bytes are JSON text, anything else is encoded."""
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in (schema, instance)]
    return check(*texts)


def test_a_fault_is_told_by_its_place_and_its_keyword_and_never_by_its_value() -> None:
    schema = {"properties": {"a/b": {"items": {"type": "integer"}}}}
    assert judge(schema, {"a/b": [1, "s3cr3t"]}) == Verdict("mismatch", "/a~1b/1", 'breaks type: "integer"')
    assert judge(schema, {"a/b": [1, 2]}) == Verdict("ok")


def test_a_missing_member_is_named() -> None:
    assert judge({"required": ["a", "b"]}, {"a": 1}) == Verdict("mismatch", "", "lacks the required member b")


def test_a_reason_is_bounded_and_printable_and_so_is_a_path() -> None:
    verdict = judge({"patternProperties": {"": {"const": "x" * 5000 + "\x1b[2J"}}}, {"n\x1b": 1})
    assert verdict.path == ""
    assert verdict.reason is not None
    assert verdict.reason.isprintable()
    assert len(verdict.reason) < 300
    assert judge({"additionalProperties": {"additionalProperties": False}}, {"a": {"b" * 999: 1}}).path == "/a"
    assert judge({"additionalProperties": False}, b'{"\\ud800":1}').state == "mismatch"
    assert judge({"required": ["\ud800"]}, {}).state == "mismatch"
    assert judge({"const": "\ud800"}, {}).state == "mismatch"


# --- against the reference implementation -----------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "ab"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, 2.5]) | NAMES
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null"])


def some_of(choices: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=choices).filter(lambda schema: len(schema) <= 4)


def nested(inner: st.SearchStrategy[Any], *, latest: bool) -> st.SearchStrategy[Any]:
    several, by_name = st.lists(inner, min_size=1, max_size=3), st.dictionaries(NAMES, inner, max_size=2)
    common = {
        "properties": by_name,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "^b$"]), inner, max_size=2),
        "additionalProperties": inner,
        "propertyNames": inner,
        "contains": inner,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "$ref": st.sampled_from(["#/definitions/x", "#/definitions/y"]),
    }
    own: dict[str, st.SearchStrategy[Any]] = (
        {
            "items": inner,
            "prefixItems": several,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "dependentSchemas": by_name,
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=2),
            "unevaluatedProperties": inner,
            "unevaluatedItems": inner,
        }
        if latest
        else {
            # The reference trips over a boolean beside additionalItems.
            "items": inner.filter(lambda schema: isinstance(schema, dict)) | several,
            "additionalItems": inner,
            "dependencies": by_name | st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=2),
        }
    )
    keywords = common | own
    return st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: keywords[name] for name in names})
    )


LEAVES = st.booleans() | some_of(
    {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": st.integers(-2, 2),
        "exclusiveMaximum": st.sampled_from([0, 0.5, 2]),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2),
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "maxProperties": st.integers(0, 2),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "pattern": st.sampled_from(["a", "^b", "a$"]),
    }
)


def documents(*, latest: bool) -> st.SearchStrategy[Any]:
    schema = st.recursive(LEAVES, lambda inner: nested(inner, latest=latest), max_leaves=8)
    return st.builds(
        lambda root, x: {**root, "definitions": {"x": x, "y": {"type": ["object", "array", "string"]}}},
        schema.filter(lambda root: isinstance(root, dict)),
        LEAVES,
    )


@settings(deadline=None, max_examples=300)
@given(documents(latest=False), VALUES)
def test_draft_07_agrees_with_the_reference(schema: Any, value: Any) -> None:
    expected = jsonschema.Draft7Validator(schema).is_valid(value)
    assert judge({"$schema": DRAFT7, **schema}, value).state == ("ok" if expected else "mismatch")


@settings(deadline=None, max_examples=300)
@given(documents(latest=True), VALUES)
def test_2020_12_agrees_with_the_reference(schema: Any, value: Any) -> None:
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    text = json.dumps(schema)
    left_alone = "patternProperties" in text and "unevaluatedProperties" in text
    assert judge(schema, value).state == ("unchecked" if left_alone else "ok" if expected else "mismatch")


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "instance", "holds"),
    [
        (b'{"type":"integer"}', b"1.0", True),
        (b'{"type":"integer"}', b"1E400", True),
        (b'{"type":"integer"}', b"1E-400", False),
        (b'{"type":"integer"}', b"1E999999999999", True),
        (b'{"type":"integer"}', b"true", False),
        (b'{"type":"number"}', b"1E400", True),
        (b'{"maximum":5}', b"1E400", False),
        (b'{"maximum":1E400}', b"1E401", False),
        (b'{"minimum":123456789012345678901234}', b"123456789012345678901233", False),
        (b'{"minimum":123456789012345678901234}', b"123456789012345678901234.0", True),
        (b'{"const":9007199254740993}', b"9007199254740992", False),
        (b'{"const":0.30000000000000004}', b"0.30000000000000004441", False),
        (b'{"const":1}', b"1.00", True),
        (b'{"const":1}', b"true", False),
        (b'{"enum":[0]}', b"false", False),
        (b'{"enum":[[0]]}', b"[false]", False),
        (b'{"uniqueItems":true}', b"[1,true,[1],[true]]", True),
        (b'{"uniqueItems":true}', b'[{"a":1,"b":2},{"b":2.0,"a":1}]', False),
        (b'{"multipleOf":0.01}', b"19.99", True),
        (b'{"multipleOf":0.1}', b"0.30000000000000004", False),
        (b'{"multipleOf":3}', b"1E4000", False),
        (b'{"multipleOf":2}', b"-1E4000", True),
        (b'{"multipleOf":1E-4000}', b"7.5", True),
        (b'{"multipleOf":1E999999999}', b"7.5", False),
        (b'{"multipleOf":1E999999999}', b"0.0", True),
        (b'{"minLength":2.0}', '"😀"'.encode(), False),
    ],
)
def test_numbers_are_exact(schema: bytes, instance: bytes, holds: bool) -> None:
    assert judge(schema, instance).state == ("ok" if holds else "mismatch")


# --- dialects and references ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", [LATEST, LATEST + "#", "http://json-schema.org/draft-07/schema", DRAFT7])
def test_both_dialects_are_spoken(dialect: str) -> None:
    assert judge({"$schema": dialect, "type": "string"}, 1).state == "mismatch"


def test_a_dialect_stated_inside_is_not_followed_but_a_member_may_have_that_name() -> None:
    verdict = judge({"properties": {"a": {"$id": "x:y", "$schema": LATEST}}}, 1)
    assert verdict == Verdict("unchecked", reason="the schema states a dialect inside")
    assert judge({"properties": {"$schema": {"type": "string"}}}, {"$schema": 1}).path == "/$schema"
    assert judge({"$schema": DRAFT7, "properties": {"a": {"$ref": "#"}}, "type": "object"}, {"a": 1}).path == "/a"


def test_each_dialect_means_its_own_keywords() -> None:
    assert judge({"$schema": DRAFT7, "items": [{"type": "string"}]}, [1]).path == "/0"
    assert judge({"items": [{"type": "string"}]}, [1]).state == "unchecked"
    beside_a_reference = {"definitions": {"x": {}}, "properties": {"p": {"$ref": "#/definitions/x", "type": "string"}}}
    assert judge({"$schema": DRAFT7, **beside_a_reference}, {"p": 1}).state == "ok"
    assert judge(beside_a_reference, {"p": 1}).state == "mismatch"


@pytest.mark.parametrize("dialect", ["http://json-schema.org/draft-04/schema#", "https://evil.test/x", "", 7])
def test_another_dialect_is_not_guessed_at(dialect: object) -> None:
    assert judge({"$schema": dialect}, 1).state == "unchecked"
    assert judge({"properties": {"a": {"$id": "x:y", "$schema": dialect}}}, 1).state == "unchecked"


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"q": {"type": "string"}}, "properties": {"p": {"$ref": "#/$defs/q"}}},
        {"$defs": {"q": {"$anchor": "here", "type": "string"}}, "properties": {"p": {"$ref": "#here"}}},
        {"$id": "https://a.test/s", "$defs": {"q": {"$id": "q", "type": "string"}}, "properties": {"p": {"$ref": "q"}}},
        {"$id": "urn:s", "$defs": {"q": {"type": "string"}}, "properties": {"p": {"$ref": "urn:s#/$defs/q"}}},
        {"x": {"q": {"type": "string"}}, "properties": {"p": {"$ref": "#/x/q"}}},
    ],
)
def test_references_inside_the_schema_are_followed(schema: Any) -> None:
    assert judge(schema, {"p": "x"}).state == "ok"
    assert judge(schema, {"p": 1}).path == "/p"


def test_a_dynamic_reference_means_the_outermost_anchor() -> None:
    tree = {"$id": "urn:tree", "$dynamicAnchor": "node", "properties": {"next": {"$dynamicRef": "#node"}}}
    strict = {
        "$id": "urn:strict",
        "$dynamicAnchor": "node",
        "$ref": "urn:tree",
        "unevaluatedProperties": False,
        "$defs": {"tree": tree},
    }
    assert judge(strict, {"next": {"next": {}}}).state == "ok"
    assert judge(strict, {"next": {"nxet": {}}}) == Verdict("mismatch", "/next", "breaks unevaluatedProperties")


def test_a_recursive_schema_ends_with_its_value() -> None:
    tree = {"type": "object", "properties": {"kids": {"items": {"$ref": "#"}}}}
    assert judge(tree, {"kids": [{"kids": [{}]}]}).state == "ok"
    assert judge(tree, {"kids": [{"kids": [1]}]}).path == "/kids/0/kids/0"


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:9/s.json?key=s3cr3t", "https://u:s3cr3t@h.test/s", "file:///etc/passwd", "other.json", "#/no"],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_that_leads_out_is_never_followed(
    monkeypatch: pytest.MonkeyPatch, keyword: str, reference: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for schema in ({keyword: reference}, {"properties": {"deep": {"items": {keyword: reference}}}}):
        verdict = judge(schema, 1)
        assert verdict.state == "unchecked"
        assert verdict.reason is not None
        assert "is not fetched" in verdict.reason
        assert "s3cr3t" not in verdict.reason


def test_what_only_looks_like_a_reference_is_data() -> None:
    assert judge({"const": {"$ref": "http://x.test/"}}, {"$ref": "http://x.test/"}).state == "ok"
    assert judge({"properties": {"$ref": {"type": "string"}}}, {"$ref": "http://x.test/"}).state == "ok"


def test_formats_assert_nothing() -> None:
    assert judge({"format": "email"}, "no address").state == "ok"


# --- what cannot be used ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        b'{"type":"integer","minimum":0,"exclusiveMinimum":true}',
        b'{"type":"strnig"}',
        b'{"properties":[]}',
        b'{"items":[{}]}',
        b'{"pattern":"("}',
        b'{"pattern":"^(?=a)"}',
        b'{"pattern":"(a{1,999}){1,999}"}',
        b'{"pattern":"\\ud800"}',
        b'{"patternProperties":{"[":{}}}',
        b'{"$ref":7}',
        b'{"$id":"http://[x/","$ref":"a"}',
        b'{"$ref":"http://[x/"}',
        b'{"$id":7}',
        b'{"$anchor":{}}',
        b'{"$schema":null,"type":7}',
        b'{"unevaluatedProperties":false,"patternProperties":{"a":{}}}',
        b"[]",
        b"null",
        b"7",
        b'"x"',
        b"{",
        b"",
        b"\xff",
        b"NaN",
        b'{"minimum":NaN}',
    ],
)
def test_a_schema_that_cannot_be_used_is_left_to_the_server_with_a_reason(schema: bytes) -> None:
    verdict = judge(schema, 1)
    assert verdict.state == "unchecked"
    assert verdict.reason


def test_a_reference_that_only_the_value_leads_to_is_not_followed_either() -> None:
    schema = {"$schema": DRAFT7, "dependencies": {"a": ["b"], "c": {"$ref": "http://127.0.0.1:9/"}}}
    assert judge(schema, {"b": 1}).state == "ok"
    assert "is not fetched" in str(judge(schema, {"c": 1}).reason)


@pytest.mark.parametrize("schema", [b"true", b"{}", b' {"unknown":[{"$ref":"x:y"}]} '])
def test_a_schema_that_says_nothing_takes_everything(schema: bytes) -> None:
    assert judge(schema, [None]) == Verdict("ok")


def test_false_takes_nothing() -> None:
    assert judge(b"false", 1) == Verdict("mismatch", "", "breaks the schema false")
    assert judge(b'{"properties":{"a":false}}', {"a": 1}) == Verdict("mismatch", "", "breaks properties")
    assert judge({"additionalProperties": False}, {"a": 1}) == Verdict("mismatch", "/a", "breaks additionalProperties")


def test_an_instance_that_is_no_json_is_not_judged() -> None:
    assert judge({}, b"{").state == "unchecked"


@pytest.mark.parametrize(
    ("pattern", "text"), [("^\\u00e9\\d$", "é1"), ("^\\/a\\-b$", "/a-b"), ("\\\\u0041", "\\u0041")]
)
def test_patterns_are_those_of_ecma_262(pattern: str, text: str) -> None:
    assert judge({"pattern": pattern}, text).state == "ok"
    assert judge({"pattern": pattern}, "x").state == "mismatch"


@given(
    st.recursive(
        SCALARS,
        lambda v: (
            st.lists(v, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    sorted(
                        [
                            *jsonschema.Draft202012Validator.VALIDATORS,
                            *jsonschema.Draft7Validator.VALIDATORS,
                            "$id",
                            "$schema",
                            "$anchor",
                            "$defs",
                        ]
                    )
                ),
                v,
                max_size=3,
            )
        ),
    ),
    VALUES,
)
@settings(deadline=None)
def test_no_schema_whatever_raises(schema: Any, value: Any) -> None:
    verdict = judge(schema, value)
    assert (verdict.reason is None) is (verdict.state == "ok")


# --- hostile texts: in a process of their own, since what they aim at is the process ----------------------------------

HOSTILE = {
    "a reference to itself": "{'$ref': '#'}, 1",
    "a ring": "{'$defs': {'a': {'allOf': [{'$ref': '#/$defs/b'}]}, 'b': {'not': {'$ref': '#/$defs/a'}}},"
    " '$ref': '#/$defs/a'}, 1",
    "a dynamic ring": "{'$dynamicAnchor': 'n', 'anyOf': [{'$dynamicRef': '#n'}, {'$dynamicRef': '#n'}]}, 1",
    "a ring among names": "{'propertyNames': {'anyOf': [{'$ref': '#'}] * 2}, 'type': ['object', 'string']}, {'a': 1}",
    "a long chain": "{'$ref': '#/$defs/n0', '$defs': {**{f'n{i}': {'$ref': f'#/$defs/n{i + 1}'} for i in range(3000)},"
    " 'n3000': {}}}, 1",
    "deep schema": "nest(100_000, '{\"not\":', '}', '{}'), 1",
    "deep instance": "{'items': {'$ref': '#'}}, nest(500_000, '[', ']')",
    "deep instance cut off": "{}, nest(1_000_000, '[', '')",
    "doubling references": "{'$ref': '#/$defs/n0', '$defs': {**{f'n{i}': {'allOf': [{'$ref': f'#/$defs/n{i + 1}'}] * 2}"
    " for i in range(60)}, 'n60': {}}}, 1",
    "doubling with the value": "{'anyOf': [{'type': 'array', 'items': {'$ref': '#'}}] * 2}, nest(50, '[', ']', '1')",
    "doubling what is unevaluated": "nest(20, DOUBLED, '],\"unevaluatedProperties\":{\"minimum\":0}}', '{}'), {'a': 1}",
    "backtracking": "{'pattern': '^(a+)+$'}, 'a' * 100_000 + 'b'",
    "a wide pattern over a long text": "{'pattern': '(a?){900}b'}, 'a' * 3_000_000",
    "many subschemas": "{'anyOf': [{}] * 15_000}, 1",
    "much by much": "{'items': {'allOf': [{'minimum': i} for i in range(2000)]}}, list(range(4000, 300_000))",
    "many patterns by many names": "{'patternProperties': {f'^{i}a+$': {} for i in range(1000)}},"
    " {f'b{i}': 1 for i in range(50_000)}",
    "doubling by names": "{'unevaluatedProperties': True, '$ref': '#/$defs/n0', '$defs': {**{f'n{i}':"
    " {'dependentSchemas': {n: {'$ref': f'#/$defs/n{i + 1}'} for n in 'ab'}} for i in range(40)},"
    " 'n40': {}}}, {'a': 1, 'b': 2}",
    "many unevaluated members": "{'unevaluatedProperties': True, 'additionalProperties': True},"
    " {f'k{i}': 1 for i in range(100_000)}",
    "many unevaluated elements": "{'unevaluatedItems': True, 'items': True}, [1] * 100_000",
    "nothing in much": "{'$schema': 'http://json-schema.org/draft-07/schema#', 'contains': False},"
    " b'[' + b'1,' * 1_500_000 + b'1]'",
    "anything in much": "{'items': {}}, b'[' + b'1,' * 1_500_000 + b'1]'",
    "equal to none of much": "{'type': [*range(30_000), []]}, 1",
    "large enumerations": "{'items': {'enum': [[i] for i in range(20_000)]}}, [[19_999]] * 50_000",
    "equal hashes": "{'uniqueItems': True}, [i * (2**61 - 1) for i in range(100_000)]",
    "long digits": "{'multipleOf': 7}, ('9' * 3_000_000).encode()",
    "a long exponent": "{'multipleOf': 7}, b'1E999999999999999999'",
    "many fractions": "{'type': 'object'}, b'[' + b'1.25,' * 800_000 + b'1]'",
    "a large schema": "{'description': 'x' * 1_000_000}, 1",
    "a large instance": "{}, 'x' * 10_000_000",
}

JUDGED = {
    "a ring among names": "ok",
    "backtracking": "mismatch",
}
"""Hostile in vain: these are judged, in a moment."""

PROGRAM = """
import json, time
from openwop_mcp.schemas import check
DOUBLED = '{"allOf":['
def nest(n, before, after, inside=''):
    return (before * n + inside + after * n).encode()
texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in ({case})]
began = time.thread_time()
verdict = check(*texts)
print(json.dumps([verdict.state, verdict.reason, time.thread_time() - began]))
"""


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_text_costs_a_moment_and_leaves_the_process_whole(case: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("{case}", HOSTILE[case])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    state, reason, seconds = json.loads(ended.stdout)
    assert state == JUDGED.get(case, "unchecked")
    assert len(reason or "") < 400
    # The bound is in processor time; a machine that is busy with others takes longer for the same.
    assert seconds < 3


def test_a_schema_is_compiled_once_and_few_are_kept() -> None:
    schemas._compile.cache_clear()
    for number in range(schemas.SCHEMAS_KEPT + 5):
        judge({"const": number}, 1)
        judge({"const": number}, 2)
    info = schemas._compile.cache_info()
    assert info.misses == schemas.SCHEMAS_KEPT + 5
    assert info.currsize == schemas.SCHEMAS_KEPT


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No schema met before, and all time is the check's own: to collect others' garbage takes longer."""
    monkeypatch.setattr(schemas, "_HOPELESS", schemas._Late())
    monkeypatch.setattr(schemas, "_SLOW", schemas._Late())
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def doubling(levels: int) -> bytes:
    """A schema that takes twice the time with each level."""
    inner = {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 2} for i in range(levels)}
    return json.dumps({"$defs": {**inner, f"n{levels}": {"const": "no"}}, "$ref": "#/$defs/n0"}).encode()


@pytest.mark.usefixtures("forgetful")
def test_a_schema_that_ran_out_of_time_is_not_checked_by_again() -> None:
    first, began = check(doubling(40), b"{}"), time.thread_time()
    assert first == Verdict("unchecked", reason="the check takes more than 0.5 s")
    for _ in range(20):
        assert check(doubling(40), b'{"a":1}') == first
        assert schemas.check_at_once(doubling(40), b"{}") == first
    assert time.thread_time() - began < 0.1


@pytest.mark.usefixtures("forgetful")
def test_a_schema_that_a_large_value_took_too_long_for_is_still_good_for_small_ones() -> None:
    schema = json.dumps({"items": {"allOf": [{"minimum": i} for i in range(300)]}}).encode()
    assert judge(schema, list(range(4000, 100_000))).state == "unchecked"
    assert judge(schema, [1]).state == "mismatch"
    assert judge(schema, [5000]).state == "ok"


@pytest.mark.usefixtures("forgetful")
def test_a_check_on_an_event_loop_ends_within_milliseconds_without_a_verdict_if_need_be() -> None:
    quick, slow = b'{"type":"integer"}', doubling(40)
    check(quick, b"1")
    assert schemas.check_at_once(quick, b"1") == Verdict("ok")
    assert schemas.check_at_once(quick, b"1" * (schemas.QUICK_BYTES + 1)) is None
    began = time.thread_time()
    for _ in range(3):
        assert schemas.check_at_once(slow, b"{}") is None
    assert time.thread_time() - began < 0.1


@pytest.mark.usefixtures("forgetful")
def test_a_schema_that_is_slow_to_read_is_checked_at_once_when_it_has_been_read() -> None:
    schema = json.dumps({"properties": {f"p{i}": {"type": "string"} for i in range(200)}}).encode()
    assert schemas.check_at_once(schema, b"{}") is None
    assert check(schema, b"{}") == schemas.check_at_once(schema, b"{}") == Verdict("ok")


@pytest.mark.usefixtures("forgetful")
def test_few_schemas_are_remembered_for_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "LATE_KEPT", 2)
    late = schemas._Late()
    for schema in (b"1", b"2", b"3"):
        late.add(schema, b"")
    assert [late.expects(schema, b"") for schema in (b"1", b"2", b"3")] == [False, True, True]
