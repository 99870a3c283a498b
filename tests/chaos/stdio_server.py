"""A server on standard input and output that dies, makes noise, lies and answers late at random.

    python -m tests.chaos.stdio_server SEED FILE

Each request with a nonce is a line of FILE before anything is answered: the nonce and what was done. Knows nothing of
the pack.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.chaos.sound import LIE, envelope, nonce_of, notice, sound

LOCK = threading.Lock()


def write(data: bytes) -> None:
    with LOCK:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]


def later(seconds: float, data: bytes) -> None:
    threading.Timer(seconds, write, (data,)).start()


def die(rng: random.Random) -> None:
    with LOCK:
        if rng.random() < 0.5:
            os.kill(os.getpid(), rng.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)))
        os._exit(rng.randint(0, 3))


def close(rng: random.Random) -> None:
    with LOCK:
        os.close(rng.choice((0, 1)))
        time.sleep(5)
        os._exit(0)


def deaf() -> None:
    with LOCK:
        time.sleep(0.7)


Act = Callable[[random.Random, int, bytes], Any]

ACTS: dict[str, tuple[float, Act]] = {
    "sound": (60, lambda rng, _, message: write(message)),
    "sound_in_pieces": (5, lambda rng, _, message: (write(message[:50]), time.sleep(0.005), write(message[50:]))),
    "sound_late": (15, lambda rng, _, message: later(rng.uniform(0, 0.3), message)),
    "sound_twice": (3, lambda rng, _, message: write(message + message)),
    "sound_after_noise": (
        4,
        lambda rng, _, message: write(rng.choice((b"hello\n", b"\xff\n", b"{}\n", b"[]\n")) + message),
    ),
    "sound_after_notice": (4, lambda rng, _, message: write(notice("message", level="info", data=1) + b"\n" + message)),
    "sound_then_dead": (0.3, lambda rng, _, message: (write(message), die(rng))),
    "sound_after_stderr": (3, lambda rng, _, message: (os.write(2, b"trouble\n" * rng.randint(1, 50)), write(message))),
    "too_late": (2, lambda rng, _, message: later(1.5, message)),
    "silent": (2, lambda rng, _, message: None),
    "deaf": (0.3, lambda rng, _, message: deaf()),
    "dead": (0.4, lambda rng, _, message: die(rng)),
    "dead_inside": (0.3, lambda rng, _, message: (write(message[: rng.randrange(len(message))]), die(rng))),
    "closed": (0.2, lambda rng, _, message: close(rng)),
    "huge": (1, lambda rng, number, message: write(message[:-2] + b',"x":"%b"}\n' % (b"x" * 200_000))),
    "lie_version": (2, lambda rng, number, message: write(message.replace(b'"2.0"', b'"1.0"'))),
    "lie_array": (2, lambda rng, number, message: write(envelope(number, "result", b"[1]") + b"\n")),
    "lie_twice": (2, lambda rng, number, _: write(envelope(number, "result", LIE)[:-1] + b',"result":%b}\n' % LIE)),
    "lie_both": (1, lambda rng, number, _: write(envelope(number, "result", LIE)[:-1] + b',"error":{}}\n')),
    "lie_other_id": (1, lambda rng, number, _: write(envelope(number + 10**6, "result", LIE) + b"\n")),
    "lie_utf8": (1, lambda rng, number, _: write(envelope(number, "result", b'{"a":"\xff"}') + b"\n")),
    "refused": (3, lambda rng, number, _: write(envelope(number, "error", b'{"code":-32603,"message":"no"}') + b"\n")),
}
"""By name: how often, and what is done. Names that begin with "sound" may come out as a result, no other."""


def main(seed: str, seen: str) -> None:
    with open(seen) as book:  # noqa: PTH123 - the fewest imports make the quickest start
        # Each life is another.
        rng = random.Random(f"{seed} {len(book.readlines())}")
    names, weights = list(ACTS), [weight for weight, _ in ACTS.values()]
    with open(seen, "a", buffering=1) as book:  # noqa: PTH123 - as above
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if "id" not in message:
                continue
            number, nonce = message["id"], nonce_of(message)
            if nonce is None:
                discovered = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}'
                write(envelope(number, "result", discovered) + b"\n")
                continue
            name = rng.choices(names, weights)[0]
            book.write(f"{nonce} {name}\n")
            ACTS[name][1](rng, number, envelope(number, "result", sound(nonce)) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
