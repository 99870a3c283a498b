"""What a server offers to a tenant, as a state machine: lists that come in batches, and what operators said of them.

The live workflow and every reader of its history drive the same machine, so that they cannot differ. Pure; knows no
Temporal. All times are milliseconds since 1970.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from openwop_mcp import jsontext
from openwop_mcp.catalog.pages import PageTool, definitions
from openwop_mcp.catalog.policy import CLASSIFIED, Approval, Classification, Standing, stricter, values

__all__ = ("Catalog", "Change", "Failure", "Kind", "Page", "Tool", "What")

Kind = Literal["classify", "approve"]
"""What an operator can do to tools; the names of the workflow's Updates."""

What = Literal["added", "removed", "changed", "returned", "approved", "classified", "cleared"]

MAX_CHANGES = 100
"""Changes that are kept to be shown: more than a person reads, and small."""

MAX_BESIDE = 512 * 1024
"""Bytes of what is kept beside the list: of tools that are gone, and definitions that were accepted of those that
drifted. It travels with the list when the workflow is continued, for which Temporal takes 2 MB where there is no
storage."""

RECORD = 300
"""Bytes that one tool's record takes there at most, its name, definition and reasons left out."""

UNACCEPTED = ""
"""In place of the fingerprint that was accepted, where none was: no definition has it."""

MAX_BY = 200
"""Characters of who classified or approved: a name or an address."""

MAX_WHY = 2_000
"""Characters of why: a paragraph, since it stays with the tool."""


@dataclass(frozen=True)
class Page:
    """One page of ``tools/list``.

    Attributes:
        digest: See :func:`~openwop_mcp.catalog.pages.page_digest`.
        text: The page, byte for byte.
        tools: What stands in it, in order.
    """

    digest: str
    text: bytes
    tools: tuple[PageTool, ...]

    def definition(self, index: int) -> bytes:
        """The exact bytes of one of its tools."""
        start, end = self._spans[index]
        return self.text[start:end]

    @functools.cached_property
    def _spans(self) -> Sequence[tuple[int, int]]:
        # Two numbers for each tool in place of another copy of all. Where the same text stands earlier in the page,
        # that place is as good.
        spans: list[tuple[int, int]] = []
        found = definitions(self.text)
        end = self.text.find(jsontext.member(self.text, "tools") or b"") if found else 0
        for definition in found:
            start = self.text.index(definition, end)
            end = start + len(definition)
            spans.append((start, end))
        return spans


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the server could not be listed.

    Attributes:
        code: OpenWOP code.
        message: Prose for people.
        at: When it was last tried.
        since: When the first of the failures in a row came.
    """

    code: str
    message: str
    at: int
    since: int


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a tool, and by whom, where an operator did it."""

    at: int
    tool: str
    what: What
    by: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that its server lists, by its name.

    Attributes:
        name: Its name.
        definition: The exact bytes of its definition; of several, the first.
        fingerprint: That definition's.
        unusable: Why it cannot be called.
        standing: What the policy for it is made of.
        accepted_definition: While it is drifted, the definition that was accepted, if that is still known.
        changed_at: When it was first listed, or last with another definition than before.
        classification: What an operator said of it, also of another definition.
        approved: Who last accepted a definition of it, and when.
    """

    name: str
    definition: bytes
    fingerprint: str
    unusable: str | None
    standing: Standing
    accepted_definition: bytes | None
    changed_at: int
    classification: Classification | None
    approved: tuple[str, int] | None


@dataclass(slots=True)
class _Record:
    """What stays known of a name, also when it is gone.

    Attributes:
        accepted: Fingerprint of the definition that was accepted: the first that was seen, or one that was approved;
            ``UNACCEPTED`` where it may have been another one.
        seen: Fingerprint of the definition that is listed, or was last; None for several at once.
        text: The accepted definition, while another one is listed or none.
        gone: Whether the name is not listed now.
        held: Which approval may have been said of it before it was forgotten.
    """

    accepted: str | None
    seen: str | None
    changed_at: int
    gone: bool = False
    text: bytes | None = None
    approved: tuple[str, int] | None = None
    classification: Classification | None = None
    held: Approval | None = None

    @property
    def drifted(self) -> bool:
        return self.accepted is not None and self.seen != self.accepted

    def standing(self, unusable: str | None) -> Standing:
        said = self.classification
        bound = said if said is not None and said.fingerprint == self.seen else None
        return Standing(self.seen, self.drifted, unusable, bound, self.held if said is None else said.approval)

    def encode(self, name: str) -> bytes:
        members: list[tuple[str, bytes]] = [("name", jsontext.encode(name)), ("changedAt", b"%d" % self.changed_at)]
        if self.accepted is not None:
            members.append(("accepted", jsontext.encode(self.accepted)))
        if self.seen != self.accepted:
            members.append(("seen", jsontext.encode(self.seen)))
        if self.gone:
            members.append(("gone", b"true"))
        if self.text is not None:
            members.append(("text", self.text))
        if self.approved is not None:
            members.append(("approved", jsontext.encode(self.approved)))
        if self.classification is not None:
            members.append(("classification", self.classification.encode()))
        if self.held is not None:
            members.append(("held", jsontext.encode(self.held)))
        return jsontext.build(members)

    @classmethod
    def decode(cls, data: bytes) -> tuple[str, Self]:
        members = dict(jsontext.members(data))
        told = {name: jsontext.decode(text) for name, text in members.items() if name not in {"text", "classification"}}
        accepted, said = told.get("accepted"), members.get("classification")
        return told["name"], cls(
            accepted,
            told.get("seen", accepted),
            told["changedAt"],
            told.get("gone", False),
            members.get("text"),
            tuple(told["approved"]) if "approved" in told else None,
            None if said is None else Classification.decode(said),
            told.get("held"),
        )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name stands in the list, first, and why it cannot be called."""

    page: Page
    index: int
    fingerprint: str | None
    unusable: str | None

    @property
    def definition(self) -> bytes:
        return self.page.definition(self.index)


