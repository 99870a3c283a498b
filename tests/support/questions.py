"""Questions for tests: what servers ask, what gates are made of, and what all of them can be answered with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

ELICITATION: Mapping[str, Any] = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which colour?",
        "requestedSchema": {
            "type": "object",
            "properties": {"colour": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
            "required": ["colour"],
        },
    },
}
"""One request for input."""

APPROVAL_FACTS = (
    b'{"serverId":"weather","name":"get","safetyTier":"write","approval":"always","effectId":"acme/e1",'
    b'"keying":"activity-recipe","providerKey":"e1"}'
)
"""What an activity says of a call that needs approval."""

GATE_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "core.approvalGate": {"title": "Go on?", "actions": ["accept", "reject", "refine", "edit-accept", "ask"]},
    "core.clarificationGate": {"questions": [{"id": "q", "question": "Which colour?"}]},
    "core.interrupt": {"kind": "external-event", "data": {"eventType": "paid", "correlation": {"order": 17}}},
}
"""A config of each kind of gate."""

ANSWERS: Mapping[tuple[str, str], Sequence[bytes]] = {
    ("in-doubt", "approval"): [
        b'{"action":"accept"}',
        b'{"action":"reject"}',
        b'{"action":"edit-accept", "editedArtifactData":{"content":[],"n":1.10}}',
    ],
    ("approval-required", "approval"): [b'{"action":"accept"}', b'{"action":"reject"}'],
    ("input-required", "clarification"): [
        b'{"q":{"action":"accept","content":{"colour":"r\\u00f6t", "count":1.0}}}',
        b'{"q":{"action":"decline"}}',
        b'{"q":{"action":"cancel"}}',
    ],
    ("gate", "approval"): [
        b'{"action":"accept"}',
        b'{"action":"reject"}',
        b'{"action":"refine","refineFeedback":{"scope":"whole","text":"shorter"}}',
        b'{"action":"edit-accept","editedArtifactData":[1.10]}',
    ],
    ("gate", "clarification"): [b'{"answers":{"q":"red"}}'],
    ("gate", "external-event"): [b'{"order":17.0,"amount":1.10}'],
}
"""Answers that are taken, by reason and kind of the question."""


def input_required(requests: Mapping[str, Any] | None = None, state: str | None = None) -> bytes:
    """A server's request for input."""
    asked = {} if requests is None else {"inputRequests": requests}
    kept = {} if state is None else {"requestState": state}
    return json.dumps({"resultType": "input_required", **asked, **kept}).encode()
