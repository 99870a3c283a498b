"""The Temporal of the settings: a connection, and whether it keeps what it has to and can be opened with the keys here.

It knows of workflows what they are called, and nothing of what they do.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Interceptor
from temporalio.common import HeaderCodecBehavior
from temporalio.service import GrpcCompression, RPCError, RPCStatusCode, TLSConfig

from commands.errors import CommandError
from openwop_mcp import storage
from openwop_mcp.config import SecretRef, Settings, SettingsError, Temporal
from openwop_mcp.encryption import Encryption
from openwop_mcp.storage import data_converter
from openwop_mcp.telemetry import switch
from workflows.client import GRAPH_RUN

__all__ = (
    "COMPRESSIONS",
    "PATIENCE",
    "WATCH",
    "check_encryption",
    "check_retention",
    "check_storage",
    "compression",
    "connect",
    "ends_without_key",
)

PATIENCE = 10.0
"""Seconds that a command waits for a worker to take its run before it says that there is none."""

WATCH = 1.0
"""Seconds between two looks: at whether the embedded Temporal still runs, and at how far a call is, whose worker tells
as often."""

THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Hosts of a Temporal whose workers are all here, and to which there is no wire."""

COMPRESSIONS: Mapping[str, GrpcCompression] = {"gzip": GrpcCompression.GZIP, "none": GrpcCompression.NONE}
"""What `temporal.compression` can say."""

LOOKED_AT = 200
"""Runs that are looked at for keys that are missing, the newest: those of one page are had in one answer."""

CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
"""What a certificate begins with as PEM. Temporal's core takes any file, and tells of none that is something else."""

TLS_FAULTS: Mapping[str, str] = {
    "UnknownIssuer": "its certificate is signed by none that is trusted here: set temporal.server_ca to a file with the"
    " certificate of who signed it",
    "NotValidForName": "its certificate is for another name: set temporal.server_name to one that is in it",
    "InconsistentKeys": "temporal.client_key is not the key of temporal.client_cert: name two that belong together",
    "InvalidContentType": "what answers has no TLS: set temporal.tls = false, or another temporal.address",
}
"""What is to be done where TLS is not agreed on, by what Temporal's core calls the reason."""

RETENTION = timedelta(days=14)
"""How long effects are to be remembered at least, which they are as long as the namespace keeps closed workflows."""


async def connect(settings: Settings, *, traced: bool = False) -> Client:
    """Connect to the Temporal of the settings.

    Args:
        settings: Where it is.
        traced: Whether the trace that a run is asked for in goes on in it, and in whatever is done for it.

    Raises:
        CommandError: It does not answer, does not let us in, or has no such namespace.
        SettingsError: What it is to be shown cannot be read.
    """
    temporal = settings.temporal
    interceptors: list[Interceptor] = []
    # Here, since each takes its time to import, and most commands need neither.
    if switch.traced():
        from openwop_mcp.telemetry.spanning import Spanned

        interceptors.append(Spanned())
    elif traced:
        from openwop_mcp.telemetry.passing import PassedOn

        interceptors.append(PassedOn())
    try:
        client = await Client.connect(
            temporal.address,
            namespace=temporal.namespace,
            tls=_tls(temporal),
            api_key=_secret(temporal.api_key, "api_key"),
            data_converter=data_converter(settings),
            interceptors=interceptors,
            grpc_compression=COMPRESSIONS[compression(temporal)],
            # What a client says of its trace is its own words, too. Those of others are read as they are.
            header_codec_behavior=HeaderCodecBehavior.CODEC
            if settings.encryption.keys
            else HeaderCodecBehavior.NO_CODEC,
        )
    except (RuntimeError, RPCError) as error:
        raise _unreachable(temporal, str(error)) from None
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        if error.status is RPCStatusCode.UNAUTHENTICATED:
            raise _not_let_in(temporal) from None
        # Some servers let only their operators describe a namespace; that says nothing about its use.
        if error.status is RPCStatusCode.NOT_FOUND:
            raise CommandError(
                f"the Temporal server at {temporal.address} has no namespace '{temporal.namespace}': create it, or set"
                " temporal.namespace",
                code="not_found",
            ) from None
    return client


def compression(temporal: Temporal) -> str:
    """How what goes to a Temporal and comes from it is compressed, as `temporal.compression` can say it."""
    return temporal.compression or ("none" if temporal.address.rpartition(":")[0] in THIS_MACHINE else "gzip")


