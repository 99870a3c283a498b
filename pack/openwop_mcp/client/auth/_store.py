"""Keeps what a login obtained, and whom a machine's credential belongs to, for every worker of this machine.

Owns files, one a server, which only its owner can read, and their locks. Knows no protocol: what a grant is worth is
decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Self

import msgspec

from openwop_mcp._state import state_folder
from openwop_mcp.errors import AuthorizationError

__all__ = ("Grant", "Record", "Registration", "StoreKey", "TokenStore")

LOCK_PATIENCE = 90.0
"""Seconds to wait for another worker that refreshes the same token: longer than any of its requests may take."""

LOCK_POLL = 0.05
"""Seconds between two tries for the lock. The system call that waits could not be cancelled."""

MAX_FILE = 1024**2
"""Bytes of one file; tokens have a few kilobytes."""

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class StoreKey(msgspec.Struct, frozen=True):
    """Whose tokens: a server of the settings, as it stands there. Another URL or client is another key.

    Attributes:
        server_id: Its id; what one tenant's server holds is not for another's with the same URL.
        url: The MCP endpoint.
        client: The client that the settings name: an id, the URL of a metadata document, or "".
    """

    server_id: str
    url: str
    client: str = ""

    @property
    def name(self) -> str:
        """The name of its file, without extension."""
        digest = hashlib.sha256(msgspec.json.encode([self.server_id, self.url, self.client])).hexdigest()
        return f"{self.server_id}-{digest[:32]}"


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an authorization server made of us when we registered (RFC 7591). It is worth nothing at any other.

    Attributes:
        client_id: What it calls us.
        method: How the client proves itself at the token endpoint.
        redirect_uri: The one redirect URI that was registered.
        client_secret: A secret, if one was issued.
        expires_at: When that ends, in seconds of the epoch; 0 for never.
    """

    client_id: str
    method: str
    redirect_uri: str
    client_secret: str | None = None
    expires_at: float = 0

    def __repr__(self) -> str:
        return f"Registration(client_id={self.client_id!r}, method={self.method!r})"


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person granted, and the tokens that stand for it.

    Attributes:
        grant_id: Made at the login; the same for as long as tokens are merely refreshed.
        issuer: Who issued the tokens.
        client_id: To whom.
        resource: For what, as resource indicators must say it.
        access_token: The current token.
        refresh_token: For the next one; None if there is none, or if it was refused.
        expires_at: When the current token ends, in seconds of the epoch; None if that is unknown.
        obtained_at: When it was obtained.
        requested: The scopes that were asked for.
        granted: The scopes that it has.
    """

    grant_id: str
    issuer: str
    client_id: str
    resource: str
    access_token: str
    refresh_token: str | None = None
    expires_at: float | None = None
    obtained_at: float = 0
    requested: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Grant(issuer={self.issuer!r}, client_id={self.client_id!r}, granted={self.granted!r})"


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept for a key.

    Attributes:
        key: The key, so that a file explains itself and serves no other.
        grant: The tokens of the last login.
        registrations: By issuer.
        wanted: Scopes that the server asked for since, which the next login should ask for too.
        issuer: Whom a machine's credential was first shown to; it belongs to no other.
    """

    key: StoreKey
    grant: Grant | None = None
    registrations: dict[str, Registration] = {}
    wanted: tuple[str, ...] = ()
    issuer: str | None = None


class TokenStore:
    """A folder of records.

    Args:
        folder: Where; it is made when something is written, and belongs to nobody else.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def default(cls, environ: Mapping[str, str]) -> Self:
        """The store of this machine's user: ``$XDG_STATE_HOME/openwop-mcp/tokens``, or under ``~/.local/state``."""
        return cls(state_folder(environ) / "tokens")

    def read(self, key: StoreKey) -> Record:
        """What is kept for a key; an empty record if nothing is, or if it is not to be understood.

        Raises:
            AuthorizationError: The file is open to others, or cannot be read; cause ``store``.
        """
        try:
            with self._opened(self._file(key)) as handle:
                data = os.read(handle, MAX_FILE)
        except FileNotFoundError:
            return Record(key)
        except OSError as error:
            raise _unusable(self._file(key), error) from None
        try:
            record = msgspec.json.decode(data, type=Record)
        except msgspec.DecodeError:
            return Record(key)
        return record if record.key == key else Record(key)

    def write(self, record: Record) -> None:
        """Replace what is kept for a key, at once and for good. To be called with the key's lock.

        Raises:
            AuthorizationError: It cannot be written; cause ``store``.
        """
        path = self._file(record.key)
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.draft")
        try:
            self._make_folder()
            self._sweep(path)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE_FILE)
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.encode(record))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            self._sync_folder()
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise _unusable(path, error) from None

    @contextlib.asynccontextmanager
    async def locked(self, key: StoreKey) -> AsyncIterator[None]:
        """Be the only one, among all processes, that changes what is kept for a key.

        Raises:
            AuthorizationError: Another holds it for too long, or the folder cannot be written; cause ``store``.
        """
        path = self._file(key).with_suffix(".lock")
        try:
            self._make_folder()
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            raise _unusable(path, error) from None
        try:
            await _acquire(handle, path)
            yield
        finally:
            # Closing gives the lock back, as the end of a process does.
            os.close(handle)

    def _file(self, key: StoreKey) -> Path:
        return self._folder / f"{key.name}.json"

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & OTHERS:
                raise AuthorizationError(
                    f"{path} holds tokens, and others than its owner may read or write it: take it away or make it"
                    f" private (chmod 600), and log in again if someone may have read it",
                    cause="store",
                )
            yield handle
        finally:
            os.close(handle)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        if self._folder.stat().st_mode & OTHERS:
            self._folder.chmod(PRIVATE_FOLDER)

    def _sweep(self, path: Path) -> None:
        """Take away what a process left that died while it wrote. Whoever has the lock has no rival."""
        for left in self._folder.glob(f"{path.name}.*.draft"):
            left.unlink(missing_ok=True)

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


async def _acquire(handle: int, path: Path) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if clock() >= end:
                raise AuthorizationError(
                    f"another process has held {path} for {LOCK_PATIENCE:g} s: see whether one of the workers hangs",
                    cause="store",
                    retryable=True,
                ) from None
            await asyncio.sleep(LOCK_POLL)
        else:
            return


def _unusable(path: Path, error: OSError) -> AuthorizationError:
    return AuthorizationError(
        f"{path} cannot be used ({error.strerror or type(error).__name__}): tokens from a login are kept there, so make"
        " its folder writable, or set XDG_STATE_HOME",
        cause="store",
    )
