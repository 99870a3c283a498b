"""JSON values: paths, sameness, conditions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.runs import values

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (b"1.10", b"1.1", True),
        (b"1", b"1.0", True),
        (b"1e2", b"100", True),
        (b"-0", b"0", True),
        (b"0.1", b"0.10000000000000000001", False),
        (b"123456789012345678901234", b"123456789012345678901235", False),
        (b"1e400", b"1e401", False),
        (b"1e400", b"10e399", True),
        (b"1", b"true", False),
        (b"0", b"false", False),
        (b"null", b"false", False),
        (b'"1"', b"1", False),
        (b'"\\u00e9"', '"é"'.encode(), True),
        (b'{"a":1,"b":[2]}', b'{"b":[2.0],"a":1}', True),
        (b'{"a":null}', b"{}", False),
        (b"[1,2]", b"[2,1]", False),
    ],
)
def test_equality_is_that_of_json_values_with_exact_numbers(left: bytes, right: bytes, expected: bool) -> None:
    assert values.holds("equals", left, right) is expected
    assert values.holds("equals", right, left) is expected
    assert values.holds("notEquals", left, right) is not expected


@given(json_values)
def test_every_value_equals_itself_however_it_is_indented(value: object) -> None:
    assert values.holds("equals", json.dumps(value).encode(), json.dumps(value, indent=1).encode())


@pytest.mark.parametrize("value", [None, b"null", b"false", b"0", b"0.0", b"-0", b"0e9", b'""', b"[]", b"{}"])
def test_what_is_absent_empty_or_nought_is_falsy(value: bytes | None) -> None:
    assert values.holds("falsy", value, None)
    assert not values.holds("truthy", value, None)


@pytest.mark.parametrize("value", [b"true", b"1", b"1e-400", b'"0"', b"[0]", b'{"a":null}'])
def test_everything_else_is_truthy(value: bytes) -> None:
    assert values.holds("truthy", value, None)


@pytest.mark.parametrize("condition", ["equals", "contains", "regex"])
def test_an_absent_value_meets_no_comparison(condition: str) -> None:
    assert not values.holds(condition, None, b"null")
    assert not values.holds(condition, b"null", None)


@pytest.mark.parametrize(
    ("condition", "left", "right", "expected"),
    [
        ("contains", b'"sunny day"', b'"day"', True),
        ("contains", b'[1,{"a":2.0}]', b'{"a":2}', True),
        ("contains", b'["1"]', b"1", False),
        ("contains", b'{"a":1}', b'"a"', False),
        ("contains", b'"1"', b"1", False),
        ("regex", b'"order 77"', b'"[0-9]+$"', True),
        ("regex", b"77", b'"[0-9]+"', False),
        ("regex", b'"a\\ud800b"', b'"^a.b$"', True),
        ("regex", b'"Z\\u00fcrich"', b'"(?i)^z\\\\pL+$"', True),
    ],
)
def test_contains_and_regex(condition: str, left: bytes, right: bytes, expected: bool) -> None:
    assert values.holds(condition, left, right) is expected


def test_a_pattern_takes_time_that_grows_with_the_text_alone() -> None:
    assert not values.holds("regex", b'"%b!"' % (b"a" * 100_000), b'"^(a+)+$"')


def test_a_value_is_cut_out_by_its_path_as_it_is_spelled() -> None:
    outputs = {"result": b'{"a/b": [10, {"~": 1.10 } ], "a": {"0": "x"}}'}
    assert values.select(outputs, values.tokens("/result/a~1b/1/~0")) == b"1.10"
    assert values.select(outputs, values.tokens("/result/a/0")) == b'"x"'
    assert values.select(outputs, values.tokens("result")) == outputs["result"]
    assert values.select(outputs, ()) == b'{"result":' + outputs["result"] + b"}"


@pytest.mark.parametrize("key", ["/result/a~1b/01", "/result/a~1b/-", "/result/a~1b/9", "/result/x/y", "other"])
def test_where_nothing_stands_nothing_is_cut_out(key: str) -> None:
    assert values.select({"result": b'{"a/b":[1]}'}, values.tokens(key)) is None


def test_a_pointer_with_a_lone_tilde_is_refused() -> None:
    with pytest.raises(ValueError, match="~0"):
        values.tokens("/a~2")


def test_sameness_does_not_depend_on_the_depth_of_a_value() -> None:
    deep = jsontext.decode(b"[" * 5000 + b"]" * 5000)
    assert values.same(deep, deep)


@pytest.mark.parametrize(("text", "expected"), [(b"{ \n}", False), (b"[]", False), (b"[[]]", True), (b'{"":0}', True)])
def test_whether_an_object_or_array_is_empty_is_told_without_reading_it(text, expected):
    assert values.holds("truthy", text, None) is expected
    assert values.holds("falsy", text, None) is not expected
