"""The pages that people read, as tests use them: their blocks, and a page played from top to bottom as a reader would.

A page is played by one shell in a folder that looks like a checkout. Files that it says to write are written, what
serves is started and waited for, and everything else is run as it stands. Three things differ: ports are replaced by
free ones, the environment is there already, and `make` is not run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import ROOT
from tests.support.ports import free_port

__all__ = ("PAGES", "Block", "Played", "blocks", "of", "play", "read", "sample_server", "shell")

PAGES = ("README.md", *sorted(str(file.relative_to(ROOT)) for file in (ROOT / "docs").rglob("*.md")))
"""Every page, by its path in the repository."""

BLOCK = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TO_FILE = re.compile(r"(?:[Ww]rite|[Ss]ave|[Aa]nd)\s+(?:this|it)\s+(?:to|as)\s+`(?P<name>[^`]+)`[^`]*:\n\n\Z")
SERVES = re.compile(r"(?:\w+=\S+ )*python (?:worker\.py (?:dev|run|serve|codec)\b|\w*/?\w+_server\.py )")
"""Commands that a reader leaves running. Each says in a line on standard output when it is ready."""

PORT = re.compile(r"(?:(?:127\.0\.0\.1|localhost):|--port )(\d{4,5})\b")
STATUS = re.compile(r"#.*\bstatus (?:is )?(\d+)")
"""How a page says of a command that it is refused: its comment names the status."""

KEY = "k" * 24
"""What `dev` would otherwise make and print, where a page has no keys of its own."""

LIMIT = 300.0
"""Seconds for one page: forty commands or so, each of which starts an interpreter."""

MARK = "\x1e"
HEAD = """\
serve() {
  key=$1; shift
  if [ -f ".serving/$key" ]; then
    old=$(cat ".serving/$key"); kill "$old"; wait "$old" || true
    rm ".serving/$key.out"
  fi
  "$@" >".serving/$key.out" 2>".serving/$key.err" &
  echo $! >".serving/$key"
  left=600
  until [ -s ".serving/$key.out" ]; do
    left=$((left - 1)); [ $left -gt 0 ] || { echo "not ready: $*"; exit 1; }
    sleep 0.1
  done
}
ended() {
  status=$?
  [ $status = 0 ] || cat .serving/*.err
  for pid in $(cat .serving/* 2>/dev/null | grep -E '^[0-9]+$' || true); do kill "$pid" 2>/dev/null || true; done
  wait
  exit $status
}
trap ended EXIT
mkdir -p .serving
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: Path of the page.
        line: Where it begins, from 1.
        language: What stands behind the fence.
        text: What is in it, with a line end.
        file: What the page says to write it to.
    """

    page: str
    line: int
    language: str
    text: str
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Played:
    """What a page showed.

    Attributes:
        folder: Where it was played.
        shown: What each block of commands printed, standard error among it.
        ports: The free ports by those that the page names.
        env: What its commands had in their environment.
    """

    folder: Path
    shown: tuple[str, ...]
    ports: Mapping[str, str]
    env: Mapping[str, str]

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.shown)


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def of(page: str) -> list[Block]:
    """The blocks of a page."""
    text = read(page)
    found = []
    for block in BLOCK.finditer(text):
        before = text[: block.start()]
        file = TO_FILE.search(before[before.rfind("\n\n", 0, len(before) - 2) + 2 :])
        name = None if file is None else file["name"]
        found.append(Block(page, before.count("\n") + 1, block["language"], block["text"], name))
    return found


def blocks(text: str, language: str) -> list[str]:
    """What stands in the blocks of a language."""
    return [found["text"] for found in BLOCK.finditer(text) if found["language"] == language]


async def shell(script: str, folder: Path, env: Mapping[str, str], limit: float = LIMIT) -> str:
    """What a script prints, which ends with 0."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-eu", "-c", script, cwd=folder, env=env, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(limit):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)
            await asyncio.sleep(1)
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out.decode()
    return out.decode()


@contextlib.asynccontextmanager
async def sample_server(port: str) -> AsyncIterator[None]:
    """The sample server, at a port, as long as it is needed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "sample_server.py"),
        "--port",
        port,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline()
        yield
    finally:
        process.terminate()
        await process.wait()


async def play(
    page: str, folder: Path, *, settings: str | None = None, after: Mapping[str, str] | None = None, **more: str
) -> Played:
    """Do what a page says, in its order.

    A page that starts no `dev` of its own goes on from the README: its settings, graph, server and `dev` are there.

    Args:
        page: The page.
        folder: An empty one.
        settings: What stands in `openwop-mcp.toml` from the begin, where it is not the README's.
        after: What a reader does that the page need not say, such as to look again: a command by how a line begins that
            it comes after.
        more: More of the environment.
    """
    own = of(page)
    steps = own if any("worker.py dev" in block.text for block in own if block.language == "sh") else [*first(), *own]
    if settings is not None:
        steps = [
            Block(page, 0, "toml", settings, "openwop-mcp.toml"),
            *(step for step in steps if step.file != "openwop-mcp.toml"),
        ]
    ports = {port: str(free_port()) for step in steps for port in PORT.findall(step.text)}
    ports |= {port: str(free_port()) for port in ("7233", "8080") if port not in ports}
    for name in ("worker.py", "examples"):
        (folder / name).symlink_to(ROOT / name)
    parts = [HEAD]
    (folder / ".blocks").mkdir()
    for number, step in enumerate(steps):
        text = replaced(step.text, ports)
        if step.file is not None:
            (folder / ".blocks" / str(number)).write_text(text, encoding="utf-8")
            target = shlex.quote(step.file)
            parts.append(f'mkdir -p "$(dirname {target})"; cp .blocks/{number} {target}')
        elif step.language == "sh":
            parts += [f"printf '{MARK}'" if step.page == page else "", commands(text, after or {})]
    env = {
        **os.environ,
        # What `source .venv/bin/activate` does.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # The default addresses, which no page has a need to name.
        "OPENWOP_MCP__TEMPORAL__ADDRESS": f"127.0.0.1:{ports['7233']}",
        "OPENWOP_MCP__HOST__BIND": f"127.0.0.1:{ports['8080']}",
        "XDG_STATE_HOME": str(folder / ".state"),
        **more,
    }
    if not any("[[keys]]" in step.text for step in steps if step.file == "openwop-mcp.toml"):
        env["KEY"] = KEY
        key = {"id": "dev", "secret": {"env": "KEY"}, "tenant": "default", "subject": "dev", "scopes": ["*"]}
        env["OPENWOP_MCP__KEYS"] = str([key]).replace("'", '"')
    out = await shell("\n".join(parts), folder, env)
    return Played(folder, tuple(out.split(MARK)[1:]), ports, env)


def first() -> list[Block]:
    """What the README has a reader do before any other page: its files, the sample server and `dev`."""
    found = [block for block in of("README.md") if block.file is not None]
    serving = [line for block in of("README.md") if block.language == "sh" for line in lines(block.text)]
    started = "".join(dict.fromkeys(f"{re.sub(r' +#.*', '', line)}\n" for line in serving if SERVES.match(line)))
    return [*found, Block("README.md", 0, "sh", started)]


def lines(text: str) -> Iterable[str]:
    """The lines of a script, each with those that it goes on in."""
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def replaced(text: str, ports: Mapping[str, str]) -> str:
    """A text with free ports in place of those that it names."""
    for shown, used in ports.items():
        text = re.sub(rf"\b{shown}\b", used, text)
    return text


def commands(text: str, after: Mapping[str, str]) -> str:
    """A block of commands as it is run."""
    return "\n".join(_run(line, after) for line in lines(text))


def _run(line: str, after: Mapping[str, str]) -> str:
    bare = re.sub(r"\s+#.*$", "", line)
    if bare.startswith(("source ", "make ")):
        return ""
    if SERVES.match(bare):
        port = re.search(r"--port (\d+)", bare)
        key = port[1] if port else bare.replace("python ", "").split()[1] if "worker.py" in bare else "server"
        return f"serve {key} env {bare.replace('&', '')}"
    if refused := STATUS.search(line):
        return f"{{ {bare}; }} && status=0 || status=$?; test $status = {refused[1]}"
    more = [then for begins, then in after.items() if bare.startswith(begins)]
    return "\n".join([line, *more])
