"""A workflow is told as stuck while its code fails the workflow task, and for no other reason."""

from __future__ import annotations

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from workflows.client import RecordedRun


def recorded(cause: str, *after: str) -> RecordedRun:
    """An author's workflow whose task failed, and the types of the events that came after it."""
    began = HistoryEvent(event_id=1, event_type=EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED)
    began.workflow_execution_started_event_attributes.workflow_type.name = "Author"
    failed = HistoryEvent(event_id=2, event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
    told = failed.workflow_task_failed_event_attributes
    told.cause = WorkflowTaskFailedCause.Value(f"WORKFLOW_TASK_FAILED_CAUSE_{cause}")
    told.failure.message = "no such page"
    told.failure.application_failure_info.type = "LookupError"
    rest = [
        HistoryEvent(event_id=number, event_type=EventType.Value(f"EVENT_TYPE_{kind}"))
        for number, kind in enumerate(after, 3)
    ]
    return RecordedRun("author-1", [WorkflowHistory("author-1", [began, failed, *rest])])


@pytest.mark.parametrize("cause", ["WORKFLOW_WORKER_UNHANDLED_FAILURE", "NON_DETERMINISTIC_ERROR"])
@pytest.mark.parametrize("after", [(), ("WORKFLOW_TASK_SCHEDULED", "WORKFLOW_TASK_STARTED")])
def test_what_its_code_raised_is_told_while_it_is_tried_again(cause, after):
    assert recorded(cause, *after).stuck == "LookupError: no such page"


@pytest.mark.parametrize("cause", ["RESET_WORKFLOW", "UNHANDLED_COMMAND"])
def test_a_reset_and_what_arrived_meanwhile_are_no_such_reason(cause):
    assert recorded(cause).stuck is None


@pytest.mark.parametrize(
    "after", ["WORKFLOW_TASK_COMPLETED", "WORKFLOW_TASK_TIMED_OUT", "WORKFLOW_EXECUTION_TERMINATED"]
)
def test_it_is_not_told_of_a_workflow_that_went_on_or_is_over(after):
    assert recorded("WORKFLOW_WORKER_UNHANDLED_FAILURE", after).stuck is None
