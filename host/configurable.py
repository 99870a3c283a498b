"""A run's ``configurable``: its closed, nested shape, what of it nothing here would heed, and what its workflow admits.

Checks it and changes nothing: it is kept as it was posted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from openwop_mcp import jsontext, schemas
from openwop_mcp.runs import values

from .errors import HostError, invalid, place

__all__ = ("check", "check_by")

MAX_BYTES = 64 * 1024
"""It comes back with every snapshot of its run, and is checked in the host's event loop."""


class _Section(BaseModel):
    """Closed. A default says that a member may be absent; none is ever filled in."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


def _whole(value: Any) -> Any:
    # 10.0 is a whole number in JSON. What else is none, the strict model refuses.
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Whole = BeforeValidator(_whole)
_Positive = Annotated[int, Field(ge=1), _Whole]
_Org = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")]


class _Run(_Section):
    recursion_limit: _Positive = 1
    run_timeout_ms: _Positive = 1
    max_loop_iterations: _Positive = 1
    escalation_threshold: Annotated[float, Field(ge=0, le=1)] = 0


class _Ai(_Section):
    provider: str = ""
    model: str = ""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0
    max_tokens: _Positive = 1
    credential_ref: str = ""
    prompt_overrides: dict[str, str] = {}
    mock_provider: dict[str, Any] = {}
    reasoning_verbosity: Literal["none", "summary", "full"] = "none"
    max_refusals: Annotated[int, Field(ge=0), _Whole] = 0


class _Distillation(_Section):
    token_budget: _Positive = 1


class _Configurable(_Section):
    version: Annotated[int, Field(ge=1, le=1), _Whole]
    run: _Run = _Run()
    ai: _Ai = _Ai()
    distillation: _Distillation = _Distillation()
    budget: dict[str, Any] = {}
    extensions: dict[_Org, dict[str, Any]] = {}


_shape = TypeAdapter(_Configurable)

_WORDS: Mapping[str, str] = {"extra_forbidden": "no such member", "missing": "write it: it is required"}
"""Faults that pydantic tells in words of its own; its others say what to write."""

_NO_MODELS = "no provider of models is offered here"

_NOT_OFFERED: Mapping[tuple[str, ...], tuple[str, str, Mapping[str, str] | None]] = {
    ("budget",): ("capability_required", "no budget is kept here", {"requiredCapability": "budget"}),
    ("ai", "provider"): ("validation_error", _NO_MODELS, {"field": "configurable.ai.provider"}),
    ("ai", "credentialRef"): ("credential_forbidden", _NO_MODELS, None),
    ("ai", "mockProvider"): ("mock_provider_forbidden", "no key here is for tests", None),
}
"""Members that promise something which this host cannot do: code, why, details."""


def check(text: bytes) -> None:
    """Refuse what is no ``configurable``, or asks for what is not offered.

    Args:
        text: JSON object text.

    Raises:
        HostError: ``validation_error`` that names the place, or the code of what is not offered.
    """
    if len(text) > MAX_BYTES:
        raise invalid("configurable", f"write {MAX_BYTES} bytes at most")
    given = jsontext.decode(text)
    try:
        _shape.validate_python(given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        steps = [str(step) for step in fault["loc"] if step != "[key]"]
        raise invalid(place("configurable", *steps), _WORDS.get(fault["type"], fault["msg"])) from None
    for path, (code, why, details) in _NOT_OFFERED.items():
        if jsontext.pointer(text, path) is not None:
            raise HostError(code, f"{place('configurable', *path)}: {why}: leave it out", details)


def check_by(schema: bytes, text: bytes | None) -> None:
    """Refuse what a workflow's ``configurableSchema`` does not admit.

    Args:
        schema: JSON text of the schema.
        text: JSON object text of the run's ``configurable``, which passed :func:`check`; None where there is none: to
            the schema it is empty then.

    Raises:
        HostError: ``validation_error`` that names the place.
    """
    verdict = schemas.check(schema, b"{}" if text is None else text)
    if verdict.state == "ok":
        return
    steps = values.tokens(verdict.path) if verdict.path else ()
    raise invalid(
        place("configurable", *steps),
        f"the workflow's configurableSchema does not admit it: {verdict.reason}",
    )
