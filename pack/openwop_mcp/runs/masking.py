"""What a run's log does not show: the values of sensitive variables, and what may have been made of them.

A pure function of the definition decides which values these are, before anything has run, and of each event where they
stand in it. Changes what is told; knows nothing of what is run, which always has the real values.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from openwop_mcp import jsontext
from openwop_mcp.effects.doubt import MEANINGS
from openwop_mcp.questions.approvals import ARTIFACT
from openwop_mcp.runs.definition import ARGUMENTS, Connection, Definition, Node, VariableRef
from openwop_mcp.runs.records import MadeCall

__all__ = ("MASK", "Masks", "masks")

MASK = jsontext.encode("[REDACTED]")
"""Stands for a masked value, of whatever type it is. These are the words of OpenWOP's default mode."""

OWN_FACTS = frozenset(
    {
        "attempt",
        "authorization",
        "cancelled",
        "code",
        "delivery",
        "effectId",
        "ended",
        "factsBytes",
        "fault",
        "floor",
        "httpStatus",
        "keying",
        "limit",
        "method",
        "onDoubt",
        "peer",
        "protocol",
        "reason",
        "repeatSafe",
        "requested",
        "retry",
        "retryAfter",
        "retryable",
        "revision",
        "round",
        "rpcCode",
        "safetyTier",
        "seconds",
        "service",
        "setting",
        "size",
        "waited",
    }
)
"""Facts of a failure that are numbers or words of this pack. What is not among them may quote a server, which may quote
what it was sent."""

OWN_EVENTS = frozenset(
    {"cap.breached", "negotiation.decided", "node.cancelled", "node.skipped", "node.started", "node.suspended"}
)
"""Events about a node that hold no value of the run."""

_Change = Callable[[str, bytes], bytes]


@dataclass(slots=True)
class _Hidden:
    """What is masked of a node: inputs by their names in the definition, such as ``arguments.key``, and outputs.

    Of one that calls no server, ``own``, all else that it asks is its author's and masked nowhere.
    """

    own: bool
    inputs: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)


class Masks:
    """What is masked of a run.

    Args:
        variables: The sensitive ones.
        nodes: Of each node that takes or gives something masked, what that is.
    """

    def __init__(self, variables: frozenset[str], nodes: Mapping[str, _Hidden]) -> None:
        self._variables = variables
        self._nodes = nodes

    def event(self, event_type: str, node_id: str | None, payload: bytes) -> bytes:
        """The payload of an event as it may be shown; the very bytes where nothing in it is masked."""
        match event_type:
            case "run.started":
                return _each(payload, self._of_start)
            case "run.completed":
                return _each(payload, self._of_completed_run)
            case "run.failed":
                failed = jsontext.member(payload, "failedNodeId")
                node_id = None if failed is None else jsontext.decode(failed)
        hidden = self._nodes.get(node_id or "")
        if hidden is None or event_type in OWN_EVENTS:
            return payload
        if event_type == "interrupt.requested":
            return _question(hidden, payload)
        return _each(payload, _RULES.get(event_type, _unknown)(hidden))

    def call(self, call: MadeCall) -> MadeCall:
        """What is told of a call, as it may be shown. Its result is not looked at."""
        hidden = self._nodes.get(call.name)
        if hidden is None:
            return call
        mask = jsontext.decode(MASK)
        failure = call.failure
        return dataclasses.replace(
            call,
            server_id=mask if "serverId" in hidden.inputs else call.server_id,
            subject=mask if call.subject and not hidden.inputs.isdisjoint({"name", "uri"}) else call.subject,
            failure=failure
            and dataclasses.replace(failure, message=mask, details=_each(failure.details, _of_facts(hidden))),
        )

    def hides(self, node_id: str) -> bool:
        """Whether a node takes or gives something masked, so that a server's words about it are not shown."""
        return node_id in self._nodes

    def _of_start(self, name: str, value: bytes) -> bytes:
        return _each(value, _masking(self._variables)) if name == "inputs" else value

    def _of_completed_run(self, name: str, value: bytes) -> bytes:
        return _each(value, self._of_node) if name == "outputs" else value

    def _of_node(self, node_id: str, outputs: bytes) -> bytes:
        hidden = self._nodes.get(node_id)
        return outputs if hidden is None else _each(outputs, _masking(hidden.outputs))


