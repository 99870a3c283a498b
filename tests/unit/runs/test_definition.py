"""Definitions: what is kept of them, and how each fault reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import (
    Connection,
    Definition,
    DefinitionError,
    SourceOutput,
    Static,
    VariableRef,
    argument,
    parse,
)
from tests.support.graphs import edge, node, workflow

FIXTURES = Path(__file__).parents[3] / "examples" / "fixtures"


def parsed(definition: dict[str, Any] | bytes) -> Definition:
    text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    return parse(text, source="flow.json", node_types=REGISTRY)


def faults(definition: dict[str, Any] | bytes) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        parsed(definition)
    return caught.value.faults


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_every_fixture_is_a_definition_named_by_its_file(path: Path) -> None:
    assert parsed(path.read_bytes()).id == path.stem


def test_a_definition_for_a_host_that_has_more_node_types_is_told_from_a_faulty_one() -> None:
    type_id = "core.agent"
    text = json.dumps(workflow([node("a", type_id)])).encode()
    with pytest.raises(DefinitionError) as caught:
        parsed(text)
    assert caught.value.unknown_types == (type_id,)
    assert len(caught.value.faults) == 1
    with pytest.raises(DefinitionError) as caught:
        parsed(text.replace(b'"edges": []', b'"edges": [{"id": "e", "sourceNodeId": "x", "targetNodeId": "x"}]'))
    assert caught.value.unknown_types == (type_id,)
    assert len(caught.value.faults) > 1


def test_literals_keep_their_exact_bytes() -> None:
    text = json.dumps(
        workflow(
            [node("a", inputs={"arguments": {"type": "static", "value": "@1"}}), node("b")],
            [edge("a", "b", condition={"type": "equals", "left": "result.n", "right": "@2"})],
            [{"name": "v", "type": "object", "defaultValue": "@3"}],
        )
    ).encode()
    arguments, right, default = b'{ "n":1.10, "n":1.1 }', b"123456789012345678901234", b'{"e": "\\u00e9"}'
    text = text.replace(b'"@1"', arguments).replace(b'"@2"', right).replace(b'"@3"', default)
    definition = parsed(text)
    assert definition.raw == text
    assert definition.nodes[0].inputs == (("arguments", Static(arguments)),)
    assert definition.nodes[0].config == b'{"serverId": "weather", "name": "get"}'
    assert definition.variables[0].default == default
    condition = definition.edges[0].condition
    assert condition is not None
    assert condition.left == SourceOutput(("result", "n"))
    assert condition.right == Static(right)


def test_ports_are_literals_variables_and_connections() -> None:
    inputs = {
        "arguments": {"type": "connection", "nodeId": "a", "outputKey": "/result/structuredContent", "optional": True},
        "idempotencyKey": {"type": "variable", "variableName": "key"},
    }
    definition = parsed(
        workflow([node("a"), node("b", inputs=inputs)], [edge("a", "b")], [{"name": "key", "type": "string"}])
    )
    assert definition.nodes[1].inputs == (
        ("arguments", Connection("a", ("result", "structuredContent"), optional=True)),
        ("idempotencyKey", VariableRef("key")),
    )


def test_a_left_operand_is_a_path_a_port_or_the_edges_source_output() -> None:
    lefts: list[dict[str, Any]] = [
        {"left": "result.isError"},
        {"left": "/result/a~1b"},
        {"left": {"type": "variable", "variableName": "v"}},
        {},
        {"left": 1.5},
    ]
    operands = []
    for left in lefts:
        definition = parsed(
            workflow(
                [node("a"), node("b")],
                [edge("a", "b", condition={"type": "truthy", **left})],
                [{"name": "v", "type": "string"}],
            )
        )
        condition = definition.edges[0].condition
        assert condition is not None
        operands.append(condition.left)
    assert operands == [
        SourceOutput(("result", "isError")),
        SourceOutput(("result", "a/b")),
        VariableRef("v"),
        SourceOutput(()),
        Static(b"1.5"),
    ]


def test_a_source_output_is_where_the_left_operand_begins() -> None:
    edges = [edge("a", "b", sourceOutput="result", condition={"type": "truthy", "left": "isError"})]
    condition = parsed(workflow([node("a"), node("b")], edges)).edges[0].condition
    assert condition is not None
    assert condition.left == SourceOutput(("result", "isError"))


def test_a_definition_that_takes_too_long_to_read_is_refused() -> None:
    large = {"arguments": {"type": "static", "value": {"text": "x" * 2_000_000}}}
    (fault,) = faults(workflow([node("a", inputs=large)]))
    assert "give what is large as inputs" in fault


def test_settings_bound_the_run() -> None:
    definition = parsed(workflow([node("a")], settings={"timeout": 5000, "maxRetries": 2}))
    assert (definition.timeout_ms, definition.max_retries) == (5000, 2)
    assert parsed(workflow([node("a")], settings={"timeout": 0})).timeout_ms is None


def test_the_members_of_the_arguments_may_be_ports_of_their_own() -> None:
    inputs = {
        "arguments.city": {"type": "variable", "variableName": "city"},
        "arguments.a.b": {"type": "static", "value": 1},
    }
    definition = parsed(workflow([node("a", inputs=inputs)], variables=[{"name": "city", "type": "string"}]))
    assert definition.nodes[0].inputs == (
        ("arguments.city", VariableRef("city")),
        ("arguments.a.b", Static(b"1")),
    )
    assert [argument(name) for name, _ in definition.nodes[0].inputs] == ["city", "a.b"]
    assert argument("arguments") is None
    assert argument("uri.x") is None


def test_what_is_sensitive_is_read_and_how_it_is_hidden_may_be_said() -> None:
    definition = parsed(
        workflow(
            [node("a", outputSensitivity={"result": False}), node("b")],
            variables=[{"name": "v", "type": "string", "sensitive": True}, {"name": "w", "type": "string"}],
            metadata={"complianceClass": "pii", "complianceConfig": {"maskingMode": "mask"}},
        )
    )
    assert [variable.sensitive for variable in definition.variables] == [True, False]
    assert [item.sensitivity for item in definition.nodes] == [(("result", False),), ()]


@pytest.mark.parametrize("metadata", [{"complianceConfig": {"maskingMode": "hash"}}, {"complianceConfig": "hash"}])
def test_how_values_are_hidden_does_not_matter_where_none_is_sensitive(metadata: dict[str, Any]) -> None:
    parsed(workflow([node("a", outputSensitivity={"result": False})], metadata=metadata))


def test_an_input_that_is_written_twice_is_refused() -> None:
    text = json.dumps(workflow([node("a", inputs={"arguments.x": {"type": "static", "value": 1}})])).encode()
    port = b'"arguments.x": {"type": "static", "value": 1}'
    assert faults(text.replace(port, port + b", " + port)) == (
        "flow.json: nodes[0].inputs.arguments.x: it is written twice: remove one",
    )


def _connected(**port: Any) -> dict[str, Any]:
    port = {"type": "connection", "nodeId": "a", "outputKey": "result", **port}
    return workflow([node("a"), node("b", inputs={"arguments": port})], [edge("a", "b")])


def _conditional(**condition: Any) -> dict[str, Any]:
    return workflow([node("a"), node("b")], [edge("a", "b", condition=condition)])


FAULTS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "no nodes": (lambda: workflow([]), "nodes: "),
    "an unknown member": (lambda: workflow([node("a")], colour="red"), "colour: remove it"),
    "a missing member": (
        lambda: workflow([{k: v for k, v in node("a").items() if k != "config"}]),
        "nodes[0].config: write it",
    ),
    "a bad id": (lambda: workflow([node("a")], id="Flow"), "id: "),
    "a member that a run would ignore": (
        lambda: workflow([node("a", compensation={"nodeTypeId": "core.noop"})]),
        "nodes[0].compensation: not supported here: remove it",
    ),
    "a sensitive output that the type does not have": (
        lambda: workflow([node("a", outputSensitivity={"results": True})]),
        "nodes[0].outputSensitivity.results: community.mcp.call-tool has no output 'results' (it has: result)",
    ),
    "a sensitivity that is no yes or no": (
        lambda: workflow([node("a", outputSensitivity={"result": "secret"})]),
        "nodes[0].outputSensitivity.result: Input should be a valid boolean",
    ),
    "a variable of a type that there is not": (
        lambda: workflow([node("a")], variables=[{"name": "v", "type": "integer"}]),
        "variables[0].type: write string, number, boolean, object or array",
    ),
    "another way to hide a sensitive variable": (
        lambda: workflow(
            [node("a")],
            variables=[{"name": "v", "type": "string", "sensitive": True}],
            metadata={"complianceConfig": {"maskingMode": "hash"}},
        ),
        "metadata.complianceConfig.maskingMode: not supported here: write mask or remove it",
    ),
    "another way to hide a sensitive output": (
        lambda: workflow(
            [node("a", outputSensitivity={"result": True})], metadata={"complianceConfig": {"maskingMode": "omit"}}
        ),
        "metadata.complianceConfig.maskingMode: not supported here: write mask or remove it",
    ),
    "a disabled node": (lambda: workflow([node("a", disabled=True)]), "nodes[0].disabled: not supported here"),
    "an unknown node type": (lambda: workflow([node("a", "core.nothing")]), "nodes[0].typeId: there is no node type"),
    "two nodes of one id": (
        lambda: workflow([node("a"), node("a")]),
        "nodes[1].id: 'a' is taken by nodes[0]: write another",
    ),
    "two edges of one id": (
        lambda: workflow([node("a"), node("b")], [edge("a", "b"), edge("a", "b")]),
        "edges[1].id: 'a>b' is taken by edges[0]",
    ),
    "two variables of one name": (
        lambda: workflow([node("a")], variables=[{"name": "v", "type": "string"}] * 2),
        "variables[1].name: 'v' is taken",
    ),
    "an edge from nowhere": (
        lambda: workflow([node("a")], [edge("z", "a")]),
        "edges[0].sourceNodeId: there is no node 'z'",
    ),
    "an edge to nowhere": (
        lambda: workflow([node("a")], [edge("a", "z")]),
        "edges[0].targetNodeId: there is no node 'z'",
    ),
    "a cycle": (
        lambda: workflow([node(n) for n in "abcd"], [edge("a", "b"), edge("b", "c"), edge("c", "b"), edge("c", "d")]),
        "edges: b -> c -> b is a cycle: remove one of its edges",
    ),
    "a node that follows itself": (lambda: workflow([node("a")], [edge("a", "a")]), "edges: a -> a is a cycle"),
    "an unknown trigger rule": (
        lambda: workflow([node("a"), node("b")], [edge("a", "b", "sometimes")]),
        "edges[0].triggerRule: ",
    ),
    "a config that does not fit": (
        lambda: workflow([node("a", config={"serverId": "no spaces", "name": "x"})]),
        "nodes[0].config.serverId: ",
    ),
    "a config that has too much": (
        lambda: workflow([node("a", "core.noop", config={"x": 1})]),
        "nodes[0].config.x: remove it",
    ),
    "a setting that stands nowhere": (
        lambda: workflow([node("a", config={"serverId": "s"})]),
        "nodes[0].config.name: write it here or as an input",
    ),
    "a needed input that is missing": (
        lambda: workflow([node("a", "core.identity")]),
        "nodes[0].inputs.payload: write it: core.identity needs it",
    ),
    "an input that the type does not have": (
        lambda: workflow([node("a", "core.noop", inputs={"x": {"type": "static", "value": 1}})]),
        "nodes[0].inputs.x: core.noop has no such input (it has: none)",
    ),
    "a literal that does not fit": (
        lambda: workflow([node("a", inputs={"arguments": {"type": "static", "value": [1]}})]),
        "nodes[0].inputs.arguments: ",
    ),
    "a port of no type": (
        lambda: workflow([node("a", inputs={"arguments": {"value": 1}})]),
        "nodes[0].inputs.arguments: write an object with a type of static, variable or connection",
    ),
    "a port with a member too many": (
        lambda: workflow([node("a", inputs={"arguments": {"type": "static", "value": {}, "x": 1}})]),
        "nodes[0].inputs.arguments.x: remove it",
    ),
    "an expression as input": (
        lambda: workflow([node("a", inputs={"arguments": {"type": "expression", "expression": "1+1"}})]),
        "nodes[0].inputs.arguments.type: expressions are not supported",
    ),
    "a variable that is not declared": (
        lambda: workflow([node("a", inputs={"arguments": {"type": "variable", "variableName": "v"}})]),
        "nodes[0].inputs.arguments.variableName: there is no variable 'v': declare it",
    ),
    "a connection to nowhere": (lambda: _connected(nodeId="z"), "nodes[1].inputs.arguments.nodeId: there is no node"),
    "a connection to what does not end before": (
        lambda: workflow(
            [node("a", inputs={"arguments": {"type": "connection", "nodeId": "b", "outputKey": "result"}}), node("b")],
            [edge("a", "b")],
        ),
        "nodes[0].inputs.arguments.nodeId: no edges lead from 'b' to 'a'",
    ),
    "a connection to an unknown output": (
        lambda: _connected(outputKey="/results/x"),
        "nodes[1].inputs.arguments.outputKey: community.mcp.call-tool has no output 'results' (it has: result)",
    ),
    "a connection with a bad pointer": (lambda: _connected(outputKey="/result/~7"), "outputKey: in a JSON Pointer"),
    "a default of another type": (
        lambda: workflow([node("a")], variables=[{"name": "v", "type": "number", "defaultValue": "1"}]),
        "variables[0].defaultValue: write a JSON value of type number",
    ),
    "an expression as condition": (
        lambda: _conditional(type="expression", expression="a > b"),
        "edges[0].condition.type: expression conditions are not supported",
    ),
    "a condition that compares with nothing": (
        lambda: _conditional(type="equals", left="result"),
        "edges[0].condition.right: write what equals compares with",
    ),
    "a condition on an unknown output": (
        lambda: _conditional(type="truthy", left="output.approved"),
        "edges[0].condition.left: community.mcp.call-tool has no output 'output'",
    ),
    "a pattern that is none": (
        lambda: _conditional(type="regex", left="result", right="("),
        "edges[0].condition.right: write a regular expression of RE2",
    ),
    "a pattern with a backreference": (
        lambda: _conditional(type="regex", left="result", right=r"(a)\1"),
        "which has no backreferences and no lookaround (invalid escape sequence)",
    ),
    "a pattern with a lookahead": (
        lambda: _conditional(type="regex", left="result", right="(?=a)b"),
        "which has no backreferences and no lookaround (invalid perl operator)",
    ),
    "a pattern with a lone surrogate": (
        lambda: _conditional(type="regex", left="result", right="\ud800"),
        "(a lone surrogate is no character)",
    ),
    "a pattern that is too long": (
        lambda: _conditional(type="regex", left="result", right="a" * 257),
        "edges[0].condition.right: write the regular expression as a string of at most 256 characters",
    ),
    "a condition of an unknown type": (
        lambda: _conditional(type="matches", left="result", right=1),
        "edges[0].condition.type: write equals, notEquals, contains, regex, truthy or falsy",
    ),
    "a member of the config that is nearly right": (
        lambda: workflow([node("a", config={"serverID": "s", "serverId": "s", "name": "x"})]),
        "nodes[0].config.serverID: remove it: there is no such member (did you mean 'serverId'?)",
    ),
    "a member of an edge that is nearly right": (
        lambda: workflow([node("a"), node("b")], [edge("a", "b", trigerRule="any_failed")]),
        "edges[0].trigerRule: remove it: there is no such member (did you mean 'triggerRule'?)",
    ),
    "a member of a port that is nearly right": (
        lambda: _connected(outputkey="result"),
        "nodes[1].inputs.arguments.outputkey: remove it: there is no such member (did you mean 'outputKey'?)",
    ),
    "arguments as a whole and by member": (
        lambda: workflow(
            [node("a", inputs={name: {"type": "static", "value": {}} for name in ("arguments", "arguments.x")})]
        ),
        "nodes[0].inputs.arguments.x: 'arguments' is given as a whole: remove one of the two",
    ),
    "an argument of no name": (
        lambda: workflow([node("a", inputs={"arguments.": {"type": "static", "value": 1}})]),
        "nodes[0].inputs.arguments.: write the name of a member after the dot",
    ),
    "an argument for a type that takes none": (
        lambda: workflow([node("a", "core.noop", inputs={"arguments.x": {"type": "static", "value": 1}})]),
        "nodes[0].inputs.arguments.x: core.noop has no such input (it has: none)",
    ),
    "a member of another input": (
        lambda: workflow([node("a", inputs={"name.x": {"type": "static", "value": 1}})]),
        "nodes[0].inputs.name.x: community.mcp.call-tool has no such input",
    ),
    "an operand with a member too many": (
        lambda: _conditional(type="equals", left="result", right={"type": "static", "value": 1, "x": 1}),
        "edges[0].condition.right.x: remove it",
    ),
    "an edge that would carry a value": (
        lambda: workflow([node("a"), node("b")], [edge("a", "b", targetInput="arguments")]),
        "edges[0].targetInput: an edge carries no value",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_by_file_path_and_what_to_write(name: str) -> None:
    make, expected = FAULTS[name]
    found = faults(make())
    assert len(found) == 1, found
    assert found[0].startswith("flow.json: ")
    assert expected in found[0]


def test_all_faults_are_listed_at_once() -> None:
    found = faults(workflow([node("a", "core.nothing"), node("b", config={})], [edge("a", "z")]))
    assert len(found) == 4


def test_what_was_written_in_the_wrong_place_is_not_repeated() -> None:
    found = faults(workflow([node("a", config={"serverId": "hunter2 hunter2", "name": 7})]))
    assert "hunter2" not in "".join(found)


def test_text_that_is_not_json_is_refused() -> None:
    assert faults(b"{") == ("flow.json: not JSON: malformed or cut off (byte 1)",)
    assert faults(b"[]")[0].startswith("flow.json: the definition: ")


def test_a_condition_may_look_at_its_own_source_and_at_what_lies_above() -> None:
    condition = {
        "type": "equals",
        "left": {"type": "connection", "nodeId": "b", "outputKey": "result"},
        "right": {"type": "connection", "nodeId": "a", "outputKey": "result"},
    }
    edges = [edge("a", "b"), edge("b", "c", condition=condition)]
    assert parsed(workflow([node("a"), node("b"), node("c")], edges)).edges[1].condition is not None


def test_a_definition_that_nests_too_deep_is_refused_before_it_is_read() -> None:
    assert faults(b'{"nodes":' + b"[" * 1_000_000) == ("flow.json: nested deeper than 512 levels (byte 0)",)


@pytest.mark.parametrize("globs", [["weather.get_*", "bank.transfer"], []])
def test_the_tools_that_a_run_may_call_are_kept_and_absent_is_not_none(globs: list[str]) -> None:
    text = parsed(workflow([node("a")], allowedTools=globs)).allowed_tools
    assert text is not None
    assert json.loads(text) == globs
    assert parsed(workflow([node("a")])).allowed_tools is None


@pytest.mark.parametrize(
    ("globs", "fault"),
    [
        ("weather.*", "allowedTools: Input should be a valid list"),
        ([1], "allowedTools[0]: Input should be a valid string"),
        ([""], "allowedTools[0]: String should have at least 1 character"),
        (["x" * 8_000, "y" * 200], "allowedTools: 8207 bytes are over 8192: write globs, such as weather.get_*"),
    ],
)
def test_a_list_of_allowed_tools_that_cannot_be_one_is_a_fault(globs: Any, fault: str) -> None:
    assert faults(workflow([node("a")], allowedTools=globs)) == (f"flow.json: {fault}",)


# --- gates ---

APPROVAL_DATA = {"artifactId": "i", "artifactType": "t", "title": "t", "actions": ["accept"]}


@pytest.mark.parametrize(
    ("type_id", "config", "fault"),
    [
        ("core.approvalGate", {}, "config.title: write it"),
        ("core.approvalGate", {"title": ""}, "config.title"),
        ("core.approvalGate", {"title": "t", "actions": []}, "config.actions"),
        (
            "core.approvalGate",
            {"title": "t", "actions": ["accept", "accept"]},
            "config.actions: write each of them once",
        ),
        ("core.approvalGate", {"title": "t", "actions": ["approve"]}, "config.actions[0]"),
        ("core.approvalGate", {"title": "t", "approversList": []}, "config.approversList"),
        ("core.approvalGate", {"title": "t", "requiredApprovals": 2}, "config.requiredApprovals: remove it"),
        ("core.approvalGate", {"title": "t", "timeoutMs": 0}, "config.timeoutMs"),
        ("core.approvalGate", {"title": "t", "timeoutMs": 1.5}, "config.timeoutMs"),
        ("core.approvalGate", {"title": "t", "timeoutMs": 10**12}, "config.timeoutMs"),
        ("core.approvalGate", {"title": "t", "timeoutMs": None}, "config.timeoutMs"),
        ("core.clarificationGate", {"questions": []}, "config.questions"),
        ("core.clarificationGate", {"questions": [{"id": "q"}]}, "config.questions[0].question"),
        (
            "core.clarificationGate",
            {"questions": [{"id": "q", "question": "?", "schema": 7}]},
            "config.questions[0].schema",
        ),
        (
            "core.clarificationGate",
            {"questions": [{"id": "q", "question": "?"}] * 2},
            "config.questions: write each of them",
        ),
        ("core.interrupt", {"kind": "credential", "data": {}}, "config.kind"),
        ("core.interrupt", {"kind": "custom"}, "config.data: write it"),
        ("core.interrupt", {"kind": "custom", "data": {}}, "config: data.customKind"),
        ("core.interrupt", {"kind": "external-event", "data": {"eventType": "e"}}, "config: data.correlation"),
        ("core.interrupt", {"kind": "approval", "data": {**APPROVAL_DATA, "actions": []}}, "config: data.actions"),
        (
            "core.interrupt",
            {"kind": "clarification", "data": {"questions": [{"id": "q"}]}},
            "config: data.questions.0.question",
        ),
        (
            "core.interrupt",
            {"kind": "custom", "data": {"customKind": "c"}, "resumeSchema": True},
            "config.resumeSchema",
        ),
        ("community.mcp.call-tool", {"serverId": "s", "name": "n", "inputTimeoutMs": 0}, "config.inputTimeoutMs"),
    ],
)
def test_a_gate_that_cannot_be_asked_is_a_fault_of_its_definition(type_id: str, config: Any, fault: str) -> None:
    (found,) = faults(workflow([node("g", type_id, config=config)]))
    assert fault in found


@pytest.mark.parametrize(
    "config",
    [
        {"kind": "custom", "data": {"customKind": "c", "payload": [1.5]}, "timeoutMs": 10.0},
        {"kind": "approval", "data": {**APPROVAL_DATA, "onTimeout": "escalate", "approversList": ["a"]}},
        {
            "kind": "clarification",
            "data": {"questions": [{"id": "q", "question": "?", "schema": {}}], "contextType": "c"},
        },
        {"kind": "external-event", "data": {"eventType": "e", "correlation": {}}, "resumeSchema": {}},
    ],
)
def test_every_kind_of_interrupt_can_be_asked(config: Any) -> None:
    assert parsed(workflow([node("g", "core.interrupt", config=config)])).nodes[0].type.run == "gate"


def test_an_approval_shows_what_other_nodes_gave_and_gives_what_was_answered() -> None:
    shows = {"artifactData": {"type": "connection", "nodeId": "a", "outputKey": "result"}}
    takes = {"arguments": {"type": "connection", "nodeId": "g", "outputKey": "editedArtifactData"}}
    gate = node("g", "core.approvalGate", config={"title": "t"}, inputs=shows)
    parsed(workflow([node("a"), gate, node("b", inputs=takes)], [edge("a", "g"), edge("g", "b")]))
