"""The tools of a host over catalogs as their machine makes them: what stands where, and what is derived and asked."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import host.catalog
from host.catalog import EMPTY, FORCED_EVERY_MS, Shelf, ToolCatalog, ToolList
from host.workflows import Workflows
from openwop_mcp import jsontext
from openwop_mcp.catalog.pages import page_digest, read_page
from openwop_mcp.catalog.state import Catalog
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Host, Settings
from openwop_mcp.storage import StorageError
from tests.support.graphs import node, workflow
from tests.support.patience import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, there is time left for a server once its pause is over."""
    monkeypatch.setattr(host.catalog, "WAIT", PATIENCE)


def a_tool(name: str, **members: Any) -> bytes:
    return json.dumps({"name": name, "inputSchema": {"type": "object"}, **members}).encode()


def list_into(catalog: Catalog, *tools: bytes, ttl_ms: int = 0) -> Catalog:
    """Have a catalog list exactly these tools."""
    page = b'{"tools":[%b]}' % b",".join(tools)
    read = [[tool.name, tool.fingerprint, tool.unusable] for tool in read_page(page, http=True)]
    entry = [
        ("digest", jsontext.encode(page_digest(page, http=True))),
        ("page", page),
        ("tools", jsontext.encode(read)),
    ]
    now = int(time.time() * 1000)
    facts = [("from", b"0"), ("pages", b"[" + jsontext.build(entry) + b"]"), ("ttlMs", b"%d" % ttl_ms)]
    catalog.publish_request()
    catalog.published(jsontext.build([*facts, ("listedAt", b"%d" % now)]), now)
    return catalog


class Stocked:
    """Catalogs that are there already, and what was asked of them."""

    def __init__(self, **catalogs: Catalog) -> None:
        self.catalogs = {name.replace("__", "/"): catalog for name, catalog in catalogs.items()}
        self.asked: list[str] = []
        self.fault: Exception | None = None
        self.refreshes: list[Any] = []

    async def read(self, tenant: str, server_id: str) -> Catalog | None:
        self.asked.append(f"read {tenant}/{server_id}")
        if self.fault is not None and server_id == "b":
            raise self.fault
        return self.catalogs.get(f"{tenant}/{server_id}")

    async def fresh(self, tenant: str, server_id: str, *, now: float) -> Catalog | None:
        assert abs(now - time.time()) < 5
        return await self.read(tenant, server_id)

    async def refresh(self, tenant: str, server_id: str, *, within: float, force: bool = False) -> bool:
        assert 0 < within <= host.catalog.WAIT
        self.asked.append(f"refresh {tenant}/{server_id} {force}")
        for act in self.refreshes:
            act()
        return True


SERVERS = {
    "a": {"url": "https://a.example", "tenants": ["acme"]},
    "a-b": {"url": "https://ab.example"},
    "a.b": {"url": "https://a-b.example"},
    "b": {"url": "https://b.example", "tenants": ["*"]},
}


def tools_of(
    stocked: Stocked, servers: dict[str, Any] | None = None, workflows: Workflows | None = None
) -> ToolCatalog:
    settings = Settings.model_validate({"servers": SERVERS if servers is None else servers})
    return ToolCatalog(settings, workflows or Workflows(()), cast("Catalogs", stocked))


async def ids(tools: ToolCatalog, source: str | None = "mcp", tenant: str = "acme", **asked: Any) -> list[str]:
    listed = await tools.listed(tenant, "standard", source, **asked)
    return [tool["toolId"] for tool in json.loads(b"".join(listed.parts))]


def a_catalog(*tools: bytes, server_id: str = "a", tenant: str = "acme") -> Catalog:
    return list_into(Catalog(tenant, server_id), *tools)


# --- shelves and lists


def test_a_shelf_has_each_descriptor_at_its_place_in_the_order_of_ids() -> None:
    shelf = Shelf.of({"m:b": b'{"b":1}', "m:a": b'{"aa":22}', "m:c": b"{}"})
    assert shelf.text == b'{"aa":22},{"b":1},{}'
    assert {identity: shelf.get(identity) for identity in shelf.places} == {
        "m:a": b'{"aa":22}',
        "m:b": b'{"b":1}',
        "m:c": b"{}",
    }
    assert shelf.get("m:d") is None


@pytest.mark.parametrize(("view", "empty"), [("standard", b"[]"), ("compact", b'{"tools":[]}')])
def test_a_list_is_whole_json_however_many_shelves_have_something(view: Any, empty: bytes) -> None:
    one, other = Shelf.of({"m:b": b'{"b":1}'}), Shelf.of({"m:a": b'{"a":1}'})
    assert b"".join(ToolList([], view).parts) == b"".join(ToolList([EMPTY], view).parts) == empty
    head, tail = empty[:-1].partition(b"]")[0], empty[len(empty.partition(b"]")[0]) :]
    assert b"".join(ToolList([one, EMPTY, other], view).parts) == head + b'{"a":1},{"b":1}' + tail


