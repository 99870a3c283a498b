"""One Temporal for all integration tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from openwop_mcp import embedded
from openwop_mcp.embedded import EmbeddedTemporal, embedded_temporal

SHORT_HISTORY = 40
"""Events after which the second Temporal suggests a continue-as-new; the default of 4,096 takes seconds to reach."""


@pytest.fixture(scope="session")
async def temporal() -> AsyncIterator[EmbeddedTemporal]:
    async with embedded_temporal() as server:
        yield server


@pytest.fixture(scope="session")
async def client(temporal: EmbeddedTemporal) -> Client:
    return await Client.connect(temporal.address)


@pytest.fixture(scope="session")
async def short_client() -> AsyncIterator[Client]:
    """A client of a Temporal that suggests continue-as-new early."""
    with pytest.MonkeyPatch.context() as patch:
        suggestion = f"limit.historyCount.suggestContinueAsNew={SHORT_HISTORY}"
        patch.setattr(embedded, "DYNAMIC_CONFIG", (*embedded.DYNAMIC_CONFIG, suggestion))
        async with embedded_temporal() as server:
            yield await Client.connect(server.address)
