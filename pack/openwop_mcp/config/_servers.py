"""The table of an MCP server: how it is reached, what it is given, and what holds for its tools.

Knows nothing of what a server says of itself.
"""

from __future__ import annotations

import fnmatch
import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, model_validator

from openwop_mcp.config._secrets import Credential, VariableRef
from openwop_mcp.config._tables import Table, fault
from openwop_mcp.config._values import CREDENTIAL_FORMS, AsTuple, NotEmpty, Seconds, TenantOrAll, Text, Url
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.protocol.keys import DEFAULT_CARRIERS, KeyArgument, KeyCarrier
from openwop_mcp.protocol.revisions import LEGACY, MODERN

__all__ = (
    "TOOLS_COMMANDS",
    "EffectivePolicy",
    "Retry",
    "Server",
    "ServerId",
    "Timeouts",
    "ToolPolicy",
)

MAX_TOTAL = 3600
"""Seconds for one call. The worker's activities are cut off a little later than this."""

TOOLS_COMMANDS = frozenset({"list", "show", "diff", "classify", "approve", "decisions"})
"""`tools SERVER` is short for `tools list SERVER`, so no server may be called like a subcommand of `tools`."""

COMMAND_FORM = 'command = ["mcp-server-time"]'
CARRIER_FORMS = (
    'key_carriers = ["header", "meta"], also with { argument = "idempotency_key" } for one of the tool\'s arguments, '
    "or [] for none"
)

_SERVER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_GLOB = re.compile(r"\[[^\]]+\]|[*?]")
_RETRY = RetryPolicy()


