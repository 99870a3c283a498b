"""`worker.py login`: a person comes back from the authorization server, and the next command has the token."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import stat
import termios
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from commands import pasting
from tests.support.auth_server import AuthServer, ProtectedServer
from tests.support.cli import cli, on_terminal, serving, until
from tests.support.patience import PATIENCE


def _settings(folder: Path, url: str, credential: str) -> str:
    file = folder / "openwop-mcp.toml"
    file.write_text(
        f'[servers.mail]\nurl = "{url}"\nnetwork = "private"\ncredential = {credential}\n', encoding="utf-8"
    )
    return str(file)


async def test_a_login_gives_the_next_command_a_token_and_shows_no_secret(tmp_path):
    state = {"XDG_STATE_HOME": str(tmp_path)}
    async with AuthServer() as issuer, ProtectedServer(issuer) as server:
        config = _settings(tmp_path, server.url, '{ oauth = { grant = "authorization_code" } }')
        async with serving("login", "mail", "--config", config, ready=False, **state) as login:
            assert login.process.stdout is not None
            async with asyncio.timeout(PATIENCE):
                url = (await login.process.stdout.readline()).decode().strip()
            async with aiohttp.ClientSession() as browser, browser.get(url) as page:
                assert page.status == 200
            async with asyncio.timeout(PATIENCE):
                out, err = await login.process.communicate()
        assert login.process.returncode == 0
        assert f"issuer {issuer.issuer}" in err.decode()
        health = await cli("health", "mail", "--config", config, **state)
        sent = server.authorizations[-1]
    assert sent is not None
    assert sent.removeprefix("Bearer ") in issuer.tokens
    shown = out.decode() + err.decode() + health.err
    assert not any(token in shown for token in issuer.tokens)
    (kept,) = [file for file in (tmp_path / "openwop-mcp" / "tokens").iterdir() if file.suffix == ".json"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


class Elsewhere(urllib.request.HTTPRedirectHandler):
    """A browser of another machine, which does not reach the address that it is sent to at the end."""

    def __init__(self) -> None:
        self.ended = ""

    def redirect_request(self, *arguments: Any) -> None:
        self.ended = arguments[-1]

    def visit(self, shown: str) -> str:
        """Follow the address on a terminal; gives the one where that ends."""
        [url] = re.findall(r"http://\S+/authorize\S+", shown)
        with pytest.raises(urllib.error.HTTPError, match="302"):
            urllib.request.build_opener(self).open(url)
        return self.ended


async def test_a_person_whose_browser_is_elsewhere_pastes_where_it_ended(tmp_path):
    state = {"XDG_STATE_HOME": str(tmp_path)}
    browser = Elsewhere()

    def stale(shown: str) -> str:
        return f"{browser.visit(shown).replace('state=', 'state=x')}\n"

    async with AuthServer() as issuer, ProtectedServer(issuer) as server:
        config = _settings(tmp_path, server.url, '{ oauth = { grant = "authorization_code" } }')
        wrong = [("stays hidden)", "\nhttp://[\n"), ("is not where", stale), ("is not where", lambda _: browser.ended)]
        said = [*wrong, ("", "\n")]
        status, shown = await on_terminal("login", "mail", "--config", config, said=said, **state)
        assert status == 0
        assert f"issuer {issuer.issuer}".encode() in shown
        assert not any(token.encode() in shown for token in issuer.tokens)
        assert b"code=" not in shown.partition(b"ended at here")[2]
        assert shown.count(b"is not where") == 2
        health = await cli("health", "mail", "--config", config, **state)
        assert server.authorizations[-1] in {f"Bearer {token}" for token in issuer.tokens}, health.err


async def test_what_is_pasted_of_another_issuer_is_not_redeemed(tmp_path):
    browser = Elsewhere()
    async with AuthServer() as issuer, ProtectedServer(issuer) as server:
        config = _settings(tmp_path, server.url, '{ oauth = { grant = "authorization_code" } }')
        issuer.redirect = lambda answer: answer.update(iss="https://another.example")
        said = [("stays hidden)", lambda shown: f"{browser.visit(shown)}\n")]
        status, shown = await on_terminal("login", "mail", "--config", config, said=said, XDG_STATE_HOME=str(tmp_path))
    assert status == 1
    assert b"iss, RFC 9207" in shown
    assert not issuer.token_requests


async def test_what_is_pasted_is_never_echoed_and_is_bounded(monkeypatch, capsys):
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    monkeypatch.setattr(pasting, "STDIN", slave)
    came: list[str] = []

    def take(line: str) -> bool:
        came.append(line)
        return line == "right"

    with pasting.pasted(take):
        # In a thread: a terminal takes no more than it holds.
        await asyncio.to_thread(os.write, master, b"x" * 2 * pasting.MAX_LINE + b"\nwrong\r")
        await asyncio.to_thread(os.write, master, b"ri")
        await until(lambda: "wrong" in came)
        os.write(master, b"ght\nbehind\n")
        await until(lambda: "right" in came)
    assert came[-2:] == ["wrong", "right"]
    assert max(map(len, came)) <= pasting.MAX_LINE + pasting.AT_ONCE
    assert capsys.readouterr().err.count("is not where") == len(came) - 1
    assert termios.tcgetattr(slave) == before
    os.set_blocking(master, False)
    with pytest.raises(BlockingIOError):
        os.read(master, 1)
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize(("foreground", "can"), [(0, True), (1, False)])
def test_a_process_in_the_background_leaves_the_terminal_alone(monkeypatch, foreground, can):
    # It would be stopped.
    master, slave = pty.openpty()
    monkeypatch.setattr(pasting, "STDIN", slave)
    monkeypatch.setattr(os, "tcgetpgrp", lambda fd: os.getpgrp() + foreground * fd)
    assert pasting.can_paste() is can
    os.close(master)
    os.close(slave)
    assert not pasting.can_paste()


async def test_a_terminal_that_goes_away_ends_no_login(monkeypatch):
    master, slave = pty.openpty()
    monkeypatch.setattr(pasting, "STDIN", slave)
    reads: list[int] = []

    def read(fd: int, size: int) -> bytes:
        reads.append(fd)
        return os.read(fd, size)

    monkeypatch.setattr(pasting, "os", SimpleNamespace(read=read))
    with pasting.pasted(lambda _: True):
        os.close(master)
        await until(lambda: bool(reads))
        for _ in range(3):
            await asyncio.sleep(0)
        assert reads == [slave], "nor is it asked again and again"
    os.close(slave)


async def test_a_worker_without_a_login_says_what_to_do(tmp_path):
    async with AuthServer() as issuer, ProtectedServer(issuer) as server:
        config = _settings(tmp_path, server.url, '{ oauth = { grant = "authorization_code" } }')
        # Else a Temporal that someone runs on the default port would be given a catalog of this server.
        nowhere = {"OPENWOP_MCP__TEMPORAL__ADDRESS": "127.0.0.1:1"}
        done = await cli("tools", "mail", "--config", config, XDG_STATE_HOME=str(tmp_path), **nowhere)
    assert done.status == 1
    assert "worker.py login mail" in done.err


async def test_a_server_that_takes_no_login_says_which_setting_would(tmp_path):
    config = _settings(tmp_path, "http://127.0.0.1:9/mcp", '{ bearer = { env = "TOKEN" } }')
    done = await cli("login", "mail", "--config", config, TOKEN="a-token-of-the-server")
    assert done.status == 1
    assert done.err.startswith("validation_error, delivery not_sent: ")
    assert 'grant = "authorization_code"' in done.err
