"""From a node's configuration and inputs to the call it stands for."""

from __future__ import annotations

import dataclasses

import pytest

from openwop_mcp import jsontext
from openwop_mcp.calls import METHODS, CallRequest, Input
from openwop_mcp.errors import InvalidRequestError, NotCallableError
from openwop_mcp.nodes import REGISTRY, NodeCall
from openwop_mcp.nodes.calls import METHOD_OF
from tests.support import exact


def asked(type_id: str, config: bytes, inputs: bytes) -> tuple[CallRequest, bytes | None]:
    return NodeCall("n", "acme", 1, config).request(REGISTRY[type_id], inputs)


def test_every_method_of_the_host_has_a_node_type_of_its_own() -> None:
    assert set(METHOD_OF.values()) == set(METHODS)
    assert set(METHOD_OF) == {type_id for type_id in REGISTRY if type_id.startswith("community.mcp.")}


def test_nothing_but_a_call_of_a_tool_can_change_something_outside() -> None:
    assert {type_id for type_id in METHOD_OF if REGISTRY[type_id].changes} == {"community.mcp.call-tool"}


@pytest.mark.parametrize("kind", ["tools", "resources", "resource-templates", "prompts"])
@pytest.mark.parametrize("cursor", ["", "é", "\ud800", " "])
def test_any_string_is_a_cursor(kind: str, cursor: str) -> None:
    request, arguments = asked(f"community.mcp.list-{kind}", b'{"serverId":"s"}', jsontext.encode({"cursor": cursor}))
    assert (request.server_id, request.cursor, arguments) == ("s", cursor, None)


def test_a_prompt_is_named_by_config_or_inputs_and_its_arguments_keep_their_bytes() -> None:
    inputs = b'{"name":"greet","arguments":' + exact.PROMPT_ARGUMENTS + b"}"
    request, arguments = asked("community.mcp.get-prompt", b'{"serverId":"s","name":"other"}', inputs)
    assert (request.method, request.name, arguments) == ("getPrompt", "greet", exact.PROMPT_ARGUMENTS)
    request, arguments = asked("community.mcp.get-prompt", b'{"serverId":"s","name":"other"}', b"{}")
    assert (request.name, arguments) == ("other", None)


def test_a_completion_takes_its_reference_from_the_inputs_and_else_from_the_config() -> None:
    config = b'{"serverId":"s","ref":' + exact.COMPLETION["ref"] + b"}"
    parts = [(name, exact.COMPLETION[name]) for name in ("argument", "context")]
    request, params = asked("community.mcp.complete", config, jsontext.build(parts))
    assert (request.method, request.name, request.uri) == ("complete", None, None)
    assert params is not None
    assert dict(jsontext.members(params)) == exact.COMPLETION
    other = b'{"type":"ref/resource", "uri":"fake://{which}"}'
    _, params = asked("community.mcp.complete", config, jsontext.build([("ref", other), parts[0]]))
    assert params is not None
    assert jsontext.members(params) == [("ref", other), parts[0]]


