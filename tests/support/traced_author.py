"""A worker of an author's own, with the pack in it by the plugin, and traces and metrics as its author set them up."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import Worker

from activities import McpPlugin
from openwop_mcp import ctx
from openwop_mcp.config import load


@workflow.defn
class Authored:
    """Calls a tool."""

    @workflow.run
    async def run(self) -> Any:
        return (await ctx.mcp.call_tool("fake", "authored", {})).text


async def main() -> None:
    traces = TracerProvider()
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(traces)
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    metrics.set_meter_provider(meters)
    client = await Client.connect(sys.argv[1], interceptors=[TracingInterceptor()])
    plugin = McpPlugin(load(sys.argv[2], environ=os.environ))
    async with Worker(client, task_queue="authored", workflows=[Authored], plugins=[plugin]):
        await client.execute_workflow("Authored", id="authored-1", task_queue="authored")
    traces.shutdown()
    meters.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)