@dataclass(slots=True)
class _Gathering:
    """A list that is arriving."""

    pages: list[Page] = field(default_factory=list)
    cursor: str | None = None


class Catalog:
    """The catalog of one server for one tenant.

    Args:
        tenant: Whose it is.
        server_id: The server, by its id in the settings.
        kept: Whether somebody keeps it; one that is not kept knows nothing of what was before.

    Attributes:
        tenant: As given.
        server_id: As given.
        kept: As given.
        pages: The last list that arrived whole.
        listed_at: When the server gave it; None for never.
        ttl_ms: For how long it is fresh, by the server's word; 0 for not at all.
        ended: Why the list does not hold all that the server has.
        failure: Why the server could not be listed since.
        changes: What happened to tools, the last 100.
        version: Grows with each change of what is listed and of how it stands; neither with the time of a list nor with
            failures.
    """

    def __init__(self, tenant: str, server_id: str, *, kept: bool = True) -> None:
        self.tenant = tenant
        self.server_id = server_id
        self.kept = kept
        self.pages: tuple[Page, ...] = ()
        self.listed_at: int | None = None
        self.ttl_ms = 0
        self.ended: str | None = None
        self.failure: Failure | None = None
        self.changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self.version = 0
        self._gathering: _Gathering | None = None
        self._records: dict[str, _Record] = {}
        self._places: dict[str, _Place] = {}
        self._names: tuple[str, ...] = ()
        self._standings: dict[str, Standing] = {}
        # From then on a name that is not known may be one of which a definition was accepted once.
        self._has_forgotten = False
        self._held: Approval | None = None

    # --- what is read ---

    @property
    def known_digests(self) -> list[str]:
        """Digests of the pages, which a server need not be asked for again."""
        return [page.digest for page in self.pages]

    @property
    def is_gathering(self) -> bool:
        """Whether a list is arriving, and another batch has to be asked for."""
        return self._gathering is not None

    def is_stale(self, now_ms: int) -> bool:
        """Whether the list is older than its server says it is good for, or there is none."""
        return self.listed_at is None or now_ms - self.listed_at >= self.ttl_ms

    def names(self) -> Sequence[str]:
        """The names that are listed, sorted."""
        return self._names

    def standing(self, name: str) -> Standing | None:
        """How a tool stands, which costs next to nothing to ask. One that is gone stands as it did when it went.

        One that is not known may be one that was forgotten: then it stands as that would if it came back.
        """
        known = self._standings.get(name)
        if known is None and self._has_forgotten:
            return Standing(None, drifted=True, unusable=None, classification=None, approval=self._held)
        return known

    def tool(self, name: str) -> Tool | None:
        """A tool that is listed."""
        place = self._places.get(name)
        if place is None:
            return None
        record = self._records[name]
        return Tool(
            name,
            place.definition,
            place.page.tools[place.index].fingerprint,
            place.unusable,
            self._standings[name],
            record.text,
            record.changed_at,
            record.classification,
            record.approved,
        )

    # --- the list ---

    def publish_request(self) -> bytes:
        """Begin a list, or go on with the one that is arriving: what ``catalog.publish`` is to be given."""
        if self._gathering is None:
            self._gathering = _Gathering()
        pages, cursor = self._gathering.pages, self._gathering.cursor
        return jsontext.encode(
            {
                "tenant": self.tenant,
                "serverId": self.server_id,
                **({} if cursor is None else {"cursor": cursor}),
                "from": len(pages),
                "tools": sum(len(page.tools) for page in pages),
                "bytes": sum(len(page.text) for page in pages),
                "known": self.known_digests,
                "seen": [page.digest for page in pages],
            }
        )

    def published(self, answer: bytes, at: int) -> tuple[Change, ...]:
        """Take what ``catalog.publish`` gave. With the last batch the new list takes the old one's place.

        Args:
            answer: JSON text, see ``publish_request``.
            at: Now.

        Returns:
            What changed by it. The first list of all changes nothing.
        """
        gathering = self._gathering or _Gathering()
        members = dict(jsontext.members(answer))
        known = {page.digest: page for page in (*self.pages, *gathering.pages)}
        gathering.pages += [_page(text, known) for text in jsontext.elements(members["pages"])]
        if "next" in members:
            gathering.cursor = jsontext.decode(members["next"])
            self._gathering = gathering
            return ()
        self._gathering = None
        first = self.listed_at is None
        self.listed_at, self.ttl_ms = jsontext.decode(members["listedAt"]), jsontext.decode(members["ttlMs"])
        self.failure = None
        ended = jsontext.decode(members["ended"]) if "ended" in members else None
        if not first and ended == self.ended and [page.digest for page in gathering.pages] == self.known_digests:
            return ()
        self.version += 1
        self.ended = ended
        changes = self._list(tuple(gathering.pages), at)
        if first:
            return ()
        self.changes.extend(changes)
        return tuple(changes)

    def failed(self, code: str, message: str, at: int) -> None:
        """Take that ``catalog.publish`` failed: what had arrived is dropped, and the last list stays."""
        self._gathering = None
        self.failure = Failure(code, message, at, at if self.failure is None else self.failure.since)

    def _list(self, pages: tuple[Page, ...], at: int) -> list[Change]:
        """Put a new list in the place of the old one."""
        before, self.pages, self._places = self._places, pages, _places(pages)
        self._names = tuple(sorted(self._places))
        changes: list[Change] = []
        for name, place in self._places.items():
            record = self._records.get(name)
            if record is None:
                accepted = UNACCEPTED if self._has_forgotten else place.fingerprint
                self._records[name] = _Record(accepted, place.fingerprint, at, held=self._held)
                changes.append(Change(at, name, "added"))
                continue
            changed = place.fingerprint != record.seen
            if changed or record.gone:
                changes.append(Change(at, name, "changed" if changed else "returned"))
            if changed:
                self._keep_accepted(record, before.get(name))
                record.changed_at = at
            record.seen, record.gone = place.fingerprint, False
            if record.accepted is None:
                record.accepted = place.fingerprint
            if not record.drifted:
                record.text = None
        for name in [name for name in before if name not in self._places]:
            # It moves to the end, so that of those that are gone the first went first.
            record = self._records[name] = self._records.pop(name)
            self._keep_accepted(record, before[name])
            record.gone = True
            changes.append(Change(at, name, "removed"))
        self._forget()
        self._stand(self._records)
        return changes

    @staticmethod
    def _keep_accepted(record: _Record, place: _Place | None) -> None:
        """Keep the definition that was accepted where it is about to go, to show later what became of it."""
        if place is not None and place.fingerprint is not None and place.fingerprint == record.accepted:
            record.text = place.definition

    def _forget(self) -> None:
        """Keep what lies beside the list within its bound: texts go first, then of what is gone whole records.

        Of what nobody judged, and went first, least is kept.
        """
        beside = {name: record for name, record in self._records.items() if record.gone or record.text is not None}
        size = sum(_size(name, record) for name, record in beside.items())
        judged = {
            name: record.approved is not None or record.classification is not None for name, record in beside.items()
        }
        order = sorted(beside, key=lambda name: (not beside[name].gone, judged[name]))
        for name in order:
            if size <= MAX_BESIDE:
                return
            size -= len(beside[name].text or b"")
            beside[name].text = None
        for name in order:
            if size <= MAX_BESIDE or not beside[name].gone:
                return
            size -= _size(name, beside[name])
            self._held = stricter(self._held, self._records.pop(name).standing(None).approval)
            self._standings.pop(name, None)
            self._has_forgotten = True

    def _stand(self, names: Iterable[str]) -> None:
        for name in names:
            place = self._places.get(name)
            self._standings[name] = self._records[name].standing(None if place is None else place.unusable)

    # --- operators ---

    def refuses(self, kind: Kind, request: bytes) -> str | None:
        """Why what an operator asks for cannot be done; None if :meth:`classified` or :meth:`approved` may be told."""
        try:
            asked = jsontext.decode(request)
        except jsontext.JsonTextError as error:
            return f"not JSON: {error}"
        if not isinstance(asked, dict):
            return "write an object"
        return (
            _text_fault(asked, "by", 1, MAX_BY)
            or _text_fault(asked, "why", 0, MAX_WHY)
            or (_said_fault(asked) if kind == "classify" else None)
            or self._tools_fault(asked.get("tools"))
        )

    def _tools_fault(self, tools: object) -> str | None:
        if not isinstance(tools, list) or not tools:
            return "tools: write an array of {name, fingerprint}"
        return next((f"tools[{at}]: {fault}" for at, one in enumerate(tools) if (fault := self._fault(one))), None)

    def _fault(self, one: object) -> str | None:
        match one:
            case {"name": str(name), "fingerprint": str(fingerprint)}:
                place = self._places.get(name)
            case _:
                return "write {name, fingerprint}"
        if place is None:
            return "the server does not list it: see 'worker.py tools list'"
        if place.fingerprint is None:
            return f"it cannot be called: {place.unusable}"
        if place.fingerprint != fingerprint:
            return "its definition changed since: look at it again with 'worker.py tools show'"
        return None

    def classified(self, request: bytes, at: int) -> None:
        """Take what an operator said of tools, which holds for the definitions that were named.

        Args:
            request: JSON text; :meth:`refuses` had nothing against it. With ``"clear": true`` what was said before is
                taken back, and the settings hold again.
            at: Now.
        """
        asked = jsontext.decode(request)
        said = {field: asked[name] for name, field in CLASSIFIED.items() if name in asked}
        for name, record, fingerprint in self._asked(asked):
            new = Classification(fingerprint, asked["by"], at, asked["why"], **said) if said else None
            record.classification, record.held = new, None
            self.changes.append(Change(at, name, "cleared" if new is None else "classified", asked["by"]))

    def approved(self, request: bytes, at: int) -> None:
        """Take that an operator accepts the definitions that were named; arguments as for :meth:`classified`."""
        asked = jsontext.decode(request)
        for name, record, fingerprint in self._asked(asked):
            record.accepted, record.approved, record.text = fingerprint, (asked["by"], at), None
            self.changes.append(Change(at, name, "approved", asked["by"]))

    def _asked(self, asked: Mapping[str, Any]) -> Iterable[tuple[str, _Record, str]]:
        self.version += 1
        for one in asked["tools"]:
            yield one["name"], self._records[one["name"]], one["fingerprint"]
            self._stand([one["name"]])

    # --- from one part of the workflow's chain to the next ---

    def encode(self) -> tuple[bytes, list[bytes]]:
        """The state as JSON text, and beside it the texts of the pages. A list that is arriving is left out."""
        failure = self.failure
        facts: dict[str, Any] = {
            "tenant": self.tenant,
            "serverId": self.server_id,
            "version": self.version,
            "listedAt": self.listed_at,
            "ttlMs": self.ttl_ms,
            "ended": self.ended,
            "failure": failure and [failure.code, failure.message, failure.at, failure.since],
            "changes": [[one.at, one.tool, one.what, one.by] for one in self.changes],
            "hasForgotten": self._has_forgotten,
            "held": self._held,
            "pages": [
                {"digest": page.digest, "tools": [[tool.name, tool.fingerprint, tool.unusable] for tool in page.tools]}
                for page in self.pages
            ],
        }
        records = b",".join(record.encode(name) for name, record in self._records.items())
        state = jsontext.build(
            [*((name, jsontext.encode(fact)) for name, fact in facts.items()), ("records", b"[" + records + b"]")]
        )
        return state, [page.text for page in self.pages]

    @classmethod
    def decode(cls, state: bytes, pages: Sequence[bytes]) -> Self:
        """Read what :meth:`encode` gave; unknown members are ignored, as they come from a newer version."""
        members = dict(jsontext.members(state))
        records = members.pop("records")
        told = {name: jsontext.decode(text) for name, text in members.items()}
        catalog = cls(told["tenant"], told["serverId"])
        catalog.version = told["version"]
        catalog.listed_at, catalog.ttl_ms, catalog.ended = told["listedAt"], told["ttlMs"], told["ended"]
        catalog.failure = told["failure"] and Failure(*told["failure"])
        catalog.changes.extend(Change(*one) for one in told["changes"])
        catalog.pages = tuple(
            Page(one["digest"], text, tuple(PageTool(*tool) for tool in one["tools"]))
            for one, text in zip(told["pages"], pages, strict=True)
        )
        catalog._has_forgotten, catalog._held = told.get("hasForgotten", False), told.get("held")
        catalog._places = _places(catalog.pages)
        catalog._names = tuple(sorted(catalog._places))
        catalog._records = dict(_Record.decode(text) for text in jsontext.elements(records))
        catalog._stand(catalog._records)
        return catalog


