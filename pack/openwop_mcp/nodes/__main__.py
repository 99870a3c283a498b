"""Write manifest and schemas into the pack: ``python -m openwop_mcp.nodes``, after a change of what they come from."""

from __future__ import annotations

from pathlib import Path

from openwop_mcp.catalog import shapes
from openwop_mcp.nodes import manifest

__all__ = ()


def _write(pack: Path) -> None:
    wanted = {**manifest.files(), **shapes.files()}
    schemas = pack / "schemas"
    schemas.mkdir(exist_ok=True)
    for stale in schemas.glob("*.schema.json"):
        if f"schemas/{stale.name}" not in wanted:
            stale.unlink()
    for path, text in wanted.items():
        (pack / path).write_bytes(text)


if __name__ == "__main__":
    _write(Path(__file__).parents[2])
