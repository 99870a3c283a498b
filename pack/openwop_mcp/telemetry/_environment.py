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
    """

    traces: frozenset[Target] = frozenset()
    metrics: frozenset[Target] = frozenset()
    asked_by: str | None = None
    metrics_url: str = ""
    metrics_headers: Mapping[str, str] | None = None
    metrics_every: float = EVERY / 1000

    def __bool__(self) -> bool:
        return bool(self.traces or self.metrics)


def read(environ: Mapping[str, str]) -> Plan:
    """Read the plan. Nothing is sent unless a variable names an exporter or an endpoint.

    Raises:
        SettingsError: With all faults, one a line. None repeats a value.
    """
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Plan()
    faults: list[str] = []
    targets = {signal: _targets(environ, signal, faults) for signal in SIGNALS}
    if not any(targets.values()):
        _raise(faults)
        return Plan()
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
        return at.scheme in {"http", "https"} and bool(at.hostname) and at.port != 0
    except ValueError:
        return False


def _is_pairs(value: str) -> bool:
    return all(_PAIR.fullmatch(one) for one in value.split(",") if one.strip())


def _is_number(value: str) -> bool:
    try:
        return 0 < float(value) < float("inf")
    except ValueError:
        return False


def _is_whole(value: str) -> bool:
    return value.isdecimal() and value.isascii() and int(value[:20]) > 0


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

REST: Iterable[Check] = (
    (
        "OTEL_TRACES_SAMPLER",
        lambda value: value.lower() in SAMPLERS,
        f"write one of {', '.join(sorted(SAMPLERS))}",
    ),
    ("OTEL_TRACES_SAMPLER_ARG", _is_ratio, "write a number from 0 to 1"),
    ("OTEL_RESOURCE_ATTRIBUTES", _is_pairs, _PAIRS),
    *(
        (name, _is_whole, "write a whole number over 0")
        for name in (
            "OTEL_METRIC_EXPORT_INTERVAL",
            "OTEL_METRIC_EXPORT_TIMEOUT",
            "OTEL_BSP_SCHEDULE_DELAY",
            "OTEL_BSP_MAX_QUEUE_SIZE",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            "OTEL_BSP_EXPORT_TIMEOUT",
        )
    ),
)
"""The others, likewise."""
