"""A token as it is used, and what a server wants in place of it. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from openwop_mcp.client.auth._challenge import bearer
from openwop_mcp.client.auth._fetch import shown
from openwop_mcp.client.auth._grants import TokenAnswer
from openwop_mcp.client.auth._scopes import Scopes, split
from openwop_mcp.errors import AuthorizationError

__all__ = ("Demand", "Held", "due", "expiry", "refuse_fresh")

UNAUTHORIZED = 401
FORBIDDEN = 403

EARLY = 30.0
"""Seconds before its end at which a token is renewed: a request is under way for a while, and clocks differ."""

EARLY_PART = 0.1
"""Part of its life; tokens that live for less than five minutes are not renewed all the time."""


@dataclass(frozen=True, slots=True)
class Held:
    """A token in use.

    Attributes:
        access_token: The token.
        issuer: Who issued it.
        identity: What it stands for: issuer, client, login and scopes. Another identity may see other things.
        due_at: When to renew it, in seconds of the epoch; None for when it is refused.
        expires_at: When it ends; None if that is unknown.
        new: Whether it was issued because the server refused what was sent before.
    """

    access_token: str = field(repr=False)
    issuer: str
    identity: tuple[str, ...]
    due_at: float | None = None
    expires_at: float | None = None
    new: bool = False

    @property
    def header(self) -> str:
        """The value of ``Authorization``."""
        return f"Bearer {self.access_token}"

    def due(self, now: float) -> bool:
        """Whether another one is needed."""
        return self.due_at is not None and now >= self.due_at

    def ended(self, now: float) -> bool:
        """Whether it cannot be used any more."""
        return self.expires_at is not None and now >= self.expires_at


def expiry(answer: TokenAnswer, now: float) -> float | None:
    """When a token ends that was issued now."""
    return None if answer.expires_in is None else now + answer.expires_in


def due(obtained_at: float, expires_at: float | None) -> float | None:
    """When to renew a token."""
    if expires_at is None:
        return None
    return expires_at - min(EARLY, EARLY_PART * max(expires_at - obtained_at, 0.0))


@dataclass(frozen=True, slots=True)
class Demand:
    """What a server wants that refused a request.

    Attributes:
        refused: The token that it refused; None if there was none.
        metadata: Where it says that its metadata is.
        scopes: What it wants the token to be good for.
        step_up: Whether that is all it wants: the token is good, and not for this.
        fresh: Whether the token had been used for nothing else, and had been issued for this server just before.
    """

    refused: Held | None = None
    metadata: str | None = None
    scopes: Scopes = ()
    step_up: bool = False
    fresh: bool = False

    @classmethod
    def of(cls, status: int, challenges: Sequence[str], refused: Held | None, *, fresh: bool) -> Demand | None:
        """Read a refusal; None if no token would change it."""
        step_up = status == FORBIDDEN
        if status not in {UNAUTHORIZED, FORBIDDEN}:
            return None
        found = bearer(challenges, "insufficient_scope" if step_up else None)
        if found is None and step_up:
            return None
        parameters = found.parameters if found is not None else {}
        return cls(refused, parameters.get("resource_metadata"), split(parameters.get("scope")), step_up, fresh)


def refuse_fresh(demand: Demand, issuer: str) -> None:
    """Stop a round that has no end: a new token would be refused like the one that was new.

    Raises:
        AuthorizationError: Cause ``token_refused``.
    """
    again = demand.fresh and not demand.step_up
    if again and demand.refused is not None and demand.refused.issuer == issuer:
        raise AuthorizationError(
            f"the server refuses the token that {shown(issuer)} has just issued for it: see whether the client may use"
            " this server, and whether both agree on the audience of tokens",
            cause="token_refused",
        )
