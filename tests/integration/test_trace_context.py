"""The trace that a workflow belongs to goes on at the MCP server."""

from __future__ import annotations

import re

from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from temporalio.client import Client
from temporalio.contrib.opentelemetry import TracingInterceptor

from tests.support.fake_server import FakeServer, modern
from tests.support.graphs import node, workflow
from tests.support.mcp_client import ARGUMENTS, connected
from tests.support.pack import SERVER, pack_worker, settings_for

TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-0[0-9a-f]")


async def test_a_runs_trace_goes_on_at_the_server_with_a_span_for_each_call(client: Client) -> None:
    tracer = TracerProvider().get_tracer("tests")
    traced = Client(client.service_client, interceptors=[TracingInterceptor(tracer)])
    async with FakeServer(modern()) as server, pack_worker(traced, settings_for(server.url)) as pack:
        with tracer.start_as_current_span("who asked") as span:
            call = {"serverId": SERVER, "name": "t"}
            await pack.run(workflow([node("a", config=call), node("b", config=call)]))
        met = [TRACEPARENT.fullmatch(one.json["params"]["_meta"]["traceparent"]) for one in server.requests]
    wanted = trace.format_trace_id(span.get_span_context().trace_id)
    assert [one and one[1] for one in met] == [wanted, wanted]
    assert len({one and one[2] for one in met}) == 2


async def test_baggage_goes_on_too() -> None:
    token = context.attach(baggage.set_baggage("team", "weather"))
    try:
        async with connected(modern()) as (caller, server):
            await caller.call_tool("t", ARGUMENTS)
            meta = server.requests[0].json["params"]["_meta"]
    finally:
        context.detach(token)
    assert meta["baggage"] == "team=weather"


async def test_without_a_trace_nothing_is_said_of_one() -> None:
    async with connected(modern()) as (caller, server):
        await caller.call_tool("t", ARGUMENTS)
        meta = server.requests[0].json["params"]["_meta"]
    assert not {"traceparent", "tracestate", "baggage"} & meta.keys()
