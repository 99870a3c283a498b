"""The log of a process: one line for each event, with the facts of the call that it is about, and without secrets.

Owns form and levels of what is logged. Knows not what that is, nor where the settings come from.
"""

from openwop_mcp.logs._facts import about
from openwop_mcp.logs._lines import Form, JsonLines, TextLines
from openwop_mcp.logs._setup import Level, set_up

__all__ = ("Form", "JsonLines", "Level", "TextLines", "about", "set_up")
