"""What stands before a Temporal in tests: a TCP proxy that may ask for certificates, and can be away for a while."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

__all__ = ("Authority", "Front", "Shown", "front")

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Shown:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, each for one name, and writes them to a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority {folder.name}")
        limits = x509.BasicConstraints(ca=True, path_length=None)
        made = self._signed(self._name, self._key).add_extension(limits, critical=True).sign(self._key, hashes.SHA256())
        self.file = folder / "ca.pem"
        self.file.write_bytes(made.public_bytes(Encoding.PEM))

    def issue(self, name: str) -> Shown:
        """A certificate for a name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        made = self._signed(_name(name), key).add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        shown = Shown(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        shown.certificate.write_bytes(made.public_bytes(Encoding.PEM))
        shown.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return shown

    def context(self, server: Shown) -> ssl.SSLContext:
        """TLS that takes only who shows a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.certificate, server.key)
        context.load_verify_locations(self.file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        return context

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Front:
    """The proxy.

    Args:
        behind: Host and port of the Temporal.
        tls: What it asks for; None for plain TCP.

    Attributes:
        seen: What clients have sent, out of its TLS.
    """

    def __init__(self, behind: str, tls: ssl.SSLContext | None) -> None:
        self._host, _, port = behind.rpartition(":")
        self._port = int(port)
        self._tls = tls
        self._own_port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.seen = bytearray()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._own_port}"

    async def come(self) -> Self:
        """Listen, each time at the same port."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self._own_port, ssl=self._tls)
        self._own_port = self._server.sockets[0].getsockname()[1]
        return self

    async def go(self) -> None:
        """Listen no more, and let go of all connections."""
        assert self._server is not None
        self._server.close()
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._pass(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, before = await asyncio.open_connection(self._host, self._port)
        pumps = [
            asyncio.ensure_future(_pump(reader, before, self.seen)),
            asyncio.ensure_future(_pump(behind, writer, None)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (before, writer):
                end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: bytearray | None) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            if seen is not None:
                seen += piece
            writer.write(piece)
            await writer.drain()


@contextlib.asynccontextmanager
async def front(behind: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Front]:
    """A front that is there."""
    found = await Front(behind, tls).come()
    try:
        yield found
    finally:
        await found.go()
