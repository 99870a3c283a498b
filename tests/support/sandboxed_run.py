"""`RunWorkflow` as the sandbox would run it."""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import RawValue

from workflows.run import RunWorkflow


@workflow.defn(name="RunWorkflow")
class SandboxedRun(RunWorkflow):
    """The same workflow, defined without `sandboxed=False`."""

    @workflow.init
    def __init__(self, start: RawValue, inputs: RawValue) -> None:
        assert workflow.unsafe.in_sandbox()
        super().__init__(start, inputs)

    @workflow.run
    async def run(self, start: RawValue, inputs: RawValue) -> RawValue:
        return await super().run(start, inputs)