@pytest.mark.parametrize(
    ("type_id", "inputs", "path"),
    [
        ("get-prompt", b'{"name":"greet","arguments":{"who":1}}', "inputs.arguments.who"),
        ("get-prompt", b'{"name":"greet","arguments":null}', "inputs.arguments"),
        ("list-prompts", b'{"cursor":1}', "inputs.cursor"),
        ("list-resources", b'{"uri":"fake://one"}', "inputs.uri"),
        ("complete", b'{"argument":{"name":"who","value":""}}', "ref"),
        ("complete", b'{"ref":{"type":"ref/prompt"}}', "inputs.argument"),
        ("complete", b'{"ref":{"type":"prompt"},"argument":{"name":"who","value":""}}', "inputs.ref.type"),
        ("complete", b'{"ref":{"type":"ref/prompt"},"argument":{"name":"who"}}', "inputs.argument.value"),
        ("complete", b'{"ref":{"type":"ref/prompt"},"argument":{"name":"who","value":1}}', "inputs.argument.value"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_where_they_do_not(type_id: str, inputs: bytes, path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        asked(f"community.mcp.{type_id}", b'{"serverId":"s"}', inputs)
    assert caught.value.facts["path"] == path


def test_what_stands_in_a_tools_arguments_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = jsontext.decode
    monkeypatch.setattr(jsontext, "decode", lambda data: (decoded.append(data), decode(data))[1])
    arguments = b'{"rows": [1, 2, 3]}'
    _, given = asked("community.mcp.call-tool", b'{"serverId":"s","name":"n"}', b'{"arguments":' + arguments + b"}")
    assert given == arguments
    assert decoded
    assert not any(b"rows" in text for text in decoded)


@pytest.mark.parametrize("kind", ["[1]", "1", "null", '"text"'])
def test_a_tools_arguments_have_to_be_an_object(kind: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        asked("community.mcp.call-tool", b'{"serverId":"s","name":"n"}', b'{"arguments":' + kind.encode() + b"}")
    assert caught.value.facts["path"] == "inputs.arguments"


def test_inputs_that_nest_too_deep_are_refused_before_they_are_read() -> None:
    with pytest.raises(InvalidRequestError, match="512 levels") as caught:
        asked("community.mcp.call-tool", b'{"serverId":"s","name":"n"}', b'{"arguments":{"a":' + b"[" * 1_000_000)
    assert caught.value.facts["path"] == "inputs"


@pytest.mark.parametrize(("inputs", "says"), [(b"{}", "missing"), (b'{"method":"complete"}', "callTool")])
def test_the_conformance_node_is_told_its_method_and_has_no_completions(inputs: bytes, says: str) -> None:
    with pytest.raises(InvalidRequestError, match=says) as caught:
        asked("core.conformance.mcp-client", b"{}", inputs)
    assert caught.value.facts["path"] == "inputs.method"


def allowed(globs: bytes | None, config: bytes, inputs: bytes = b"{}", type_id: str = "community.mcp.call-tool") -> str:
    request, _ = NodeCall("n", "acme", 1, config, allowed=globs).request(REGISTRY[type_id], inputs)
    return request.subject


@pytest.mark.parametrize("globs", [b'["s.t"]', b'["no","s.*"]', b'["?.[a-t]"]', b'["*"]', None])
def test_a_tool_that_the_definition_admits_is_called_wherever_its_name_comes_from(globs: bytes | None) -> None:
    assert allowed(globs, b'{"serverId":"s","name":"t"}') == "t"
    assert allowed(globs, b'{"serverId":"s","name":"other.tool"}', b'{"name":"t"}') == "t"
    given = b'{"method":"callTool","serverId":"s","name":"t"}'
    assert allowed(globs, b"{}", given, "core.conformance.mcp-client") == "t"


@pytest.mark.parametrize("globs", [b"[]", b'["s"]', b'["S.T"]', b'["s.t?"]', b'["x.t","s.T"]', b'["t"]'])
def test_any_other_tool_is_refused_wherever_its_name_comes_from_and_is_not_quoted(globs: bytes) -> None:
    given = b'{"method":"callTool","serverId":"s","name":"t"}'
    for type_id, config, inputs in (
        ("community.mcp.call-tool", b'{"serverId":"s","name":"t"}', b"{}"),
        ("community.mcp.call-tool", b'{"serverId":"x","name":"T"}', b'{"serverId":"s","name":"t"}'),
        ("core.conformance.mcp-client", b"{}", given),
    ):
        with pytest.raises(NotCallableError, match="allowedTools") as caught:
            allowed(globs, config, inputs, type_id)
        assert "s.t" not in caught.value.message


def test_what_calls_no_tool_needs_no_leave() -> None:
    given = b'{"method":"getPrompt","serverId":"s","name":"greet"}'
    assert allowed(b"[]", b"{}", given, "core.conformance.mcp-client") == "greet"


def test_the_tools_that_may_be_called_travel_only_where_the_definition_names_them() -> None:
    call = NodeCall("n", "acme", 1, b"{}", allowed=b'["s.*"]')
    assert NodeCall.decode(call.encode()) == call
    assert b"allowed" not in NodeCall("n", "acme", 1, b"{}").encode()


def test_what_a_node_answers_and_has_approved_travels_exactly_and_only_where_there_is_any() -> None:
    bare = NodeCall("a", "acme", 1, b'{"serverId":"s","name":"t"}')
    assert b"suspends" not in bare.encode()
    given = Input(2, b'{"q":{"n":1.10}}', b'"e30=\\u0000 \xc3\xbc"', ("d",))
    call = dataclasses.replace(bare, suspends=True, input=given, approved=b'{"tier":"write"}')
    assert NodeCall.decode(call.encode()) == call
    request, _ = call.request(REGISTRY["community.mcp.call-tool"], b"{}")
    assert (request.suspends, request.input, request.approved) == (True, given, b'{"tier":"write"}')
