"""`worker.py run --healthy FILE`: what watches a worker by a command sees whether it is well."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time

from temporalio.client import Client

from commands import away
from openwop_mcp.embedded import embedded_temporal
from tests.support.cli import ROOT, cli, serving
from tests.support.patience import PATIENCE


def probe(*what: str) -> subprocess.CompletedProcess[str]:
    """What the image's probe says."""
    command = [sys.executable, "-I", str(ROOT / "deploy/probe.py"), *what]
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_a_worker_is_well_from_when_it_is_ready_until_it_ends(temporal, tmp_path):
    file, config = tmp_path / "healthy", tmp_path / "s.toml"
    config.write_text(f'[temporal]\naddress = "{temporal.address}"\n', encoding="utf-8")
    assert probe(str(file)).returncode == 1
    async with serving("run", "--config", str(config), "--healthy", str(file)) as worker:
        assert probe(str(file)).returncode == 0
        done = await worker.end(signal.SIGTERM)
    assert done.status == 0
    assert not file.exists()
    told = probe(str(file))
    assert (told.returncode, told.stderr) == (1, f"{file}: No such file or directory\n")


def test_a_probe_that_is_told_nothing_says_what_it_wants_and_that_is_not_well(monkeypatch):
    monkeypatch.delenv("PROBE", raising=False)
    told = probe()
    assert (told.returncode, told.stderr) == (1, "give a file or an address, as an argument or in PROBE\n")


async def test_the_file_grows_old_while_temporal_does_not_answer(tmp_path, monkeypatch):
    file = tmp_path / "healthy"
    monkeypatch.setattr(away, "EVERY", 0.05)
    async with embedded_temporal() as server:
        client = await Client.connect(server.address)
        async with away.watched(client, file):
            await moves(file)
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                await rests(file)
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            await moves(file)


async def moves(file) -> None:
    """Wait for two touches of a file."""
    seen = {file.stat().st_mtime_ns}
    async with asyncio.timeout(PATIENCE):
        while len(seen) < 3:
            await asyncio.sleep(0.01)
            seen.add(file.stat().st_mtime_ns)


async def rests(file) -> None:
    """Wait until a file is not touched for ten times as long as it takes otherwise. An answer may be under way."""
    async with asyncio.timeout(PATIENCE):
        while True:
            before = file.stat().st_mtime_ns
            await asyncio.sleep(0.5)
            if file.stat().st_mtime_ns == before:
                return


async def test_a_file_that_cannot_be_written_is_told_before_anything_is_taken_on(temporal, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text(f'[temporal]\naddress = "{temporal.address}"\n', encoding="utf-8")
    done = await cli("run", "--config", str(config), "--healthy", str(tmp_path / "none" / "healthy"))
    assert (done.status, done.out) == (1, b"")
    assert "give another to --healthy" in done.err


def test_a_file_that_was_not_touched_lately_is_no_sign_of_life(tmp_path):
    file = tmp_path / "healthy"
    file.touch()
    assert probe(str(file)).returncode == 0
    old = time.time() - 60
    os.utime(file, (old, old))
    told = probe(str(file))
    assert told.returncode == 1
    # Sixty, and what it took to ask.
    age = re.search(r"was touched (\d+) s ago", told.stderr)
    assert age is not None
    assert 60 <= int(age[1]) < 60 + PATIENCE


async def test_the_probe_asks_hosts_and_ports_too(tmp_path):
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        status = b"200 OK" if b"/readyz" in line else b"503 Service Unavailable"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        told = [await asyncio.to_thread(probe, f"http://127.0.0.1:{port}/{path}") for path in ("readyz", "other")]
        listens = await asyncio.to_thread(probe, f"tcp://127.0.0.1:{port}")
    assert [one.returncode for one in told] == [0, 1]
    assert "answers 503" in told[1].stderr
    assert listens.returncode == 0
    gone = await asyncio.to_thread(probe, f"tcp://127.0.0.1:{port}")
    assert (gone.returncode, gone.stderr) == (1, f"tcp://127.0.0.1:{port}: Connection refused\n")
