"""A collector that is away is told of now and then, in words that hold nothing of what it said."""

from __future__ import annotations

import logging

import pytest

from openwop_mcp.telemetry._quiet import EVERY, Hushed


def test_one_line_stands_for_all_complaints_of_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    def said() -> int:
        return sum(record.name == "openwop_mcp.telemetry" for record in caplog.records)

    handler = Hushed(lambda: now)
    record = logging.LogRecord("x", logging.ERROR, "", 0, "Failed: hush", None, None)
    for _ in range(100):
        handler.handle(record)
    assert said() == 1
    assert "hush" not in caplog.text
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in caplog.text
    now = EVERY
    handler.handle(record)
    assert said() == 2
