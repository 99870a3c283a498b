"""A Temporal of its own that is told more than the others of the process, which are left as they are."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from openwop_mcp import embedded
from openwop_mcp.embedded import EmbeddedTemporal, embedded_temporal

__all__ = ("tuned_temporal",)


@contextlib.asynccontextmanager
async def tuned_temporal(*values: str) -> AsyncIterator[EmbeddedTemporal]:
    """Run an embedded Temporal.

    Args:
        values: Of its dynamic configuration, as `key=value`, beside those that all have.
    """
    async with contextlib.AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(embedded, "DYNAMIC_CONFIG", (*embedded.DYNAMIC_CONFIG, *values))
            temporal = await stack.enter_async_context(embedded_temporal())
        yield temporal
