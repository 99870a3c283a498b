"""JSON text: what passes, what is refused, and that nothing is respelled on the way."""

from __future__ import annotations

import copy
import decimal
import enum
import json
import math
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.jsontext import BigNumber, JsonTextError, Number
from tests.support.cost import cost

DEEP = 20_000

# Texts close to JSON: fragments in any order give more near misses than random bytes do.
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *'{}[]",:\\-.+eE0123 \t\n\r/tfn\x00\x0b\ufeff\x7fé\u2028',
            '"a"',
            '"a":',
            '"\\ud800"',
            '"\\ude00\\ud83d"',
            "\\u00e9",
            "\\u00",
            "true",
            "false",
            "null",
            "NaN",
            "Infinity",
            "1.5",
            "-0",
            "1e400",
            "[1,2]",
            '{"a":1,"a":2}',
            "/**/",
        ]
    ),
    max_size=14,
).map("".join)

SPELLINGS = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def oracle(text: str) -> bool:
    """Whether the standard library's strict decoder takes the text."""

    def refuse(_: str) -> None:
        raise ValueError

    try:
        json.loads(text, parse_constant=refuse, parse_int=str)
    except ValueError:
        return False
    return True


def accepted(data: bytes) -> bool:
    try:
        jsontext.check(data)
    except JsonTextError:
        return False
    return True


@given(FRAGMENTS)
@example("[1,]")
@example('{"a":1,}')
@example("01")
@example("1.")
@example("[1}")
@example('"\\ud800"]')
def test_a_text_passes_where_a_strict_decoder_takes_it(text: str) -> None:
    assert accepted(text.encode()) is oracle(text)


@given(FRAGMENTS)
def test_the_own_scanner_agrees_with_a_strict_decoder(text: str) -> None:
    try:
        jsontext._scan(text.encode())
    except JsonTextError:
        found = False
    else:
        found = True
    assert found is oracle(text)


@given(FRAGMENTS)
@example("[,1]")
@example("[1,]")
@example("{,}")
@example('{"a":1,}')
@example("[] 1")
def test_the_own_scanner_takes_apart_only_what_is_json(text: str) -> None:
    data = text.encode()
    for opener, holds in ((ord("{"), "object"), (ord("["), "array")):
        try:
            list(jsontext._children(data, opener))
        except JsonTextError:
            found = False
        else:
            found = True
        assert found is (oracle(text) and jsontext.kind(data) == holds)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b'"\xff"',
        b'"\xc0\xaf"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xe2\x82"',
        b"\xef\xbb\xbf1",
        '"a"'.encode("utf-16"),
        b"",
        b"  ",
        b"NaN",
        b"-Infinity",
        b'"\x01"',
        b'"\\x"',
        b'"\\u12g4"',
        b"[1 2]",
        b"1 2",
        b"[" * DEEP,
        b"[" * DEEP + b"]" * (DEEP - 1) + b"}",
    ],
)
def test_what_is_not_json_in_utf8_is_refused(data: bytes) -> None:
    with pytest.raises(JsonTextError) as caught:
        jsontext.check(data)
    assert 0 <= caught.value.position <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b'"\\ud800"',
        b'{"\\udfff":1}',
        b"1e400",
        b"-1e-99999",
        b"9" * 10_000,
        b'{"a":1,"a":2}',
        b" \t\r\n[ ] ",
        b'"\x7f"',
        '"\u2028"'.encode(),
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    ],
)
def test_whatever_is_json_passes_at_any_depth_and_size(data: bytes) -> None:
    jsontext.check(data)


def test_a_refusal_tells_where_and_not_what() -> None:
    with pytest.raises(JsonTextError, match=r"^not JSON: malformed or cut off \(byte 12\)$") as caught:
        jsontext.check(b'["secret",  oops]')
    assert caught.value.position == 12


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"{}", "object"),
        (b" []", "array"),
        (b'"x"', "string"),
        (b"-1", "number"),
        (b"0", "number"),
        (b"true", "true"),
        (b"false", "false"),
        (b"\nnull", "null"),
    ],
)
def test_the_kind_is_told_by_the_first_byte(data: bytes, expected: str) -> None:
    assert jsontext.kind(data) == expected


@pytest.mark.parametrize("data", [b"", b" ", b"x"])
def test_what_starts_no_value_has_no_kind(data: bytes) -> None:
    with pytest.raises(JsonTextError):
        jsontext.kind(data)


def test_members_keep_order_duplicates_and_bytes() -> None:
    data = b' { "b" : 1.0 , "a":[ 1 ,2],"b":"\\u00e9" , "\\u0061" : {} } '
    assert jsontext.members(data) == [("b", b"1.0"), ("a", b"[ 1 ,2]"), ("b", b'"\\u00e9"'), ("a", b"{}")]
    assert jsontext.member(data, "b") == b'"\\u00e9"'
    assert jsontext.member(data, "a") == b"{}"
    assert jsontext.member(data, "c") is None