def _server_id(text: str) -> str:
    if text in TOOLS_COMMANDS:
        raise fault(f"`tools {text}` is a command: give the server another id")
    if _SERVER_ID.fullmatch(text) is None:
        raise fault("not a server id: write 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def _key_carrier(value: object) -> KeyCarrier:
    # Judged before pydantic does, whose unions name their branches in the place of a fault.
    match value:
        case "header" | "meta" | KeyArgument():
            return value
        case {"argument": str(name), **others} if name and not others:
            return KeyArgument(name)
    raise ValueError


def _each_once(carriers: tuple[KeyCarrier, ...]) -> tuple[KeyCarrier, ...]:
    if sum(isinstance(carrier, KeyArgument) for carrier in carriers) > 1:
        raise fault("two arguments for one key: keep the one that the server's tools take it in")
    if len(set(carriers)) < len(carriers):
        raise fault("a carrier stands twice: keep one")
    return carriers


ServerId = Annotated[str, AfterValidator(_server_id)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Carrier = Annotated[KeyCarrier, BeforeValidator(_key_carrier)]


class Timeouts(Table):
    """Seconds that a server is given. A local tool answers at once, a remote one may compute for minutes."""

    connect: Seconds = Field(5.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    """Until there is a connection."""

    first_byte: Seconds = Field(30.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    """From then until the answer begins."""

    idle: Seconds = Field(60.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    """Between two pieces of the answer; news of progress counts as one."""

    total: Seconds = Field(300.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    """For all of it."""

    def narrowed(self, seconds: float) -> Timeouts:
        """These limits for one call that is given less: none of them over ``seconds``."""
        return self.model_copy(
            update={
                "connect": min(self.connect, seconds),
                "first_byte": min(self.first_byte, seconds),
                "idle": min(self.idle, seconds),
                "total": min(self.total, seconds),
            }
        )


class Retry(Table):
    """How often a call may be tried again; see ``RetryPolicy`` for what each bounds."""

    attempts: int = Field(_RETRY.attempts, ge=1, le=100, description="a whole number from 1 to 100")
    """How often a call is sent at most, the first time included."""

    max_wait: float = Field(_RETRY.max_wait, ge=0, le=86_400, description="seconds from 0 to 86400")
    """For one wait, a server's ``Retry-After`` included."""

    total: float = Field(_RETRY.total, ge=0, le=86_400, description="seconds from 0 to 86400")
    """For all waits of one call together."""

    @property
    def policy(self) -> RetryPolicy:
        """What the retry table takes."""
        return RetryPolicy(self.attempts, self.max_wait, self.total)


class ServerLimits(Table):
    """How much of a server one worker asks at once. What is over it waits, durably, and is not sent."""

    in_flight: int | None = Field(None, ge=1, le=10_000, description="a whole number from 1 to 10000")
    """Calls under way at once."""

    rate: float | None = Field(None, ge=0.001, le=10_000, description="calls a second, from 0.001 to 10000")
    """Calls a second, in the long run."""

    burst: int | None = Field(None, ge=1, le=10_000, description="a whole number from 1 to 10000")
    """Calls that ``rate`` lets through at once after a rest; by default as many as it lets through in a second, and one
    at least."""

    patience: float = Field(300.0, ge=0, le=86_400, description="seconds from 0 to 86400")
    """For which a call waits in all, over and over, until there is room for it; then it fails."""

    @property
    def most_at_once(self) -> int:
        """Calls that the rate lets through at once."""
        return self.burst or max(1, int(self.rate or 1))

    @model_validator(mode="after")
    def _burst_of_a_rate(self) -> Self:
        if self.burst is not None and self.rate is None:
            raise fault("burst is how many calls a rate lets through at once: write rate = 10, or take it out")
        return self


class CircuitSettings(Table):
    """When a server that cannot be reached is left alone, so that calls wait for it and use up no attempts."""

    failures: int = Field(5, ge=0, le=1_000, description="a whole number from 1 to 1000, or 0 for never")
    """Connections in a row that have to fail: to resolve its name, to connect, or to agree on TLS."""

    rest: float = Field(2.0, ge=0.1, le=3_600, description="seconds from 0.1 to 3600")
    """For which it is then left alone, before one call finds out whether it is back."""

    patience: float = Field(5.0, ge=0, le=86_400, description="seconds from 0 to 86400")
    """For which a call waits in all for it to come back; then it fails. By default as long as a restart takes: a server
    that is gone fails a run about as soon as the call's own attempts would."""


class ToolPolicy(Table):
    """What the host says of a tool. The defaults are those of a tool that nobody has classified."""

    safety_tier: Literal["pure", "read", "write"] = Field("write", description='"pure", "read" or "write"')
    """What a call may do: nothing, look, or change something."""

    replay_policy: Literal["deterministic", "idempotent", "non-deterministic"] = Field(
        "non-deterministic", description='"deterministic", "idempotent" or "non-deterministic"'
    )
    """What the same call does a second time; decides whether it may be sent again."""

    egress: Literal["none", "safe-fetch", "host-mediated", "host-owned"] = Field(
        "host-mediated", description='"none", "safe-fetch", "host-mediated" or "host-owned"'
    )
    """Where the tool reaches, as the catalog tells it. It is not enforced."""

    on_doubt: Literal["fail", "ask", "resend"] = Field("fail", description='"fail", "ask" or "resend"')
    """What becomes of a call that may have acted and is not safe to repeat: an error, a question to a person, or, since
    the operator would rather have the effect twice than not at all, the call once more."""

    approval: Literal["never", "write", "always"] = Field("never", description='"never", "write" or "always"')
    """Whether a person has to approve each call before it is sent: for tools of tier "write" alone, or for any."""

    quarantine: bool = Field(default=False, description="quarantine = true or quarantine = false")
    """Whether calls are refused once the server lists another definition than was accepted, until it is approved."""


class EffectivePolicy(ToolPolicy):
    """What holds for one tool of one server: what the host says of the tool, and of the server."""

    honours_key: bool = False

    @property
    def repeat_safe(self) -> bool:
        """Whether a call whose outcome is unknown may be sent again."""
        insisted = self.on_doubt == "resend"
        return self.honours_key or insisted or self.safety_tier != "write" or self.replay_policy != "non-deterministic"

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve each call."""
        return self.approval == "always" or (self.approval == "write" and self.safety_tier == "write")


class Server(Table):
    """An MCP server, who may use it, and what the host knows of its tools."""

    url: Url | None = Field(None, description='the address of its endpoint, as in url = "https://example.org/mcp"')
    """A server over Streamable HTTP. The URL is taken as it stands."""

    command: Annotated[tuple[Text, ...], AsTuple, NotEmpty] | None = Field(
        None, description=f"a program and its arguments, as in {COMMAND_FORM}"
    )
    """A server of this machine, over standard input and output; run as it stands, without a shell."""

    environment: dict[VariableName, VariableRef] = Field(
        default={}, description='variables for the command, as in environment = { API_TOKEN = { env = "NAME" } }'
    )
    """Beside what every program needs (PATH, HOME and the like). Nothing else of the worker's environment is passed on:
    it holds the credentials of other servers."""

    tenants: Annotated[tuple[TenantOrAll, ...], AsTuple, NotEmpty] = Field(
        ("*",), description='tenants = ["*"], or their names: 1 to 128 of A-Z a-z 0-9 . _ - each'
    )
    """Whose calls it takes. To others there is no such server."""

    network: Literal["public", "private", "any"] = Field("public", description='"public", "private" or "any"')
    """Where its address must lie, so that a name cannot lead a call into the operator's own network."""

    minimum_revision: Literal["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"] = Field(
        "2026-07-28",
        description=", ".join(f'"{revision}"' for revision in (MODERN, *LEGACY[:-1])) + f' or "{LEGACY[-1]}"',
    )
    """The oldest revision of MCP to speak with it. Older ones are spoken only if asked for."""

    validate_schemas: Literal["off", "warn", "refuse"] = Field(
        "warn", alias="validate", description='"off", "warn" or "refuse"'
    )
    """What arguments that break a tool's input schema lead to, where a page with the tool is at hand."""

    log_level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] | None = Field(
        None, description='"debug", "info", "notice", "warning", "error", "critical", "alert" or "emergency"'
    )
    """From which level on the server may send log messages with an answer; they go to the worker's log."""

    server_class: Text | None = Field(
        None, alias="class", description='a class of [worker.classes], as in class = "slow"'
    )
    """Which task queue and slots its calls have, so that they keep no other server's waiting."""

    credential: Credential | None = Field(None, description=CREDENTIAL_FORMS)
    """What it is shown with each request."""

    echoed_credentials: Literal["redact", "fail"] = Field("redact", description='"redact" or "fail"')
    """What becomes of a result that holds a credential of the server: it is recorded without it, or not at all."""

    timeouts: Timeouts = Field(Timeouts(), description="a table, as in timeouts = { connect = 5, total = 300 }")
    """How long an attempt may take."""

    retry: Retry = Field(Retry(), description="a table, as in retry = { attempts = 3 }")
    limits: ServerLimits = Field(ServerLimits(), description="a table, as in limits = { in_flight = 20, rate = 5 }")
    circuit: CircuitSettings = Field(CircuitSettings(), description="a table, as in circuit = { failures = 5 }")
    """How often, and how long, a call is tried again."""

    key_carriers: Annotated[tuple[Carrier, ...], AsTuple, AfterValidator(_each_once)] = Field(
        DEFAULT_CARRIERS, description=CARRIER_FORMS
    )
    """What carries a call's idempotency key, for which MCP has no place. A command has no headers."""

    honours_key: bool = Field(default=False, description="honours_key = true or honours_key = false")
    """That the server acts once for all calls with one key. Only its operator can know; what it says is not used."""

    tools: dict[Text, ToolPolicy] = Field(
        default={}, description='tables by tool name or glob, as in [servers.ID.tools."get_*"]'
    )
    """What you say of its tools: field by field, the most specific entry wins."""

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise fault(f'write one of url = "https://example.org/mcp" and {COMMAND_FORM}')
        if self.command is not None and self.credential is not None:
            raise fault(
                'a command takes credentials from its environment: write environment = { NAME = { env = "NAME" } }'
            )
        if self.url is not None and self.environment:
            raise fault("environment belongs to a command: take it out")
        return self

    @model_validator(mode="after")
    def _key_arrives(self) -> Self:
        unheard = {"header"} if self.url is None else set()
        if self.honours_key and not set(self.key_carriers) - unheard:
            raise fault(
                "honours_key = true, and nothing carries a key to this server: write "
                'key_carriers = ["header", "meta"], or take honours_key out'
            )
        return self

    def policy(self, tool: str) -> EffectivePolicy:
        """What holds for a tool: each field from the most specific entry that has it.

        An exact name goes before all globs, among them the one with the most literal characters; of two alike, the
        one that stands later.
        """
        matching = [pattern for pattern in self.tools if pattern == tool or fnmatch.fnmatchcase(tool, pattern)]
        matching.sort(key=lambda pattern: math.inf if pattern == tool else len(_GLOB.sub("", pattern)))
        fields: dict[str, Any] = {}
        for pattern in matching:
            fields |= self.tools[pattern].model_dump(exclude_unset=True)
        return EffectivePolicy(**fields, honours_key=self.honours_key)
