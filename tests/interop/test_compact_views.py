"""Compact views of the tools of servers that others wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from openwop_mcp import jsontext
from openwop_mcp.catalog.compact import BARRED, compact_schema
from openwop_mcp.client import Clients
from openwop_mcp.config import Settings
from tests.support import real_servers

pytestmark = pytest.mark.timeout(180)

LIMIT = 60
"""Seconds within which a server of this machine answers, also where the machine does other work."""

SERVERS: dict[str, Callable[[Path], real_servers.Command]] = {
    "time": lambda _: real_servers.time(),
    "git": lambda folder: real_servers.git(real_servers.git_repository(folder)),
    "fetch": lambda _: real_servers.fetch(),
    "sqlite": real_servers.sqlite,
    "fast": lambda _: real_servers.fast(),
    "legacy": lambda _: real_servers.legacy(),
    "everything": lambda _: real_servers.everything(),
    "filesystem": real_servers.filesystem,
    "memory": lambda _: real_servers.memory(),
    "thinking": lambda _: real_servers.thinking(),
}


async def schemas(command: real_servers.Command) -> dict[str, bytes]:
    """The input schema of each of a server's tools, as it was sent."""
    timeouts = dict.fromkeys(("connect", "first_byte", "idle", "total"), LIMIT)
    server = {"command": command, "minimum_revision": "2025-11-25", "timeouts": timeouts}
    configured = Settings.model_validate({"servers": {"real": server}})
    found = {}
    async with Clients(configured, client_info=b'{"name":"tests","version":"1"}', environ={}) as clients:
        page = await clients["real"].list_tools()
    for tool in jsontext.elements(jsontext.member(page.result, "tools") or b"[]"):
        found[jsontext.decode(tool)["name"]] = jsontext.member(tool, "inputSchema") or b""
    return found


def keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from keys(inner)


ANYTHING: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 1.5, "", "text", [], {}])


def values(schema: Any, root: Any) -> st.SearchStrategy[Any]:
    """Values that a schema may accept; whether it does is for the validator to say."""
    if not isinstance(schema, dict) or not schema:
        return ANYTHING
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return st.deferred(lambda: values(target, root))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return st.one_of([values(choice, root) for choice in schema[word]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    named = schema.get("type", "object" if "properties" in schema else None)
    return st.one_of([of_type(name, schema, root) for name in ([named] if isinstance(named, str) else named or [None])])


def of_type(name: str | None, schema: Any, root: Any) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum", -5), schema.get("maximum", 5)
    inner = values(schema.get("items"), root)
    properties = {one: values(sub, root) for one, sub in schema.get("properties", {}).items()}
    needed = {one: strategy for one, strategy in properties.items() if one in schema.get("required", [])}
    return {
        "object": st.fixed_dictionaries(
            needed, optional={one: sub for one, sub in properties.items() if one not in needed} | {"extra": ANYTHING}
        ),
        "array": st.lists(inner, min_size=schema.get("minItems", 0), max_size=schema.get("minItems", 0) + 2),
        "string": st.text("a1é", min_size=schema.get("minLength", 0), max_size=schema.get("minLength", 0) + 3)
        | st.just("https://example.org/a"),
        "integer": st.integers(low, max(low, high)),
        "number": st.integers(low, max(low, high)) | st.floats(low, max(low, high)),
        "boolean": st.booleans(),
        "null": st.none(),
    }.get(name or "", ANYTHING)


@pytest.mark.parametrize("server", SERVERS)
async def test_views_of_a_server_s_tools_name_every_argument_and_refuse_none(server: str, tmp_path: Path) -> None:
    found = await schemas(SERVERS[server](tmp_path))
    assert found
    for name, text in found.items():
        full, compact = json.loads(text), json.loads(compact_schema(text))
        assert list(compact) == ["type", "properties"], name
        assert BARRED.isdisjoint(keys(compact)), name
        assert compact["properties"].keys() == full.get("properties", {}).keys(), name
        Draft202012Validator.check_schema(compact)
        assert refused(full, compact) == 0, name


def refused(full: Any, compact: Any) -> int:
    """How many of the arguments that the full schema accepts its view refuses."""
    judge = validator_for(full, default=Draft202012Validator)(full)
    view = Draft202012Validator(compact)
    seen = [0, 0]

    @settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(values(full, full))
    def compare(arguments: Any) -> None:
        if judge.is_valid(arguments):
            seen[view.is_valid(arguments)] += 1

    compare()
    assert seen[True], "no arguments were found that the full schema accepts"
    return seen[False]