def _page(text: bytes, known: Mapping[str, Page]) -> Page:
    members = dict(jsontext.members(text))
    digest = jsontext.decode(members["digest"])
    if "page" not in members:
        return known[digest]
    return Page(digest, members["page"], tuple(PageTool(*tool) for tool in jsontext.decode(members["tools"])))


def _places(pages: Iterable[Page]) -> dict[str, _Place]:
    """Where each name stands first. One that stands for several definitions stands for none."""
    places: dict[str, _Place] = {}
    times: dict[str, int] = {}
    for page in pages:
        for index, tool in enumerate(page.tools):
            if tool.name is None:
                continue
            times[tool.name] = times.get(tool.name, 0) + 1
            first = places.setdefault(tool.name, _Place(page, index, tool.fingerprint, tool.unusable))
            if first.fingerprint != tool.fingerprint:
                places[tool.name] = _Place(first.page, first.index, None, None)
    return {
        name: place
        if place.fingerprint is not None
        else _Place(
            place.page,
            place.index,
            None,
            f"the name stands {times[name]} times in the list, with different definitions",
        )
        for name, place in places.items()
    }


def _size(name: str, record: _Record) -> int:
    said = record.classification
    return (
        RECORD + 6 * len(name) + len(record.text or b"") + (0 if said is None else 6 * (len(said.why) + len(said.by)))
    )


def _said_fault(asked: Mapping[str, Any]) -> str | None:
    said = [name for name in CLASSIFIED if name in asked]
    if asked.get("clear") is True:
        return f"clear: it goes alone, without {', '.join(said)}" if said else None
    if not said:
        return f"write one of {', '.join(CLASSIFIED)}: a classification has to say something"
    return next(
        (f"{name}: write one of {', '.join(values(name))}" for name in said if asked[name] not in values(name)), None
    )


def _text_fault(asked: Mapping[str, Any], name: str, least: int, most: int) -> str | None:
    text = asked.get(name)
    if isinstance(text, str) and least <= len(text) <= most:
        return None
    return f"{name}: write a text of {least} to {most} characters"