def test_the_etag_of_a_list_follows_its_text_and_nothing_else() -> None:
    one, other = Shelf.of({"m:b": b'{"b":1}'}), Shelf.of({"m:a": b'{"a":1}'})
    etag = ToolList([one, other], "standard").etag
    assert ToolList([other, EMPTY, Shelf.of({"m:b": b'{"b":1}'})], "standard").etag == etag
    assert len({etag, ToolList([one, other], "compact").etag, ToolList([one], "standard").etag}) == 3
    assert ToolList([Shelf.of({"m:b": b'{"b":2}'}), other], "standard").etag != etag


# --- what stands there


async def test_servers_whose_ids_begin_alike_stand_in_the_order_of_their_tools_ids() -> None:
    stocked = Stocked(
        **{
            f"acme__{server_id}": a_catalog(a_tool("z"), a_tool("-"), a_tool(" "), server_id=server_id)
            for server_id in SERVERS
        }
    )
    tools = tools_of(stocked)
    found = await ids(tools)
    assert len(found) == 12
    assert found == sorted(found)
    for identity in found:
        descriptor = await tools.find("acme", identity, "standard")
        assert descriptor is not None
        assert json.loads(descriptor)["toolId"] == identity


async def test_a_server_that_does_not_admit_the_tenant_is_not_even_asked() -> None:
    stocked = Stocked(acme__a=a_catalog(a_tool("x")), umbrella__a=a_catalog(a_tool("x"), tenant="umbrella"))
    tools = tools_of(stocked)
    assert await ids(tools) == ["mcp:a.x"]
    stocked.asked.clear()
    assert await ids(tools, tenant="umbrella") == []
    assert await tools.find("umbrella", "mcp:a.x", "standard") is None
    assert await tools.find("umbrella", "mcp:nobody.x", "standard") is None
    assert not [asked for asked in stocked.asked if asked.endswith(("/a", "/nobody"))]


async def test_only_tools_that_can_be_called_stand_there() -> None:
    stocked = Stocked(acme__a=a_catalog(a_tool("ok"), b'{"name":"bad"}', b"7", a_tool("two"), a_tool("two", title="2")))
    tools = tools_of(stocked)
    assert await ids(tools) == ["mcp:a.ok"]
    for name in ("bad", "two"):
        assert await tools.find("acme", f"mcp:a.{name}", "compact") is None


async def test_a_tool_that_drifted_shows_unclassified_or_not_at_all_where_it_is_in_quarantine() -> None:
    catalog = list_into(a_catalog(a_tool("x"), a_tool("y")), a_tool("x", title="X"), a_tool("y", title="Y"))
    said = {"*": {"safety_tier": "read"}, "y": {"quarantine": True}}
    tools = tools_of(Stocked(acme__a=catalog), {"a": {"url": "https://a.example", "tools": said}})
    assert await ids(tools) == ["mcp:a.x"]
    assert json.loads((await tools.find("acme", "mcp:a.x", "standard")) or b"")["safetyTier"] == "write"


async def test_workflows_that_cannot_be_run_are_no_tools(tmp_path: Path) -> None:
    for name, kind in (("runs", "core.noop"), ("needs", "vendor.teleport")):
        text = json.dumps({**workflow([node("a", kind)]), "id": name})
        (tmp_path / f"{name}.json").write_text(text, encoding="utf-8")
    tools = tools_of(Stocked(), workflows=Workflows.read(Host(workflows=(str(tmp_path),))))
    assert await ids(tools, "workflow") == ["workflow:runs"]
    assert await tools.find("acme", "workflow:runs", "standard") is not None
    assert await tools.find("acme", "workflow:needs", "standard") is None


async def test_a_workflow_that_calls_a_server_of_others_is_no_tool_of_the_tenant(tmp_path: Path) -> None:
    for name in ("a", "b", "elsewhere"):
        calls = node("call", config={"serverId": name, "name": "echo"})
        (tmp_path / f"{name}.json").write_text(json.dumps({**workflow([calls]), "id": name}), encoding="utf-8")
    tools = tools_of(Stocked(), workflows=Workflows.read(Host(workflows=(str(tmp_path),))))
    # What no server of the settings is may be one of a worker's.
    assert await ids(tools, "workflow") == ["workflow:a", "workflow:b", "workflow:elsewhere"]
    assert await ids(tools, "workflow", "umbrella") == ["workflow:b", "workflow:elsewhere"]
    assert await tools.find("umbrella", "workflow:a", "standard") is None


async def test_names_and_definitions_of_any_kind_make_json() -> None:
    nasty = [
        b'{"name":"\\ud800","inputSchema":{"type":"object"},"title":"\\udfff","description":"\\u0000\\u2028"}',
        b'{"name":"a\\u0000b","inputSchema":{"a":1,"a":2},"outputSchema":[],"annotations":7}',
        b'{"name":"deep","inputSchema":{"properties":' + b'{"a":' * 60 + b"{}" + b"}" * 60 + b"}}",
        b'{"name":"twice","name":"once","inputSchema":{},"title":7,"annotations":{"title":"\\u202e"}}',
        b'{"name":"loop","inputSchema":{"type":"object","$defs":{"x":{"$ref":"#/$defs/x"}},"$ref":"#/$defs/x"}}',
    ]
    tools = tools_of(Stocked(acme__a=a_catalog(*nasty)))
    for view in ("standard", "compact"):
        listed = json.loads(b"".join((await tools.listed("acme", cast("Any", view), "mcp")).parts))
        listed = listed["tools"] if view == "compact" else listed
        assert len(listed) == len({tool["toolId"] for tool in listed}) == len(nasty)


