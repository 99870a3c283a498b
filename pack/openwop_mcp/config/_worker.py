"""The tables of the worker: where Temporal is, how much is taken on, where large values lie, how large they may be.

Knows no server and no host.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from openwop_mcp.config._secrets import TemporalKeyRef, TemporalSecretRef
from openwop_mcp.config._tables import Table, fault
from openwop_mcp.config._values import AsTuple, Folder, HostPort, NotEmpty, Tenant, Text, Url

__all__ = (
    "Limits",
    "Storage",
    "Temporal",
    "Worker",
    "WorkerClass",
)

DEFAULT_CLASS = "default"
"""What ``serves`` calls the task queue of the servers that are in no class, with runs, shared effects and catalogs."""


def _class_name(text: str) -> str:
    if text == DEFAULT_CLASS:
        raise fault("default are the servers that are in no class: give this one another name")
    return text


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
ClassName = Annotated[Name, AfterValidator(_class_name)]


class Temporal(Table):
    """Where Temporal is."""

    address: HostPort = Field("127.0.0.1:7233", description='host and port, as in address = "127.0.0.1:7233"')
    """Where its frontend is. ``dev`` starts a Temporal of its own, and takes no notice."""

    namespace: Text = Field("default", description='a namespace of Temporal, as in namespace = "default"')
    """The boundary of trust: who can read it can read every run in it."""

    tls: bool = Field(default=False, description="tls = true or tls = false")
    """Whether to speak TLS with it, as with anything but a machine of your own."""

    server_ca: Text | None = Field(None, description='the path of a PEM file, as in server_ca = "/etc/temporal/ca.pem"')
    """Who signed Temporal's certificate, where it is none that the system trusts."""

    server_name: Text | None = Field(None, description='a name, as in server_name = "temporal.example.org"')
    """The name in Temporal's certificate, where it is another than that of ``address``."""

    client_cert: Text | None = Field(
        None, description='the path of a PEM file, as in client_cert = "/etc/temporal/client.pem"'
    )
    """The certificate that this process shows, with those between it and its authority below it."""

    client_key: TemporalKeyRef | None = Field(None, description='client_key = { file = "PATH" } or { env = "NAME" }')
    """The private key of it, as PEM."""

    api_key: TemporalSecretRef | None = Field(None, description='api_key = { env = "NAME" } or { file = "PATH" }')
    """What is sent with each request, as Temporal Cloud wants it. It is read once, when a process starts."""

    compression: Literal["gzip", "none"] | None = Field(None, description='"gzip" or "none"')
    """Of what is sent to it and comes from it. Without a value gzip, and none where ``address`` is of this machine."""

    executable: Text | None = Field(
        None, description='the path of a `temporal` program, as in executable = "/usr/local/bin/temporal"'
    )
    """What the embedded Temporal runs, if not the one that is found."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if (self.client_cert is None) != (self.client_key is None):
            raise fault('client_cert and client_key belong together: write both, as in client_key = { file = "PATH" }')
        if self.tls:
            return self
        if self.api_key is not None:
            raise fault("api_key would be sent in the clear: write tls = true")
        if self.client_cert or self.server_ca or self.server_name:
            raise fault(
                "server_ca, server_name, client_cert and client_key belong to tls = true: write it, or take them out"
            )
        return self


class WorkerClass(Table):
    """A class of servers, whose calls have a task queue and slots of their own."""

    max_activities: int = Field(20, ge=1, le=10_000, description="a whole number from 1 to 10000")
    """Calls at once in one process. What waits here keeps no other server's calls waiting."""


