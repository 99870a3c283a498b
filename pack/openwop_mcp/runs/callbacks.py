"""The notification that a run waits for an answer: what the activity that delivers it is given. Knows no network.

Delivered at least once: where a run goes on as another one of Temporal's, what is still open is told again.
"""

from __future__ import annotations

from dataclasses import dataclass

from openwop_mcp import jsontext

__all__ = ("MAX_DATA", "NOTIFY", "Callback")

NOTIFY = "interrupt.notify"
"""Activity type; persisted in histories, so never renamed."""

MAX_DATA = 16 * 1024
"""Bytes of what is asked that go with a notification. They stand in history a second time; who is told of a longer
question reads it where the link leads."""


@dataclass(frozen=True, slots=True)
class Callback:
    """What the caller of a run is told of an open interrupt.

    Attributes:
        url: Where it wants to be told.
        run_id: The run.
        node_id: The node that waits.
        interrupt_id: Names the interrupt, and the notification.
        kind: Its kind.
        key: Names the question in its run.
        data: JSON text of what is asked; None where it is too long, or nothing of the node may be shown.
        until: Milliseconds since 1970 after which nobody is waited for any more; None for as long as it takes.
        takes_tokens: Whether it can be answered by a link. Otherwise it takes a key of the host.
    """

    url: str
    run_id: str
    node_id: str
    interrupt_id: str
    kind: str
    key: str
    data: bytes | None = None
    until: int | None = None
    takes_tokens: bool = True

    def encode(self) -> bytes:
        """JSON text, the data in it byte for byte."""
        members = [
            ("url", jsontext.encode(self.url)),
            ("takesTokens", jsontext.encode(self.takes_tokens)),
            *self.shown,
        ]
        if self.until is not None:
            members.append(("until", jsontext.encode(self.until)))
        return jsontext.build(members)

    @classmethod
    def decode(cls, data: bytes) -> Callback:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer worker."""
        members = dict(jsontext.members(data))
        told = {name: jsontext.decode(text) for name, text in members.items() if name != "data"}
        return cls(
            told["url"],
            told["runId"],
            told["nodeId"],
            told["interruptId"],
            told["kind"],
            told["key"],
            members.get("data"),
            told.get("until"),
            told["takesTokens"],
        )

    @property
    def shown(self) -> list[tuple[str, bytes]]:
        """The members of the notification that follow from the interrupt: JSON texts by name."""
        told = {
            "runId": self.run_id,
            "nodeId": self.node_id,
            "interruptId": self.interrupt_id,
            "kind": self.kind,
            "key": self.key,
        }
        members = [(name, jsontext.encode(value)) for name, value in told.items()]
        return members if self.data is None else [*members, ("data", self.data)]
