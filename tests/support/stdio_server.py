"""A server on standard input and output that does exactly what it is told, one request after the other.

Run as a process of its own, ``python -I -S stdio_server.py [OPTIONS]``, with OPTIONS as JSON; it knows nothing of the
pack and imports nothing but the standard library. What it does for a request stands in the request's
``params.do``, a list of steps; without one it answers with what it was asked. A request never waits for another.

Steps: ``["answer", RESULT]``, ``["text", TEXT]`` (written as it stands, Latin-1), ``["pieces", TEXT, BYTES]`` (written
so many bytes at a time), ``["big", MEMBERS, BYTES, ORDER]`` (an answer of that size), ``["hold", COUNT]`` (answer when
so many are held, in random order), ``["seen"]`` (answer with the lines read so far), ``["about"]`` (answer with pid,
session, arguments and environment), ``["stderr", TEXT]``, ``["close", FD]``, ``["deaf"]`` (read no more),
``["child"]`` (start a process that keeps the pipes; answer with its pid), ``["exit", STATUS]``, ``["kill", SIGNAL]``.

Options: ``say`` and ``stderr`` (texts written at the start), ``exit`` (a status, at the start), ``stay`` (go on at the
end of input), ``stubborn`` (ignore SIGTERM), ``deaf`` (read nothing), ``discover`` (the result of that method).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any


def write(data: bytes, fd: int = 1) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def answer(request_id: Any, result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode() + b"\n"


def big(request_id: Any, size: int, order: str) -> bytes:
    members = {
        "jsonrpc": '"jsonrpc":"2.0"',
        "id": f'"id":{request_id}',
        "result": f'"result":{{"resultType":"complete","id":-1,"text":"{"x" * size}"}}',
        "method": '"method":"notifications/message"',
    }
    return ("{" + ",".join(members[name] for name in order.split()) + "}\n").encode()


def forever() -> None:
    while True:
        time.sleep(3600)


class Server:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.seen: list[str] = []
        self.held: list[Any] = []

    def line(self, line: bytes) -> None:
        self.seen.append(line.decode())
        message = json.loads(line)
        if "method" not in message or "id" not in message:
            return
        params = message.get("params", {})
        result = {"resultType": "complete", "echo": params}
        if message["method"] == "server/discover":
            result = self.options.get("discover", result)
        steps = params.get("do", [["answer", result]])
        for name, *arguments in steps:
            getattr(self, f"do_{name}")(message["id"], *arguments)

    def do_answer(self, request_id: Any, result: Any) -> None:
        write(answer(request_id, result))

    def do_text(self, _: Any, text: str) -> None:
        write(text.encode("latin-1"))

    def do_pieces(self, _: Any, text: str, size: int) -> None:
        data = text.encode()
        for start in range(0, len(data), size):
            write(data[start : start + size])

    def do_big(self, request_id: Any, size: int, order: str) -> None:
        write(big(request_id, size, order))

    def do_hold(self, request_id: Any, count: int) -> None:
        self.held.append(request_id)
        if len(self.held) == count:
            random.shuffle(self.held)
            data = b"".join(answer(held, {"resultType": "complete", "held": held}) for held in self.held)
            self.held.clear()
            while data:
                size = random.randint(1, 700)
                write(data[:size])
                data = data[size:]

    def do_seen(self, request_id: Any) -> None:
        write(answer(request_id, self.seen))

    def do_about(self, request_id: Any) -> None:
        about = {"pid": os.getpid(), "session": os.getsid(0), "arguments": sys.argv, "environment": dict(os.environ)}
        write(answer(request_id, about))

    def do_stderr(self, _: Any, text: str) -> None:
        write(text.encode("latin-1"), 2)

    def do_close(self, _: Any, fd: int) -> None:
        os.close(fd)
        if fd == 0:
            forever()

    def do_deaf(self, _: Any) -> None:
        forever()

    def do_child(self, request_id: Any) -> None:
        child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"])
        write(answer(request_id, child.pid))

    def do_exit(self, _: Any, status: int) -> None:
        os._exit(status)

    def do_kill(self, _: Any, number: int) -> None:
        os.kill(os.getpid(), number)


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    if options.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write(options.get("stderr", "").encode("latin-1"), 2)
    write(options.get("say", "").encode("latin-1"))
    if "exit" in options:
        os._exit(options["exit"])
    if options.get("deaf"):
        forever()
    server = Server(options)
    rest = b""
    while data := os.read(0, 65536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            server.line(line)
    if options.get("stay"):
        forever()


if __name__ == "__main__":
    main()
