"""OpenTelemetry's environment variables: what is to be sent where, or what is wrong with them. Pure.

They are read here before OpenTelemetry's SDK does, which takes a fault for a reason to go on otherwise, and logs what
it did not understand: a header may hold a credential.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import unquote, urlsplit

from openwop_mcp.config import SettingsError
from openwop_mcp.redaction import KNOWN

__all__ = ("EXTRA", "Plan", "metrics_interval", "read")

Signal = Literal["TRACES", "METRICS"]
Target = Literal["otlp", "console"]

SIGNALS: tuple[Signal, ...] = ("TRACES", "METRICS")
TARGETS = frozenset({"otlp", "console", "none"})

DEFAULT_ENDPOINT = "http://localhost:4318"
"""Where collectors listen (OpenTelemetry, OTLP exporter configuration)."""

EVERY = 60_000
"""Milliseconds between two times that metrics are sent (OpenTelemetry, periodic exporting metric reader)."""

MOST = 2**31 - 1
"""What a number may be. Above it (24 days in milliseconds) the SDK's threads and queues fail in the midst of things."""

BATCH, QUEUE = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_MAX_QUEUE_SIZE"

SIZES = {BATCH: 512, QUEUE: 2048}
"""Spans that are sent at once, and that wait, unless something else is said (OpenTelemetry, batch span processor)."""

PROTOCOL = "http/protobuf"
"""The one that is sent: the other, gRPC, takes 20 MB of library, and collectors have both."""

SAMPLERS = frozenset(
    {
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    }
)

EXTRA: Final = "otlp"
"""What has to be installed beside the pack to send to a collector."""

_PAIR = re.compile(r"\s*[!#$%&'*+\-.^_`|~0-9A-Za-z]+\s*=.*", re.DOTALL)


