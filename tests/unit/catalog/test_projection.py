"""A catalog read from its workflow's history: the very state that the workflow itself has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from openwop_mcp import failures, jsontext
from openwop_mcp.catalog.projection import CatalogProjector
from openwop_mcp.catalog.start import APPROVE, CLASSIFY, PUBLISH, REFRESH, CatalogStart, encode_pages
from openwop_mcp.catalog.state import Catalog
from openwop_mcp.failures import json_payload
from tests.support.catalog_pages import answer, page, tool

BROKEN = Failure(message="the server said no")
BROKEN.application_failure_info.type = "protocol_error"


class Workflow:
    """The catalog's workflow as Temporal would record it: one list after the other, driven from outside.

    ``told`` are facts for its next task, which begins some time after they came.
    """

    def __init__(self) -> None:
        self.catalog = Catalog("acme", "weather")
        self.events: list[HistoryEvent] = []
        self.before = 0
        self.told: list[Callable[[int], object]] = []
        self.scheduled: int | None = None
        self.now = 1_000
        self._start()
        self._list()

    @property
    def next_id(self) -> int:
        return len(self.events) - self.before + 1

    def record(self, kind: str, **attributes: Any) -> HistoryEvent:
        self.now += 1
        event = HistoryEvent(event_id=self.next_id, event_type=getattr(EventType, f"EVENT_TYPE_{kind.upper()}"))
        event.event_time.FromNanoseconds(self.now * 1_000_000 + 999_999)
        held = getattr(event, f"{kind}_event_attributes")
        held.SetInParent()
        for name, value in attributes.items():
            if isinstance(value, list):
                getattr(held, name).payloads.extend(value)
            elif isinstance(value, Failure):
                getattr(held, name).CopyFrom(value)
            else:
                setattr(held, name, value)
        self.events.append(event)
        return event

    def _start(self, *carried: Payload, state: bytes | None = None) -> None:
        start = CatalogStart("acme", "weather", 10.0, state).encode()
        self.record("workflow_execution_started", input=[json_payload(start), *carried])

    def task(self, *updates: tuple[str, bytes], fails: bool = False) -> None:
        """A task of the workflow takes up what it was told, updates first."""
        self.record("workflow_task_scheduled")
        if fails:
            self.record("workflow_task_started")
            self.record("workflow_task_failed")
        at, started = self.now + 1, self.next_id
        self.record("workflow_task_started")
        self.record("workflow_task_completed", started_event_id=started)
        for name, request in updates:
            event = self.record("workflow_execution_update_accepted")
            event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name = name
            arguments = event.workflow_execution_update_accepted_event_attributes.accepted_request.input.args
            arguments.payloads.append(json_payload(request))
            if name == CLASSIFY:
                self.catalog.classified(request, at)
            elif name == APPROVE:
                self.catalog.approved(request, at)
            self.record("workflow_execution_update_completed")
        told, self.told = self.told, []
        for fact in told:
            fact(at)
        if self.scheduled is None:
            self._list()

    def _list(self) -> None:
        self.catalog.publish_request()
        event = self.record("activity_task_scheduled")
        event.activity_task_scheduled_event_attributes.activity_type.name = PUBLISH
        self.scheduled = event.event_id

    def other(self) -> None:
        """Another activity runs, which is none of the catalog's."""
        event = self.record("activity_task_scheduled")
        event.activity_task_scheduled_event_attributes.activity_type.name = "mcp.listen"
        self.record("activity_task_failed", scheduled_event_id=event.event_id, failure=BROKEN)
        event = self.record("activity_task_scheduled")
        self.record("activity_task_completed", scheduled_event_id=event.event_id, result=[json_payload(b"{}")])

    def lists(self, *tools: Any, **facts: Any) -> None:
        """The list that is under way gets an answer."""
        given_ = answer([page(*tools)], listed_at=self.now, **facts)
        self.record("activity_task_completed", scheduled_event_id=self.scheduled, result=[json_payload(given_)])
        self.told.append(lambda at: self.catalog.published(given_, at))
        self.scheduled = None

    def fails(self, kind: str) -> None:
        """The list that is under way fails."""
        failure = BROKEN
        if kind == "activity_task_timed_out":
            failure = Failure(message="timed out")
            failure.timeout_failure_info.SetInParent()
        told = failures.read(failure)
        self.record(kind, scheduled_event_id=self.scheduled, failure=failure)
        self.told.append(lambda at: self.catalog.failed(told.code, told.message, at))
        self.scheduled = None

    def goes_on(self) -> None:
        """The workflow is continued as new. Its history begins with event 1 again."""
        state, pages = self.catalog.encode()
        self.before = len(self.events)
        self.catalog = Catalog.decode(state, pages)
        self.scheduled = None
        self._start(json_payload(encode_pages(pages)), state=state)
        self._list()

    def asked(self, name: str) -> bytes:
        found = self.catalog.standing(name)
        tools = [{"name": name, "fingerprint": found.fingerprint if found is not None else ""}]
        return jsontext.encode({"tools": tools, "by": "ann", "why": "", "safetyTier": "read"})


