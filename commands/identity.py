"""Who uses the command line. It proves nothing: the machine says so."""

from __future__ import annotations

import getpass

__all__ = ("operator", "this_user")


def this_user() -> str:
    """Who uses the command line, as this machine calls them."""
    try:
        return getpass.getuser()
    # A container may run as a number that has no name.
    except (KeyError, OSError):
        return "operator"


def operator(tenant: str) -> dict[str, str]:
    """Who uses the command line, as a subject."""
    return {
        "issuer": "urn:openwop-mcp:cli",
        "subjectId": this_user(),
        "tenant": tenant,
        "lane": "workload",
        "kind": "workload",
    }
