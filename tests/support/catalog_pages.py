"""Tools and pages as servers give them, answers as ``catalog.publish`` gives them, and strategies of all that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.catalog.pages import page_digest, read_page
from openwop_mcp.catalog.state import Catalog

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=6)
"""Any text, lone surrogates and invisible characters among it."""

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value."""

CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), VALUES),
        "title": VALUES,
    },
)
"""What a server says of its tool, true or not."""

TOOLS = st.fixed_dictionaries(
    {
        "name": TEXTS.filter(bool),
        "inputSchema": st.just({"type": "object"}) | st.dictionaries(TEXTS, VALUES, max_size=2),
    },
    optional={
        "title": VALUES,
        "description": VALUES,
        "outputSchema": VALUES,
        "annotations": CLAIMS | VALUES,
        "safetyTier": VALUES,
        "egress": VALUES,
        "_meta": VALUES,
    },
)
"""Tools that have a name and a schema, and else whatever a server likes."""


def tool(name: str, **members: Any) -> dict[str, Any]:
    """A sound tool."""
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def page(*tools: Any) -> bytes:
    """A page of ``tools/list``."""
    return jsontext.encode({"tools": list(tools)})


def answer(
    pages: Iterable[bytes],
    *,
    known: Iterable[str] = (),
    more: str | None = None,
    ended: str | None = None,
    ttl_ms: int = 0,
    listed_at: int = 0,
) -> bytes:
    """What ``catalog.publish`` gives for these pages; those whose digest is known come without their text."""
    told = set(known)
    entries: list[bytes] = []
    for text in pages:
        digest = page_digest(text, http=True)
        members = [("digest", jsontext.encode(digest))]
        if digest not in told:
            tools = [[one.name, one.fingerprint, one.unusable] for one in read_page(text, http=True)]
            members += [("page", text), ("tools", jsontext.encode(tools))]
        entries.append(jsontext.build(members))
    return jsontext.build(
        [
            ("from", b"0"),
            ("pages", b"[" + b",".join(entries) + b"]"),
            *([] if more is None else [("next", jsontext.encode(more))]),
            *([] if ended is None else [("ended", jsontext.encode(ended))]),
            ("ttlMs", jsontext.encode(ttl_ms)),
            ("listedAt", jsontext.encode(listed_at)),
        ]
    )


def listed(catalog: Catalog, *pages: bytes, at: int = 0, **facts: Any) -> tuple[Any, ...]:
    """Have a whole list arrive in one batch."""
    catalog.publish_request()
    return catalog.published(answer(pages, known=catalog.known_digests, listed_at=at, **facts), at)
