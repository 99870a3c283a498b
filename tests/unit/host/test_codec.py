"""The codec server: how much it takes into memory for one request."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from temporalio.common import RawValue

from host import codec
from openwop_mcp.config import Settings
from openwop_mcp.failures import json_payload
from openwop_mcp.storage import data_converter
from tests.support.hosts import Keys, asked, bearer

SIZE = 300_000
VALUES = [b'"%b"' % (letter * SIZE) for letter in (b"a", b"b", b"c")]


async def downloaded(folder: Path, values: Sequence[bytes]) -> tuple[int, Any]:
    """What is answered to who asks for large values at once."""
    settings = Settings.model_validate({"storage": {"folder": str(folder)}})
    converter = data_converter(settings)
    references = await converter.encode([RawValue(json_payload(value)) for value in values])
    assert all(len(one.data) < SIZE for one in references)
    async with asked(codec.codec_app(settings, Keys(), asyncio.Event())) as http:
        body = {"payloads": [MessageToDict(one) for one in references]}
        answer = await http.post("/download", json=body, headers=bearer("acme-all"))
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("most", "count"),
    [(3 * (SIZE + 2), 3), (2 * (SIZE + 2), 2), (1, 1)],
    ids=["all that are asked for", "as many as there is room for", "one that is larger by itself"],
)
async def test_large_values_are_downloaded_as_long_as_there_is_room_for_them_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, count: int
) -> None:
    monkeypatch.setattr(codec, "MAX_DOWNLOADS", most)
    status, told = await downloaded(tmp_path, VALUES[:count])
    assert status == 200
    assert [base64.b64decode(one["data"]) for one in told["payloads"]] == VALUES[:count]
    if count < len(VALUES):
        status, told = await downloaded(tmp_path, VALUES[: count + 1])
        assert (status, told["error"]) == (413, "payload_too_large")
        assert "ask for fewer at once" in told["message"]
