"""What holds for a tool: the settings, over them what operators said of this definition, and the doubt after drift.

Pure: knows the settings' types and no catalog. Nothing that a server says of its tools counts here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from openwop_mcp import jsontext
from openwop_mcp.config import EffectivePolicy, Server, ToolPolicy

__all__ = (
    "CLASSIFIED",
    "Approval",
    "Classification",
    "Standing",
    "effective",
    "refusal",
    "stricter",
    "unclassified",
    "values",
)

Approval = Literal["never", "write", "always"]
"""When a person approves calls, the laxest first."""

CLASSIFIED = {
    "safetyTier": "safety_tier",
    "replayPolicy": "replay_policy",
    "egress": "egress",
    "approval": "approval",
}
"""What an operator can say of a tool while all runs: names on the wire, and the settings' fields of the same values."""

UNCLASSIFIED = {
    "safety_tier": "write",
    "replay_policy": "non-deterministic",
    "egress": "host-mediated",
}
"""What holds of a tool that nobody has looked at. Whether it needs approval, and is kept from being called, does not
change with its definition."""


@dataclass(frozen=True, slots=True)
class Classification:
    """What an operator said of one definition of a tool; a field that is None is left to the settings.

    Attributes:
        fingerprint: The definition that was looked at. For another one this is void.
        by: Who said it.
        at: When, in milliseconds since 1970.
        why: Why, in their words.
    """

    fingerprint: str
    by: str
    at: int
    why: str
    safety_tier: Literal["pure", "read", "write"] | None = None
    replay_policy: Literal["deterministic", "idempotent", "non-deterministic"] | None = None
    egress: Literal["none", "safe-fetch", "host-mediated", "host-owned"] | None = None
    approval: Approval | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """What it says, by the settings' field."""
        said = {field: getattr(self, field) for field in CLASSIFIED.values()}
        return {field: value for field, value in said.items() if value is not None}

    def encode(self) -> bytes:
        """JSON text; what is not said is left out."""
        said = {name: value for name, field in CLASSIFIED.items() if (value := getattr(self, field)) is not None}
        return jsontext.encode({"fingerprint": self.fingerprint, "by": self.by, "at": self.at, "why": self.why, **said})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer version."""
        told = jsontext.decode(data)
        said = {field: told[name] for name, field in CLASSIFIED.items() if name in told}
        return cls(told["fingerprint"], told["by"], told["at"], told["why"], **said)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a tool stands in the catalog of its server.

    Attributes:
        fingerprint: Of the definition that its server lists, or listed last; None where it lists several.
        drifted: Whether that is another one than was accepted.
        unusable: Why it cannot be called; None if it can.
        classification: What an operator said of that very definition.
        approval: Whether a person approves calls, as an operator said it last, of whichever definition.
    """

    fingerprint: str | None
    drifted: bool
    unusable: str | None
    classification: Classification | None
    approval: Approval | None = None


def effective(server: Server, tool: str, standing: Standing | None) -> EffectivePolicy:
    """What holds for a tool.

    Args:
        server: The server's settings.
        tool: The tool's name.
        standing: How it stands in the catalog; None where it is not known, and the settings alone count.
    """
    policy = server.policy(tool)
    if standing is None:
        return policy
    said = standing.classification.fields if standing.classification is not None else {}
    if standing.drifted or standing.classification is None:
        # A server that changes a definition voids what was said of it, but takes no person out of the way.
        said["approval"] = stricter(policy.approval, standing.approval)
    policy = policy.model_copy(update=said)
    return unclassified(policy) if standing.drifted else policy


def stricter(one: Approval | None, other: Approval | None) -> Approval | None:
    """Of two words on whether a person approves, the one that asks more often; None where neither was said."""
    said: list[Approval] = [word for word in (one, other) if word is not None]
    return max(said, key=values("approval").index, default=None)


def unclassified(policy: EffectivePolicy) -> EffectivePolicy:
    """The same policy as if nobody had looked at the tool: a call whose outcome is unknown is not sent again either."""
    on_doubt = "fail" if policy.on_doubt == "resend" else policy.on_doubt
    return policy.model_copy(update={**UNCLASSIFIED, "on_doubt": on_doubt})


def refusal(policy: EffectivePolicy, standing: Standing | None) -> str | None:
    """Why a call is refused, and what to do about it; None if it may be made."""
    if standing is None:
        return None
    if standing.unusable is not None:
        return f"the tool cannot be called: {standing.unusable}; 'worker.py tools show SERVER TOOL' has its definition"
    if standing.drifted and policy.quarantine:
        return (
            "the tool's definition has changed, and its settings say quarantine: see 'worker.py tools diff SERVER',"
            " then accept it with 'worker.py tools approve SERVER TOOL', or take quarantine out and restart the workers"
        )
    return None


def values(name: str) -> tuple[str, ...]:
    """The values that a member of a classification can have, by its name on the wire."""
    return get_args(ToolPolicy.model_fields[CLASSIFIED[name]].annotation)
