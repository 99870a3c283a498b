"""The nodes that wait for people by themselves: their config as a question, and an answer as the node's end. Pure.

Configs have passed the models of the node registry. Nothing but a person's answer opens a gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.custom import check_kind, check_own, own_question
from openwop_mcp.questions.expiry import REJECTED
from openwop_mcp.questions.question import Kind, Question

__all__ = ("APPROVAL", "CLARIFICATION", "GATES", "INTERRUPT", "Outcome", "check_gate", "gate_outcome", "gate_question")

APPROVAL = "core.approvalGate"
CLARIFICATION = "core.clarificationGate"
INTERRUPT = "core.interrupt"

GATES = frozenset({APPROVAL, CLARIFICATION, INTERRUPT})
"""The types of these nodes."""

ACTIONS = ("accept", "reject")
"""What can be said at a gate whose config does not say it."""

ARTIFACT = "openwop-mcp.gate"
"""What is approved where the config does not say it: that the run goes on past this node."""

_TOLD = ("description", "artifactId", "artifactType", "approversList")
"""Members of a gate's config that its question takes over as they are; ``onTimeout`` and ``profile`` tell no person."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a node ends.

    Attributes:
        outputs: What it gives; None where it fails.
        code: Code of the failure.
        message: Why, for people.
        details: What else is known of it, as JSON text.
    """

    outputs: Mapping[str, bytes] | None
    code: str = ""
    message: str = ""
    details: bytes = b"{}"


def gate_question(type_id: str, config: bytes, inputs: Mapping[str, bytes], *, key: str, node_id: str) -> Question:
    """What a gate asks.

    Args:
        type_id: Its type, one of :data:`GATES`.
        config: JSON text of its config.
        inputs: JSON texts of its inputs.
        key: Names the question in its run.
        node_id: The node.
    """
    given = dict(jsontext.members(config))
    timeout_ms = int(jsontext.decode(given["timeoutMs"])) if "timeoutMs" in given else None
    kind: Kind
    schema: bytes | None
    match type_id:
        case "core.approvalGate":
            kind, data = "approval", _approval(given, inputs, node_id)
            schema = _of_actions(_actions(given))
        case "core.clarificationGate":
            kind, data = "clarification", jsontext.build([("questions", given["questions"])])
            schema = _of_questions(given["questions"])
        case _:
            kind, data = cast("Kind", jsontext.decode(given["kind"])), given["data"]
            schema = given.get("resumeSchema")
    return own_question(kind, data, key=key, resume_schema=schema, timeout_ms=timeout_ms)


def check_gate(type_id: str, config: bytes, resume_value: bytes) -> None:
    """Tell whether an answer may be given to a gate.

    Takes processor time, so that it stands apart from what a replay does again.

    Raises:
        InvalidRequestError: It may not; the message names the place and echoes no value.
    """
    asked = gate_question(type_id, config, {}, key="-", node_id="-")
    if type_id == INTERRUPT:
        check_own(asked.payload, resume_value)
    else:
        # The schema of its answer is made of what is checked here one by one.
        check_kind(asked.kind, jsontext.member(asked.payload, "data") or b"{}", resume_value)
    if asked.kind == "approval" and _action(resume_value) == "ask":
        raise InvalidRequestError(
            "'ask' would leave the question open with nobody told of it: write another 'action', once you know",
            path="action",
        )


def gate_outcome(type_id: str, config: bytes, resume_value: bytes) -> Outcome:
    """How a gate ends with an answer that :func:`check_gate` has let through."""
    kind = gate_question(type_id, config, {}, key="-", node_id="-").kind
    given = dict(jsontext.members(resume_value)) if jsontext.kind(resume_value) == "object" else {}
    if kind == "approval" and _action(resume_value) == "reject":
        return Outcome(None, REJECTED, "the approval that the node waited for was rejected")
    match type_id:
        case "core.approvalGate":
            edited = {name: given[name] for name in ("editedArtifactData",) if name in given}
            return Outcome({"action": given["action"], "resumeValue": resume_value, **edited})
        case "core.clarificationGate":
            return Outcome({"answers": given["answers"]})
        case _:
            return Outcome({"resumeValue": resume_value})


def _action(resume_value: bytes) -> object:
    return jsontext.decode(jsontext.member(resume_value, "action") or b"null")


def _approval(config: Mapping[str, bytes], inputs: Mapping[str, bytes], node_id: str) -> bytes:
    told = {
        "artifactId": jsontext.encode(node_id),
        "artifactType": jsontext.encode(ARTIFACT),
        "title": config["title"],
        "actions": jsontext.encode(_actions(config)),
        **{name: config[name] for name in _TOLD if name in config},
        # Nothing but a person's word grants what is asked, so that every wish for another end means this one.
        **({"onTimeout": b'"reject"'} if "onTimeout" in config else {}),
        **({"artifactData": inputs["artifactData"]} if "artifactData" in inputs else {}),
    }
    return jsontext.build(told.items())


def _actions(config: Mapping[str, bytes]) -> list[str]:
    return list(jsontext.decode(config["actions"])) if "actions" in config else list(ACTIONS)


def _of_actions(actions: list[str]) -> bytes:
    """The schema of an approval's answer."""
    rest = {
        "if": {"properties": {"action": {"const": "edit-accept"}}},
        "then": {"required": ["editedArtifactData"]},
    }
    schema = {
        "type": "object",
        "required": ["action"],
        "properties": {"action": {"enum": actions}},
        **(rest if "edit-accept" in actions else {}),
    }
    return jsontext.encode(schema)


def _of_questions(questions: bytes) -> bytes:
    """The schema of the answers: for each question its own, a string where it has none."""
    asked = [dict(jsontext.members(one)) for one in jsontext.elements(questions)]
    properties = [(jsontext.decode(one["id"]), one.get("schema", b'{"type":"string"}')) for one in asked]
    answers = jsontext.build(
        [
            ("type", b'"object"'),
            ("required", jsontext.encode([name for name, _ in properties])),
            ("properties", jsontext.build(properties)),
            ("additionalProperties", b"false"),
        ]
    )
    return jsontext.build(
        [("type", b'"object"'), ("required", b'["answers"]'), ("properties", jsontext.build([("answers", answers)]))]
    )
