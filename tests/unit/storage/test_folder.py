"""A folder of blobs: named by digest, written whole or not at all, by several at once."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from openwop_mcp.storage import Folder, StorageError
from tests.support.patience import PATIENCE

DATA = b'{"text":"x"}'
DIGEST = hashlib.sha256(DATA).hexdigest()


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


async def test_a_blob_is_exactly_its_bytes_in_a_file_of_its_digest_that_only_its_owner_reads(tmp_path):
    root = tmp_path / "state" / "blobs"
    await Folder(root).put(DIGEST, DATA)
    (file,) = files(root)
    assert file == root / DIGEST[:2] / DIGEST[2:4] / DIGEST
    assert file.read_bytes() == DATA == await Folder(root).get(DIGEST, len(DATA))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (root, file.parent, file)] == [0o700, 0o700, 0o600]


async def test_a_blob_that_is_there_is_not_written_again_and_counts_as_used_now(tmp_path):
    folder = Folder(tmp_path)
    await folder.put(DIGEST, DATA)
    (file,) = files(tmp_path)
    os.utime(file, (1, 1))
    before = file.stat()
    await folder.put(DIGEST, DATA)
    assert file.stat().st_ino == before.st_ino
    assert file.stat().st_mtime > before.st_mtime


async def test_a_blob_that_was_cut_is_written_anew(tmp_path):
    folder = Folder(tmp_path)
    await folder.put(DIGEST, DATA)
    (file,) = files(tmp_path)
    file.write_bytes(DATA[:3])
    await folder.put(DIGEST, DATA)
    assert await folder.get(DIGEST, len(DATA)) == DATA


@pytest.mark.parametrize("changed", [0, 2**20, 5_000_000 - 1])
async def test_a_blob_of_its_size_that_was_changed_anywhere_is_written_anew(tmp_path, changed):
    data = bytes(5_000_000)
    digest = hashlib.sha256(data).hexdigest()
    folder = Folder(tmp_path)
    await folder.put(digest, data)
    (file,) = files(tmp_path)
    file.write_bytes(data[:changed] + b"x" + data[changed + 1 :])
    await folder.put(digest, data)
    assert await folder.get(digest, len(data)) == data


async def test_a_large_blob_that_is_there_is_not_read_into_memory_as_a_whole(tmp_path):
    data = b"".join(bytes([number]) * 1_000_000 for number in range(16))
    digest = hashlib.sha256(data).hexdigest()
    folder = Folder(tmp_path)
    await folder.put(digest, data)
    (file,) = files(tmp_path)
    before = file.stat().st_ino
    tracemalloc.start()
    try:
        await folder.put(digest, data)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_ino == before
    assert most < len(data) / 4


async def test_many_that_write_one_value_at_once_leave_one_file(tmp_path):
    data = b"y" * 2_000_000
    digest = hashlib.sha256(data).hexdigest()
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=write, args=(tmp_path, digest, data)) for _ in range(2)]
    for other in others:
        other.start()
    await asyncio.gather(*(Folder(tmp_path).put(digest, data) for _ in range(20)))
    for other in others:
        await asyncio.to_thread(other.join, 30)
        assert other.exitcode == 0
    assert [file.name for file in files(tmp_path)] == [digest]
    assert await Folder(tmp_path).get(digest, len(data)) == data


def write(root: Path, digest: str, data: bytes) -> None:
    asyncio.run(Folder(root).put(digest, data))


async def test_a_write_that_fails_leaves_nothing_behind_and_names_folder_and_setting(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device.*storage\.folder") as failed:
        await Folder(tmp_path).put(DIGEST, DATA)
    assert str(tmp_path) in str(failed.value)
    assert files(tmp_path) == []


async def test_a_blob_that_is_not_there_is_none_and_a_folder_that_is_not_there_is_an_error(tmp_path):
    assert await Folder(tmp_path).get(DIGEST, len(DATA)) is None
    with pytest.raises(StorageError, match="cannot be read"):
        await Folder(tmp_path / "unmounted").get(DIGEST, len(DATA))


@pytest.mark.parametrize("size", [0, len(DATA) - 1, len(DATA) + 1, 10**14])
async def test_a_file_of_another_size_is_not_read(tmp_path, size):
    folder = Folder(tmp_path)
    await folder.put(DIGEST, DATA)
    assert await folder.get(DIGEST, size) == b""


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder"])
async def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path, kind):
    path = tmp_path / DIGEST[:2] / DIGEST[2:4] / DIGEST
    path.parent.mkdir(parents=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case _:
            path.mkdir()
    size = path.stat().st_size
    assert await asyncio.wait_for(Folder(tmp_path).get(DIGEST, size), PATIENCE) == b""
