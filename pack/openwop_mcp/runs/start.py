"""What a run is started with: definition, owner and options, in one payload that lets a history explain itself.

Knows the payload's shape and nothing of what a run does with it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.ceilings import MAX_CALL_BYTES
from openwop_mcp.runs.engines import ENGINE_VERSION, ENGINES, Feature

__all__ = ("Options", "Owner", "RunStart")

HEARTBEAT_TIMEOUT = 10.0
"""Seconds without a beat after which a node's worker counts as lost: ten beats."""


PRINCIPAL_DIGITS = 32
"""Hexadecimal digits of a principal: half a SHA-256, which is more than enough to tell any two apart."""


@dataclass(frozen=True)
class Owner:
    """Whose run it is (OpenWOP v2, identity).

    Attributes:
        tenant: The tenant.
        subject: The subject as the host resolved it, JSON-safe.
        workspace: The workspace, where the host has such.
    """

    tenant: str
    subject: Mapping[str, Any]
    workspace: str | None = None

    @cached_property
    def principal(self) -> str:
        """Tells subjects, and workspaces, apart without naming them: what is read for one is not shown to another."""
        return hashlib.sha256(jsontext.encode([self.workspace, self.subject])).hexdigest()[:PRINCIPAL_DIGITS]

    def encode(self) -> bytes:
        """JSON text, as events and snapshots show it."""
        workspace = {} if self.workspace is None else {"workspace": self.workspace}
        return jsontext.encode({"tenant": self.tenant, **workspace, "subject": self.subject})


@dataclass(frozen=True, slots=True)
class Options:
    """What the host sets for a run.

    Attributes:
        heartbeat_timeout: Seconds without a beat after which a node's worker counts as lost.
        inline_bytes: Bytes over which a value is kept outside the run's history; None where all stands in it. Whether a
            run finds room in a history hangs on it, so that it holds for a run from its start to its end.
        call_bytes: Bytes that a call may have, config and inputs together.
        run_timeout_ms: Milliseconds from its begin after which the run fails; None for no limit.
        max_node_executions: Nodes that the run may start; None for no limit.
        classes: The class of each server that is in one, by server id. What a run was started with holds to its end,
            as a run that looked into settings would not replay.
    """

    heartbeat_timeout: float = HEARTBEAT_TIMEOUT
    inline_bytes: int | None = None
    call_bytes: int = MAX_CALL_BYTES
    run_timeout_ms: int | None = None
    max_node_executions: int | None = None
    classes: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """JSON text."""
        outside = {} if self.inline_bytes is None else {"inlineBytes": self.inline_bytes, "callBytes": self.call_bytes}
        limits = {"runTimeoutMs": self.run_timeout_ms, "maxNodeExecutions": self.max_node_executions}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        classes = {"classes": dict(self.classes)} if self.classes else {}
        return jsontext.encode({"heartbeatTimeout": self.heartbeat_timeout, **outside, **given, **classes})

    @classmethod
    def decode(cls, data: bytes) -> Options:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer host."""
        told = jsontext.decode(data)
        return cls(
            float(told.get("heartbeatTimeout", HEARTBEAT_TIMEOUT)),
            told.get("inlineBytes"),
            told.get("callBytes", MAX_CALL_BYTES),
            told.get("runTimeoutMs"),
            told.get("maxNodeExecutions"),
            told.get("classes", {}),
        )


@dataclass(frozen=True, slots=True)
class RunStart:
    """The first payload of ``RunWorkflow``. The second is the run's inputs, as they were posted.

    Attributes:
        run_id: The bound id, ``<tenant>/<opaque>``.
        definition: JSON text of the workflow definition, as it was read.
        owner: Whose run it is.
        engine_version: The engine that this run was started with, one of ``ENGINES``.
        transport: How the run was asked for: ``rest``, ``mcp``, ``a2a`` or ``ui``.
        options: What the host sets.
        tags: Labels, echoed unchanged.
        metadata: JSON object text, echoed unchanged.
        configurable: JSON object text of the run's ``configurable``, echoed unchanged; None where it was given none.
        callback_url: Where whoever started it is told that it waits for an answer; None for nowhere.
        reset: Whether this run continues one that was reset, so that what follows may have happened before.
        state: The machine's state after a continue-as-new, else None. Large values that it holds travel beside it, in
            the payloads after the inputs.
    """

    run_id: str
    definition: bytes
    owner: Owner
    engine_version: int = ENGINE_VERSION
    transport: str = "rest"
    options: Options = field(default_factory=Options)
    tags: tuple[str, ...] = ()
    metadata: bytes = b"{}"
    state: bytes | None = None
    reset: bool = False
    configurable: bytes | None = None
    callback_url: str | None = None

    def has(self, feature: Feature) -> bool:
        """Whether the engine that this run was started with has a feature."""
        return feature in ENGINES[self.engine_version]

    def carrying(self, state: bytes, *, reset: bool = False) -> RunStart:
        """The same start for the run that continues this one, which may have been reset."""
        return dataclasses.replace(self, state=state, reset=reset)

    def encode(self) -> bytes:
        """JSON text; definition, metadata, configurable and state stand in it byte for byte."""
        members = [
            ("runId", jsontext.encode(self.run_id)),
            ("engineVersion", jsontext.encode(self.engine_version)),
            ("transport", jsontext.encode(self.transport)),
            ("owner", self.owner.encode()),
            ("options", self.options.encode()),
            ("tags", jsontext.encode(self.tags)),
            ("metadata", self.metadata),
            ("definition", self.definition),
        ]
        if self.configurable is not None:
            members.append(("configurable", self.configurable))
        if self.callback_url is not None:
            members.append(("callbackUrl", jsontext.encode(self.callback_url)))
        if self.reset:
            members.append(("reset", b"true"))
        if self.state is not None:
            members.append(("state", self.state))
        return jsontext.build(members)

    @classmethod
    def decode(cls, data: bytes) -> RunStart:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer host.

        Raises:
            ValueError: if it is no such text, or asks for a machine that this version does not have.
        """
        members = dict(jsontext.members(data))
        missing = [name for name in ("runId", "engineVersion", "owner", "definition") if name not in members]
        if missing:
            raise ValueError(f"not the start of a run: {', '.join(missing)} is missing")
        engine_version = jsontext.decode(members["engineVersion"])
        if not isinstance(engine_version, int) or engine_version not in ENGINES:
            here = " and ".join(map(str, ENGINES))
            raise ValueError(
                f"the run needs engine version {engine_version}, this one has {here}: use the version of "
                "openwop-mcp-pack that started it, or a newer one"
            )
        owner = jsontext.decode(members["owner"])
        return cls(
            run_id=jsontext.decode(members["runId"]),
            definition=members["definition"],
            owner=Owner(owner["tenant"], owner["subject"], owner.get("workspace")),
            engine_version=engine_version,
            transport=jsontext.decode(members.get("transport", b'"rest"')),
            options=Options.decode(members.get("options", b"{}")),
            tags=tuple(jsontext.decode(members.get("tags", b"[]"))),
            metadata=members.get("metadata", b"{}"),
            state=members.get("state"),
            reset="reset" in members,
            configurable=members.get("configurable"),
            callback_url=jsontext.decode(members.get("callbackUrl", b"null")),
        )
