"""What holds for all tests of catalogs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from openwop_mcp import catalogs
from tests.support.patience import PATIENCE


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Whoever reads a stale catalog waits for its list as long as a test does, and not two seconds."""
    # A context of its own: a test may undo its `monkeypatch`.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalogs, "FRESH_WITHIN", PATIENCE)
        yield
