"""Who may answer a question. Pure: reads what the question says of it, and never what an answer says of its author."""

from __future__ import annotations

from openwop_mcp import jsontext

__all__ = ("may_answer", "takes_tokens")

AUTH_REQUIRED = "openwop-interrupt-auth-required"
"""In ``profile`` of a gate's config: whoever answers says who they are (OpenWOP v2, interrupt profiles)."""


def may_answer(payload: bytes, subject: bytes) -> bool:
    """Whether somebody is among those whom a question names; it is for everybody where it names nobody.

    Args:
        payload: JSON text of the ``InterruptPayload``.
        subject: JSON text of the subject, as the host or the command line resolved it.
    """
    data = jsontext.member(payload, "data")
    listed = None if data is None or jsontext.kind(data) != "object" else jsontext.member(data, "approversList")
    if listed is None:
        return True
    told = jsontext.decode(subject)
    name = told.get("subjectId") if isinstance(told, dict) else None
    return isinstance(name, str) and name in jsontext.decode(listed)


def takes_tokens(payload: bytes, config: bytes) -> bool:
    """Whether whoever holds a token of a question may answer it: it does not have to be known who that is.

    Args:
        payload: JSON text of the ``InterruptPayload``.
        config: JSON text of the config of the node that asks.
    """
    data = jsontext.member(payload, "data")
    listed = data is not None and jsontext.kind(data) == "object" and jsontext.member(data, "approversList") is not None
    return not listed and jsontext.member(config, "profile") != jsontext.encode(AUTH_REQUIRED)
