"""The workflow of one call."""

from __future__ import annotations

from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.single import single_call

ARGUMENTS = rb'{ "n":1.10, "big":123456789012345678901234, "e":"\u00e9" }'


def test_it_is_a_sound_definition_whose_inputs_hold_the_arguments_byte_for_byte():
    text, inputs = single_call("weather", "get_forecast", ARGUMENTS, "order-1")
    assert inputs == b'{"arguments":' + ARGUMENTS + b"}"
    assert b"1.10" not in text
    assert parse(text, source="call", node_types=REGISTRY).raw == text


def test_absent_arguments_and_an_absent_key_are_left_out():
    text, inputs = single_call("weather", "get_forecast", None, None)
    assert inputs == b"{}"
    assert b'"inputs":{}' in text
    assert parse(text, source="call", node_types=REGISTRY).id == "call"


def test_a_name_that_json_must_escape_is_escaped():
    text, _ = single_call("weather", 'a"b\n', None, None)
    assert b'"name":"a\\"b\\n"' in text
    parse(text, source="call", node_types=REGISTRY)


def test_a_tool_may_have_a_longer_name_than_a_workflow():
    parse(single_call("weather", "a" * 1024, None, None)[0], source="call", node_types=REGISTRY)
