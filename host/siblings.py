"""The sibling package of workflows: ``workflows`` in the checkout, ``openwop_mcp.workflows`` in the wheel.

The one place of the host that knows of the two; everything else takes the modules from here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ("client", "definitions", "packages", "records")

if TYPE_CHECKING:
    import workflows as packages
    from workflows import client, definitions, records
else:
    parent = __package__.rpartition(".")[0]
    name = f"{parent}.workflows" if parent else "workflows"
    packages = import_module(name)
    client = import_module(f"{name}.client")
    definitions = import_module(f"{name}.definitions")
    records = import_module(f"{name}.records")