def test_members_beside_a_lone_surrogate_keep_order_duplicates_and_bytes() -> None:
    data = b' { "b" : 1.0 , "\\ud800":[ 1 ,2],"b":"\\ud800" , "\\u0061" : {} } '
    assert jsontext.members(data) == [("b", b"1.0"), ("\ud800", b"[ 1 ,2]"), ("b", b'"\\ud800"'), ("a", b"{}")]
    assert jsontext.member(data, "b") == b'"\\ud800"'
    assert jsontext.member(data, "c") is None


def test_members_of_a_deep_object_are_found() -> None:
    deep = b"[" * DEEP + b"]" * DEEP
    assert jsontext.members(b'{"a":' + deep + b',"b":1}') == [("a", deep), ("b", b"1")]
    assert jsontext.elements(b"[" + deep + b" , 1]") == [deep, b"1"]


@pytest.mark.parametrize(
    "data", [b"[]", b"1", b'{"a":}', b'{"a":1', b"", b'{"\xff":1}', b'{"\\ud800\xff":1}', b'["\\ud800"]']
)
def test_only_an_object_has_members(data: bytes) -> None:
    with pytest.raises(JsonTextError):
        jsontext.members(data)
    with pytest.raises(JsonTextError):
        jsontext.member(data, "a")


@pytest.mark.parametrize("data", [b"{}", b"1", b"[1,]", b"[", b"", b'{"a":"\\ud800"}'])
def test_only_an_array_has_elements(data: bytes) -> None:
    with pytest.raises(JsonTextError):
        jsontext.elements(data)


def test_elements_keep_their_bytes() -> None:
    assert jsontext.elements(b' [ 1.0 , "\\u00e9",[ ] ]') == [b"1.0", b'"\\u00e9"', b"[ ]"]
    assert jsontext.elements(b"[ ]") == []