STEPS = st.one_of(
    st.tuples(st.just("lists"), st.lists(st.sampled_from([tool("a"), tool("a", title="b"), tool("c")]), max_size=2)),
    st.tuples(st.just("batch"), st.just([tool("d")])),
    st.tuples(st.just("fails"), st.sampled_from(["activity_task_failed", "activity_task_timed_out"])),
    st.tuples(st.just("update"), st.sampled_from([CLASSIFY, APPROVE, REFRESH])),
    st.tuples(st.just("late"), st.sampled_from([CLASSIFY, APPROVE])),
    st.tuples(st.sampled_from(["other", "goes_on"]), st.none()),
)


def _step(workflow: Workflow, step: str, given_: Any, *, fails: bool) -> None:
    updates: list[tuple[str, bytes]] = []
    if step in {"update", "late"} and workflow.catalog.refuses(APPROVE, workflow.asked("a")) is None:
        updates = [(given_, workflow.asked("a"))]
    if step == "lists":
        workflow.lists(*given_)
    elif step == "batch":
        workflow.lists(*given_, more="next")
    elif step == "fails":
        workflow.fails(given_)
    elif step == "late":
        # A list that changes the tool came before the update, and waits for the same task.
        workflow.lists(tool("a", title="z"))
    elif step == "other":
        workflow.other()
    elif step == "goes_on":
        workflow.goes_on()
    workflow.task(*updates, fails=fails)


def _shown(catalog: Catalog) -> Any:
    return (catalog.encode(), catalog.is_gathering, catalog.failure, dict(catalog._standings))


@given(st.lists(st.tuples(STEPS, st.booleans()), max_size=10))
def test_a_reader_has_the_state_of_the_workflow_at_every_moment(steps: list[Any]) -> None:
    workflow, projector, read = Workflow(), CatalogProjector("acme", "weather"), 0
    for (step, given_), fails in [(("other", None), False), *steps]:
        _step(workflow, step, given_, fails=fails)
        for event in workflow.events[read:]:
            projector.take(event)
        read = len(workflow.events)
        assert _shown(projector.catalog) == _shown(workflow.catalog)


@given(st.lists(st.tuples(STEPS, st.booleans()), max_size=10))
def test_it_does_not_matter_in_how_many_pieces_the_history_is_read(steps: list[Any]) -> None:
    workflow, projector = Workflow(), CatalogProjector("acme", "weather")
    for (step, given_), fails in steps:
        _step(workflow, step, given_, fails=fails)
    for event in workflow.events:
        projector.take(event)
    assert _shown(projector.catalog) == _shown(workflow.catalog)


def test_an_approval_counts_before_a_list_that_came_with_it() -> None:
    workflow, projector = Workflow(), CatalogProjector("acme", "weather")
    for definition in (tool("a"), tool("a", title="b")):
        workflow.lists(definition)
        workflow.task()
    workflow.lists(tool("a", title="c"))
    workflow.task((APPROVE, workflow.asked("a")))
    for event in workflow.events:
        projector.take(event)
    assert projector.catalog.standing("a").drifted
    assert projector.catalog.tool("a").accepted_definition == jsontext.encode(tool("a", title="b"))


def test_an_update_that_was_given_again_after_a_reset_is_read_where_it_stands() -> None:
    workflow, projector = Workflow(), CatalogProjector("acme", "weather")
    workflow.lists(tool("a"))
    workflow.task()
    admitted = workflow.record("workflow_execution_update_admitted")
    asked = admitted.workflow_execution_update_admitted_event_attributes.request.input
    asked.name = CLASSIFY
    asked.args.payloads.append(json_payload(workflow.asked("a")))
    workflow.task()
    workflow.record("workflow_task_started")
    workflow.record("workflow_task_completed", started_event_id=workflow.next_id - 1)
    workflow.record("workflow_execution_update_accepted", accepted_request_sequencing_event_id=admitted.event_id)
    for event in workflow.events:
        projector.take(event)
    assert projector.catalog.standing("a").classification.by == "ann"


def test_what_the_workflow_has_not_taken_up_does_not_count_yet() -> None:
    workflow, projector = Workflow(), CatalogProjector("acme", "weather")
    workflow.lists(tool("a"))
    for event in workflow.events:
        projector.take(event)
    assert projector.catalog.listed_at is None
    workflow.task()
    for event in workflow.events[-4:]:
        projector.take(event)
    assert projector.catalog.names() == ("a",)
