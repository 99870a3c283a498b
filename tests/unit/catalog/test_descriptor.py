"""Descriptors of tools of all sources."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from openwop_mcp import jsontext
from openwop_mcp.catalog.descriptor import compact_descriptor, mcp_descriptor, node_descriptor, workflow_descriptor
from openwop_mcp.catalog.names import tool_id
from openwop_mcp.catalog.policy import CLASSIFIED, Standing, effective, values
from openwop_mcp.catalog.shapes import COMPACT_DESCRIPTOR, DESCRIPTOR
from openwop_mcp.config import EffectivePolicy, Server
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.terminal import escape
from tests.support.catalog_pages import CLAIMS, TOOLS, VALUES, tool

STANDARD = Draft202012Validator(DESCRIPTOR)
COMPACT = Draft202012Validator(COMPACT_DESCRIPTOR)
SERVER = Server.model_validate({"url": "https://example.org/mcp"})

POLICIES = st.builds(EffectivePolicy, **{field: st.sampled_from(values(name)) for name, field in CLASSIFIED.items()})

HINTS = {
    "readOnlyHint": lambda policy: policy.safety_tier in {"pure", "read"},
    "destructiveHint": lambda policy: policy.safety_tier == "write",
    "idempotentHint": lambda policy: policy.replay_policy in {"deterministic", "idempotent"},
    "openWorldHint": lambda policy: policy.egress != "none",
}

OURS = ("annotations", "auth", "egress", "approval", "replayPolicy", "safetyTier", "toolId", "source")


def described(definition: dict[str, Any], policy: EffectivePolicy | None = None, server: Server = SERVER) -> Any:
    held = effective(server, definition["name"], None) if policy is None else policy
    return json.loads(mcp_descriptor("s", server, jsontext.encode(definition), held))


@given(TOOLS, POLICIES)
def test_every_tool_of_a_server_is_described_by_the_schema_with_the_hosts_hints(
    definition: dict[str, Any], policy: EffectivePolicy
) -> None:
    descriptor = described(definition, policy)
    STANDARD.validate(descriptor)
    assert descriptor["annotations"] == {hint: holds(policy) for hint, holds in HINTS.items()}
    assert descriptor["toolId"] == tool_id("s", definition["name"])
    shown = {"write": "always" if policy.safety_tier == "write" else "never"}
    assert descriptor["approval"] == shown.get(policy.approval, policy.approval)


@given(TOOLS, CLAIMS | VALUES, POLICIES)
def test_nothing_that_a_server_claims_of_a_tool_changes_what_the_host_says(
    definition: dict[str, Any], claims: Any, policy: EffectivePolicy
) -> None:
    before, after = described(definition, policy), described({**definition, "annotations": claims}, policy)
    assert {name: before.get(name) for name in OURS} == {name: after.get(name) for name in OURS}


@given(TOOLS, POLICIES)
def test_schemas_are_kept_byte_for_byte_and_nothing_else_hides_text(
    definition: dict[str, Any], policy: EffectivePolicy
) -> None:
    text = jsontext.encode(definition)
    members = dict(jsontext.members(mcp_descriptor("s", SERVER, text, policy)))
    for name in ("inputSchema", "outputSchema"):
        sent = jsontext.member(text, name)
        assert members.get(name) == (sent if sent is not None and jsontext.kind(sent) == "object" else None)
    for name in ("title", "description"):
        shown = jsontext.decode(members.get(name, b'""'))
        assert escape(shown, multiline=True) == shown


@given(TOOLS, POLICIES)
def test_the_compact_view_is_described_by_its_schema(definition: dict[str, Any], policy: EffectivePolicy) -> None:
    full = mcp_descriptor("s", SERVER, jsontext.encode(definition), policy)
    compact = json.loads(compact_descriptor(full))
    COMPACT.validate(compact)
    kept = {name: value for name, value in json.loads(full).items() if name in compact}
    assert {**compact, "inputSchema": None} == {**kept, "inputSchema": None}


def test_a_tool_that_nobody_classified_writes_whatever_its_server_claims() -> None:
    claims = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    assert described(tool("a", annotations=claims)) == {
        "toolId": "mcp:s.a",
        "source": "mcp",
        "title": "a",
        "inputSchema": {"type": "object"},
        "annotations": dict(zip(claims, (False, True, False, True), strict=True)),
        "egress": "host-mediated",
        "approval": "never",
        "replayPolicy": "non-deterministic",
        "safetyTier": "write",
    }


def test_members_stand_in_one_order() -> None:
    server = Server.model_validate({"url": "https://example.org/mcp", "credential": {"bearer": {"env": "TOKEN"}}})
    definition = tool("a", outputSchema={}, description="b", title="c")
    assert list(described(definition, server=server)) == [
        "toolId", "source", "title", "description", "inputSchema", "outputSchema", "annotations", "auth", "egress",
        "approval", "replayPolicy", "safetyTier",
    ]  # fmt: skip


def test_a_drifted_tool_is_described_as_unclassified() -> None:
    server = Server.model_validate({"url": "https://example.org/mcp", "tools": {"*": {"safety_tier": "read"}}})
    standing = Standing("f", drifted=True, unusable=None, classification=None)
    assert described(tool("a"), effective(server, "a", None), server)["safetyTier"] == "read"
    assert described(tool("a"), effective(server, "a", standing), server)["safetyTier"] == "write"


@pytest.mark.parametrize(
    ("members", "title"),
    [
        ({"title": "A", "annotations": {"title": "B"}}, "A"),
        ({"annotations": {"title": "B"}}, "B"),
        ({"title": "", "annotations": {"title": 1}}, "name"),
        ({"annotations": []}, "name"),
        ({"title": "a\u202e\U000e0041\nb"}, "a\\u{202e}\\u{e0041}\nb"),
    ],
)
def test_a_title_falls_back_to_the_annotations_and_to_the_name(members: dict[str, Any], title: str) -> None:
    assert described(tool("name", **members))["title"] == title


@pytest.mark.parametrize(
    "server",
    [
        {"url": "https://example.org/mcp", "credential": {"bearer": {"env": "SECRET_TOKEN"}}},
        {"command": ["x"], "environment": {"API_TOKEN": {"env": "SECRET_TOKEN"}}},
    ],
)
def test_of_a_credential_nothing_is_told_but_that_there_is_one(server: dict[str, Any]) -> None:
    held = Server.model_validate(server)
    text = mcp_descriptor("s", held, jsontext.encode(tool("a")), held.policy("a"))
    assert json.loads(text)["auth"] == {"credentialRef": True}
    assert b"TOKEN" not in text


@pytest.mark.parametrize("type_id", REGISTRY)
def test_every_node_type_is_described(type_id: str) -> None:
    node_type = REGISTRY[type_id]
    text = node_descriptor(node_type)
    descriptor = json.loads(text)
    STANDARD.validate(descriptor)
    COMPACT.validate(json.loads(compact_descriptor(text)))
    assert (descriptor["toolId"], descriptor["source"]) == (f"openwop:{type_id}", "node-pack")
    told = (descriptor["safetyTier"], descriptor["replayPolicy"], descriptor["egress"])
    if node_type.role == "pure":
        assert told == ("pure", "deterministic", "none")
    elif type_id in {"community.mcp.call-tool", "core.conformance.mcp-client"}:
        assert told == ("write", "non-deterministic", "host-mediated")
    else:
        assert told == ("read", "idempotent", "host-mediated")
    given_names = {field.alias or name for name, field in node_type.inputs.model_fields.items()}
    assert set(descriptor["inputSchema"]["properties"]) == given_names


def test_a_workflow_is_described_by_its_variables() -> None:
    variables = [
        {"name": "city", "type": "string", "required": True},
        {"name": "days", "type": "number", "required": True, "defaultValue": 1.50},
        {"name": "key", "type": "string", "required": False, "defaultValue": "hidden", "sensitive": True},
    ]
    definition = {
        "id": "a-b",
        "name": "Forecast\u202e",
        "description": "Asks\u200b.",
        "version": "1.0.0",
        "nodes": [
            {"id": "n", "typeId": "core.noop", "name": "n", "position": {"x": 0, "y": 0}, "config": {}, "inputs": {}}
        ],
        "edges": [],
        "triggers": [],
        "variables": variables,
        "metadata": {},
        "settings": {},
    }
    text = workflow_descriptor(parse(jsontext.encode(definition), source="x", node_types=REGISTRY))
    descriptor = json.loads(text)
    STANDARD.validate(descriptor)
    COMPACT.validate(json.loads(compact_descriptor(text)))
    assert descriptor == {
        "toolId": "workflow:a-b",
        "source": "workflow",
        "title": "Forecast\\u{202e}",
        "description": "Asks\\u{200b}.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "number", "default": 1.5},
                "key": {"type": "string"},
            },
            "required": ["city"],
        },
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": False,
            "openWorldHint": True,
        },
        "egress": "host-mediated",
        "approval": "never",
        "replayPolicy": "non-deterministic",
        "safetyTier": "write",
    }