def masks(definition: Definition | None, text: bytes) -> Masks | None:
    """Find what is masked of the runs of a definition.

    Args:
        definition: The definition; None where it cannot be run.
        text: What it was, or was to be, read from.

    Returns:
        None where nothing is.
    """
    if definition is None:
        variables = _declared(text)
        return Masks(variables, {}) if variables else None
    variables = frozenset(variable.name for variable in definition.variables if variable.sensitive)
    nodes = _spread(definition, variables)
    return Masks(variables, nodes) if variables or nodes else None


def _declared(text: bytes) -> frozenset[str]:
    """The sensitive variables of what is no sound definition, as far as it tells of any."""
    try:
        found = jsontext.decode(text)
    except jsontext.JsonTextError:
        return frozenset()
    variables = found.get("variables") if isinstance(found, dict) else None
    return frozenset(
        str(one.get("name"))
        for one in (variables if isinstance(variables, list) else [])
        if isinstance(one, dict) and one.get("sensitive") is True
    )


def _spread(definition: Definition, variables: frozenset[str]) -> dict[str, _Hidden]:
    """Follow sensitive values through the graph: a node that takes one may give it back, unless its author says no."""
    readers: dict[tuple[str, str], list[tuple[Node, str]]] = defaultdict(list)
    taken: list[tuple[Node, str]] = []
    given: list[tuple[Node, str]] = []
    for node in definition.nodes:
        for name, port in node.inputs:
            if isinstance(port, Connection):
                readers[port.node_id, port.path[0]].append((node, name))
            elif isinstance(port, VariableRef) and port.name in variables:
                taken.append((node, name))
        # What a node takes from the run of its own accord bears the name of its input.
        taken += [(node, name) for name in node.type.ambient if name in variables]
        given += [(node, name) for name, masked in node.sensitivity if masked]
    found: dict[str, _Hidden] = {}

    def hidden(node: Node) -> _Hidden:
        return found.setdefault(node.id, _Hidden(own=node.type.run != "activity"))

    while taken or given:
        if taken:
            node, name = taken.pop()
            if not hidden(node).inputs:
                said = dict(node.sensitivity)
                given += [(node, output) for output in node.type.output_names if said.get(output, True)]
            hidden(node).inputs.add(name)
        else:
            node, name = given.pop()
            if name not in hidden(node).outputs:
                hidden(node).outputs.add(name)
                taken += readers[node.id, name]
    return found


# --- places in events -------------------------------------------------------------------------------------------------


def _each(text: bytes, change: _Change) -> bytes:
    """An object with its members changed: the text itself where none is. What is no object is masked as a whole."""
    if jsontext.kind(text) != "object":
        return MASK
    before = jsontext.members(text)
    after = [(name, change(name, value)) for name, value in before]
    return text if after == before else jsontext.build(after)


def _masking(names: frozenset[str] | set[str]) -> _Change:
    return lambda name, value: MASK if name in names else value


def _unknown(_: _Hidden) -> _Change:
    """An event about which nothing is said here shows which node it is about."""
    return lambda name, value: value if name == "nodeId" else MASK


def _of_completed(hidden: _Hidden) -> _Change:
    return lambda name, value: _each(value, _masking(hidden.outputs)) if name == "outputs" else value


def _of_failed(hidden: _Hidden) -> _Change:
    def of_error(name: str, value: bytes) -> bytes:
        if name == "details":
            return _each(value, _of_facts(hidden))
        return value if name in {"code", "retryable"} else MASK

    return lambda name, value: _each(value, of_error) if name in {"error", "lastError"} else value


