"""What a catalog holds, for people and scripts: rows, facts, differences and JSON, under what the settings say of it.

Pure. Knows catalogs and settings, and not where a catalog was read. In prose what a server wrote is escaped, and can
begin no line.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from openwop_mcp import jsontext, terminal
from openwop_mcp.catalog.annotations import hints
from openwop_mcp.catalog.drift import Difference, differences
from openwop_mcp.catalog.names import tool_id
from openwop_mcp.catalog.pages import definitions, page_digest, read_page
from openwop_mcp.catalog.policy import CLASSIFIED, Classification, Standing, effective, refusal
from openwop_mcp.catalog.remarks import remarks
from openwop_mcp.catalog.state import Catalog, Failure, Tool
from openwop_mcp.config import EffectivePolicy, Server
from openwop_mcp.runs.events import timestamp

__all__ = (
    "COLUMNS",
    "LEGEND",
    "Offered",
    "ago",
    "changed",
    "encode",
    "encode_changed",
    "encode_failed",
    "freshness",
    "matching",
    "offered",
    "prose",
    "unkept",
)

COLUMNS = ("tool", "tier", "replay", "hints", "claims", "fingerprint", "changed", "state", "description")
"""Headers of a table of tools."""

LEGEND = (
    "hints: R read-only, D destructive, I idempotent, O open world; a capital is yes, a small letter no, a dot unsaid."
    " 'claims' are the server's own, which are not used"
)
"""What the letters in a table mean."""

LETTERS = {"readOnlyHint": "R", "destructiveHint": "D", "idempotentHint": "I", "openWorldHint": "O"}

SHORT = 12
"""Digits of a fingerprint in a table: what tells a server's tools apart, and their versions too."""

NAMELESS = "(no name)"

SPANS = ((86_400, "day"), (3_600, "h"), (60, "min"), (1, "s"))
"""Seconds in what times are told in; the first that fits."""

SOURCES = {
    "settings": "by the settings, else the defaults",
    "classification": "as classified, else the settings, else the defaults",
    "unclassified": "unclassified, since its definition has changed",
}
"""What a policy comes from, for people."""

SAID = {"approval": "approval", "safety_tier": "tier", "replay_policy": "replay", "egress": "egress"}
"""The fields of a classification, as they are called where they are shown."""

NEEDS_APPROVAL = "needs approval"
"""Remark of a tool each call of which waits for a person."""

MAX_TRIED = 1_000
"""Tools of a list whose schemas are tried as well, at a millisecond or two each. Of more, each is where it is shown."""

