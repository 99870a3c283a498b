"""The schemas of both views of a tool."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from openwop_mcp.catalog.shapes import COMPACT_DESCRIPTOR, DESCRIPTOR, files

STANDARD = Draft202012Validator(DESCRIPTOR)
COMPACT = Draft202012Validator(COMPACT_DESCRIPTOR)
LEAST = {"toolId": "mcp:s.a", "source": "host-extension", "safetyTier": "read"}


def test_both_are_schemas_and_are_written_as_they_are() -> None:
    for schema in (DESCRIPTOR, COMPACT_DESCRIPTOR):
        Draft202012Validator.check_schema(schema)
    assert [json.loads(text) for text in files().values()] == [DESCRIPTOR, COMPACT_DESCRIPTOR]


@pytest.mark.parametrize("tier", ["pure", "read", "write", "exec"])
@pytest.mark.parametrize("replay", [None, "deterministic", "idempotent", "non-deterministic"])
@pytest.mark.parametrize("egress", [None, "none", "safe-fetch", "host-mediated", "host-owned"])
def test_of_all_hints_a_tool_could_show_exactly_one_set_fits(tier: str, replay: str | None, egress: str | None) -> None:
    fields = {"safetyTier": tier, "replayPolicy": replay, "egress": egress}
    descriptor = LEAST | {name: value for name, value in fields.items() if value is not None}
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    sets = [dict(zip(names, bits, strict=True)) for bits in itertools.product((True, False), repeat=4)]
    assert [hints for hints in sets if STANDARD.is_valid({**descriptor, "annotations": hints})] == [
        {
            "readOnlyHint": tier in {"pure", "read"},
            "destructiveHint": tier in {"write", "exec"},
            "idempotentHint": replay in {"deterministic", "idempotent"},
            "openWorldHint": egress != "none",
        }
    ]
    assert STANDARD.is_valid(descriptor)


HINTS = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": False, "openWorldHint": True}


@pytest.mark.parametrize(
    "wrong",
    [
        {"toolId": ""},
        {"source": "elsewhere"},
        {"source": "mcp", "safetyTier": "exec"},
        {"safetyTier": "harmless"},
        {"title": None},
        {"inputSchema": True},
        {"outputSchema": []},
        {"annotations": {name: value for name, value in HINTS.items() if name != "openWorldHint"}},
        {"annotations": {**HINTS, "title": "A"}},
        {"auth": {"token": "t"}},
        {"egress": None},
        {"approval": "write"},
        {"replayPolicy": "sometimes"},
        {"token": "t"},
    ],
)
def test_the_standard_view_takes_nothing_else(wrong: dict[str, Any]) -> None:
    assert STANDARD.is_valid({**LEAST, "annotations": HINTS, "auth": {"credentialRef": True, "scopes": ["a"]}})
    assert not STANDARD.is_valid(LEAST | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"annotations": HINTS},
        {"egress": "none"},
        {"source": "mcp", "safetyTier": "exec"},
        {"inputSchema": {"type": "object"}},
        {"inputSchema": {"type": "array", "properties": {}}},
        {"inputSchema": {"type": "object", "properties": {}, "required": []}},
    ],
)
def test_the_compact_view_takes_nothing_else(wrong: dict[str, Any]) -> None:
    assert COMPACT.is_valid({**LEAST, "title": "A", "inputSchema": {"type": "object", "properties": {"a": {}}}})
    assert not COMPACT.is_valid(LEAST | wrong)


@pytest.mark.parametrize("schema", [STANDARD, COMPACT])
@pytest.mark.parametrize("member", LEAST)
def test_what_every_tool_has_cannot_be_left_out(schema: Draft202012Validator, member: str) -> None:
    assert not schema.is_valid({name: value for name, value in LEAST.items() if name != member})
