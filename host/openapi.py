"""What ``/openapi.json`` says beyond what the routes' signatures do: bodies, refusals, the contract's headers, keys.

Routes read raw bytes, so their bodies are described here as data. Knows shapes and no behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from .errors import REGISTRY
from .versioning import HEADER, VERSION
from .web import JSON

__all__ = ("ERROR", "IF_NONE_MATCH", "OPEN", "answered", "body", "document", "parameter", "refused", "schema_of")

Schema = Mapping[str, Any]

OPEN: Mapping[str, Any] = {"security": []}
"""Goes into ``openapi_extra`` of an operation that asks for no key."""

ERROR = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {
        "error": {"type": "string", "enum": sorted(REGISTRY)},
        "message": {"type": "string", "minLength": 1},
        "details": {"type": "object"},
    },
    "additionalProperties": False,
}
"""The closed envelope of a refusal."""

_WORDS: Mapping[int, str] = {
    400: "Something that was sent cannot be used; details.field says what.",
    401: "No key of this host was sent, or the link is none of its.",
    403: "The key, or the link, is not for this, or the id is another tenant's.",
    404: "There is no such thing.",
    406: "The contract that was asked for is not served.",
    409: "It does not go together with how things stand.",
    410: "It is gone.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "It was understood and cannot be done here.",
    429: "The key asks for too much.",
    500: "A fault of the host.",
    503: "Temporal, a worker or the storage of large values does not answer now.",
}
"""What the statuses of refusals mean."""

_ALWAYS = (406, 429, 500, 503)
"""Refusals that every operation can answer."""

_FOR_KEYS = (401, 403)
"""Refusals that every operation with a key can answer."""

_SEGMENTS: Mapping[str, Schema] = {
    "nodeId": {"type": "string", "pattern": "^[A-Za-z0-9._~:-]{1,128}$"},
    "runId": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}~2F[A-Za-z0-9._-]{16,128}$"},
    "toolId": {"type": "string", "pattern": "^(mcp|openwop|workflow):[A-Za-z0-9._~-]+$"},
    "token": {"type": "string", "pattern": r"^ow2\.hs256\.[A-Za-z0-9_-]{1,64}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$"},
    "workflowId": {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,127}$"},
}
"""The parameters of paths, as links have them; how else they may be escaped is nothing to begin with."""

_VERSION = {"type": "string", "pattern": rf"^{VERSION.partition('.')[0]}(\.(0|[1-9][0-9]*))?$", "examples": [VERSION]}
"""What may be asked for: the minor says what the client knows."""

_TEMPLATE = re.compile(r"\{(\w+)\}")


def refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What an operation refuses with, for ``responses``, besides what every operation does.

    Args:
        statuses: Of 400, 401, 403, 404, 409, 410, 413, 415 and 422 those that it answers.
    """
    return {status: _refusal(status) for status in statuses}


def answered(
    status: int, description: str, schema: Schema | None = None, *, media_type: str = JSON
) -> dict[int | str, dict[str, Any]]:
    """What an operation answers, for ``responses``.

    Args:
        status: The status.
        description: What it means.
        schema: Shape of the body; None where there is none.
        media_type: What the body is.
    """
    content = {} if schema is None else {"content": {media_type: {"schema": schema}}}
    return {status: {"description": description, **content}}


def body(schema: Schema, *, required: bool = True) -> dict[str, Any]:
    """What an operation takes, for ``openapi_extra``."""
    return {"requestBody": {"required": required, "content": {JSON: {"schema": schema}}}}


def parameter(name: str, place: str, schema: Schema, description: str) -> dict[str, Any]:
    """A parameter that may be left out, for the list ``parameters`` of ``openapi_extra``.

    Args:
        name: Its name.
        place: ``query`` or ``header``.
        schema: What it may be.
        description: What it does.
    """
    return {"name": name, "in": place, "required": False, "schema": schema, "description": description}


IF_NONE_MATCH = parameter(
    "If-None-Match", "header", {"type": "string"}, "The ETag of what the client has: 304 if it is still the same."
)
"""For operations whose answer has an ETag."""


def schema_of(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> dict[str, Any]:
    """A closed object."""
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **(optional or {})},
        "additionalProperties": False,
    }


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application whose routes are complete."""
    told = app.openapi()
    components = told.setdefault("components", {})
    # Routes validate for themselves; what FastAPI would answer is never sent.
    components["schemas"] = {"Error": ERROR}
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "A key of this host."}}
    components["headers"] = {HEADER: {"description": "The contract of the answer.", "schema": {"type": "string"}}}
    told["security"] = [{"key": []}]
    for path, operations in told["paths"].items():
        for operation in operations.values():
            _complete(path, operation)
    return told


def _complete(path: str, operation: dict[str, Any]) -> None:
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    known = {one["name"] for one in parameters}
    parameters += [
        {"name": name, "in": "path", "required": True, "schema": _SEGMENTS.get(name, {"type": "string"})}
        for name in _TEMPLATE.findall(path)
        if name not in known
    ]
    parameters.append(parameter(HEADER, "header", _VERSION, "The contract that the client asks for."))
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        del responses["422"]
    for status in (*_ALWAYS, *(() if operation.get("security") == [] else _FOR_KEYS)):
        responses.setdefault(str(status), _refusal(status))
    for response in responses.values():
        response.setdefault("headers", {})[HEADER] = {"$ref": f"#/components/headers/{HEADER}"}
    operation["responses"] = dict(sorted(responses.items()))


def _refusal(status: int) -> dict[str, Any]:
    retry = {} if status not in (429, 503) else {"headers": {"Retry-After": {"schema": {"type": "integer"}}}}
    return {
        "description": _WORDS[status],
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
        **retry,
    }