def respell(value: Any, draw: Any) -> str:
    """Write a value with random white space and escapes."""
    space = draw(st.sampled_from(["", " ", "\n\t"]))
    if isinstance(value, dict):
        return f"{{{space}" + ",".join(f"{json.dumps(k)}{space}:{respell(v, draw)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{space}" + ",".join(respell(item, draw) for item in value) + "]"
    return f"{space}{json.dumps(value, ensure_ascii=draw(st.booleans()) or isinstance(value, str))}{space}"


@given(VALUES, st.data())
def test_spans_put_together_again_hold_the_same_value(value: Any, data: st.DataObject) -> None:
    text = respell(value, data.draw).encode()
    jsontext.check(text)
    if isinstance(value, dict):
        items = jsontext.members(text)
        assert list(jsontext._slow_members(text)) == items
        assert [name for name, _ in items] == list(json.loads(text))
        assert all(span in text and span == span.strip() for _, span in items)
        assert json.loads(jsontext.build(items)) == json.loads(text)
        assert jsontext.build(items) == b"{" + b",".join(jsontext.encode(n) + b":" + s for n, s in items) + b"}"
    elif isinstance(value, list):
        spans = jsontext.elements(text)
        assert [span for _, span in jsontext._children(text, ord("["))] == spans
        assert json.loads(b"[" + b",".join(spans) + b"]") == json.loads(text)


@given(st.lists(st.tuples(TEXTS, SPELLINGS), max_size=6))
def test_members_are_what_an_object_was_built_of(items: list[tuple[str, str]]) -> None:
    spans = [(jsontext.decode(jsontext.encode(name)), text.encode()) for name, text in items]
    built = jsontext.build(spans)
    assert jsontext.members(built) == spans
    assert built == b"{" + b",".join(jsontext.encode(name) + b":" + span for name, span in spans) + b"}"


def test_a_pointer_leads_through_names_and_indexes() -> None:
    data = b'{"a":[{"b":1.10},null],"c":"x"}'
    assert jsontext.pointer(data, ()) == data
    assert jsontext.pointer(data, ("a", 0, "b")) == b"1.10"
    assert jsontext.pointer(data, ("a", 1)) == b"null"
    astray: list[tuple[str | int, ...]] = [("a", 2), ("a", -1), ("a", "b"), ("c", 0), ("x", "y"), (0,), ("a", 1, "b")]
    for path in astray:
        assert jsontext.pointer(data, path) is None


@given(SPELLINGS)
@example("1e400")
@example("-1e-400")
@example("-0")
@example("0e5")
@example("1E5")
@example("1e99999999999999999999")
@example("-1e-99999999999999999999")
@example("0." + "0" * 400 + "1")
def test_a_number_keeps_its_spelling(text: str) -> None:
    value = jsontext.decode(text.encode())
    assert value is not None
    assert not (isinstance(value, float) and math.isinf(value))
    assert jsontext.encode(value) == text.encode()
    assert jsontext.encode({"a": [value]}) == b'{"a":[' + text.encode() + b"]}"
    if isinstance(value, float) and not isinstance(value, Number):
        assert repr(value) == text


def test_plain_spellings_give_plain_numbers() -> None:
    values = jsontext.decode(b"[0, -7, 1.0, 1.5, 1e+16, 123456789012345678901234]")
    assert [type(value) for value in values] == [int, int, float, float, float, int]


def test_a_respelled_number_counts_as_a_float_and_prints_as_spelled() -> None:
    (value,) = jsontext.decode(b"[1.10]")
    assert isinstance(value, Number)
    assert value == 1.1
    assert value + 1 == 2.1
    assert str(value) == repr(value) == "1.10"
    assert hash(value) == hash(1.1)
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert jsontext.encode(twin) == b"1.10"


def test_a_number_beyond_a_float_is_a_decimal_and_prints_as_spelled() -> None:
    (value,) = jsontext.decode(b"[1E400]")
    assert isinstance(value, BigNumber)
    assert value == decimal.Decimal("1e400")
    assert str(value) == repr(value) == "1E400"
    for twin in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert jsontext.encode(twin) == b"1E400"


def test_an_integer_with_more_digits_than_python_parses_is_exact() -> None:
    text = b"-" + b"7" * 5_000
    value = jsontext.decode(text)
    assert isinstance(value, BigNumber)
    assert value == decimal.Decimal(text.decode())
    assert jsontext.encode(value) == text


def test_an_exponent_past_decimal_counts_as_the_farthest_one() -> None:
    large, small = jsontext.decode(b"[-1e99999999999999999999, 1e-99999999999999999999]")
    assert large < decimal.Decimal("-1e1000")
    assert 0 < small < decimal.Decimal("1e-1000")
    with decimal.localcontext(decimal.Context(traps=[])):
        assert not jsontext.decode(b"1e99999999999999999999").is_nan()


def test_the_last_of_duplicate_members_wins() -> None:
    assert jsontext.decode(b'{"a":1,"\\u0061":2}') == {"a": 2}


@pytest.mark.parametrize("data", [b"NaN", b"[1,]", b'"\xff"', b"", b"\xef\xbb\xbf1"])
def test_what_is_not_json_is_not_decoded(data: bytes) -> None:
    with pytest.raises(JsonTextError):
        jsontext.decode(data)


def test_a_deep_text_is_decoded_and_encoded() -> None:
    text = b'{"a":[' * DEEP + b'"x",1.10' + b"]}" * DEEP
    value = jsontext.decode(text)
    assert jsontext.encode(value) == text
    for _ in range(DEEP - 1):
        value = value["a"][0]
    assert value == {"a": ["x", 1.1]}


def test_a_deep_text_decodes_every_kind_of_value() -> None:
    deep = b"[" * DEEP + b"]" * DEEP
    value = jsontext.decode(b'{"a":{"b":[true,null,"\\"]"]},"deep":' + deep + b',"c":{}}')
    assert value["a"] == {"b": [True, None, '"]']}
    assert list(value) == ["a", "deep", "c"]
    assert value["c"] == {}


@given(VALUES)
def test_what_is_encoded_decodes_to_the_same_as_the_standard_library_says(value: Any) -> None:
    data = jsontext.encode(value)
    jsontext.check(data)
    assert jsontext.decode(data) == json.loads(json.dumps(value))
    assert jsontext.encode(jsontext.decode(data)) == data


def test_encoding_is_compact_and_leaves_text_readable() -> None:
    value = {"é": [1, "\u2028", "\ud800", '"\n'], "b": (), "c": {}, "t": True, "n": None}
    expected = '{"é":[1,"\u2028","\\ud800","\\"\\n"],"b":[],"c":{},"t":true,"n":null}'
    assert jsontext.encode(value) == expected.encode()


def test_decimals_are_encoded_with_all_their_digits() -> None:
    values = [decimal.Decimal("1.10"), decimal.Decimal("1E+400"), decimal.Decimal("-0"), decimal.Decimal(10**30)]
    data = jsontext.encode(values)
    jsontext.check(data)
    assert data == b"[1.10,1E+400,-0,1000000000000000000000000000000]"


def test_subclasses_are_encoded_as_their_base() -> None:
    class Word(enum.StrEnum):
        YES = "yes"

    class Count(enum.IntEnum):
        ONE = 1

    assert jsontext.encode([Word.YES, Count.ONE]) == b'["yes",1]'


def test_objects_that_hold_bytes_are_spliced() -> None:
    assert jsontext.encode({"a": SimpleNamespace(raw=b"[ 1.0 ]")}) == b'{"a":[ 1.0 ]}'


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"a": [0, {"b": math.nan}]}, ValueError, r"value\['a'\]\[1\]\['b'\] is not a finite number"),
        ([math.inf], ValueError, r"value\[0\] is not a finite number"),
        (decimal.Decimal("Infinity"), ValueError, "value is not a finite number"),
        ({1: 2}, TypeError, r"value\[1\] is named by something that is not a string"),
        ({"a": {"b": b"secret"}}, TypeError, r"value\['a'\]\['b'\] is of type bytes"),
        ({"a": 10**5000}, ValueError, r"value\['a'\] "),
    ],
)
def test_what_has_no_json_form_is_refused_by_its_path(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        jsontext.encode(value)
    assert "secret" not in str(caught.value)


def test_a_container_that_holds_itself_is_refused() -> None:
    value: list[Any] = [1]
    value.append({"again": value})
    with pytest.raises(ValueError, match=r"value\[1\]\['again'\] holds itself"):
        jsontext.encode(value)


def test_one_container_may_stand_in_two_places() -> None:
    shared = [1]
    assert jsontext.encode([shared, shared]) == b"[[1],[1]]"


def test_a_fault_is_placed_by_line_and_column_for_people():
    text = '{"a": 1,\n "é": }'.encode()
    with pytest.raises(jsontext.JsonTextError) as caught:
        jsontext.check(text)
    told = caught.value.within(text)
    assert told.startswith("line 2, column ")
    assert str(caught.value) in told


def depth(value: Any) -> int:
    """Levels of containers."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.data())
def test_no_text_counts_as_nested_deeper_than_it_is(value: Any, data: st.DataObject) -> None:
    text = respell(value, data.draw).encode()
    assert not jsontext.nests(text, depth(value))
    wrapped = b"[" * 40 + text + b"]" * 40
    assert not jsontext.nests(wrapped, depth(value) + 40)


@given(VALUES, st.data())
def test_a_text_that_is_far_too_deep_counts_as_that_whatever_its_strings_hold(value: Any, data: st.DataObject) -> None:
    text = respell(value, data.draw).encode()
    deep = b"[" * (jsontext.STEP + 8)
    assert jsontext.nests(b"[" + text + b"," + deep + b"1" + b"]" * len(deep) + b"]", 8)


def test_a_text_in_several_parts_is_measured_as_one() -> None:
    filled = b'["' + b"x" * jsontext.PART + b'[\\"",{"]":'
    assert jsontext.nests(filled * 300 + b"1" + b"}]" * 300, 300)
    assert not jsontext.nests(filled * 20 + b"1" + b"}]" * 20 + b"[]" * 600, 40)


def test_a_depth_that_is_refused_is_told() -> None:
    jsontext.check_depth(b"[" * 512 + b"]" * 512, 512)
    with pytest.raises(JsonTextError, match="nested deeper than 512 levels"):
        jsontext.check_depth(b'{"a":' * 4_000_000, 512)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_no_more_members_or_elements_are_read_than_were_asked_for(most: int) -> None:
    for text, read in ((b'{"a":1,"a":"\\ud800"}', jsontext.members), (b'["\\ud800",1]', jsontext.elements)):
        if most == 2:
            assert list(read(text, most)) == list(read(text))
        else:
            with pytest.raises(jsontext.TooManyError):
                read(text, most)


def test_values_beside_escaped_backslashes_and_surrogates_keep_their_bytes() -> None:
    values = [rb'"\\ud800"', rb'"\\\ud800"', rb'"\ud83d\ude00"', rb'"\"\udfff\\"', b"[ ]"]
    assert jsontext.elements(b"[" + b" , ".join(values) + b"]") == values
    assert jsontext.decode(rb'"\\ud800"') == r"\ud800"


@pytest.mark.parametrize("escape", [rb"\ud800", rb"\uD800", rb"\uDfFF", rb"\udc00\ud83d"])
def test_a_text_full_of_surrogates_is_checked_about_as_soon_as_the_standard_library_decodes_it(escape: bytes) -> None:
    data = b"[" + b",".join([b'"%b"' % escape] * 100_000) + b"]"
    assert cost(lambda: jsontext.check(data)) < 3 * cost(lambda: json.loads(data))


@pytest.mark.parametrize(
    "data", [rb'["\ud8zz"]', rb'["\uDzzz"]', rb'["\ud"]', rb'["\ud800", "\uD"]', rb'["\ud800",\ud800]']
)
def test_what_only_begins_as_a_surrogate_is_refused(data: bytes) -> None:
    for read in (jsontext.check, jsontext.elements, jsontext.decode):
        with pytest.raises(JsonTextError):
            read(data)
