"""Blobs in a folder. Several processes may write to it at once, also over a network file system."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ._blobs import StorageError

__all__ = ("Folder",)

PRIVATE = 0o700
"""What servers answered is for this user's eyes."""

PIECE = 1024**2
"""Bytes of a file that are compared at a time: a value may be large, and is in memory once already."""


class Folder:
    """Blobs as files named by their digest, two levels deep: ``ab/cd/abcd…``.

    A file's time of modification is when its value was last recorded, also where it was there already: files older than
    the longest run and the namespace's retention together can be removed.

    Args:
        root: The folder; it is made when something is written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def where(self) -> str:
        """See :class:`Blobs`."""
        return f"the folder {self._root}"

    async def put(self, digest: str, data: bytes) -> None:
        """See :class:`Blobs`."""
        with self._told("written to"):
            await asyncio.to_thread(self._write, digest, data)

    async def get(self, digest: str, size: int) -> bytes | None:
        """See :class:`Blobs`. A folder that is not there at all is one that is not mounted, and no lost value."""
        with self._told("read"):
            return await asyncio.to_thread(self._read, digest, size)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest[2:4] / digest

    def _write(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        with contextlib.suppress(FileNotFoundError):
            # One that is not what its name says was changed by what is not this code, and is written anew.
            if path.stat().st_size == len(data) and _holds(path, data):
                os.utime(path)
                return
        self._root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self._root, path.parent.parent, path.parent):
            folder.mkdir(PRIVATE, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        # The name has to last as the bytes do: history refers to it from now on.
        folder_handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder_handle)
        finally:
            os.close(folder_handle)

    def _read(self, digest: str, size: int) -> bytes | None:
        try:
            # Without O_NONBLOCK, to open a pipe is to wait for who writes to it.
            handle = os.open(self._path(digest), os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            if not self._root.is_dir():
                raise
            return None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_size != size:
                return b""
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(size)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"large values lie in {self.where}, which cannot be {doing} ({error.strerror or type(error).__name__}):"
                " mend that, or set storage.folder"
            ) from error


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file is exactly these bytes."""
    at = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            if not data.startswith(piece, at):
                return False
            at += len(piece)
    return at == len(data)
