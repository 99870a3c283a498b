"""OpenTelemetry's variables: off unless one names something, and a fault is told by its variable and never repeated."""

from __future__ import annotations

import sys

import pytest

from openwop_mcp.config import SettingsError
from openwop_mcp.telemetry._environment import Plan, read
from openwop_mcp.telemetry.exporting import plan_of

SECRET = "hush"
OTLP = frozenset({"otlp"})
ENDPOINT = "http://collector:4318"


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "worker"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"},
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT,
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_METRICS_EXPORTER": "none",
        },
    ],
)
def test_nothing_is_sent_unless_an_exporter_or_an_endpoint_is_named(environ: dict[str, str]) -> None:
    assert not read(environ)


def test_an_endpoint_is_for_both_and_that_of_a_signal_for_it_alone() -> None:
    both = read({"OTEL_EXPORTER_OTLP_ENDPOINT": f"{ENDPOINT}/"})
    assert (both.traces, both.metrics, both.metrics_url) == (OTLP, OTLP, f"{ENDPOINT}/v1/metrics")
    one = read({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{ENDPOINT}/in"})
    assert (one.traces, one.metrics, one.metrics_url) == (frozenset(), OTLP, f"{ENDPOINT}/in")
    assert one.asked_by == "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"


def test_an_exporter_is_asked_for_by_name_and_several_at_once() -> None:
    plan = read({"OTEL_TRACES_EXPORTER": "console, OTLP", "OTEL_METRICS_EXPORTER": "console"})
    assert plan == Plan(
        frozenset({"console", "otlp"}),
        frozenset({"console"}),
        "OTEL_TRACES_EXPORTER",
        "http://localhost:4318/v1/metrics",
        {},
    )


def test_headers_are_those_of_the_signal_or_those_for_all() -> None:
    common = {"OTEL_EXPORTER_OTLP_ENDPOINT": ENDPOINT, "OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20x, a=b=c"}
    assert read(common).metrics_headers == {"authorization": "Bearer x", "a": "b=c"}
    assert read({**common, "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "k=v"}).metrics_headers == {"k": "v"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", SECRET),
        ("OTEL_METRICS_EXPORTER", f"otlp,{SECRET}"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", SECRET),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"ftp://{SECRET}"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"http://{SECRET}:99999"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", SECRET),
        ("OTEL_EXPORTER_OTLP_HEADERS", f"Bearer {SECRET}"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", SECRET),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", SECRET),
        ("OTEL_TRACES_SAMPLER", SECRET),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_RESOURCE_ATTRIBUTES", SECRET),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1.5"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ],
)
def test_a_fault_is_told_by_its_variable_with_what_to_write_and_without_its_value(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", name: value})
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{name}: ")
    assert "write " in line
    assert SECRET not in line


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_SAMPLER": "x", "OTEL_METRICS_EXPORTER": "x"})
    assert len(str(caught.value).splitlines()) == 3


def test_a_variable_that_nothing_reads_is_no_fault() -> None:
    assert read({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_HEADERS": "odd"}) == Plan()
    assert read({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "console"}).traces == {"console"}


def test_a_package_that_is_missing_is_told_with_the_variable_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(SettingsError, match=r"^OTEL_TRACES_EXPORTER: .*openwop-mcp-pack\[otlp\]"):
        plan_of({"OTEL_TRACES_EXPORTER": "otlp"})
    assert plan_of({"OTEL_TRACES_EXPORTER": "console"})
