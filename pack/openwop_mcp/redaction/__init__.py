"""Takes secrets out of what leaves the process: answers of servers, errors, log lines.

Knows in which spellings a secret comes back, and which secrets this process has read. What is done about one that came
back is for others.
"""

from openwop_mcp.redaction._known import KNOWN, Known
from openwop_mcp.redaction._needles import MIN_SECRET
from openwop_mcp.redaction._redactor import MARK, MAX_CLEANED, MAX_TOKENS, Redacted, Redactor, TooManyEchoesError

__all__ = (
    "KNOWN",
    "MARK",
    "MAX_CLEANED",
    "MAX_TOKENS",
    "MIN_SECRET",
    "Known",
    "Redacted",
    "Redactor",
    "TooManyEchoesError",
)