_HOST = re.compile(r"[^\x00-\x20\x7f%<>\\^|]+")
"""What Temporal's core, which sends its metrics itself, takes for a host, or fails to start (WHATWG URL, domains)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be sent.

    Attributes:
        traces: To whom traces go.
        metrics: To whom metrics go.
        asked_by: The variable by which a collector comes into it; for faults.
        metrics_url: Where the collector takes metrics.
        metrics_headers: What it is shown with them.
        metrics_every: Seconds between two times.
        files: Those that what sends to a collector reads, as pairs of a variable and the path that it names.
        plugins: What OpenTelemetry loads by its name: the variable, the group of entry points, and the name.
    """

    traces: frozenset[Target] = frozenset()
    metrics: frozenset[Target] = frozenset()
    asked_by: str | None = None
    metrics_url: str = ""
    metrics_headers: Mapping[str, str] | None = None
    metrics_every: float = EVERY / 1000
    files: tuple[tuple[str, str], ...] = ()
    plugins: tuple[tuple[str, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.traces or self.metrics)


def read(environ: Mapping[str, str]) -> Plan:
    """Read the plan. Nothing is sent unless a variable names an exporter or an endpoint.

    Raises:
        SettingsError: With all faults, one a line. None repeats a value.
    """
    nothing = Plan(plugins=_plugins(environ))
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return nothing
    faults: list[str] = []
    targets = {signal: _targets(environ, signal, faults) for signal in SIGNALS}
    if not any(targets.values()):
        _raise(faults)
        return nothing
    sent = [signal for signal in SIGNALS if "otlp" in targets[signal]]
    for signal in sent:
        _check_otlp(environ, signal, faults)
    _check_rest(environ, faults)
    _raise(faults)
    for value in (value for signal in sent for value in _headers(_of(environ, signal, "HEADERS")[1]).values()):
        # What a collector is shown is a secret more often than not, and no line of the log repeats it.
        KNOWN.add(value)
    return Plan(
        traces=targets["TRACES"],
        metrics=targets["METRICS"],
        asked_by=_asked_by(environ, sent[0]) if sent else None,
        metrics_url=_url(environ, "METRICS"),
        metrics_headers=_headers(_of(environ, "METRICS", "HEADERS")[1]),
        metrics_every=metrics_interval(environ),
        files=tuple(file for signal in sent for file in (_of(environ, signal, what) for what in FILES) if file[1]),
        plugins=_plugins(environ, sent),
    )


def metrics_interval(environ: Mapping[str, str]) -> float:
    """Seconds between two times that metrics are sent, of an environment that has no fault."""
    return int(environ.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip() or EVERY) / 1000


def _raise(faults: list[str]) -> None:
    if faults:
        raise SettingsError("\n".join(dict.fromkeys(faults)))


def _targets(environ: Mapping[str, str], signal: Signal, faults: list[str]) -> frozenset[Target]:
    name = f"OTEL_{signal}_EXPORTER"
    given = environ.get(name, "").strip()
    if not given:
        return frozenset({"otlp"}) if _of(environ, signal, "ENDPOINT")[1] else frozenset()
    named = {one.strip().lower() for one in given.split(",")}
    if not named <= TARGETS:
        faults.append(f"{name}: names an exporter that there is not: write otlp, console or none")
        return frozenset()
    return frozenset(cast("set[Target]", named - {"none"}))


def _of(environ: Mapping[str, str], signal: Signal, what: str) -> tuple[str, str]:
    """A variable of the OTLP exporter and its value: that of a signal, or the one for all."""
    own, common = f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"
    name = own if environ.get(own, "").strip() else common
    return name, environ.get(name, "").strip()


def _plugins(environ: Mapping[str, str], sent: Iterable[Signal] = ()) -> tuple[tuple[str, str, str], ...]:
    found = [(name, group, environ[name]) for name, group in PLUGINS if name in environ]
    for signal in sent:
        # The one for all goes before that of a signal, other than with the rest.
        names = (CREDENTIAL.format(""), CREDENTIAL.format(f"{signal}_"))
        found += [(name, CREDENTIALS, environ[name]) for name in names if environ.get(name)][:1]
    return tuple(dict.fromkeys(found))


def _asked_by(environ: Mapping[str, str], signal: Signal) -> str:
    name = f"OTEL_{signal}_EXPORTER"
    return name if environ.get(name, "").strip() else _of(environ, signal, "ENDPOINT")[0]


def _check_otlp(environ: Mapping[str, str], signal: Signal, faults: list[str]) -> None:
    for what, is_right, write in OTLP:
        name, value = _of(environ, signal, what)
        if value and not is_right(value):
            faults.append(f"{name}: {write}")


def _check_rest(environ: Mapping[str, str], faults: list[str]) -> None:
    for name, is_right, write in REST:
        value = environ.get(name, "").strip()
        if value and not is_right(value):
            faults.append(f"{name}: {write}")
    for name, values in EXACT:
        if name in environ and environ[name] not in values:
            faults.append(f"{name}: write one of {', '.join(values)}, or unset it")
    _check_sizes(environ, faults)


def _check_sizes(environ: Mapping[str, str], faults: list[str]) -> None:
    """A batch that is larger than what may wait: the fault of the variable that is set, the batch's if both are."""
    given = {name: environ.get(name, "").strip() for name in SIZES}
    if not any(given.values()) or not all(_is_whole(value) for value in given.values() if value):
        return
    batch, queue = (int(given[name] or SIZES[name]) for name in (BATCH, QUEUE))
    if batch <= queue:
        return
    if given[BATCH]:
        faults.append(f"{BATCH}: write at most what {QUEUE} is, {SIZES[QUEUE]} by default")
    else:
        faults.append(f"{QUEUE}: write at least what {BATCH} is, {SIZES[BATCH]} by default")


def _url(environ: Mapping[str, str], signal: Signal) -> str:
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip()
    if own:
        return own
    common = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or DEFAULT_ENDPOINT
    return f"{common.removesuffix('/')}/v1/{signal.lower()}"


def _headers(given: str) -> Mapping[str, str]:
    pairs = (one.partition("=") for one in given.split(",") if one.strip())
    return {unquote(name).strip().lower(): unquote(value).strip() for name, _, value in pairs}


def _is_url(value: str) -> bool:
    try:
        at = urlsplit(value)
        return at.scheme in {"http", "https"} and bool(_HOST.fullmatch(at.hostname or "")) and at.port != 0
    except ValueError:
        return False


def _is_pairs(value: str) -> bool:
    return all(_PAIR.fullmatch(one) for one in value.split(",") if one.strip())


def _is_number(value: str) -> bool:
    try:
        return 0 < float(value) <= MOST
    except ValueError:
        return False


def _is_whole(value: str) -> bool:
    return _is_count(value) and int(value) > 0


def _is_count(value: str) -> bool:
    # So many digits at most, as Python refuses to read some thousands of them.
    return value.isdecimal() and value.isascii() and len(value) <= len(str(MOST)) and int(value) <= MOST


def _is_switch(value: str) -> bool:
    return value.lower() in {"true", "false"}


def _is_ratio(value: str) -> bool:
    try:
        return 0 <= float(value) <= 1
    except ValueError:
        return False


Check = tuple[str, Callable[[str], bool], str]

_PAIRS = "write name=value, several with commas between them"

OTLP: Iterable[Check] = (
    ("ENDPOINT", _is_url, "write the URL of a collector, as http://localhost:4318"),
    (
        "PROTOCOL",
        lambda value: value == PROTOCOL,
        f"write {PROTOCOL}, which is what is sent, and have the endpoint be where the collector takes it, port 4318",
    ),
    ("HEADERS", _is_pairs, _PAIRS),
    ("TIMEOUT", _is_number, "write a number of seconds"),
    ("COMPRESSION", lambda value: value.lower() in {"none", "gzip", "deflate"}, "write none, gzip or deflate"),
)
"""Variables of what sends to a collector, by the end of their names: how each is right, and what to write."""

FILES = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
"""Those of them that name a file."""

CREDENTIAL, CREDENTIALS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_{}CREDENTIAL_PROVIDER",
    "opentelemetry_otlp_credential_provider",
)
"""Variables that name who shows a collector credentials, and the entry points that they are looked for among."""

