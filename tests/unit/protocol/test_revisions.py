"""Which revision is chosen."""

from __future__ import annotations

import pytest

from openwop_mcp.protocol.revisions import LEGACY, MODERN, choose


@pytest.mark.parametrize(
    ("offered", "floor", "chosen"),
    [
        ([MODERN], MODERN, MODERN),
        (["2025-06-18", MODERN, "2099-01-01"], "2025-03-26", MODERN),
        (["2025-03-26", "2025-11-25"], "2025-03-26", "2025-11-25"),
        (["2025-03-26", "2025-11-25"], MODERN, None),
        (["2025-03-26"], "2025-06-18", None),
        (["2099-01-01", "2024-11-05"], "2024-11-05", None),
        ([], MODERN, None),
    ],
)
def test_the_newest_common_revision_not_below_the_floor_is_chosen(
    offered: list[str], floor: str, chosen: str | None
) -> None:
    assert choose(offered, floor=floor) == chosen


def test_revisions_are_listed_newest_first() -> None:
    assert sorted((MODERN, *LEGACY), reverse=True) == [MODERN, *LEGACY]
