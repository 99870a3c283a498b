"""Ten thousand tools of one server: listed in seconds, and what stays of it in history does not grow with the lists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from temporalio.client import Client

from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings
from openwop_mcp.storage import data_converter
from tests.support.catalogs import Kept, Shop, keeping, tool
from tests.support.pack import SERVER, settings_for

TOOLS = 10_000


SCHEMA = {"type": "object", "properties": {"q": {"type": "string", "description": "x" * 800}}}


class Warehouse(Shop):
    """A server that does not spell its pages anew for each who asks."""

    def page(self, cursor: str | None) -> bytes:
        start = int(cursor or 0)
        described = tuple(one["description"] for one in self.tools[start : start + self.page_size])
        if (kept := self._kept.get(start)) is None or kept[0] != described:
            kept = self._kept[start] = described, super().page(cursor)
        return kept[1]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._kept: dict[int, tuple[tuple[str, ...], bytes]] = {}


def _shop(**more: Any) -> Shop:
    return Warehouse([tool(f"tool-{n:05}", inputSchema=SCHEMA) for n in range(TOOLS)], **more)


def _stored(client: Client, settings: Settings) -> Client:
    config = client.config()
    config["data_converter"] = data_converter(settings)
    return Client(**config)


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _recorded(at: Kept) -> tuple[int, int]:
    """Events and bytes of the history, as Temporal counts them."""
    info = (await at.handle.describe()).raw_description.workflow_execution_info
    return info.history_length, info.history_size_bytes


async def test_ten_thousand_tools_are_listed_and_listed_again_in_bounded_histories(
    client: Client, tmp_path: Path
) -> None:
    storage = {"folder": str(tmp_path)}
    own = _stored(client, settings_for("http://127.0.0.1:1/mcp", storage=storage))
    async with keeping(own, _shop(), storage=storage) as at:
        catalog = await at.refresh()
        assert len(catalog.names()) == TOOLS
        events, size = await _recorded(at)
        assert size < 200_000
        before = _rss()
        for round_ in range(20):
            at.shop.tools[7] = tool("tool-00007", f"the {round_}th", inputSchema=SCHEMA)
            await at.refresh()
        more_events, more_bytes = await _recorded(at)
        assert more_events - events < 20 * 16
        assert more_bytes - size < 20 * 150_000
        assert _rss() - before < 64 * 1024**2
        other = await Catalogs(own, task_queue="any", heartbeat=2).read(at.tenant, SERVER)
        assert other is not None
        assert other.encode() == (await at.read()).encode()


async def test_without_storage_a_list_ends_where_history_is_full_and_goes_on_in_new_ones(short_client: Client) -> None:
    async with keeping(short_client, _shop(page_size=20)) as at:
        catalog = await at.refresh()
        assert "storage.driver" in (catalog.ended or "")
        assert 500 < len(catalog.names()) < 1_000
        for round_ in range(12):
            at.shop.tools[round_] = tool(f"other-{round_}", "x" * 900)
            await at.refresh()
        assert len(await at.histories()) > 1
        assert len((await at.read()).names()) > 500
