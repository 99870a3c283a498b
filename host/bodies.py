"""Bodies of requests: closed objects, read to the member, with what belongs to the author cut out byte for byte.

Inputs, metadata and answers keep their digits, so they are never decoded here. A fault names its place and repeats no
value. Knows what may be asked and what is not offered; does nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_DEPTH
from openwop_mcp.runs.pauses import Pause

from . import configurable
from .errors import MAX_NAME_SHOWN, HostError, invalid, place
from .ids import is_author_id

__all__ = (
    "CALLBACK_URL",
    "MAX_RUN_IDS",
    "BulkCancel",
    "CreateRun",
    "read_bulk_cancel",
    "read_create_run",
    "read_pause",
    "read_reason",
    "read_resolve",
)

MAX_RUN_IDS = 100
"""Runs that one request may cancel: what OpenWOP recommends."""

MAX_TAGS = 100
MAX_TAG = 256
"""Tags of a run and characters of each, as OpenWOP has them."""

MAX_METADATA = 64 * 1024
"""Bytes of a run's metadata. It comes back with every snapshot, also with a hundred of them in one list."""

MAX_REASON = 1024
"""Characters of a reason. It goes into history, events and Temporal's UI, where more is no reason."""

MAX_SCOPE_ID = 256
"""Characters of what a run is kept single by: room for a URL, not for a document."""

MAX_URL = 2048
"""Characters of a URL: as many as all that handle such take."""

CALLBACK_URL = "callbackUrl"
"""The member that is offered where the settings have what notifications are signed with."""

