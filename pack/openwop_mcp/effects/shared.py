"""Names under which an effect that several runs share stands in Temporal. They are persisted: never renamed."""

from __future__ import annotations

__all__ = ("EFFECT_WORKFLOW", "MEMO_CALLER", "MEMO_DIGEST", "PERFORM", "effect_queue", "effect_workflow_id")

EFFECT_WORKFLOW = "EffectWorkflow"
"""Type of the workflow that carries out one effect and keeps its outcome."""

PERFORM = "effect.callTool"
"""Type of the activity that makes the call."""

MEMO_DIGEST = "openwop-mcp.arguments-sha256"
"""The memo that holds the digest of the arguments: the same key with others is refused without reading history."""

MEMO_CALLER = "openwop-mcp.caller"
"""The memo that names the call which started the workflow: a call whose worker was lost knows its own again by it."""


def effect_workflow_id(effect_id: str, answers: int = 0) -> str:
    """Id of the effect's workflow, which is what makes the effect unique.

    Args:
        effect_id: The effect.
        answers: How many answers of people came before, to a doubt or to what the server asked: each is carried out by
            a workflow of its own, so that of two answers at once one is the first.
    """
    return f"effect:{effect_id}#{answers}" if answers else f"effect:{effect_id}"


def effect_queue(task_queue: str) -> str:
    """The queue of effects beside a task queue: who waits for an effect must not keep it from being carried out."""
    return f"{task_queue}-effects"
