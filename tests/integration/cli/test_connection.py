"""Temporal as it is elsewhere: behind certificates and keys, and away for a while."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.service import GrpcCompression

from commands import away
from commands.connection import COMPRESSIONS, compression
from openwop_mcp.config import Temporal
from tests.support.cli import Serving, cli, serving
from tests.support.front import Authority, Front, front
from tests.support.patience import PATIENCE

NAME = "temporal.test"
API_KEY = "it0is1a2secret0to1test2it"

GZIP = bytes.fromhex("1f8b08")
"""What gzip begins with (RFC 1952, section 2.3.1)."""

CODES = {
    **dict(zip("012aceiost", (f"{number:05b}" for number in range(10)), strict=True)),
    " ": "010100",
    "r": "101100",
    "B": "1011101",
}
"""How HTTP/2 spells some characters (RFC 7541, appendix B)."""


def spelled(text: str) -> bytes:
    bits = "".join(CODES[character] for character in text)
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def guarded(temporal, authority: Authority) -> AsyncIterator[Front]:
    async with front(temporal.address, authority.context(authority.issue(NAME))) as one:
        yield one


def shown(authority: Authority) -> dict[str, str]:
    """What the settings say of an authority's Temporal, by key."""
    client = authority.issue("client.test")
    return {
        "tls": "true",
        "server_ca": f'"{authority.file}"',
        "server_name": f'"{NAME}"',
        "client_cert": f'"{client.certificate}"',
        "client_key": f'{{ file = "{client.key}" }}',
    }


def write(folder: Path, address: str, says: dict[str, str], rest: str = "") -> str:
    lines = "\n".join(f"{key} = {value}" for key, value in says.items())
    file = folder / "settings.toml"
    file.write_text(f'[temporal]\naddress = "{address}"\n{lines}\n{rest}', encoding="utf-8")
    return str(file)


async def test_worker_and_call_meet_in_a_temporal_that_wants_certificates_and_a_key(
    guarded, authority, server, tmp_path
):
    says = shown(authority) | {"api_key": '{ env = "TEMPORAL_KEY" }'}
    rest = f'[worker]\ntask_queue = "guarded"\n[servers.fake]\nurl = "{server.url}"\nnetwork = "private"\n'
    config = write(tmp_path, guarded.address, says, rest)
    async with serving("run", "--config", config, TEMPORAL_KEY=API_KEY) as worker:
        done = await cli("call", "fake", "echo", "--config", config, TEMPORAL_KEY=API_KEY)
        ended = await worker.end(signal.SIGTERM)
    assert (done.text, ended.status) == ("done\n", 0)
    assert "namespace default, with TLS, compression none; telemetry: none" in ended.err
    assert API_KEY not in done.err + ended.err
    assert spelled(f"Bearer {API_KEY}") in guarded.seen


@pytest.mark.parametrize(
    ("says", "compressed"), [({}, False), ({"compression": '"gzip"'}, True), ({"compression": '"none"'}, False)]
)
async def test_what_goes_to_a_temporal_of_this_machine_is_compressed_only_where_the_settings_say_so(
    temporal, tmp_path, says, compressed
):
    async with front(temporal.address) as before:
        await cli("runs", "show", "x", "--config", write(tmp_path, before.address, says))
    assert (GZIP in before.seen) is compressed


@pytest.mark.parametrize(
    ("address", "says", "how"),
    [
        ("127.0.0.1:7233", None, GrpcCompression.NONE),
        ("localhost:7233", None, GrpcCompression.NONE),
        ("[::1]:7233", None, GrpcCompression.NONE),
        ("temporal:7233", None, GrpcCompression.GZIP),
        ("10.0.0.1:7233", None, GrpcCompression.GZIP),
        ("127.0.0.1:7233", "gzip", GrpcCompression.GZIP),
        ("temporal:7233", "none", GrpcCompression.NONE),
    ],
)
def test_the_address_decides_on_compression_where_the_settings_do_not(address, says, how):
    assert COMPRESSIONS[compression(Temporal(address=address, compression=says))] is how


