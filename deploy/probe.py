"""Whether a process is well, for whoever watches it by a command: exits with 0 if so, else with 1 and a reason.

    python -I deploy/probe.py [FILE | http://HOST:PORT/PATH | tcp://HOST:PORT]

Without an argument it is what the variable PROBE says. A file has to have been touched lately, as `worker.py run
--healthy FILE` does; of a host it is /readyz that says so. Stands alone, and imports little: it runs every few seconds.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

OLD = 20.0
"""Seconds after which a file counts for nothing: a worker touches it every five."""

LIMIT = 4.0
"""Seconds for an answer: below what the image gives a probe."""


def well(what: str) -> str | None:
    """What is wrong with it; None if nothing is."""
    parts = urlsplit(what)
    try:
        if parts.scheme not in {"http", "tcp"}:
            age = time.time() - Path(what).stat().st_mtime
            return f"was touched {age:.0f} s ago" if age > OLD else None
        host, port = parts.hostname or "", parts.port or 80
        if parts.scheme == "tcp":
            socket.create_connection((host, port), LIMIT).close()
            return None
        connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
        connection.request("GET", parts.path)
        status = connection.getresponse().status
    except OSError as error:
        return error.strerror or str(error)
    return None if status == http.client.OK else f"answers {status}"


if __name__ == "__main__":
    asked = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PROBE", "")
    if not asked:
        sys.exit("give a file or an address, as an argument or in PROBE")
    wrong = well(asked)
    if wrong is not None:
        sys.exit(f"{asked}: {wrong}")
