"""OpenTelemetry's variables: off unless one names something, and a fault is told by its variable and never repeated."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import process
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
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"http://a {SECRET}/v1/metrics"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{SECRET}%20"),
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
        ("OTEL_BSP_SCHEDULE_DELAY", "9" * 5000),
        ("OTEL_METRIC_EXPORT_INTERVAL", "2147483648"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1e300"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9999999"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "511"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", SECRET),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "-1"),
        ("OTEL_SPAN_EVENT_COUNT_LIMIT", "9" * 30),
        ("OTEL_METRICS_EXEMPLAR_FILTER", SECRET),
        ("OTEL_METRICS_EXEMPLAR_FILTER", ""),
        ("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION", SECRET),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", SECRET),
        ("OTEL_SDK_DISABLED", SECRET),
        ("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED", SECRET),
    ],
)
def test_a_fault_is_told_by_its_variable_with_what_to_write_and_without_its_value(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", name: value})
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{name}: ")
    assert "write " in line
    assert SECRET not in line


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2048"},
        {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096", "OTEL_BSP_MAX_QUEUE_SIZE": "4096"},
        {"OTEL_SPAN_LINK_COUNT_LIMIT": "0", "OTEL_ATTRIBUTE_COUNT_LIMIT": ""},
        {"OTEL_METRICS_EXEMPLAR_FILTER": "always_off", "OTEL_SDK_DISABLED": "False"},
    ],
)
def test_what_the_sdk_takes_is_no_fault(environ: dict[str, str]) -> None:
    assert read({"OTEL_TRACES_EXPORTER": "console", **environ})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_TRACES_SAMPLER": "x", "OTEL_METRICS_EXPORTER": "x"})
    assert len(str(caught.value).splitlines()) == 3


def test_a_variable_that_nothing_reads_is_no_fault() -> None:
    assert read({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_HEADERS": "odd"}) == Plan()
    assert read({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "console"}).traces == {"console"}


@pytest.mark.parametrize("what", ["CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE"])
def test_a_file_that_cannot_be_read_is_told_by_its_variable_where_it_would_be_read(what: str, tmp_path: Path) -> None:
    there, lost = tmp_path / "there.pem", tmp_path / SECRET
    there.touch()
    common, own = f"OTEL_EXPORTER_OTLP_{what}", f"OTEL_EXPORTER_OTLP_TRACES_{what}"
    for name, environ in (
        (common, {common: str(lost), "OTEL_METRICS_EXPORTER": "otlp"}),
        (own, {own: str(lost), common: str(there)}),
    ):
        with pytest.raises(SettingsError) as caught:
            plan_of({"OTEL_TRACES_EXPORTER": "otlp", **environ})
        assert str(caught.value) == f"{name}: write the path of a file that can be read"
    assert plan_of({"OTEL_TRACES_EXPORTER": "otlp", own: str(there), common: str(lost)})
    assert plan_of({"OTEL_TRACES_EXPORTER": "console", common: str(lost)})


CREDENTIALS = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER"
OF_TRACES, OF_METRICS = (f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{one}_CREDENTIAL_PROVIDER" for one in ("TRACES", "METRICS"))
TRACER = "OTEL_PYTHON_TRACER_PROVIDER"


@pytest.mark.parametrize(
    ("name", "environ"),
    [
        (CREDENTIALS, {"OTEL_TRACES_EXPORTER": "otlp", CREDENTIALS: SECRET, OF_TRACES: "any"}),
        (OF_TRACES, {"OTEL_TRACES_EXPORTER": "otlp", CREDENTIALS: "", OF_TRACES: SECRET}),
        (OF_METRICS, {"OTEL_METRICS_EXPORTER": "otlp", OF_METRICS: " "}),
        (TRACER, {TRACER: SECRET}),
        (TRACER, {TRACER: "", "OTEL_SDK_DISABLED": "true"}),
        (TRACER, {TRACER: SECRET, "OTEL_METRICS_EXPORTER": "console"}),
    ],
)
def test_what_opentelemetry_would_load_and_is_not_installed_is_told_by_its_variable(
    name: str, environ: dict[str, str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        plan_of(environ)
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"{name}: write the name of an entry point")
    assert SECRET not in line


def test_what_opentelemetry_loads_is_no_fault_where_it_is_installed_or_nobody_asks_for_it() -> None:
    assert plan_of({TRACER: "sdk_tracer_provider", "OTEL_TRACES_EXPORTER": "otlp", OF_METRICS: SECRET})
    assert plan_of({CREDENTIALS: SECRET, "OTEL_TRACES_EXPORTER": "console"})


def test_what_was_to_run_is_closed_where_a_variable_has_a_fault_that_only_the_sdk_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never() -> None:
        pytest.fail("it ran")

    @contextlib.contextmanager
    def refuse(plan: Plan) -> Iterator[None]:
        if plan is not None:
            raise ValueError
        yield

    monkeypatch.setattr(process, "exporting", refuse)
    main = never()
    with pytest.raises(ValueError, match=r"^$"):
        process.run_async(main)
    assert inspect.getcoroutinestate(main) == inspect.CORO_CLOSED


def test_a_package_that_is_missing_is_told_with_the_variable_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(SettingsError, match=r"^OTEL_TRACES_EXPORTER: .*openwop-mcp-pack\[otlp\]"):
        plan_of({"OTEL_TRACES_EXPORTER": "otlp"})
    assert plan_of({"OTEL_TRACES_EXPORTER": "console"})