LABEL = 14
"""Columns that the names of facts take."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool that a server offers, with all that there is to say of it.

    Attributes:
        server_id: Its server.
        name: The tool's name; None where the definition has none.
        definition: JSON text, as the server sent it.
        fingerprint: Of the definition.
        policy: What holds for the tool.
        standing: What the catalog says of it.
        reason: Why it cannot be called; None if it can.
        remarks: What an operator should know of it.
        tool: What the catalog keeps of it; None where it has no name to keep it by.
        kept: Whether a catalog knows it, and so what was accepted of it; or its server was asked just now.
    """

    server_id: str
    name: str | None
    definition: bytes
    fingerprint: str
    policy: EffectivePolicy
    standing: Standing
    reason: str | None
    remarks: tuple[str, ...]
    tool: Tool | None = None
    kept: bool = True

    @classmethod
    def of(cls, tool: Tool, catalog: Catalog, server: Server, *, schemas: bool = True) -> Self:
        """A tool of a catalog; its schemas are remarked on only where that is asked for."""
        policy = effective(server, tool.name, tool.standing)
        return cls(
            catalog.server_id,
            tool.name,
            tool.definition,
            tool.fingerprint,
            policy,
            tool.standing,
            refusal(policy, tool.standing),
            (
                *([NEEDS_APPROVAL] if policy.needs_approval else []),
                *remarks(tool.definition, schemas=schemas),
            ),
            tool,
            catalog.kept,
        )

    @property
    def source(self) -> str:
        """What the policy comes from: ``settings``, ``classification``, or ``unclassified`` of a tool that changed."""
        if self.standing.drifted:
            return "unclassified"
        return "settings" if self.standing.classification is None else "classification"

    @property
    def state(self) -> str:
        """How it stands, in a few words."""
        if self.standing.unusable is not None:
            return f"not callable: {self.standing.unusable}"
        if self.standing.drifted:
            return "drifted" if self.reason is None else "quarantined"
        return "ok" if self.kept else "unknown"

    @property
    def claimed(self) -> bytes | None:
        """The annotations that the server gave it, as they stand; None where there are none."""
        return _member(self.definition, "annotations")

    @property
    def description(self) -> str:
        """What the server says of it, unaltered; empty if it says nothing."""
        return _text(self.definition, "description")

    def cells(self) -> list[str]:
        """Its row under ``COLUMNS``."""
        lines = (self.description or _text(self.definition, "title")).splitlines()
        return [
            NAMELESS if self.name is None else self.name,
            self.policy.safety_tier,
            self.policy.replay_policy,
            _letters(hints(self.policy)),
            _letters(_claims(self.claimed)),
            self.fingerprint[:SHORT],
            "" if self.tool is None else _minute(self.tool.changed_at) if self.kept else "-",
            "; ".join((self.state, *self.remarks)),
            lines[0] if lines else "",
        ]

    def encode(self) -> bytes:
        """JSON text of an object with all of it."""
        tool = self.tool
        described = _member(self.definition, "description")
        kept = None if tool is None else tool.classification
        return jsontext.build(
            [
                ("name", jsontext.encode(self.name)),
                *([] if self.name is None else [("toolId", jsontext.encode(tool_id(self.server_id, self.name)))]),
                *([] if described is None else [("description", described)]),
                ("safetyTier", jsontext.encode(self.policy.safety_tier)),
                ("replayPolicy", jsontext.encode(self.policy.replay_policy)),
                ("egress", jsontext.encode(self.policy.egress)),
                ("approval", jsontext.encode(self.policy.approval)),
                ("policy", jsontext.encode(self.source)),
                ("annotations", jsontext.encode(hints(self.policy))),
                ("claimed", self.claimed or b"null"),
                ("fingerprint", jsontext.encode(self.fingerprint)),
                ("drifted", jsontext.encode(self.standing.drifted if self.kept else None)),
                ("callable", jsontext.encode(self.reason is None)),
                *([] if self.reason is None else [("reason", jsontext.encode(self.reason))]),
                ("remarks", jsontext.encode(self.remarks)),
                *([] if kept is None else [("classification", _encode_said(kept, in_force=self.in_force))]),
                *([("changedAt", jsontext.encode(timestamp(tool.changed_at)))] if tool and self.kept else []),
                *([] if tool is None or tool.approved is None else [("approved", _signature(*tool.approved))]),
                ("definition", self.definition),
            ]
        )

    @property
    def in_force(self) -> bool:
        """Whether what an operator said of the tool holds: it was said of this definition, which is accepted."""
        return self.standing.classification is not None and not self.standing.drifted


def offered(catalog: Catalog, server: Server) -> list[Offered]:
    """What a server offers, sorted by name; what has no name stands at the end, in the order of the list."""
    names = catalog.names()
    schemas = len(names) <= MAX_TRIED
    tools = [tool for name in names if (tool := catalog.tool(name)) is not None]
    named = [Offered.of(tool, catalog, server, schemas=schemas) for tool in tools]
    return [*named, *_nameless(catalog, server)]


def _nameless(catalog: Catalog, server: Server) -> Iterable[Offered]:
    for page in catalog.pages:
        if all(tool.name is not None for tool in page.tools):
            continue
        for tool, definition in zip(page.tools, definitions(page.text), strict=True):
            if tool.name is None:
                standing = Standing(tool.fingerprint, drifted=False, unusable=tool.unusable, classification=None)
                policy = effective(server, "", standing)
                yield Offered(
                    catalog.server_id,
                    None,
                    definition,
                    tool.fingerprint,
                    policy,
                    standing,
                    refusal(policy, standing),
                    remarks(definition, schemas=False),
                    kept=catalog.kept,
                )


def unkept(
    tenant: str, server_id: str, pages: Iterable[bytes], *, http: bool, ended: str | None = None, at: int
) -> Catalog:
    """A catalog of pages that nobody keeps: as if they were the first that were ever listed.

    Args:
        tenant: Who asked.
        server_id: Who answered.
        pages: JSON texts of the pages, in order.
        http: Whether the server is reached over HTTP.
        ended: Why there are no more, where they are not all.
        at: When they were listed, in milliseconds since 1970.
    """
    catalog = Catalog(tenant, server_id, kept=False)
    listed = _array(_encode_page(page, http=http) for page in pages)
    answer = [("pages", listed), ("listedAt", b"%d" % at), ("ttlMs", b"0")]
    catalog.published(jsontext.build([*answer, *([] if ended is None else [("ended", jsontext.encode(ended))])]), at)
    return catalog


