"""Arguments mirrored into headers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol.params import HeaderParam, InvalidHeaderAnnotationError, header_params, param_headers


def annotated(name: Any = "Region", kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


def properties(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


def test_annotations_are_listed_in_the_order_of_the_schema() -> None:
    schema = properties(
        region=annotated(),
        plain={"type": "string"},
        options=properties(limit=annotated("Limit", "integer"), inner=properties(dry=annotated("Dry", "boolean"))),
        last=annotated("Last"),
    )
    expected = [
        HeaderParam(("region",), "Region", "string"),
        HeaderParam(("options", "limit"), "Limit", "integer"),
        HeaderParam(("options", "inner", "dry"), "Dry", "boolean"),
        HeaderParam(("last",), "Last", "string"),
    ]
    assert header_params(schema) == expected
    assert header_params(json.dumps(schema).encode()) == expected
    assert expected[0].header == "Mcp-Param-Region"


@pytest.mark.parametrize("schema", [{}, True, None, [], properties(a={"type": "string"}), {"properties": []}])
def test_a_schema_without_annotations_wants_no_header(schema: Any) -> None:
    assert header_params(schema) == []


@pytest.mark.parametrize(
    "schema",
    [
        properties(**{"x-mcp-header": {"type": "object"}}),
        properties(a={"type": "object", "default": {"x-mcp-header": ""}}),
        properties(a={"const": {"x-mcp-header": 1}}, b={"enum": [{"x-mcp-header": 1}]}),
        properties(a={"examples": [{"x-mcp-header": 1}]}),
    ],
)
def test_data_and_names_are_no_annotations(schema: Any) -> None:
    assert header_params(schema) == []


def test_a_property_may_be_named_like_a_keyword() -> None:
    assert header_params(properties(default=annotated(), items=annotated("Other"), properties=annotated("P"))) == [
        HeaderParam(("default",), "Region", "string"),
        HeaderParam(("items",), "Other", "string"),
        HeaderParam(("properties",), "P", "string"),
    ]


@pytest.mark.parametrize("name", ["", "a b", "a:b", "é", "a\n", "a\x00", "(a)", None, 1, ["A"], {}])
def test_an_annotation_that_is_no_header_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidHeaderAnnotationError, match="is not a header name") as caught:
        header_params(properties(a=annotated(name)))
    assert caught.value.path == "/properties/a"


@pytest.mark.parametrize("kind", ["number", "object", "array", "null", None, ["string", "null"], ["string"]])
def test_an_annotation_on_another_type_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidHeaderAnnotationError, match="type is not integer, string or boolean"):
        header_params(properties(a=annotated(kind=kind)))


def test_an_annotation_on_a_property_without_a_type_is_refused() -> None:
    with pytest.raises(InvalidHeaderAnnotationError):
        header_params(properties(a={"x-mcp-header": "A"}))


def test_names_that_differ_by_case_alone_are_refused() -> None:
    schema = properties(a=annotated("Region"), b=properties(c=annotated("rEGION")))
    with pytest.raises(InvalidHeaderAnnotationError, match="used twice") as caught:
        header_params(schema)
    assert caught.value.path == "/properties/b/properties/c"


@pytest.mark.parametrize(
    "schema",
    [
        annotated(),
        {"type": "object", "x-mcp-header": "Root", "properties": {}},
        properties(a={"type": "array", "items": annotated()}),
        properties(a={"type": "array", "items": properties(b=annotated())}),
        properties(a={"type": "array", "prefixItems": [annotated()]}),
        {"allOf": [properties(a=annotated())]},
        {"anyOf": [properties(a=annotated())]},
        properties(a={"oneOf": [annotated(), {"type": "null"}]}),
        {"not": properties(a=annotated())},
        {"if": properties(a=annotated())},
        {"then": properties(a=annotated())},
        {"else": properties(a=annotated())},
        {"$defs": {"a": annotated()}},
        {"$defs": {"a": properties(b=annotated())}, "properties": {"c": {"$ref": "#/$defs/a"}}},
        {"patternProperties": {"^a": annotated()}},
        {"additionalProperties": annotated()},
        {"dependentSchemas": {"a": properties(b=annotated())}},
        {"vendor": {"deep": [annotated()]}},
    ],
)
def test_an_annotation_off_the_path_of_properties_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidHeaderAnnotationError, match="properties alone lead to"):
        header_params(schema)


def test_a_path_is_a_json_pointer() -> None:
    with pytest.raises(InvalidHeaderAnnotationError) as caught:
        header_params(properties(**{"a/b~c": annotated("")}))
    assert caught.value.path == "/properties/a~1b~0c"
    assert caught.value.reason in str(caught.value)


def test_a_deep_schema_is_judged() -> None:
    depth = 5_000
    text = b'{"properties":{"a":' * depth + b'{"type":"string","x-mcp-header":"A"}' + b"}}" * depth
    (param,) = header_params(text)
    assert param.path == ("a",) * depth


def test_a_schema_that_is_not_json_is_refused() -> None:
    with pytest.raises(jsontext.JsonTextError):
        header_params(b"{oops")


PARAMS = [
    HeaderParam(("region",), "Region", "string"),
    HeaderParam(("options", "limit"), "Limit", "integer"),
    HeaderParam(("dry",), "Dry", "boolean"),
]


def test_arguments_are_mirrored_from_their_exact_place() -> None:
    arguments = '{"region":"Zürich","options":{"limit":42,"region":"x"},"dry":false,"limit":1}'.encode()
    assert param_headers(PARAMS, arguments) == [
        ("Mcp-Param-Region", "=?base64?WsO8cmljaA==?="),
        ("Mcp-Param-Limit", "42"),
        ("Mcp-Param-Dry", "false"),
    ]


@pytest.mark.parametrize(
    "arguments", [b"{}", b'{"region":null,"options":{"limit": null }}', b'{"options":[42]}', b"[]"]
)
def test_absent_and_null_arguments_have_no_header(arguments: bytes) -> None:
    assert param_headers(PARAMS, arguments) == []


def test_an_empty_text_has_an_empty_header() -> None:
    assert param_headers(PARAMS, b'{"region":""}') == [("Mcp-Param-Region", "")]


@pytest.mark.parametrize(
    ("spelled", "header"), [(b"42.0", "42"), (b"4.2e1", "42"), (b"-0", "0"), (b"9007199254740991", "9007199254740991")]
)
def test_an_integer_is_mirrored_in_decimal_however_it_is_spelled(spelled: bytes, header: str) -> None:
    assert param_headers(PARAMS, b'{"options":{"limit":' + spelled + b"}}") == [("Mcp-Param-Limit", header)]


@pytest.mark.parametrize(
    "spelled", [b"1.5", b"{}", b"[1]", b"1e400", b"9007199254740992", b"-9007199254740992", b'"\\ud800"']
)
def test_an_argument_without_a_form_in_a_header_is_refused_before_it_is_sent(spelled: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        param_headers(PARAMS, b'{"options":{"limit":' + spelled + b"}}")


def test_a_refused_argument_is_named_and_not_shown() -> None:
    with pytest.raises(InvalidRequestError, match="Mcp-Param-Limit: it must be of type integer") as caught:
        param_headers(PARAMS, b'{"options":{"limit":["secret"]}}')
    assert caught.value.facts == {"path": "arguments.options.limit"}
    assert "secret" not in str(caught.value)


def test_a_schema_of_great_depth_costs_no_quadratic_time() -> None:
    deep = b'{"properties":{"a":{"type":"string","x-mcp-header":"A"}},"d":' + b'{"d":' * 50_000 + b"1" + b"}" * 50_001
    began = time.thread_time()
    assert [param.path for param in header_params(deep)] == [("a",)]
    # Quadratic, it is over ten seconds.
    assert time.thread_time() - began < 4
