"""From a node's configuration and inputs to the call it stands for. Pure; knows nothing of activities."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import BaseModel, ValidationError

from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_DEPTH, CallRequest, Input, completion
from openwop_mcp.effects.doubt import read_verdict
from openwop_mcp.errors import InvalidRequestError, NotCallableError
from openwop_mcp.nodes.registry import NodeType

__all__ = ("NodeCall",)

METHOD_OF: Mapping[str, str] = {
    "community.mcp.call-tool": "callTool",
    "community.mcp.list-tools": "listTools",
    "community.mcp.list-resources": "listResources",
    "community.mcp.list-resource-templates": "listResourceTemplates",
    "community.mcp.read-resource": "readResource",
    "community.mcp.list-prompts": "listPrompts",
    "community.mcp.get-prompt": "getPrompt",
    "community.mcp.complete": "complete",
    "community.mcp.server-health": "serverHealth",
}
"""Host method by node type; a type that is not here names its method as an input."""

EMPTY: Mapping[jsontext.Kind, bytes] = {"object": b"{}", "array": b"[]"}
"""What stands for a container of which only the kind counts."""


@dataclass(frozen=True, slots=True)
class NodeCall:
    """What a node's activity is given beside the node's inputs.

    Attributes:
        node_id: The node, for messages.
        tenant: Tenant of the run.
        principal: On whose authority it runs, as ``Owner.principal`` tells it; empty for runs that do not say.
        attempt: 1 for the first; counted by the run.
        config: JSON text of the node's configuration, as the definition has it.
        origin: The Temporal run that asks, as it was named before any reset.
        reset: Whether a part of the run's chain before this one was reset.
        answer: JSON text of what a person decided about the node's effect, which was in doubt.
        sensitive: Whether the run's log masks what the node takes or gives.
        allowed: JSON text of the globs of tools that the run may call; None for all.
        suspends: Whether the run can wait for a person.
        input: What answers the server's last question.
        approved: JSON text ``{"tier", "fingerprint"?}``: the safety tier, and the definition of the tool where one was
            known, with which a person has approved the call.
    """

    node_id: str
    tenant: str
    attempt: int
    config: bytes
    principal: str = ""
    origin: str | None = None
    reset: bool = False
    answer: bytes | None = None
    sensitive: bool = False
    allowed: bytes | None = None
    suspends: bool = False
    input: Input | None = None
    approved: bytes | None = None

    def encode(self) -> bytes:
        """JSON text, the configuration in it byte for byte."""
        return jsontext.build(
            [
                ("nodeId", jsontext.encode(self.node_id)),
                ("tenant", jsontext.encode(self.tenant)),
                ("attempt", jsontext.encode(self.attempt)),
                ("config", self.config),
                *([("principal", jsontext.encode(self.principal))] if self.principal else []),
                *([] if self.origin is None else [("origin", jsontext.encode(self.origin))]),
                *([("reset", b"true")] if self.reset else []),
                *([] if self.answer is None else [("answer", self.answer)]),
                *([("sensitive", b"true")] if self.sensitive else []),
                *([] if self.allowed is None else [("allowed", self.allowed)]),
                *([("suspends", b"true")] if self.suspends else []),
                *([] if self.input is None else [("input", self.input.encode())]),
                *([] if self.approved is None else [("approved", self.approved)]),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> NodeCall:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer workflow."""
        members = dict(jsontext.members(data))
        return cls(
            node_id=jsontext.decode(members["nodeId"]),
            tenant=jsontext.decode(members["tenant"]),
            attempt=jsontext.decode(members["attempt"]),
            config=members["config"],
            principal=jsontext.decode(members["principal"]) if "principal" in members else "",
            origin=jsontext.decode(members["origin"]) if "origin" in members else None,
            reset="reset" in members,
            answer=members.get("answer"),
            sensitive="sensitive" in members,
            allowed=members.get("allowed"),
            suspends="suspends" in members,
            input=Input.decode(members["input"]) if "input" in members else None,
            approved=members.get("approved"),
        )

    def request(self, node_type: NodeType, inputs: bytes) -> tuple[CallRequest, bytes | None]:
        """The call, and the exact bytes of its arguments or of what stands for them.

        Raises:
            InvalidRequestError: Configuration or inputs do not fit the node type.
            NotCallableError: The definition does not allow its run that tool.
        """
        config = _checked(node_type.config, self.config, "config")
        given = _checked(node_type.inputs, inputs, "inputs")
        values = {**config.model_dump(exclude_unset=True), **given.model_dump(exclude_unset=True)}
        if not (method := METHOD_OF.get(node_type.type_id) or values.get("method")):
            raise InvalidRequestError("'method' is missing", path="inputs.method")
        if not (server_id := values.get("server_id")):
            raise InvalidRequestError("'serverId' is missing", path="inputs.serverId")
        if method == "callTool" and not self._allows(f"{server_id}.{values.get('name', '')}"):
            raise NotCallableError(
                "nothing was sent: 'allowedTools' of the definition does not admit this tool: add"
                " '<serverId>.<toolName>' to it, or a glob"
            )
        request = CallRequest(
            method,
            server_id,
            name=values.get("name"),
            cursor=values.get("cursor"),
            uri=values.get("uri"),
            tenant=self.tenant,
            principal=self.principal,
            idempotency_key=values.get("idempotency_key"),
            attempt=self.attempt,
            node=self.node_id,
            # A node runs once in a run, however many parts its chain has, and its attempts may lie in two of them.
            whole_chain=True,
            origin=self.origin,
            reset=self.reset,
            answer=None if self.answer is None else read_verdict(self.answer),
            sensitive=self.sensitive,
            suspends=self.suspends,
            input=self.input,
            approved=self.approved,
        )
        return request, self._completion(inputs) if method == "complete" else jsontext.member(inputs, "arguments")

    def _allows(self, tool: str) -> bool:
        return self.allowed is None or any(fnmatchcase(tool, glob) for glob in jsontext.decode(self.allowed))

    def _completion(self, inputs: bytes) -> bytes:
        """What a completion is asked with, cut out of the inputs; its reference may stand in the config."""
        given = dict(jsontext.members(inputs))
        ref = given.get("ref") or jsontext.member(self.config, "ref")
        return completion(ref, given.get("argument"), given.get("context"))


def _outline(model: type[BaseModel], data: bytes) -> bytes:
    """The text without what stands in objects that may hold anything: they are large, and a server's to judge."""
    anything = _anything(model)
    if not anything or jsontext.kind(data) != "object":
        return data
    return jsontext.build(
        (name, EMPTY.get(jsontext.kind(value), value) if name in anything else value)
        for name, value in jsontext.members(data)
    )


@functools.cache
def _anything(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in model.model_fields.items() if field.annotation == dict[str, Any] | None)


def _checked(model: type[BaseModel], data: bytes, where: str) -> BaseModel:
    try:
        jsontext.check_depth(data, MAX_DEPTH)
        return model.model_validate(jsontext.decode(_outline(model, data)))
    except jsontext.JsonTextError as error:
        raise InvalidRequestError(f"{where}: {error}", path=where) from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join([where, *map(str, fault["loc"])])
        raise InvalidRequestError(f"{path}: {fault['msg']}", path=path) from None