def _encode_page(page: bytes, *, http: bool) -> bytes:
    tools = [(tool.name, tool.fingerprint, tool.unusable) for tool in read_page(page, http=http)]
    return jsontext.build(
        [("digest", jsontext.encode(page_digest(page, http=http))), ("page", page), ("tools", jsontext.encode(tools))]
    )


def matching(names: Sequence[str], pattern: str) -> list[str]:
    """The names that a name or glob means. One that is there is itself, whatever signs it holds."""
    return [pattern] if pattern in names else [name for name in names if fnmatch.fnmatchcase(name, pattern)]


# --- JSON -------------------------------------------------------------------------------------------------------------


def encode(catalog: Catalog, server: Server, *, now: int) -> bytes:
    """JSON text of a whole catalog.

    Args:
        catalog: What the server offers.
        server: Its settings.
        now: Milliseconds since 1970.
    """
    listed = catalog.listed_at
    members = [
        ("serverId", jsontext.encode(catalog.server_id)),
        ("tenant", jsontext.encode(catalog.tenant)),
        ("listedAt", jsontext.encode(None if listed is None else timestamp(listed))),
        ("ttlMs", jsontext.encode(catalog.ttl_ms)),
        ("ageMs", jsontext.encode(None if listed is None else max(0, now - listed))),
    ]
    if catalog.ended is not None:
        members.append(("ended", jsontext.encode(catalog.ended)))
    if catalog.failure is not None:
        members.append(("failure", _encode_failure(catalog.failure)))
    return jsontext.build([*members, ("tools", _array(tool.encode() for tool in offered(catalog, server)))])


def encode_failed(tenant: str, server_id: str, error: bytes) -> bytes:
    """JSON text of a catalog that could not be read, with the JSON text of the reason."""
    return jsontext.build(
        [
            ("serverId", jsontext.encode(server_id)),
            ("tenant", jsontext.encode(tenant)),
            ("listedAt", b"null"),
            ("failure", error),
            ("tools", b"[]"),
        ]
    )


def encode_changed(catalog: Catalog, tools: Iterable[Tool]) -> bytes:
    """JSON text of how tools differ from what was accepted of them."""
    return jsontext.build(
        [
            ("serverId", jsontext.encode(catalog.server_id)),
            ("tenant", jsontext.encode(catalog.tenant)),
            ("tools", _array(_encode_change(tool) for tool in tools)),
        ]
    )


def _encode_change(tool: Tool) -> bytes:
    accepted = tool.accepted_definition
    return jsontext.build(
        [
            ("name", jsontext.encode(tool.name)),
            ("fingerprint", jsontext.encode(tool.fingerprint)),
            ("changedAt", jsontext.encode(timestamp(tool.changed_at))),
            ("accepted", accepted or b"null"),
            ("definition", tool.definition),
            ("differences", _array(_encode_difference(one) for one in _differences(tool))),
        ]
    )


def _encode_difference(one: Difference) -> bytes:
    sides = (("before", one.before), ("after", one.after))
    return jsontext.build(
        [("path", jsontext.encode(one.path)), *((side, text) for side, text in sides if text is not None)]
    )


def _encode_failure(failure: Failure) -> bytes:
    return jsontext.encode(
        {
            "code": failure.code,
            "message": failure.message,
            "at": timestamp(failure.at),
            "since": timestamp(failure.since),
        }
    )


def _encode_said(said: Classification, *, in_force: bool) -> bytes:
    fields = {name: value for name, field in CLASSIFIED.items() if (value := getattr(said, field)) is not None}
    who = {"by": said.by, "at": timestamp(said.at), "why": said.why}
    return jsontext.encode({**fields, "fingerprint": said.fingerprint, "inForce": in_force, **who})