def _tls(temporal: Temporal) -> TLSConfig | bool:
    if not temporal.tls:
        return False
    key = _secret(temporal.client_key, "client_key")
    return TLSConfig(
        server_root_ca_cert=_certificate(temporal.server_ca, "server_ca"),
        domain=temporal.server_name,
        client_cert=_certificate(temporal.client_cert, "client_cert"),
        client_private_key=None if key is None else key.encode(),
    )


def _secret(ref: SecretRef | None, key: str) -> str | None:
    try:
        return None if ref is None else ref.reveal(os.environ)
    except SettingsError as error:
        raise SettingsError(f"temporal.{key}: {error}") from None


def _certificate(path: str | None, key: str) -> bytes | None:
    if path is None:
        return None
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(
            f"temporal.{key}: the file that is named here cannot be read ({error.strerror}): make it readable, or name"
            " another one"
        ) from None
    if CERTIFICATE not in text:
        raise SettingsError(f"temporal.{key}: this is no certificate in PEM: name a file with {CERTIFICATE.decode()}")
    return text


def _unreachable(temporal: Temporal, said: str) -> CommandError:
    """Why there is no connection, by what Temporal's core says of it, none of which is repeated."""
    if any(word in said for word in ("Unauthenticated", "PermissionDenied")):
        return _not_let_in(temporal)
    if (fault := next((told for word, told in TLS_FAULTS.items() if word in said), None)) is not None:
        return CommandError(
            f"no connection over TLS to the Temporal server at {temporal.address}: {fault}", code="service_unavailable"
        )
    # Whose certificate a server does not take, it often tells by hanging up alone.
    over_tls = " over TLS" if temporal.tls else ""
    otherwise = (
        "; where one is there, see temporal.client_cert and client_key"
        if temporal.tls
        else ", or temporal.tls = true if it speaks TLS"
    )
    return CommandError(
        f"no Temporal server answers at {temporal.address}{over_tls}: start one with 'worker.py dev', or set"
        f" temporal.address{otherwise}",
        code="service_unavailable",
    )


def _not_let_in(temporal: Temporal) -> CommandError:
    return CommandError(
        f"the Temporal server at {temporal.address} does not let us in: see that temporal.api_key, or client_cert and"
        f" client_key, are good for the namespace '{temporal.namespace}'",
        code="unauthenticated",
    )


async def check_retention(client: Client) -> None:
    """Warn where effects are forgotten too soon; where the namespace cannot be described, nobody can say so."""
    try:
        answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError:
        return
    kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
    if kept < RETENTION:
        logging.getLogger(__name__).warning(
            "the namespace '%s' keeps closed workflows for %g h: an idempotency key that is older is forgotten, and its"
            " effect could be repeated. Keep them for 14 days at least: temporal operator namespace update --retention"
            " %.0fh -n %s",
            client.namespace,
            kept / timedelta(hours=1),
            RETENTION / timedelta(hours=1),
            shlex.quote(client.namespace),
        )


async def check_encryption(client: Client, task_queue: str) -> None:
    """See whether runs that go on can be opened, before they are taken on.

    Args:
        client: With the keys of the settings.
        task_queue: Whose runs.

    Raises:
        EncryptionError: One cannot: each of its tasks would fail here, and be tried again, for ever.
    """
    quoted = task_queue.replace("'", "''")
    query = f"WorkflowType = '{GRAPH_RUN}' AND TaskQueue = '{quoted}' AND ExecutionStatus = 'Running'"
    codec = client.data_converter.payload_codec
    assert codec is not None
    try:
        async for found in client.list_workflows(query, limit=LOOKED_AT, page_size=LOOKED_AT):
            await codec.decode(list(found.raw_info.memo.fields.values()))
    except RPCError:
        # Some servers let only their operators list what there is.
        return


async def ends_without_key(client: Client) -> NoReturn:
    """Wait until something comes that cannot be opened.

    Raises:
        EncryptionError: It came. Others may have the key, and would not get what this process takes.
    """
    codec = client.data_converter.payload_codec
    assert isinstance(codec, Encryption)
    raise await codec.missing()


async def check_storage(client: Client, settings: Settings) -> None:
    """See whether large results can be kept, and warn where other machines would not find them.

    Raises:
        StorageError: They cannot: it would be noticed by a call that had acted.
    """
    await storage.check_storage(client.data_converter)
    host = settings.temporal.address.rpartition(":")[0]
    if settings.storage.driver == "folder" and settings.storage.folder is None and host not in THIS_MACHINE:
        logging.getLogger(__name__).warning(
            "large values are kept in a folder of this machine, where workers on other machines do not find them: set"
            " storage.folder to one that all of them see, or storage.driver"
        )
