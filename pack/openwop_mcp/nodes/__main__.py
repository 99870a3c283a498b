"""Write the manifest and the schemas into the pack: ``python -m openwop_mcp.nodes``, after a change of the registry."""

from __future__ import annotations

from pathlib import Path

from openwop_mcp.nodes.manifest import files

__all__ = ()


def _write(pack: Path) -> None:
    wanted = files()
    schemas = pack / "schemas"
    schemas.mkdir(exist_ok=True)
    for stale in schemas.glob("*.schema.json"):
        if f"schemas/{stale.name}" not in wanted:
            stale.unlink()
    for path, text in wanted.items():
        (pack / path).write_bytes(text)


if __name__ == "__main__":
    _write(Path(__file__).parents[2])
