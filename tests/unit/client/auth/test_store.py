"""The file with the tokens: private, whole, and one writer at a time."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import msgspec
import pytest

from openwop_mcp.client.auth import _store
from openwop_mcp.client.auth._store import Grant, Record, Registration, StoreKey, TokenStore
from openwop_mcp.errors import AuthorizationError
from tests.support.patience import PATIENCE

KEY = StoreKey("weather", "https://h/mcp")
GRANT = Grant("g", "https://as", "c", "https://h/mcp", "access-secret", "refresh-secret", 1.5, 1.0, ("a",), ("a",))
RECORD = Record(
    KEY, GRANT, {"https://as": Registration("c", "none", "http://127.0.0.1/callback", "reg-secret")}, ("b",)
)


def _file(store: TokenStore, key: StoreKey = KEY) -> Path:
    return store._file(key)


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "a" / "tokens")


def test_what_was_written_comes_back(store: TokenStore) -> None:
    assert store.read(KEY) == Record(KEY)
    store.write(RECORD)
    assert store.read(KEY) == RECORD


@pytest.mark.parametrize(
    "other",
    [StoreKey("storm", KEY.url), StoreKey(KEY.server_id, "https://other/mcp"), StoreKey(KEY.server_id, KEY.url, "me")],
)
def test_another_server_url_or_client_finds_nothing(store: TokenStore, other: StoreKey) -> None:
    store.write(RECORD)
    assert store.read(other).grant is None
    _file(store).rename(_file(store, other))
    assert store.read(other).grant is None


def test_only_the_owner_can_read_it(store: TokenStore, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store.write(RECORD)
    finally:
        os.umask(before)
    assert stat.S_IMODE(_file(store).stat().st_mode) == 0o600
    assert stat.S_IMODE(_file(store).parent.stat().st_mode) == 0o700
    _file(store).parent.chmod(0o755)
    store.write(RECORD)
    assert stat.S_IMODE(_file(store).parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(store: TokenStore, mode: int) -> None:
    store.write(RECORD)
    _file(store).chmod(mode)
    with pytest.raises(AuthorizationError) as caught:
        store.read(KEY)
    assert caught.value.cause == "store"
    assert "chmod 600" in str(caught.value)


def test_a_link_is_not_followed(store: TokenStore, tmp_path: Path) -> None:
    store.write(RECORD)
    _file(store).rename(tmp_path / "elsewhere")
    _file(store).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuthorizationError):
        store.read(KEY)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"key":{"server_id":"weather"}}', b"\xff" * 9])
def test_a_file_that_is_not_to_be_understood_is_none(store: TokenStore, data: bytes) -> None:
    store.write(RECORD)
    _file(store).write_bytes(data)
    assert store.read(KEY) == Record(KEY)
    store.write(RECORD)
    assert store.read(KEY) == RECORD


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_former_record(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store.write(RECORD)

    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), crash)
        with pytest.raises(Crash):
            store.write(msgspec.structs.replace(RECORD, grant=None))
    assert store.read(KEY) == RECORD
    assert [path for path in _file(store).parent.iterdir() if path.suffix == ".draft"]
    store.write(msgspec.structs.replace(RECORD, grant=None))
    assert store.read(KEY).grant is None
    assert [path.suffix for path in _file(store).parent.iterdir()] == [".json"]


def test_a_full_disk_is_an_error_that_names_the_file(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AuthorizationError) as caught:
        store.write(RECORD)
    assert caught.value.cause == "store"
    assert "No space" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not list(_file(store).parent.iterdir())


async def test_one_holder_at_a_time_and_none_waits_for_ever(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[str] = []
    released = asyncio.Event()
    held = asyncio.Event()

    async def hold() -> None:
        async with TokenStore(_file(store).parent).locked(KEY):
            inside.append("first")
            held.set()
            await released.wait()
            inside.append("first leaves")

    async def wait() -> None:
        async with store.locked(KEY):
            inside.append("second")

    first = asyncio.create_task(hold())
    await asyncio.wait_for(held.wait(), PATIENCE)
    async with store.locked(StoreKey("other", "https://h/mcp")):
        pass
    second = asyncio.create_task(wait())
    with monkeypatch.context() as patch:
        patch.setattr(_store, "LOCK_PATIENCE", 0.0)
        with pytest.raises(AuthorizationError) as caught:
            await wait()
        assert (caught.value.cause, caught.value.retryable) == ("store", True)
    released.set()
    await asyncio.wait_for(asyncio.gather(first, second), PATIENCE)
    assert inside == ["first", "first leaves", "second"]


def test_nothing_secret_is_shown() -> None:
    assert "secret" not in repr(RECORD)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/openwop-mcp/tokens"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/state/openwop-mcp/tokens"),
        ({"HOME": "/home/me"}, "/home/me/.local/state/openwop-mcp/tokens"),
    ],
)
def test_the_folder_is_that_of_the_machines_user(environ: dict[str, str], folder: str) -> None:
    assert TokenStore.default(environ)._folder == Path(folder)
