"""The trace in Temporal's headers, as Temporal's own interceptor writes and reads it there."""

from __future__ import annotations

from collections.abc import Mapping

import temporalio.api.common.v1
from opentelemetry.context import Context
from temporalio.converter import PayloadConverter

from openwop_mcp.catalog.start import CATALOG_WORKFLOW
from openwop_mcp.telemetry.propagation import PROPAGATOR

__all__ = ("HEADER", "LASTING", "Headers", "read", "written")

HEADER = "_tracer-data"

LASTING = frozenset({CATALOG_WORKFLOW})
"""Workflows that go on for years: what they do is not done for whoever happened to start them."""

Headers = Mapping[str, temporalio.api.common.v1.Payload]

_converter = PayloadConverter.default


def written(headers: Headers) -> Headers:
    """The headers with the current trace, if there is one."""
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier)
    return {**headers, HEADER: _converter.to_payload(carrier)} if carrier else headers


def read(headers: Headers) -> Context | None:
    """The trace that headers tell of; None where they tell of none."""
    found = headers.get(HEADER)
    # An empty context: what is current here is no part of it.
    return None if found is None else PROPAGATOR.extract(_converter.from_payload(found), Context())
