"""Updates as a workflow's history has them: what was asked of it, with each that it took. Knows none by its name."""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Request

__all__ = ("TakenUpdates",)


class TakenUpdates:
    """Finds what a history's accepted Updates had asked. After a reset, the Updates that came later stand apart."""

    def __init__(self) -> None:
        self._admitted: dict[int, Request] = {}

    def admit(self, event: HistoryEvent) -> None:
        """Take ``WorkflowExecutionUpdateAdmitted``: an Update of before a reset, which is given again."""
        self._admitted[event.event_id] = event.workflow_execution_update_admitted_event_attributes.request

    def accept(self, event: HistoryEvent) -> tuple[str, bytes]:
        """Take ``WorkflowExecutionUpdateAccepted``.

        Returns:
            The Update's name and the bytes of its one argument.
        """
        accepted = event.workflow_execution_update_accepted_event_attributes
        request = accepted.accepted_request
        if not request.HasField("input"):
            request = self._admitted[accepted.accepted_request_sequencing_event_id]
        return request.input.name, request.input.args.payloads[0].data
