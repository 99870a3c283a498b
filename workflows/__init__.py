"""Temporal workflows of the pack. Know the library, and no activity's code."""

from .catalog import CatalogWorkflow
from .effect import EffectWorkflow
from .run import RunWorkflow

__all__ = ("CatalogWorkflow", "EffectWorkflow", "RunWorkflow")
