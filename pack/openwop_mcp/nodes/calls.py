"""From a node's configuration and inputs to the call it stands for. Pure; knows nothing of activities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from openwop_mcp import jsontext
from openwop_mcp.calls import CallRequest, completion
from openwop_mcp.errors import InvalidRequestError
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


@dataclass(frozen=True, slots=True)
class NodeCall:
    """What a node's activity is given beside the node's inputs.

    Attributes:
        node_id: The node, for messages.
        tenant: Tenant of the run.
        principal: On whose authority it runs, as ``Owner.principal`` tells it; empty for runs that do not say.
        attempt: 1 for the first; counted by the run.
        config: JSON text of the node's configuration, as the definition has it.
    """

    node_id: str
    tenant: str
    attempt: int
    config: bytes
    principal: str = ""

    def encode(self) -> bytes:
        """JSON text, the configuration in it byte for byte."""
        return jsontext.build(
            [
                ("nodeId", jsontext.encode(self.node_id)),
                ("tenant", jsontext.encode(self.tenant)),
                ("attempt", jsontext.encode(self.attempt)),
                ("config", self.config),
                *([("principal", jsontext.encode(self.principal))] if self.principal else []),
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
        )

    def request(self, node_type: NodeType, inputs: bytes) -> tuple[CallRequest, bytes | None]:
        """The call, and the exact bytes of its arguments or of what stands for them.

        Raises:
            InvalidRequestError: Configuration or inputs do not fit the node type.
        """
        config = _checked(node_type.config, self.config, "config")
        given = _checked(node_type.inputs, inputs, "inputs")
        values = {**config.model_dump(exclude_unset=True), **given.model_dump(exclude_unset=True)}
        if not (method := METHOD_OF.get(node_type.type_id) or values.get("method")):
            raise InvalidRequestError("'method' is missing", path="inputs.method")
        if not (server_id := values.get("server_id")):
            raise InvalidRequestError("'serverId' is missing", path="inputs.serverId")
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
        )
        return request, self._completion(inputs) if method == "complete" else jsontext.member(inputs, "arguments")

    def _completion(self, inputs: bytes) -> bytes:
        """What a completion is asked with, cut out of the inputs; its reference may stand in the config."""
        given = dict(jsontext.members(inputs))
        ref = given.get("ref") or jsontext.member(self.config, "ref")
        return completion(ref, given.get("argument"), given.get("context"))


def _checked(model: type[BaseModel], data: bytes, where: str) -> BaseModel:
    try:
        return model.model_validate(jsontext.decode(data))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join([where, *map(str, fault["loc"])])
        raise InvalidRequestError(f"{path}: {fault['msg']}", path=path) from None