def _of_facts(hidden: _Hidden) -> _Change:
    """What is known of a call: own words, and what the node was given as far as that is not masked."""

    def of_fact(name: str, value: bytes) -> bytes:
        if name in OWN_FACTS:
            return value
        if name in {"serverId", "name", "uri", "idempotencyKey"}:
            return MASK if name in hidden.inputs else value
        if name == ARGUMENTS and name not in hidden.inputs:
            return _each(value, lambda member, one: MASK if f"{ARGUMENTS}.{member}" in hidden.inputs else one)
        return MASK

    return of_fact


def _question(hidden: _Hidden, payload: bytes) -> bytes:
    """What a node asks. A server's words may quote what it was given, and so may the schema that it wants held to."""
    data = jsontext.member(payload, "data") or b"{}"
    if hidden.own:
        change = _masking({"artifactData"} & hidden.inputs)
        return _each(payload, lambda name, value: _each(value, change) if name == "data" else value)
    if jsontext.member(data, "questions") is None:
        return _each(payload, lambda name, value: _each(value, _of_approval(hidden, data)) if name == "data" else value)

    def of_member(name: str, value: bytes) -> bytes:
        if name == "resumeSchema":
            return b'{"type":"object"}'
        return _each(value, _of_questions(hidden)) if name == "data" else value

    return _each(payload, of_member)


def _of_questions(hidden: _Hidden) -> _Change:
    """A server's questions keep their keys, by which they are answered, and their number."""
    named = not hidden.inputs.isdisjoint({"serverId", "name"})

    def of_data(name: str, value: bytes) -> bytes:
        if name == "questions":
            asked = [jsontext.member(one, "id") or MASK for one in jsontext.elements(value)]
            return b"[" + b",".join(jsontext.build([("id", key), ("question", MASK)]) for key in asked) + b"]"
        return MASK if named or name != "contextType" else value

    return of_data


def _of_approval(hidden: _Hidden, data: bytes) -> _Change:
    named = not hidden.inputs.isdisjoint({"serverId", "name"})
    # Of a call that was not made there is nothing that quotes a server.
    uncalled = jsontext.member(data, "artifactType") == jsontext.encode(ARTIFACT)

    def of_data(name: str, value: bytes) -> bytes:
        match name:
            case "artifactId" | "artifactType" | "actions":
                return value
            case "title":
                return MASK if named else value
            case "description":
                return value if uncalled else jsontext.encode(f"{jsontext.decode(MASK)}. {MEANINGS}")
            case "artifactData":
                return _each(value, _of_facts(hidden))
        return MASK

    return of_data


def _of_answer(hidden: _Hidden) -> _Change:
    """A person's answer can be the node's result, and is masked where that is; or what a server wanted to be told."""

    def of_value(name: str, value: bytes) -> bytes:
        return value if name in {"action", "decidedAt", "decidedBy"} and jsontext.kind(value) == "string" else MASK

    def of_answer(name: str, value: bytes) -> bytes:
        if name == "resumeValue" and (hidden.outputs or not (hidden.own or _is_decision(value))):
            return _each(value, of_value)
        return MASK if name in {"editedArtifactData", "refineFeedback"} and hidden.outputs else value

    return of_answer


def _is_decision(answer: bytes) -> bool:
    """Whether this answers an approval: what answers a server has an object for each of its keys."""
    action = jsontext.member(answer, "action") if jsontext.kind(answer) == "object" else None
    return action is not None and jsontext.kind(action) == "string"


_RULES: Mapping[str, Callable[[_Hidden], _Change]] = {
    "node.completed": _of_completed,
    "node.retried": _of_failed,
    "node.failed": _of_failed,
    "run.failed": _of_failed,
    "interrupt.resolved": _of_answer,
    "node.resumed": _of_answer,
}
"""How the payload of an event about a node with something masked is shown, member by member."""
