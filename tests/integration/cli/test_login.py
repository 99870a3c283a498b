"""`worker.py login`: a person comes back from the authorization server, and the next command has the token."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import aiohttp

from tests.support.auth_server import AuthServer, ProtectedServer
from tests.support.cli import cli, serving
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