MAX_MEMBERS = 1000
"""Members of a root that are looked at. Each closed body has a dozen."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")
"""Half a character: JSON can spell it, and a text that leaves as UTF-8 cannot hold it."""

_CREATE = frozenset(
    {
        "agentId",
        CALLBACK_URL,
        "configurable",
        "evalSuiteRef",
        "inputs",
        "metadata",
        "mode",
        "residency",
        "scopeId",
        "tags",
        "tenantId",
        "workflowId",
    }
)


_NOT_OFFERED: Mapping[str, tuple[str, str, Mapping[str, str] | None]] = {
    "residency": ("residency_unavailable", "no region can be chosen here", None),
    CALLBACK_URL: ("validation_error", "no callback is delivered here", {"field": CALLBACK_URL}),
    "mode": ("capability_required", "no suites are run here", {"requiredCapability": "agents.evalSuite"}),
    "evalSuiteRef": ("capability_required", "no suites are run here", {"requiredCapability": "agents.evalSuite"}),
    "agentId": ("capability_required", "there are no agents here", {"requiredCapability": "agents"}),
}
"""What OpenWOP lets a run be created with, and this host would have to ignore: code, why, details. Refused, so that
nobody relies on it."""


# --- the bodies -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateRun:
    """A run that is asked for.

    Attributes:
        workflow_id: Of which workflow.
        inputs: JSON object text, as it was posted.
        tags: Labels, in order.
        metadata: JSON object text, as it was posted; None where there is none.
        configurable: JSON object text, checked and as it was posted; None where there is none.
        scope_id: What the run is to be the only one of, where a caller says so.
        callback_url: Where the caller wants to be told that the run waits; not looked at.
    """

    workflow_id: str
    inputs: bytes
    tags: tuple[str, ...] = ()
    metadata: bytes | None = None
    configurable: bytes | None = None
    scope_id: str | None = None
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class BulkCancel:
    """Runs that are to be cancelled.

    Attributes:
        run_ids: Which, as they were posted and in that order: each has its own verdict.
        reason: Why, in the caller's words.
    """

    run_ids: tuple[str, ...]
    reason: str | None = None


def read_create_run(body: bytes, *, tenant: str, callbacks: bool = False) -> CreateRun:
    """Read the body of ``createRun``.

    Args:
        body: The request's body.
        tenant: The caller's; the only one that a run can be created for.
        callbacks: Whether a caller can be told that the run waits for an answer.

    Raises:
        HostError: ``validation_error`` for a fault; the code of what is not offered; ``id_tenant_mismatch``.
    """
    members = _root(body, _CREATE)
    for name in members:
        if name in _NOT_OFFERED and not (callbacks and name == CALLBACK_URL):
            code, why, details = _NOT_OFFERED[name]
            raise HostError(code, f"{name}: {why}: leave it out", details)
    workflow_id = _text(members, "workflowId")
    if workflow_id is None:
        raise invalid("workflowId", "write it: it is required")
    if not is_author_id(workflow_id):
        raise invalid("workflowId", "write 1 to 128 of A-Z a-z 0-9 . _ ~ : -")
    if _text(members, "tenantId") not in {None, tenant}:
        raise HostError("id_tenant_mismatch", "tenantId: not yours: leave it out, the key says whose the run is")
    metadata = _object(members, "metadata")
    if metadata is not None and len(metadata) > MAX_METADATA:
        raise HostError("payload_too_large", f"metadata: write {MAX_METADATA} bytes at most", {"field": "metadata"})
    return CreateRun(
        workflow_id=workflow_id,
        inputs=_object(members, "inputs") or b"{}",
        tags=_tags(members),
        metadata=metadata,
        configurable=_configurable(members),
        scope_id=_text(members, "scopeId", most=MAX_SCOPE_ID),
        callback_url=_text(members, CALLBACK_URL, most=MAX_URL),
    )


def read_bulk_cancel(body: bytes) -> BulkCancel:
    """Read the body of ``bulkCancelRuns``. The ids are texts still: one that is none spoils its own entry alone.

    Raises:
        HostError: ``validation_error``, with ``details.maxRunIds`` where there are too many.
    """
    members = _root(body, frozenset({"runIds", "reason"}))
    run_ids = _texts(members, "runIds", most=MAX_RUN_IDS, maxRunIds=MAX_RUN_IDS)
    if not run_ids:
        raise invalid("runIds", f"write 1 to {MAX_RUN_IDS} ids of runs", maxRunIds=MAX_RUN_IDS)
    return BulkCancel(tuple(run_ids), _reason(members))


def read_pause(body: bytes) -> Pause:
    """Read the body of ``pauseRun``, which may be empty.

    Raises:
        HostError: ``validation_error``.
    """
    members = _root(body or b"{}", frozenset({"reason", "drainPolicy"}))
    match _text(members, "drainPolicy"):
        case None:
            return Pause(reason=_reason(members))
        case ("drain-current-node" | "immediate") as policy:
            return Pause(policy, _reason(members))
    raise invalid("drainPolicy", "write drain-current-node or immediate")


def read_reason(body: bytes) -> str | None:
    """Read the body of ``cancelRun`` or ``resumeRun``, which may be empty: why, in the caller's words.

    Raises:
        HostError: ``validation_error``.
    """
    return _reason(_root(body or b"{}", frozenset({"reason"})))


def read_resolve(body: bytes) -> bytes:
    """Read the body of an interrupt's resolution.

    Returns:
        JSON text of ``resumeValue``, as it was posted.

    Raises:
        HostError: ``validation_error``.
    """
    value = _root(body, frozenset({"resumeValue"})).get("resumeValue")
    if value is None:
        raise invalid("resumeValue", "write it: it is required")
    return _readable(value, "resumeValue")


# --- reading --------------------------------------------------------------------------------------------------------


def _root(body: bytes, known: frozenset[str]) -> dict[str, bytes]:
    """The members of a closed root."""
    if not body:
        raise HostError("validation_error", "the body is empty: write a JSON object", {"field": "body"})
    try:
        jsontext.check(body)
        given = jsontext.members(body, MAX_MEMBERS)
    except jsontext.JsonTextError as error:
        raise invalid("body", f"write a JSON object: {error}") from None
    members: dict[str, bytes] = {}
    for name, value in given:
        if name not in known:
            raise invalid(place(name), f"no such member: {_instead(name, known)}")
        if name in members:
            raise invalid(name, "it stands there twice: keep one")
        members[name] = value
    return members


def _instead(name: str, known: frozenset[str]) -> str:
    offered = sorted(known - _NOT_OFFERED.keys())
    near = get_close_matches(name[:MAX_NAME_SHOWN], offered, 1)
    return f"did you mean {near[0]}?" if near else f"write {', '.join(offered)}"


def _text(members: Mapping[str, bytes], name: str, *, most: int | None = None) -> str | None:
    if name not in members:
        return None
    value = members[name]
    text = jsontext.decode(value) if jsontext.kind(value) == "string" else ""
    if not text or (most is not None and len(text) > most) or _SURROGATE.search(text):
        raise invalid(name, "write a string" if most is None else f"write a string of 1 to {most} characters")
    return str(text)


def _reason(members: Mapping[str, bytes]) -> str | None:
    return _text(members, "reason", most=MAX_REASON)


def _object(members: Mapping[str, bytes], name: str) -> bytes | None:
    value = members.get(name)
    if value is None:
        return None
    if jsontext.kind(value) != "object":
        raise invalid(name, "write an object")
    return _readable(value, name)


def _readable(value: bytes, name: str) -> bytes:
    """Refuse what is nested so deep that whoever is given it back may not be able to read it."""
    try:
        jsontext.check_depth(value, MAX_DEPTH)
    except jsontext.JsonTextError as error:
        raise invalid(name, str(error)) from None
    return value


def _texts(members: Mapping[str, bytes], name: str, *, most: int, **details: Any) -> list[str]:
    value = members.get(name, b"[]")
    if jsontext.kind(value) != "array":
        raise invalid(name, "write an array of strings")
    try:
        items = jsontext.elements(value, most)
    except jsontext.TooManyError:
        raise invalid(name, f"write {most} at most", **details) from None
    for index, item in enumerate(items):
        if jsontext.kind(item) != "string":
            raise invalid(f"{name}[{index}]", "write a string")
    return [jsontext.decode(item) for item in items]


def _tags(members: Mapping[str, bytes]) -> tuple[str, ...]:
    tags = _texts(members, "tags", most=MAX_TAGS)
    for index, tag in enumerate(tags):
        if not 1 <= len(tag) <= MAX_TAG:
            raise invalid(f"tags[{index}]", f"write 1 to {MAX_TAG} characters")
    return tuple(tags)


def _configurable(members: Mapping[str, bytes]) -> bytes | None:
    text = _object(members, "configurable")
    if text is not None:
        configurable.check(text)
    return text