PLUGINS = (("OTEL_PYTHON_TRACER_PROVIDER", "opentelemetry_tracer_provider"),)
"""The others that name an entry point: read where nothing is to be sent, too, so that one that is empty is wrong."""

EXACT: Iterable[tuple[str, tuple[str, ...]]] = (
    ("OTEL_METRICS_EXEMPLAR_FILTER", ("trace_based", "always_on", "always_off")),
    (
        "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
        ("explicit_bucket_histogram", "base2_exponential_bucket_histogram"),
    ),
)
"""Variables that the SDK reads letter by letter, so that one that is empty is wrong as well, and what they may be."""

REST: Iterable[Check] = (
    (
        "OTEL_TRACES_SAMPLER",
        lambda value: value.lower() in SAMPLERS,
        f"write one of {', '.join(sorted(SAMPLERS))}",
    ),
    ("OTEL_TRACES_SAMPLER_ARG", _is_ratio, "write a number from 0 to 1"),
    ("OTEL_RESOURCE_ATTRIBUTES", _is_pairs, _PAIRS),
    (
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",
        lambda value: value.lower() in {"cumulative", "delta", "lowmemory"},
        "write cumulative, delta or lowmemory",
    ),
    *(
        (name, _is_switch, "write true or false")
        for name in ("OTEL_SDK_DISABLED", "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED")
    ),
    *(
        (name, _is_count, f"write a whole number from 0 to {MOST}")
        for name in (
            "OTEL_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_SPAN_EVENT_COUNT_LIMIT",
            "OTEL_SPAN_LINK_COUNT_LIMIT",
            "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
        )
    ),
    *(
        (name, _is_whole, f"write a whole number from 1 to {MOST}")
        for name in (
            "OTEL_METRIC_EXPORT_INTERVAL",
            "OTEL_METRIC_EXPORT_TIMEOUT",
            "OTEL_BSP_SCHEDULE_DELAY",
            QUEUE,
            BATCH,
            "OTEL_BSP_EXPORT_TIMEOUT",
        )
    ),
)
"""The others, likewise."""
