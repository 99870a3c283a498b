"""One Temporal for all integration tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from openwop_mcp.embedded import EmbeddedTemporal, embedded_temporal
from tests.support.tuned_temporal import tuned_temporal

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
    async with tuned_temporal(f"limit.historyCount.suggestContinueAsNew={SHORT_HISTORY}") as server:
        yield await Client.connect(server.address)