class Worker(Table):
    """How much a worker takes on, which code of it finishes what, and how it lets go."""

    tenant: Tenant = Field("default", description='1 to 128 of A-Z a-z 0-9 . _ -, as in tenant = "acme"')
    """Whose servers a call may use that comes from no run."""

    task_queue: Text = Field("openwop-mcp", description='the name of a task queue, as in task_queue = "openwop-mcp"')
    """Where its calls are scheduled; hosts, workers and the command line have to agree on it."""

    max_activities: int = Field(200, ge=1, le=10_000, description="a whole number from 1 to 10000")
    """Calls at once. They wait for servers and cost little while they do; the number bounds sockets and memory."""

    tenant_activities: int | None = Field(None, ge=1, le=10_000, description="a whole number from 1 to 10000")
    """Calls of one tenant that are sent at once, so that none takes up a worker alone. The others wait, durably."""

    workflow_pollers: int = Field(40, ge=2, le=200, description="a whole number from 2 to 200")
    """With the SDK's 5, new runs starve behind those under way: at 50 at once the slowest took 3.5-5 s, with 40 they
    took 1.5-2 s. Two is the SDK's least while it caches workflows."""

    activity_pollers: int = Field(10, ge=1, le=200, description="a whole number from 1 to 200")
    """A poll brings one call. A run that starts many calls at once gets three of them without a poll; ten polls keep
    the rest from waiting for the SDK's 5."""

    heartbeat_timeout: float = Field(10.0, ge=2, le=300, description="seconds from 2 to 300")
    """How soon a lost worker is noticed. Attempts beat about once a second, so under 2 s a busy worker looks lost."""

    sticky_timeout: float = Field(2.0, ge=0.5, le=60, description="seconds from 0.5 to 60")
    """How long a run waits for the worker that has it in memory. The SDK's 10 s are added to every loss of a worker."""

    shutdown_grace: float = Field(5.0, ge=0, le=300, description="seconds from 0 to 300")
    """What calls under way are given to end before they are cancelled. A stop takes this at most, and some 5 s, or
    30 s where Temporal is away: whatever ends the process has to wait longer."""

    classes: dict[ClassName, WorkerClass] = Field(
        default={}, description="tables by class name, as in [worker.classes.slow]"
    )
    """Classes that servers can be in. Each runs on a task queue of its own, ``<task_queue>-class-<name>``."""

    serves: Annotated[tuple[Text, ...], AsTuple, NotEmpty] | None = Field(
        None, description='names of classes, and "default" for all else, as in serves = ["default", "slow"]'
    )
    """What a process takes on, where it is not to be everything: a class can have processes of its own."""

    deployment: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] | None = Field(
        None, description='1 to 64 of A-Z a-z 0-9 _ -, as in deployment = "openwop-mcp"'
    )
    """The worker deployment of Temporal that the process is of. Without one it is unversioned: any worker of the queue
    goes on with any run."""

    build_id: Name | None = Field(None, description='1 to 64 of A-Z a-z 0-9 . _ -, as in build_id = "0.1.0-4f2a9c1"')
    """Which version of that deployment it is: another one for each code or settings that are rolled out."""

    versioning: Literal["pinned", "auto-upgrade"] | None = Field(None, description='"pinned" or "auto-upgrade"')
    """Whether a run is finished by the build that began it, which is what no value means, or goes on with the current
    one. Only in a deployment."""

    @property
    def served(self) -> tuple[str, ...]:
        """What a process of these settings takes on: classes, and ``default`` for all else."""
        return (DEFAULT_CLASS, *self.classes) if self.serves is None else tuple(dict.fromkeys(self.serves))


class Storage(Table):
    """Where values lie that are too large for Temporal's history. All processes of one namespace need the same."""

    driver: Literal["folder", "s3", "none"] = Field("folder", description='"folder", "s3" or "none"')
    """What keeps them. With none, a result has to fit into the history."""

    folder: Folder | None = Field(None, description='an absolute path, as in folder = "/var/lib/openwop-mcp/blobs"')
    """By default ``blobs`` in this user's state folder, ``$XDG_STATE_HOME/openwop-mcp`` or the same under
    ``~/.local/state``: right for one machine. Workers on several need one that all of them see."""

    bucket: Text | None = Field(None, description='the name of a bucket, as in bucket = "openwop-mcp"')
    """The bucket that all processes of the namespace read and write."""

    prefix: str = Field("", description='what keys begin with, as in prefix = "blobs/"')
    """Where in the bucket they lie, if it holds other things."""

    endpoint: Url | None = Field(
        None, description='the address of another S3 than AWS\'s, as in endpoint = "https://s3.example.org"'
    )
    """Of another service that speaks S3; AWS needs none."""

    region: Text | None = Field(None, description='a region, as in region = "eu-central-1"')
    """Of the bucket, where the credentials do not say."""

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.driver == "s3" and self.bucket is None:
            raise fault('driver = "s3" needs a bucket: write bucket = "NAME"')
        if self.driver != "s3" and (self.bucket or self.prefix or self.endpoint or self.region):
            raise fault('bucket, prefix, endpoint and region belong to driver = "s3": write it, or take them out')
        if self.driver != "folder" and self.folder is not None:
            raise fault('folder belongs to driver = "folder": write that, or take it out')
        return self


class Limits(Table):
    """How large an answer may be, and what is asked."""

    result_bytes: int = Field(
        64 * 1024**2, ge=1024, le=1024**3, description="a number of bytes from 1024 to 1073741824"
    )
    """The result that is recorded. Without storage it is 1.5 MiB at most, which is what Temporal's history takes."""

    call_bytes: int = Field(16 * 1024**2, ge=1024, le=1024**3, description="a number of bytes from 1024 to 1073741824")
    """What a call is given, arguments and names together, and a run: definition and inputs. Without storage it is
    2,000,000 at most."""

    event_bytes: int = Field(64 * 1024**2, ge=1024, le=1024**3, description="a number of bytes from 1024 to 1073741824")
    """One event of an event stream, and one line of a local process."""

    response_bytes: int = Field(
        64 * 1024**2, ge=1024, le=1024**3, description="a number of bytes from 1024 to 1073741824"
    )
    """One answer as it comes, an event stream with all that stands before the answer; the stream of a subscription has
    no such bound. It bounds memory and traffic, not what is recorded."""

    memory_bytes: int = Field(
        512 * 1024**2, ge=1024**2, le=1024**4, description="a number of bytes from 1048576 to 1099511627776"
    )
    """What large answers, of over 1 MiB, may take up in a worker. Each is counted with four times what came
    of it, and with as much again while it grows; those for which there is no room are read no further meanwhile. One at
    a time may go beyond it, so that not all wait for each other."""
