"""The metrics: one table of their names, units and attributes, and the instruments that it makes.

Without a provider they measure nothing. What is measured is for others; gauges are told by whoever looks.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from openwop_mcp.telemetry import attributes as names

__all__ = (
    "ARGUMENTS",
    "CALLS",
    "CATALOG_AGE",
    "CIRCUIT",
    "HTTP_REQUESTS",
    "INSTRUMENTS",
    "IN_DOUBT",
    "IN_FLIGHT",
    "NAME",
    "OPERATIONS",
    "RESULTS",
    "VERSION",
    "WAITING",
    "Instrument",
    "counter",
    "gauge",
    "histogram",
)

NAME = "openwop_mcp"
"""The instrumentation scope of all that is ours."""

VERSION = importlib.metadata.version("openwop-mcp-pack")

MCP_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bounds for MCP's requests (semantic conventions for MCP, metrics)."""

HTTP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Bounds for HTTP's requests (semantic conventions for HTTP, metrics)."""

SIZES = tuple(4**power for power in range(3, 14))
"""Bounds for bytes: from 64 to the 64 MiB that a result may have."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric.

    Attributes:
        name: Its name.
        kind: How it is measured.
        unit: UCUM.
        description: What it tells.
        attributes: By what it is told apart.
        bounds: Of a histogram, between its buckets.
    """

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    description: str
    attributes: Sequence[str]
    bounds: Sequence[float] = ()


OPERATIONS = Instrument(
    "mcp.client.operation.duration",
    "histogram",
    "s",
    "Time from sending a request to an MCP server to its answer",
    (
        names.METHOD,
        names.SERVER_ID,
        names.TOOL,
        names.OPERATION,
        names.REVISION,
        names.SERVER_ADDRESS,
        names.SERVER_PORT,
        names.NETWORK_PROTOCOL,
        names.NETWORK_TRANSPORT,
        names.ERROR_TYPE,
        names.RPC_STATUS,
    ),
    MCP_SECONDS,
)
CALLS = Instrument(
    "openwop_mcp.calls",
    "counter",
    "{call}",
    "Attempts of calls that workflows made, by what came of them",
    (names.SERVER_ID, names.METHOD, names.TOOL, names.OUTCOME, names.DELIVERY, names.ERROR_TYPE),
)
IN_DOUBT = Instrument(
    "openwop_mcp.calls.in_doubt",
    "counter",
    "{call}",
    "Attempts after which nobody knows whether the effect happened, those of lost workers included",
    (names.SERVER_ID, names.TOOL),
)
ARGUMENTS = Instrument(
    "openwop_mcp.arguments.size",
    "histogram",
    "By",
    "Size of the arguments of calls",
    (names.SERVER_ID, names.METHOD, names.TOOL),
    SIZES,
)
RESULTS = Instrument(
    "openwop_mcp.result.size",
    "histogram",
    "By",
    "Size of the results that were recorded",
    (names.SERVER_ID, names.METHOD, names.TOOL),
    SIZES,
)
IN_FLIGHT = Instrument(
    "openwop_mcp.calls.in_flight",
    "gauge",
    "{call}",
    "Calls of a server that are under way in a worker",
    (names.SERVER_ID,),
)
CIRCUIT = Instrument(
    "openwop_mcp.circuit.open",
    "gauge",
    "1",
    "1 while a worker leaves a server alone that could not be reached, and 0 while it does not",
    (names.SERVER_ID,),
)
WAITING = Instrument(
    "openwop_mcp.interrupts.waiting",
    "gauge",
    "{interrupt}",
    "Questions and approvals that wait for a person, in the whole namespace: take the largest of what workers tell",
    (),
)
CATALOG_AGE = Instrument(
    "openwop_mcp.catalog.age",
    "gauge",
    "s",
    "Time since a server's tools were listed last; of several tenants' the longest",
    (names.SERVER_ID,),
)
HTTP_REQUESTS = Instrument(
    "http.server.request.duration",
    "histogram",
    "s",
    "Time from a request to the host to the end of its answer",
    (names.HTTP_METHOD, names.HTTP_ROUTE, names.HTTP_STATUS, names.SCHEME, names.ERROR_TYPE),
    HTTP_SECONDS,
)

INSTRUMENTS = (OPERATIONS, CALLS, IN_DOUBT, ARGUMENTS, RESULTS, IN_FLIGHT, CIRCUIT, WAITING, CATALOG_AGE, HTTP_REQUESTS)
"""All of them, in the order of the documentation."""

_meter = metrics.get_meter(NAME, VERSION)


def counter(one: Instrument) -> metrics.Counter:
    """Make a counter of the table."""
    return _meter.create_counter(one.name, one.unit, one.description)


def histogram(one: Instrument) -> metrics.Histogram:
    """Make a histogram of the table."""
    return _meter.create_histogram(
        one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=list(one.bounds)
    )


def gauge(one: Instrument, observe: Callable[[], Iterable[Observation]]) -> metrics.ObservableGauge:
    """Make a gauge of the table, told by a function that must not wait."""

    def told(_: CallbackOptions) -> Iterable[Observation]:
        return observe()

    return _meter.create_observable_gauge(one.name, [told], one.unit, one.description)