# --- what is derived


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tools of servers that were described."""
    names: list[str] = []
    describe = host.catalog.mcp_descriptor

    def counted(server_id: str, server: Any, definition: bytes, policy: Any) -> bytes:
        names.append(json.loads(definition)["name"])
        return describe(server_id, server, definition, policy)

    monkeypatch.setattr(host.catalog, "mcp_descriptor", counted)
    return names


async def test_a_list_is_derived_once_for_all_who_ask_and_again_when_the_catalog_changes(derived: list[str]) -> None:
    catalog = a_catalog(a_tool("x"), a_tool("y"))
    tools = tools_of(Stocked(acme__a=catalog))
    await asyncio.gather(*(ids(tools) for _ in range(10)))
    assert sorted(derived) == ["x", "y"]
    list_into(catalog, a_tool("x"), a_tool("y"))
    catalog.failed("upstream_unavailable", "it is away", 1)
    await ids(tools)
    assert sorted(derived) == ["x", "y"]
    list_into(catalog, a_tool("x"))
    assert await ids(tools) == ["mcp:a.x"]
    assert sorted(derived) == ["x", "x", "y"]


async def test_a_catalog_that_begins_anew_is_not_taken_for_the_one_before() -> None:
    stocked = Stocked(acme__a=a_catalog(a_tool("x")))
    tools = tools_of(stocked)
    assert await ids(tools) == ["mcp:a.x"]
    before, stocked.catalogs["acme/a"] = stocked.catalogs["acme/a"], a_catalog(a_tool("y"))
    assert before.version == stocked.catalogs["acme/a"].version
    assert await ids(tools) == ["mcp:a.y"]


async def test_nothing_is_kept_of_a_catalog_that_nobody_keeps() -> None:
    stocked = Stocked(acme__a=a_catalog(a_tool("x")))
    tools = tools_of(stocked)
    await ids(tools)
    gone = weakref.ref(stocked.catalogs.pop("acme/a"))
    gc.collect()
    assert gone() is None
    assert len(tools._derived) == 0


# --- how new it is


async def test_servers_are_asked_anew_once_a_second_and_not_without_being_told_to() -> None:
    old = a_catalog(a_tool("x"))
    assert old.listed_at is not None
    old.listed_at -= 1500
    stocked = Stocked(acme__a=old)
    stocked.refreshes = [lambda: list_into(old, a_tool("y"))]
    tools = tools_of(stocked, {"a": SERVERS["a"]})
    assert await ids(tools) == ["mcp:a.x"]
    assert not [asked for asked in stocked.asked if asked.startswith("refresh")]
    began = time.monotonic()
    for _ in range(2):
        assert await ids(tools, anew=True) == ["mcp:a.y"]
    assert [asked for asked in stocked.asked if asked.startswith("refresh")] == ["refresh acme/a True"] * 2
    # Another clock, and whole milliseconds of it, say when the server was asked.
    assert time.monotonic() - began > 0.95 * FORCED_EVERY_MS / 1000


async def test_a_server_that_has_just_failed_is_asked_anew_a_second_later_and_one_without_a_catalog_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(host.catalog, "time", SimpleNamespace(time=lambda: now))
    failing = a_catalog(a_tool("x"))
    failing.listed_at = 0
    failing.failed("upstream_unavailable", "it is away", int(now * 1000) - 100)
    stocked = Stocked(acme__a=failing)
    tools = tools_of(stocked, {name: SERVERS[name] for name in ("a", "b")})
    assert await ids(tools, anew=True) == ["mcp:a.x"]
    assert [asked for asked in stocked.asked if asked.startswith("refresh")] == [
        "refresh acme/b True",
        "refresh acme/a True",
    ]


async def test_a_list_whose_time_is_yet_to_come_is_asked_for_anew() -> None:
    ahead = a_catalog(a_tool("x"))
    assert ahead.listed_at is not None
    ahead.listed_at += 60_000
    stocked = Stocked(acme__a=ahead)
    await ids(tools_of(stocked, {"a": SERVERS["a"]}), anew=True)
    assert [asked for asked in stocked.asked if asked.startswith("refresh")] == ["refresh acme/a True"]


async def test_a_value_that_is_gone_from_storage_keeps_nobody_from_other_tools(caplog: Any) -> None:
    stocked = Stocked(acme__a=a_catalog(a_tool("x")))
    stocked.fault = StorageError("the value sha256:0 is gone")
    tools = tools_of(stocked)
    assert await ids(tools) == ["mcp:a.x"]
    assert "the tools of server 'b' are left out of a list: the value sha256:0 is gone" in caplog.text
    with pytest.raises(StorageError):
        await tools.find("acme", "mcp:b.x", "standard")