def _array(values: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"


def _signature(by: str, at: int) -> bytes:
    return jsontext.encode({"by": by, "at": timestamp(at)})


# --- prose ------------------------------------------------------------------------------------------------------------


def freshness(catalog: Catalog, *, now: int) -> str:
    """How old a list is, and what there is against it, in a line.

    Args:
        catalog: What the server offers.
        now: Milliseconds since 1970.
    """
    count = len(catalog.names())
    parts = [
        f"{catalog.server_id}: "
        + (
            "never listed"
            if catalog.listed_at is None
            else f"{_several(count, 'tool')}, {ago(now - catalog.listed_at)}"
        )
    ]
    if catalog.ended is not None:
        parts.append(f"the list is not whole: {catalog.ended}")
    if (failure := catalog.failure) is not None:
        parts.append(f"since {_minute(failure.since)} it cannot be listed: {failure.code}: {failure.message}")
    return terminal.escape("; ".join(parts))


def ago(milliseconds: int) -> str:
    """A time that has passed, in its largest unit."""
    seconds = max(0, milliseconds // 1000)
    for length, unit in SPANS:
        if seconds >= length:
            count = seconds // length
            return f"{_several(count, unit) if unit == 'day' else f'{count} {unit}'} ago"
    return "just now"


def prose(one: Offered) -> str:
    """All that there is to say of a tool, a fact a line, with what a server wrote set in."""
    policy = one.policy
    facts = {
        "tool": tool_id(one.server_id, one.name or ""),
        "title": _text(one.definition, "title"),
        "state": _stands(one),
        "remarks": "\n".join(one.remarks),
        "policy": f"{policy.safety_tier}, {policy.replay_policy}, egress {policy.egress} ({SOURCES[one.source]})",
        "approval": policy.approval,
        "in doubt": policy.on_doubt,
        "hints": _words(hints(policy)),
        "claims": _words(_claims(one.claimed)) or "none",
        "fingerprint": one.fingerprint,
        **({} if one.tool is None else _kept(one.tool, one)),
        "description": one.description,
        "definition": one.definition.decode(),
    }
    return "\n".join(_fact(label, text) for label, text in facts.items() if text)


def _stands(one: Offered) -> str:
    if one.reason is not None:
        return f"{one.state}; {one.reason}"
    if one.standing.drifted:
        named = shlex.join([one.server_id, one.name or ""])
        return f"{one.state}; see 'worker.py tools diff {named}', then accept it with 'worker.py tools approve {named}'"
    return one.state


def _kept(tool: Tool, shown: Offered) -> dict[str, str]:
    """What is known of a tool beside its definition, by label."""
    kept = {"changed": timestamp(tool.changed_at) if shown.kept else "-"}
    if (said := tool.classification) is not None:
        values = "; ".join(f"{label} {said.fields[field]}" for field, label in SAID.items() if field in said.fields)
        parts = [values, _signed(said.by, said.at), said.why]
        if not shown.in_force:
            parts.append("not in force: its definition has changed")
        kept["classified"] = ", ".join(part for part in parts if part)
    if tool.approved is not None:
        kept["approved"] = _signed(*tool.approved)
    return kept


def changed(tool: Tool) -> str:
    """How a tool differs from what was accepted of it, field by field."""
    found = _differences(tool)
    head = [f"{tool.name}: changed {timestamp(tool.changed_at)}", f"fingerprint {tool.fingerprint[:SHORT]}"]
    if tool.unusable is not None:
        head.append(f"not callable: {tool.unusable}")
    elif tool.accepted_definition is None:
        head.append("what was accepted is not kept any more")
    lines = [terminal.escape(", ".join(head))]
    for one in found:
        lines.append(f"  {terminal.escape(one.path) or '(the whole)'}")
        sides = (("-", one.before), ("+", one.after))
        lines += [f"    {sign} {terminal.escape(text.decode())}" for sign, text in sides if text is not None]
    return "\n".join(lines)


def _differences(tool: Tool) -> tuple[Difference, ...]:
    return () if tool.accepted_definition is None else differences(tool.accepted_definition, tool.definition)


def _fact(label: str, text: str) -> str:
    # What stands on a line of its own may be a server's: set in, it is no fact of ours.
    return label.ljust(LABEL) + terminal.escape(text, multiline=True).replace("\n", "\n" + " " * LABEL)


def _signed(by: str, at: int) -> str:
    return f"by {by}, {timestamp(at)}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _words(said: Mapping[str, bool]) -> str:
    return ", ".join(f"{hint} {'yes' if value else 'no'}" for hint, value in said.items())


def _minute(at: int) -> str:
    return f"{timestamp(at)[:16]}Z"


def _letters(said: Mapping[str, bool]) -> str:
    return "".join(
        "." if hint not in said else letter if said[hint] else letter.lower() for hint, letter in LETTERS.items()
    )


def _claims(annotations: bytes | None) -> dict[str, bool]:
    """The hints among a server's annotations; other members, and what is no hint's value, are left out."""
    told = None if annotations is None else jsontext.decode(annotations)
    if not isinstance(told, dict):
        return {}
    return {hint: told[hint] for hint in LETTERS if isinstance(told.get(hint), bool)}


def _member(definition: bytes, name: str) -> bytes | None:
    return jsontext.pointer(definition, (name,))


def _text(definition: bytes, name: str) -> str:
    found = _member(definition, name)
    told = None if found is None else jsontext.decode(found)
    return told if isinstance(told, str) else ""
