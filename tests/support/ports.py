"""Ports for what has to be told one before it listens."""

from __future__ import annotations

import contextlib
import random
import socket

__all__ = ("free_port",)

PORTS = range(20_000, 30_000)
"""Below those that systems give to connections: a port that is free for a moment must not become the end of one, which
may be connected to itself."""

# Not the module's own, which tests seed alike in every process.
_SYSTEM = random.SystemRandom()


def free_port(rng: random.Random = _SYSTEM) -> int:
    """A port that nobody listens on now."""
    while True:
        port = rng.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
