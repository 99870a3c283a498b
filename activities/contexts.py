"""Workflows that are not asked for whom a payload is, where no converter makes use of the answer.

Temporal's SDK asks them several times about each payload, and a workflow in a sandbox is entered for every answer: a
sixth of the CPU of a call from there. Knows nothing of what converters do to payloads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from temporalio.converter import CompositePayloadConverter, DataConverter, PayloadConverter, WithSerializationContext
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

if TYPE_CHECKING:
    from temporalio.converter import SerializationContext

__all__ = ("context_free", "takes_context")


def takes_context(converter: DataConverter) -> bool:
    """Whether something in a data converter may treat payloads of one workflow or activity unlike those of another."""
    parts = (converter.payload_codec, converter.failure_converter, converter.external_storage)
    return _payloads_do(converter.payload_converter_class()) or any(
        isinstance(part, WithSerializationContext) for part in parts
    )


def _payloads_do(converter: PayloadConverter) -> bool:
    if not isinstance(converter, CompositePayloadConverter):
        return isinstance(converter, WithSerializationContext)
    kind = type(converter)
    own = (kind.with_context, kind.get_converters_with_context)
    # As it comes it hands the context to its parts. What one of an author's own does is not known.
    if own != (CompositePayloadConverter.with_context, CompositePayloadConverter.get_converters_with_context):
        return True
    return any(isinstance(part, WithSerializationContext) for part in converter.converters.values())


def context_free(runner: WorkflowRunner, converter: DataConverter) -> WorkflowRunner:
    """The runner, or one that does the same at less cost where contexts make no difference.

    Args:
        runner: That of a worker. One of an author's own stays what it is.
        converter: That of the worker's client.
    """
    if takes_context(converter):
        return runner
    if type(runner) is SandboxedWorkflowRunner:
        return _Sandboxed(runner.restrictions, runner.runner_class)
    return _Unsandboxed() if type(runner) is UnsandboxedWorkflowRunner else runner


class _Sandboxed(SandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _unasked(super().create_instance(det))


class _Unsandboxed(UnsandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _unasked(super().create_instance(det))


class _Unasked:
    """A workflow for which it is said that there is no context, which the SDK then sets nowhere."""

    # No subclass of the SDK's, so that whatever else a later SDK asks of a workflow reaches it.
    def __init__(self, workflow: WorkflowInstance) -> None:
        self._workflow = workflow

    def get_serialization_context(self, _: object) -> SerializationContext | None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workflow, name)


def _unasked(workflow: WorkflowInstance) -> WorkflowInstance:
    return cast("WorkflowInstance", _Unasked(workflow))