@pytest.mark.parametrize(
    ("without", "told"),
    [
        ("server_ca", "signed by none that is trusted here: set temporal.server_ca"),
        ("server_name", "for another name: set temporal.server_name"),
        (
            "client",
            "over TLS: start one with 'worker.py dev', or set temporal.address; where one is there, see temporal",
        ),
        ("tls", "or temporal.tls = true if it speaks TLS"),
    ],
)
async def test_a_temporal_that_cannot_be_had_over_tls_names_the_setting_that_matters(
    guarded, authority, tmp_path, without, told
):
    says = {key: value for key, value in shown(authority).items() if not key.startswith(without)}
    if without == "tls":
        says = {}
    done = await cli("runs", "show", "x", "--config", write(tmp_path, guarded.address, says))
    assert done.status == 1
    assert told in done.err


async def test_a_key_of_another_certificate_and_a_temporal_without_tls_are_named(
    temporal, guarded, authority, tmp_path
):
    says = shown(authority)
    another = says | {"client_key": f'{{ file = "{authority.issue("another.test").key}" }}'}
    done = await cli("runs", "show", "x", "--config", write(tmp_path, guarded.address, another))
    assert "temporal.client_key is not the key of temporal.client_cert" in done.err
    done = await cli("runs", "show", "x", "--config", write(tmp_path, temporal.address, says))
    assert "what answers has no TLS: set temporal.tls = false" in done.err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("server_ca", '"/none.pem"', "temporal.server_ca: the file that is named here cannot be read (No such file"),
        ("client_cert", f'"{__file__}"', "temporal.client_cert: this is no certificate in PEM"),
        ("client_key", f'{{ file = "{__file__}" }}', "temporal.client_key: this is no private key in PEM"),
        ("api_key", '{ env = "UNSET" }', "temporal.api_key: the environment variable UNSET is not set"),
    ],
)
async def test_what_temporal_is_to_be_shown_and_cannot_be_read_is_named(authority, tmp_path, key, value, told):
    says = shown(authority) | {key: value}
    done = await cli("runs", "show", "x", "--config", write(tmp_path, "127.0.0.1:1", says))
    assert done.status == 2
    assert told in done.err


async def test_a_worker_says_once_that_temporal_is_away_and_once_that_it_is_back(temporal, tmp_path):
    verbose = {"OPENWOP_MCP__LOGS__LEVELS__TEMPORALIO": "debug"}
    async with front(temporal.address) as before:
        config = write(tmp_path, before.address, {}, '[worker]\ntask_queue = "away"\n')
        async with serving("run", "--config", config) as plain, serving("run", "--config", config, **verbose) as told:
            await before.go()
            # By then the SDK of the other one has complained, too.
            detail = await heard(told, "gRPC call")
            away_told = await heard(plain, f"Temporal at {before.address} does not answer")
            await before.come()
            back_told = await heard(plain, f"Temporal at {before.address} answers again")
            done = await plain.end(signal.SIGTERM)
    assert [line[-1]["level"] for line in (away_told, back_told, detail)] == ["warning", "info", "debug"]
    rest = [json.loads(line) for line in done.err.splitlines()]
    said = [line["message"] for line in [*away_told[:-1], *back_told[:-1], *rest]]
    assert [one for one in said if "gRPC call" in one or "answer" in one] == []


async def heard(worker: Serving, text: str) -> list[dict[str, Any]]:
    """The lines that a worker logs up to the first with a text."""
    assert worker.process.stderr is not None
    lines: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        while not lines or text not in lines[-1]["message"]:
            lines.append(json.loads(await worker.process.stderr.readline()))
    return lines


def test_that_temporal_is_away_is_told_again_after_some_minutes(caplog):
    caplog.set_level(logging.INFO)
    clock = [0.0]
    tells = away.Tells("127.0.0.1:7233", lambda: clock[0])
    for now, yes in ((0, True), (5, False), (10, False), (304, False), (305, False), (310, True), (315, True)):
        clock[0] = now
        tells.answered(yes=yes)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert "after 305 s" in caplog.records[-1].getMessage()


async def test_lines_of_the_sdk_are_heard_again_where_nobody_watches(temporal):
    client = await Client.connect(temporal.address)
    before = list(logging.getLogger("temporalio").filters)
    async with away.watched(client):
        assert len(logging.getLogger("temporalio").filters) == len(before) + 1
    assert logging.getLogger("temporalio").filters == before
