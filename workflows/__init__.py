"""Temporal workflows of the pack. Know the library, and no activity's code."""

from .effect import EffectWorkflow
from .run import RunWorkflow

__all__ = ("EffectWorkflow", "RunWorkflow")
