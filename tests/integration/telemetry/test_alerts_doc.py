"""docs/operating.md: the metrics that its alerts ask for are there, under the names that Prometheus makes of them."""

from __future__ import annotations

import re

from openwop_mcp.telemetry.instruments import INSTRUMENTS
from tests.integration.telemetry.conftest import Watched
from tests.integration.telemetry.test_metrics import CALL, calling
from tests.support.documents import read

ROWS = re.findall(r"^\| `((?:openwop_mcp|temporal)[._][\w.]+)` \| `([^`]+)`", read("docs/operating.md"), re.MULTILINE)
"""Metric and alert of each row."""


def as_prometheus_has_it(name: str, unit: str, kind: str) -> str:
    """The name that Prometheus gives to a metric which comes by OTLP: with its unit, and what kind it is of."""
    of_unit = {"s": "_seconds", "1": "_ratio" if kind == "gauge" else ""}.get(unit, "")
    return name.replace(".", "_") + of_unit + {"counter": "_total", "histogram": "_bucket"}.get(kind, "")


def test_the_alerts_ask_for_metrics_of_the_table_by_the_names_that_prometheus_has() -> None:
    kinds = {one.name: one for one in INSTRUMENTS}
    own = [(kinds[name], alert) for name, alert in ROWS if name.startswith("openwop_mcp.")]
    assert len(own) == 4
    for one, alert in own:
        asked = set(re.findall(r"openwop_mcp_\w+", alert)) - {key.replace(".", "_") for key in one.attributes}
        assert asked == {as_prometheus_has_it(one.name, one.unit, one.kind)}


async def test_temporals_metrics_have_the_units_that_the_alerts_name(watched: Watched) -> None:
    await watched.host.ended(CALL, calling("counted"))
    name, alert = next(row for row in ROWS if row[0].endswith("_latency"))
    [*_, last] = await watched.collector.until(lambda heard: heard.points(name))
    assert as_prometheus_has_it(name, last.unit, "histogram") in alert
    assert "task_queue" in last.attributes
