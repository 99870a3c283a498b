"""Temporal workflows of the pack. Know the library, and no activity's code."""

from .run import RunWorkflow

__all__ = ("RunWorkflow",)
