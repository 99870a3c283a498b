"""What no test of a case thought of: requests made up from the host's own OpenAPI document, by the thousand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from temporalio.client import Client

from host.ids import project
from host.links import Links
from host.serving import Offer
from host.tokens import Intent
from openwop_mcp.config import Host as HostSettings
from openwop_mcp.questions.question import interrupt_id, question_key
from openwop_mcp.runs.start import Options
from tests.support.fake_server import FakeServer, modern
from tests.support.fuzz import fuzz
from tests.support.pack import pack_worker, settings_for

KEY = "fuzz-key-0123456789"
TENANT = "fuzz"
"""Of no other test: a list of its runs has none whose large values are kept where this host does not look."""

LONGEST_RUN_MS = 2000
"""No stream lasts longer, also where its run was paused."""

WORKFLOWS = [
    "conformance-noop",
    "conformance-identity",
    "conformance-delay",
    "conformance-failure",
    "conformance-approval",
    "none",
]

TOOLS = [
    "mcp:fake.echo",
    "mcp:fake.none",
    "mcp:none.echo",
    "openwop:core.noop",
    "openwop:none",
    "workflow:conformance-noop",
    "workflow:none",
    "none",
]

BY_TOKEN = {"GET /interrupts/{token}", "POST /interrupts/{token}"}
"""Operations whose credential is in their path."""


@pytest.fixture(scope="module")
async def address(client: Client) -> AsyncIterator[str]:
    tables: dict[str, Any] = {
        "host": {"bind": "127.0.0.1:0", "fixtures": True, "key_rate": 1_000_000},
        "keys": [{"id": "fuzz", "secret": {"env": "KEY"}, "tenant": TENANT, "subject": "fuzz", "scopes": ["*"]}],
    }
    async with FakeServer(modern()) as server, pack_worker(client, settings_for(server.url, **tables)) as pack:
        assert pack.settings is not None
        offer = Offer.of(pack.settings, {"KEY": KEY}, source="test")
        async with offer.serving(client, Options(run_timeout_ms=LONGEST_RUN_MS)) as host:
            yield host.address


@pytest.fixture(scope="module")
async def document(address: str, client: Client) -> dict[str, Any]:
    """The host's document, in which ids are such that something is there."""
    async with httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {KEY}"}) as asking:
        told: dict[str, Any] = (await asking.get("/openapi.json")).json()
        created = [
            await asking.post("/runs", json={"workflowId": workflow_id, "inputs": {"payload": {}}})
            for workflow_id in WORKFLOWS[:-1]
        ]
    runs = [project(answer.json()["runId"]) for answer in created]
    links = Links(HostSettings(url=address), {}, client)
    waiting = created[WORKFLOWS.index("conformance-approval")].json()["runId"]
    asked = interrupt_id(TENANT, waiting, question_key("gate", "gate", 1))
    made = [
        await links.make(run_id=waiting, node_id="gate", interrupt_id=asked, intent=one) for one in get_args(Intent)
    ]
    tokens = [link.url.rpartition("/")[2] for link in made if link is not None]
    body = told["paths"]["/runs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    body["properties"]["workflowId"] = {"enum": WORKFLOWS}
    # The fuzzer takes it for the schema of each event, as OpenAPI 3.2 has it.
    del told["paths"]["/runs/{runId}/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
    for operations in told["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "runId":
                    parameter["schema"] = {"enum": [*runs, f"{TENANT}~2F{'0' * 16}", f"globex~2F{'0' * 16}"]}
                elif parameter["name"] == "nodeId":
                    parameter["schema"] = {"enum": ["gate", "none"]}
                elif parameter["name"] == "token":
                    parameter["schema"] = {"enum": [*tokens, tokens[0][:-1], "none"]}
                elif parameter["name"] == "toolId":
                    parameter["schema"] = {"enum": TOOLS}
                elif parameter["name"] == "workflowId" and parameter["in"] == "path":
                    parameter["schema"] = {"enum": WORKFLOWS}
    return told


async def test_whatever_is_asked_with_a_key_is_answered_as_the_document_says(
    address: str, document: dict[str, Any], tmp_path: Path
) -> None:
    fuzzed = await fuzz(address, document, tmp_path, headers={"Authorization": f"Bearer {KEY}"})
    assert not fuzzed.faults, "\n\n".join(fuzzed.faults[:5])
    # It went deep: each operation was also carried out, and refused for what it is refused for.
    assert fuzzed.statuses("POST /runs") >= {201, 400, 404, 409}
    assert fuzzed.statuses("GET /runs/{runId}") >= {200, 400, 403, 404}
    assert fuzzed.statuses("GET /runs/{runId}/events/poll") >= {200, 400, 403, 404}
    assert fuzzed.statuses("GET /runs/{runId}/events") >= {200, 400, 403, 404}
    assert fuzzed.statuses("POST /runs/{runId}:pause") >= {400, 403, 404, 409}
    assert fuzzed.statuses("POST /runs:bulk-cancel") >= {200, 400}
    assert fuzzed.statuses("GET /runs") >= {200, 400}
    assert fuzzed.statuses("POST /runs/{runId}/interrupts/{nodeId}") >= {400, 403, 404, 409}
    assert fuzzed.statuses("POST /interrupts/{token}") >= {400, 401, 403, 409}
    assert fuzzed.statuses("GET /interrupts/{token}") >= {401, 409}
    assert fuzzed.statuses("GET /tools") >= {200, 400}
    assert fuzzed.statuses("GET /tools/{toolId}") >= {200, 404}


async def test_whatever_is_asked_without_a_key_is_refused_as_the_document_says(
    address: str, document: dict[str, Any], tmp_path: Path
) -> None:
    fuzzed = await fuzz(address, document, tmp_path, phases={"stateful": {"enabled": False}})
    assert not fuzzed.faults, "\n\n".join(fuzzed.faults[:5])
    open_ones = {"GET /.well-known/openwop", "GET /openapi.json", *BY_TOKEN}
    for label in {label for label, _ in fuzzed.answers} - open_ones:
        assert fuzzed.statuses(label) <= {401, 404, 406}
