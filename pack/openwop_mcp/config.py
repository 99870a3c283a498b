"""Settings: one TOML file under the environment, checked whole before anything starts; a fault says what to write.

Owns names, shapes, limits and defaults of the settings, and the rule that a secret is named there and never written.
Knows nothing of HTTP or Temporal. No message holds a value that was given: it may be a secret in the wrong place.
"""

from __future__ import annotations

import ast
import difflib
import fnmatch
import ipaddress
import json
import math
import re
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.protocol.keys import DEFAULT_CARRIERS, KeyArgument, KeyCarrier
from openwop_mcp.protocol.revisions import LEGACY, MODERN
from openwop_mcp.terminal import escape

__all__ = (
    "DEFAULT_FILE",
    "ENVIRONMENT_PREFIX",
    "RESERVED_KEY",
    "SCOPES",
    "TOOLS_COMMANDS",
    "Credential",
    "EffectivePolicy",
    "HeaderCredential",
    "Host",
    "Issuer",
    "Key",
    "KeyRef",
    "Limits",
    "OAuth",
    "Retry",
    "SecretRef",
    "Server",
    "Settings",
    "SettingsError",
    "SigningRef",
    "Storage",
    "Temporal",
    "Timeouts",
    "TokenKey",
    "ToolPolicy",
    "VariableRef",
    "Worker",
    "fields",
    "load",
)

DEFAULT_FILE = "openwop-mcp.toml"
"""Looked for in the working directory when no file is named; it need not exist."""

ENVIRONMENT_PREFIX = "OPENWOP_MCP__"
"""Two underscores between the names on the way to a value, because names hold single ones."""

MIN_SECRET = 8
"""Characters. A shorter credential cannot be searched for in what a server sends back without hiding ordinary words."""

MIN_SIGNING = 32
"""Characters of a secret that signs: below that it may be found by trying, whoever has one thing that it signed."""

MAX_TOTAL = 3600
"""Seconds for one call. The worker's activities are cut off a little later than this."""

TOOLS_COMMANDS = frozenset({"list", "show", "diff", "classify", "approve"})
"""`tools SERVER` is short for `tools list SERVER`, so no server may be called like a subcommand of `tools`."""

SCOPES = (
    "manifest:read",
    "runs:create",
    "runs:read",
    "runs:cancel",
    "runs:annotate",
    "artifacts:read",
    "webhooks:manage",
    "approvals:respond",
    "audit:read",
)
"""The scopes of OpenWOP v2, authentication."""

TRANSPORT_HEADERS = frozenset(
    {"accept", "connection", "content-length", "content-type", "host", "idempotency-key", "transfer-encoding"}
)
"""Headers that the transport writes itself, besides all that begin with ``Mcp-``."""

NAMED_NOT_WRITTEN = 'a credential is named, never written: { env = "NAME" } or { file = "PATH" }'
CREDENTIAL_FORMS = (
    'credential = { bearer = { env = "NAME" } } or { header = { name = "X-Api-Key", value = { env = "NAME" } } } '
    'or { oauth = { grant = "client_credentials", client_id = "...", client_secret = { env = "NAME" } } }'
)
COMMAND_FORM = 'command = ["mcp-server-time"]'
CARRIER_FORMS = (
    'key_carriers = ["header", "meta"], also with { argument = "idempotency_key" } for one of the tool\'s arguments, '
    "or [] for none"
)
_LOOKS_LIKE_CREDENTIAL = re.compile(
    r"auth|bearer|cookie|(api|access).?key|credential|headers?|passw|secret|token", re.IGNORECASE
)

_TELLABLE_VARIABLE = re.compile(r"[A-Z][A-Z0-9]{0,15}(_[A-Z0-9]{1,15})*")
"""The name of a variable that may be repeated in a message. A token that was put where its variable's name is due has
longer words, or small letters, and is not repeated."""

_PRIVATE_KEY = re.compile(r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SERVER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]*)?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_GLOB = re.compile(r"\[[^\]]+\]|[*?]")
RESERVED_KEY = "host"
"""Id of the key that tokens are signed with where the settings have none."""

MAX_PORT = 65535
MAX_LABEL = 63


class SettingsError(Exception):
    """The settings cannot be used. The message has one line for each fault: where, which key, what to write."""


def fields(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a table as they are written, each with its field."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def _fault(message: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{message}", {"message": message})


# --- values ---------------------------------------------------------------------------------------------------------


def _address(text: str) -> str:
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match[2]) > MAX_PORT:
        raise ValueError
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise _fault(f"user and password do not belong in a URL: take them out and write {CREDENTIAL_FORMS}")
    if parts.fragment or "#" in text:
        raise _fault("a URL with a fragment cannot be called: write it without `#` and what follows")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError
    if not text.isascii() or not text.isprintable() or " " in text or _HOST.fullmatch(parts.netloc) is None:
        raise ValueError
    labels = parts.hostname.removesuffix(".").split(".")
    if "[" not in parts.netloc and not all(0 < len(label) <= MAX_LABEL for label in labels):
        raise _fault("the host is no name: between its dots stand 1 to 63 characters")
    if "[" in parts.netloc:
        ipaddress.IPv6Address(parts.hostname)
    elif _NUMBER.fullmatch(parts.hostname.rstrip(".").rpartition(".")[2]):
        # Other spellings are read differently by whoever reads them, and some name no address that can be judged.
        try:
            ipaddress.IPv4Address(parts.hostname)
        except ValueError:
            raise _fault("an IPv4 address is four decimal numbers, as in 127.0.0.1: write it so, or a name") from None
    return text


def _identifier(text: str) -> str:
    if "?" in text:
        raise _fault("a URL with a query identifies nothing: write it without `?` and what follows")
    return _url(text)


def _server_id(text: str) -> str:
    if text in TOOLS_COMMANDS:
        raise _fault(f"`tools {text}` is a command: give the server another id")
    if _SERVER_ID.fullmatch(text) is None:
        raise _fault("not a server id: write 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def _scope(text: str) -> str:
    if text == "*" or text in SCOPES:
        return text
    raise ValueError


def _absolute(text: str) -> str:
    # One that is not would be another folder for each process, by where it was started.
    if not Path(text).is_absolute():
        raise ValueError
    return text


def _header_name(text: str) -> str:
    if _HEADER_NAME.fullmatch(text) is None:
        raise ValueError
    if text.lower() in TRANSPORT_HEADERS or text.lower().startswith("mcp-"):
        raise _fault("the transport writes this header itself: name the one that the server takes a credential in")
    return text


def _tuple(value: object) -> object:
    # TOML has arrays only; strict validation takes no list for a tuple.
    return tuple(value) if isinstance(value, list) else value


def _not_empty(values: tuple[str, ...]) -> tuple[str, ...]:
    # A minimal length given to pydantic counts what is left without bad items, and so tells one fault twice.
    if not values:
        raise ValueError
    return values


def _key_carrier(value: object) -> KeyCarrier:
    # Judged before pydantic does, whose unions name their branches in the place of a fault.
    match value:
        case "header" | "meta" | KeyArgument():
            return value
        case {"argument": str(name), **others} if name and not others:
            return KeyArgument(name)
    raise ValueError


def _each_once(carriers: tuple[KeyCarrier, ...]) -> tuple[KeyCarrier, ...]:
    if sum(isinstance(carrier, KeyArgument) for carrier in carriers) > 1:
        raise _fault("two arguments for one key: keep the one that the server's tools take it in")
    if len(set(carriers)) < len(carriers):
        raise _fault("a carrier stands twice: keep one")
    return carriers


Text = Annotated[str, StringConstraints(min_length=1)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Tenant = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
TenantOrAll = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9._-]{1,128})$")]
ServerId = Annotated[str, AfterValidator(_server_id)]
HostPort = Annotated[str, AfterValidator(_address)]
Scope = Annotated[str, AfterValidator(_scope)]
Seconds = Annotated[float, Field(gt=0)]
Identifier = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_identifier)]
AsTuple = BeforeValidator(_tuple)
NotEmpty = AfterValidator(_not_empty)
Carrier = Annotated[KeyCarrier, BeforeValidator(_key_carrier)]


class _Table(BaseModel):
    """A table: closed, immutable, and strict, since TOML has types. A field's description says what to write for it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True, validate_default=True
    )


# --- secrets --------------------------------------------------------------------------------------------------------


class SecretRef(_Table):
    """Where a secret is: a variable of the environment or a file. The secret itself is read when it is needed."""

    one_line: ClassVar[bool] = True
    shortest: ClassVar[int] = MIN_SECRET

    env: Text | None = Field(None, description='the name of an environment variable, as in { env = "NAME" }')
    file: Text | None = Field(None, description='the path of a file, as in { file = "PATH" }')

    @model_validator(mode="before")
    @classmethod
    def _never_inline(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return value
        raise _fault(f"{NAMED_NOT_WRITTEN}; take out what stands there, and replace it where it was issued")

    @model_validator(mode="after")
    def _resolvable(self, info: ValidationInfo) -> Self:
        if (self.env is None) == (self.file is None):
            raise _fault('write one of { env = "NAME" } and { file = "PATH" }')
        if info.context is not None:
            try:
                self.reveal(info.context["environ"])
            except SettingsError as error:
                raise _fault(str(error)) from None
        return self

    def reveal(self, environ: Mapping[str, str]) -> str:
        """Read the secret.

        Raises:
            SettingsError: If it cannot be had, or is none that could be sent.
        """
        secret = self._from_file(self.file) if self.file is not None else self._from_environment(environ)
        if len(secret) < self.shortest:
            raise SettingsError(f"the secret has under {self.shortest} characters: use a longer one")
        if self.one_line and _HEADER_VALUE.fullmatch(secret) is None:
            raise SettingsError(
                "the secret holds characters that a header cannot carry (a line break, a space at an end, non-ASCII): "
                "store the bare secret"
            )
        return secret

    def _from_environment(self, environ: Mapping[str, str]) -> str:
        assert self.env is not None
        secret = environ.get(self.env)
        if secret:
            return secret
        variable = self.env if _TELLABLE_VARIABLE.fullmatch(self.env) else "that is named here"
        raise SettingsError(f"the environment variable {variable} is not set: set it, or name another one")

    @staticmethod
    def _from_file(path: str) -> str:
        try:
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "not a text file"
            raise SettingsError(
                f"the file that is named here cannot be read ({reason}): make it readable, or name another one"
            ) from None


class VariableRef(SecretRef):
    """Where the value of a program's variable is, which may be a secret or not."""

    one_line: ClassVar[bool] = False
    shortest: ClassVar[int] = 1


class KeyRef(SecretRef):
    """Where a private key is, as PEM."""

    one_line: ClassVar[bool] = False

    def reveal(self, environ: Mapping[str, str]) -> str:
        """Read the key.

        Raises:
            SettingsError: If it cannot be had, or is no private key.
        """
        key = super().reveal(environ)
        if _PRIVATE_KEY.search(key) is None:
            raise SettingsError(
                "this is no private key in PEM: name a file that begins with -----BEGIN PRIVATE KEY-----"
            )
        return key


class SigningRef(SecretRef):
    """Where a secret is that something is signed with."""

    shortest: ClassVar[int] = MIN_SIGNING


class OAuth(_Table):
    """How a token is had from the server's authorization server (MCP 2026-07-28, authorization)."""

    grant: Literal["client_credentials", "authorization_code", "jwt_bearer"] = Field(
        description='"client_credentials", "authorization_code" or "jwt_bearer"'
    )
    """A machine's own credentials, what a person obtained with `login`, or an assertion that a platform issued."""

    client_id: Text | None = Field(None, description='what the authorization server calls us, as in client_id = "pack"')
    client_secret: SecretRef | None = Field(
        None, description='client_secret = { env = "NAME" } or client_secret = { file = "PATH" }'
    )
    private_key: KeyRef | None = Field(None, description='a PEM file, as in private_key = { file = "PATH" }')
    assertion: SecretRef | None = Field(None, description='a JWT, as in assertion = { file = "PATH" }')
    """Read anew for each token, since platforms rotate the file."""

    scope: Text | None = Field(None, description='scopes with spaces between them, as in scope = "read write"')
    issuer: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description='the only issuer to trust, as in issuer = "https://auth.example.org"'
    )
    token_auth: Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"] | None = Field(
        None, description='"client_secret_basic", "client_secret_post", "private_key_jwt" or "none"'
    )
    client_metadata_url: Annotated[str, AfterValidator(_url)] | None = Field(
        None,
        description='where our client metadata document is, as in client_metadata_url = "https://example.org/pack.json"',
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        proofs = [self.client_secret is not None, self.private_key is not None]
        if self.grant == "client_credentials" and (self.client_id is None or sum(proofs) != 1):
            raise _fault("client_credentials needs client_id and one of client_secret and private_key: write them")
        if self.grant == "jwt_bearer" and self.assertion is None:
            raise _fault('jwt_bearer needs the JWT: write assertion = { file = "PATH" }')
        if self.grant != "jwt_bearer" and self.assertion is not None:
            raise _fault('assertion belongs to grant = "jwt_bearer": take it out, or change the grant')
        if sum(proofs) > 1:
            raise _fault("write one of client_secret and private_key")
        if any(proofs) and self.client_id is None:
            raise _fault("a secret or key without client_id is nobody's: write client_id")
        return self


class HeaderCredential(_Table):
    """A credential that goes into a header of its own."""

    name: Annotated[str, AfterValidator(_header_name)] = Field(description='a header, as in name = "X-Api-Key"')
    value: SecretRef = Field(description='value = { env = "NAME" } or value = { file = "PATH" }')


class Credential(_Table):
    """What a server is shown to let us in."""

    bearer: SecretRef | None = Field(None, description='bearer = { env = "NAME" }')
    header: HeaderCredential | None = Field(
        None, description='header = { name = "X-Api-Key", value = { env = "NAME" } }'
    )
    oauth: OAuth | None = Field(None, description='a table, as in oauth = { grant = "client_credentials", ... }')

    @model_validator(mode="before")
    @classmethod
    def _never_inline(cls, value: object) -> object:
        if isinstance(value, Mapping | Credential):
            return value
        raise _fault(
            f"a credential is named, never written: write {CREDENTIAL_FORMS}; take out what stands there, and replace "
            "it where it was issued"
        )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.bearer, self.header, self.oauth)) != 1:
            raise _fault(f"write one of {CREDENTIAL_FORMS}")
        return self

    def as_header(self, environ: Mapping[str, str]) -> tuple[str, str] | None:
        """The header that carries the credential, name and value; None where it is a token that has to be fetched.

        Raises:
            SettingsError: If the secret cannot be had any more.
        """
        if self.header is not None:
            return self.header.name, self.header.value.reveal(environ)
        if self.bearer is not None:
            return "Authorization", f"Bearer {self.bearer.reveal(environ)}"
        return None


# --- tables ---------------------------------------------------------------------------------------------------------


class Temporal(_Table):
    """Where Temporal is."""

    address: HostPort = Field("127.0.0.1:7233", description='host and port, as in address = "127.0.0.1:7233"')
    namespace: Text = Field("default", description='a namespace of Temporal, as in namespace = "default"')
    tls: bool = Field(default=False, description="tls = true or tls = false")
    executable: Text | None = Field(
        None, description='the path of a `temporal` program, as in executable = "/usr/local/bin/temporal"'
    )
    """What the embedded Temporal runs, if not the one that is found."""


class Worker(_Table):
    """How much a worker takes on, and how it lets go."""

    tenant: Tenant = Field("default", description='1 to 128 of A-Z a-z 0-9 . _ -, as in tenant = "acme"')
    """Whose servers a call may use that comes from no run."""

    task_queue: Text = Field("openwop-mcp", description='the name of a task queue, as in task_queue = "openwop-mcp"')

    max_activities: int = Field(200, ge=1, le=10_000, description="a whole number from 1 to 10000")
    """Calls at once. They wait for servers and cost little while they do; the number bounds sockets and memory."""

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
    """What calls under way are given to end before they are cancelled; within 10 s of SIGTERM all is over."""


class Storage(_Table):
    """Where values lie that are too large for Temporal's history. All processes of one namespace need the same."""

    driver: Literal["folder", "s3", "none"] = Field("folder", description='"folder", "s3" or "none"')
    folder: Annotated[str, AfterValidator(_absolute)] | None = Field(
        None, description='an absolute path, as in folder = "/var/lib/openwop-mcp/blobs"'
    )
    """By default ``blobs`` in this user's state folder, ``$XDG_STATE_HOME/openwop-mcp`` or the same under
    ``~/.local/state``: right for one machine. Workers on several need one that all of them see."""

    bucket: Text | None = Field(None, description='the name of a bucket, as in bucket = "openwop-mcp"')
    prefix: str = Field("", description='what keys begin with, as in prefix = "blobs/"')
    endpoint: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description='the address of another S3 than AWS\'s, as in endpoint = "https://s3.example.org"'
    )
    region: Text | None = Field(None, description='a region, as in region = "eu-central-1"')

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.driver == "s3" and self.bucket is None:
            raise _fault('driver = "s3" needs a bucket: write bucket = "NAME"')
        if self.driver != "s3" and (self.bucket or self.prefix or self.endpoint or self.region):
            raise _fault('bucket, prefix, endpoint and region belong to driver = "s3": write it, or take them out')
        if self.driver != "folder" and self.folder is not None:
            raise _fault('folder belongs to driver = "folder": write that, or take it out')
        return self


class Limits(_Table):
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


class TokenKey(_Table):
    """A key that tokens of interrupts are signed with."""

    id: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_-]{1,64}$")] = Field(
        description='a name for the key, 1 to 64 of A-Z a-z 0-9 _ -, as in id = "2026-11"'
    )
    secret: SigningRef = Field(
        description='of 32 characters at least: secret = { env = "NAME" } or secret = { file = "PATH" }'
    )


class Host(_Table):
    """The REST surface."""

    bind: HostPort = Field("127.0.0.1:8080", description='host and port, as in bind = "127.0.0.1:8080"')
    url: Identifier | None = Field(
        None, description='the address that clients know it by, as in url = "https://openwop.example.org"'
    )
    """What the tokens of an identity provider are for, and where a client learns of the provider."""

    workflows: Annotated[tuple[Text, ...], AsTuple] = Field((), description='folders, as in workflows = ["flows"]')
    fixtures: bool = Field(default=False, description="fixtures = true or fixtures = false")
    mrtr_max_rounds: int = Field(8, ge=1, le=100, description="a whole number from 1 to 100")
    """How often one call may ask its caller for input; the SDKs of MCP stop at about as many."""

    key_requests: int = Field(1000, ge=1, le=1_000_000, description="a whole number from 1 to 1000000")
    """Requests of one key at once, in one process; a stream or a waiting poll is one. Each costs some ten kilobytes."""

    key_rate: int = Field(1000, ge=1, le=1_000_000, description="a whole number from 1 to 1000000")
    """Requests of one key that may begin in a second, in one process; a core answers about as many."""

    token_keys: Annotated[tuple[TokenKey, ...], AsTuple] = Field(
        (), description="tables, each as in [[host.token_keys]]"
    )
    """What the tokens of interrupts are signed with: the first signs, and what any of them has signed is taken. Without
    one the hosts of a namespace have a key of their own."""

    token_lifetime: int = Field(1800, ge=60, le=604_800, description="a whole number of seconds from 60 to 604800")
    """How long a token of an interrupt is good: half an hour, as OpenWOP has it. Whoever has it can answer."""

    callback_secret: SigningRef | None = Field(
        None,
        description='of 32 characters at least: callback_secret = { env = "NAME" }, or = { file = "PATH" }',
    )
    """What the notifications of open interrupts are signed with. Without it none is sent."""

    callback_network: Literal["public", "private", "any"] = Field("public", description='"public", "private" or "any"')
    """Where the receivers of such notifications must lie, as for a server."""

    @model_validator(mode="after")
    def _each_token_key_once(self) -> Self:
        ids = [key.id for key in self.token_keys]
        if RESERVED_KEY in ids:
            raise _fault(f"'{RESERVED_KEY}' is what the key of the hosts themselves is called: give it another id")
        if len(set(ids)) < len(ids):
            raise _fault("two of token_keys have the same id: give each its own")
        return self

    @model_validator(mode="after")
    def _callbacks_link_to_here(self) -> Self:
        if self.callback_secret is not None and self.url is None:
            raise _fault("a notification says where to answer: write url as well, the address that clients know")
        return self


class Key(_Table):
    """An API key of the host: whose it is and what it may do."""

    id: Text = Field(description='a name for the key, as in id = "dev"')
    secret: SecretRef | None = Field(None, description='secret = { env = "NAME" } or secret = { file = "PATH" }')
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="the SHA-256 of the key, 64 lower-case hexadecimal digits"
    )
    tenant: Tenant = Field(description='1 to 128 of A-Z a-z 0-9 . _ -, as in tenant = "acme"')
    subject: Text = Field(description='who uses the key, as in subject = "dev"')
    scopes: Annotated[tuple[Scope, ...], AsTuple, NotEmpty] = Field(
        description=f'scopes = ["*"], or some of {", ".join(SCOPES)}'
    )

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.secret is None) == (self.sha256 is None):
            raise _fault('write one of secret = { env = "NAME" }, secret = { file = "PATH" } and sha256 = "..."')
        return self


SigningAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""What may sign a token: public keys alone, since a secret that the host shares with others proves nothing."""


class Issuer(_Table):
    """An identity provider whose tokens the host takes, and what they are good for."""

    issuer: Identifier = Field(description='its tokens\' `iss`, as in issuer = "https://login.example.org"')
    audience: Text = Field(description='what `aud` holds in tokens for this host, as in audience = "openwop"')
    tenant: Tenant | None = Field(None, description='1 to 128 of A-Z a-z 0-9 . _ -, as in tenant = "acme"')
    tenant_claim: Text | None = Field(
        None, description='the claim that says whose tenant a token is of, as in tenant_claim = "org"'
    )
    tenants: Annotated[tuple[TenantOrAll, ...], AsTuple, NotEmpty] = Field(
        ("*",),
        description='tenants = ["*"], or the names that tenant_claim may give: 1 to 128 of A-Z a-z 0-9 . _ - each',
    )
    subject_claim: Text = Field("sub", description='the claim that says who it is, as in subject_claim = "sub"')
    scopes: Annotated[tuple[Scope, ...], AsTuple, NotEmpty] = Field(
        ("*",), description=f'scopes = ["*"], or some of {", ".join(SCOPES)}'
    )
    """What a token may do is what it says in ``scope`` or ``scp``, and nothing that does not stand here."""

    algorithms: Annotated[tuple[SigningAlgorithm, ...], AsTuple, NotEmpty] = Field(
        ("RS256", "ES256"),
        description=f'algorithms = ["ES256"], or more of {", ".join(get_args(SigningAlgorithm))}',
    )
    max_lifetime: int = Field(3660, ge=60, le=86_400, description="a whole number of seconds from 60 to 86400")
    """No token is good for longer, whatever it says: nobody asks the issuer whether one was withdrawn, so that this is
    how long one that was may still be taken. An hour, as most of them have, and a minute for clocks that differ."""

    jwks_uri: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description='where its keys are, as in jwks_uri = "https://login.example.org/keys"'
    )
    """By default where its metadata says, ``<issuer>/.well-known/openid-configuration``."""

    network: Literal["public", "private", "any"] = Field("public", description='"public", "private" or "any"')
    """Where it must lie, as for a server."""

    @model_validator(mode="after")
    def _one_tenant(self) -> Self:
        if (self.tenant is None) == (self.tenant_claim is None):
            raise _fault('write one of tenant = "acme" and tenant_claim = "org"')
        if self.tenant is not None and self.tenants != ("*",):
            raise _fault("tenants belongs to tenant_claim: take it out, or write that in place of tenant")
        return self

    @model_validator(mode="after")
    def _keys_come_unaltered(self) -> Self:
        urls = (self.issuer, self.jwks_uri)
        if not all(self.asks(url) for url in urls if url is not None):
            raise _fault('keys that come over http can be exchanged: write https, or network = "private"')
        return self

    @property
    def allowed_scopes(self) -> tuple[str, ...]:
        """The scopes that a token can have, by name."""
        return SCOPES if "*" in self.scopes else self.scopes

    def asks(self, url: str) -> bool:
        """Whether keys may come from a URL: over ``https``, or from where the policy lets nobody else be."""
        scheme = urlsplit(url).scheme
        return scheme == "https" or (scheme == "http" and self.network == "private")


class Timeouts(_Table):
    """Seconds that a server is given. A local tool answers at once, a remote one may compute for minutes."""

    connect: Seconds = Field(5.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    first_byte: Seconds = Field(30.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    idle: Seconds = Field(60.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")
    total: Seconds = Field(300.0, le=MAX_TOTAL, description=f"seconds over 0, up to {MAX_TOTAL}")

    def narrowed(self, seconds: float) -> Timeouts:
        """These limits for one call that is given less: none of them over ``seconds``."""
        return self.model_copy(
            update={
                "connect": min(self.connect, seconds),
                "first_byte": min(self.first_byte, seconds),
                "idle": min(self.idle, seconds),
                "total": min(self.total, seconds),
            }
        )


_RETRY = RetryPolicy()


class Retry(_Table):
    """How often a call may be tried again; see ``RetryPolicy`` for what each bounds."""

    attempts: int = Field(_RETRY.attempts, ge=1, le=100, description="a whole number from 1 to 100")
    max_wait: float = Field(_RETRY.max_wait, ge=0, le=86_400, description="seconds from 0 to 86400")
    total: float = Field(_RETRY.total, ge=0, le=86_400, description="seconds from 0 to 86400")

    @property
    def policy(self) -> RetryPolicy:
        """What the retry table takes."""
        return RetryPolicy(self.attempts, self.max_wait, self.total)


class ToolPolicy(_Table):
    """What the host says of a tool. The defaults are those of a tool that nobody has classified."""

    safety_tier: Literal["pure", "read", "write"] = Field("write", description='"pure", "read" or "write"')
    replay_policy: Literal["deterministic", "idempotent", "non-deterministic"] = Field(
        "non-deterministic", description='"deterministic", "idempotent" or "non-deterministic"'
    )
    egress: Literal["none", "safe-fetch", "host-mediated", "host-owned"] = Field(
        "host-mediated", description='"none", "safe-fetch", "host-mediated" or "host-owned"'
    )
    on_doubt: Literal["fail", "ask", "resend"] = Field("fail", description='"fail", "ask" or "resend"')
    """What becomes of a call that may have acted and is not safe to repeat: an error, a question to a person, or, since
    the operator would rather have the effect twice than not at all, the call once more."""

    approval: Literal["never", "write", "always"] = Field("never", description='"never", "write" or "always"')
    """Whether a person has to approve each call before it is sent: for tools of tier "write" alone, or for any."""

    quarantine: bool = Field(default=False, description="quarantine = true or quarantine = false")
    """Whether calls are refused once the server lists another definition than was accepted, until it is approved."""


class EffectivePolicy(ToolPolicy):
    """What holds for one tool of one server: what the host says of the tool, and of the server."""

    honours_key: bool = False

    @property
    def repeat_safe(self) -> bool:
        """Whether a call whose outcome is unknown may be sent again."""
        insisted = self.on_doubt == "resend"
        return self.honours_key or insisted or self.safety_tier != "write" or self.replay_policy != "non-deterministic"

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve each call."""
        return self.approval == "always" or (self.approval == "write" and self.safety_tier == "write")


class Server(_Table):
    """An MCP server, who may use it, and what the host knows of its tools."""

    url: Annotated[str, AfterValidator(_url)] | None = Field(
        None, description='the address of its endpoint, as in url = "https://example.org/mcp"'
    )
    command: Annotated[tuple[Text, ...], AsTuple, NotEmpty] | None = Field(
        None, description=f"a program and its arguments, as in {COMMAND_FORM}"
    )
    """A server of this machine, over standard input and output; run as it stands, without a shell."""

    environment: dict[VariableName, VariableRef] = Field(
        default={}, description='variables for the command, as in environment = { API_TOKEN = { env = "NAME" } }'
    )
    """Beside what every program needs (PATH, HOME and the like). Nothing else of the worker's environment is passed on:
    it holds the credentials of other servers."""

    tenants: Annotated[tuple[TenantOrAll, ...], AsTuple, NotEmpty] = Field(
        ("*",), description='tenants = ["*"], or their names: 1 to 128 of A-Z a-z 0-9 . _ - each'
    )
    network: Literal["public", "private", "any"] = Field("public", description='"public", "private" or "any"')
    """Where its address must lie, so that a name cannot lead a call into the operator's own network."""

    minimum_revision: Literal["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"] = Field(
        "2026-07-28",
        description=", ".join(f'"{revision}"' for revision in (MODERN, *LEGACY[:-1])) + f' or "{LEGACY[-1]}"',
    )
    """The oldest revision of MCP to speak with it. Older ones are spoken only if asked for."""

    validate_schemas: Literal["off", "warn", "refuse"] = Field(
        "warn", alias="validate", description='"off", "warn" or "refuse"'
    )
    """What arguments that break a tool's input schema lead to, where a page with the tool is at hand."""

    log_level: Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] | None = Field(
        None, description='"debug", "info", "notice", "warning", "error", "critical", "alert" or "emergency"'
    )
    """From which level on the server may send log messages with an answer; they go to the worker's log."""

    credential: Credential | None = Field(None, description=CREDENTIAL_FORMS)
    timeouts: Timeouts = Field(Timeouts(), description="a table, as in timeouts = { connect = 5, total = 300 }")
    retry: Retry = Field(Retry(), description="a table, as in retry = { attempts = 3 }")
    key_carriers: Annotated[tuple[Carrier, ...], AsTuple, AfterValidator(_each_once)] = Field(
        DEFAULT_CARRIERS, description=CARRIER_FORMS
    )
    """What carries a call's idempotency key, for which MCP has no place. A command has no headers."""

    honours_key: bool = Field(default=False, description="honours_key = true or honours_key = false")
    """That the server acts once for all calls with one key. Only its operator can know; what it says is not used."""

    tools: dict[Text, ToolPolicy] = Field(
        default={}, description='tables by tool name or glob, as in [servers.ID.tools."get_*"]'
    )

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise _fault(f'write one of url = "https://example.org/mcp" and {COMMAND_FORM}')
        if self.command is not None and self.credential is not None:
            raise _fault(
                'a command takes credentials from its environment: write environment = { NAME = { env = "NAME" } }'
            )
        if self.url is not None and self.environment:
            raise _fault("environment belongs to a command: take it out")
        return self

    @model_validator(mode="after")
    def _key_arrives(self) -> Self:
        unheard = {"header"} if self.url is None else set()
        if self.honours_key and not set(self.key_carriers) - unheard:
            raise _fault(
                "honours_key = true, and nothing carries a key to this server: write "
                'key_carriers = ["header", "meta"], or take honours_key out'
            )
        return self

    def policy(self, tool: str) -> EffectivePolicy:
        """What holds for a tool: each field from the most specific entry that has it.

        An exact name goes before all globs, among them the one with the most literal characters; of two alike, the
        one that stands later.
        """
        matching = [pattern for pattern in self.tools if pattern == tool or fnmatch.fnmatchcase(tool, pattern)]
        matching.sort(key=lambda pattern: math.inf if pattern == tool else len(_GLOB.sub("", pattern)))
        fields: dict[str, Any] = {}
        for pattern in matching:
            fields |= self.tools[pattern].model_dump(exclude_unset=True)
        return EffectivePolicy(**fields, honours_key=self.honours_key)


class Settings(_Table):
    """All settings of worker and host."""

    temporal: Temporal = Field(Temporal(), description="a table, as in [temporal]")
    worker: Worker = Field(Worker(), description="a table, as in [worker]")
    storage: Storage = Field(Storage(), description="a table, as in [storage]")
    limits: Limits = Field(Limits(), description="a table, as in [limits]")
    host: Host = Field(Host(), description="a table, as in [host]")
    keys: Annotated[tuple[Key, ...], AsTuple] = Field((), description="tables, each as in [[keys]]")
    issuers: Annotated[tuple[Issuer, ...], AsTuple] = Field((), description="tables, each as in [[issuers]]")
    servers: dict[ServerId, Server] = Field(default={}, description="tables by server id, as in [servers.weather]")

    def server(self, server_id: str, tenant: str) -> Server | None:
        """The server of that id, if the tenant may use it."""
        server = self.servers.get(server_id)
        if server is None or not {"*", tenant} & set(server.tenants):
            return None
        return server

    def barred(self, server_id: str, tenant: str) -> str | None:
        """The tenant, if it is the worker's own and a server of that id does not admit it; for the operator to hear."""
        own = tenant == self.worker.tenant and server_id in self.servers
        return tenant if own and self.server(server_id, tenant) is None else None


# --- loading --------------------------------------------------------------------------------------------------------

Place = tuple[str | int, ...]


def load(path: str | None, *, environ: Mapping[str, str], secrets: bool = True) -> Settings:
    """Read and check the settings.

    Args:
        path: The file that was named; None for the default one, which need not exist.
        environ: The environment: values that win over the file's, and secrets.
        secrets: Check that each secret can be had. What never talks to a server has no need of them.

    Raises:
        SettingsError: With all faults, one a line.
    """
    file = path if path is not None else DEFAULT_FILE
    written = _read_file(file, required=path is not None)
    data, origins = _overlay(written, environ)
    faults = [f"{_source(where, origins, written, file)}: {_dotted(where)}: {what}" for where, what in _apart(data)]
    try:
        settings = Settings.model_validate(data, context={"environ": environ} if secrets else None)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        faults += [_line(detail, origins, written, file) for detail in details]
    if faults:
        raise SettingsError("\n".join(dict.fromkeys(escape(line) for line in faults)))
    return settings


def _read_file(file: str, *, required: bool) -> dict[str, Any]:
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if not required:
            return {}
        raise SettingsError(escape(f"{file}: there is no such file: write --config with the path of one")) from None
    except OSError as error:
        raise SettingsError(escape(f"{file}: cannot be read ({error.strerror}): make it a readable file")) from None
    except UnicodeDecodeError:
        raise SettingsError(escape(f"{file}: not UTF-8: save it as UTF-8 text")) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(escape(f"{file}: {_syntax(text, str(error))}")) from None


def _apart(data: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Faults between tables. Looked for here and not in the models, where one bad table would hide them."""
    for table, key, what in (
        ("keys", "id", "another key has this id: give each its own"),
        ("issuers", "issuer", "this issuer stands twice: keep one"),
    ):
        seen: set[str] = set()
        entries = data.get(table)
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            identity = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(identity, str):
                continue
            if identity in seen:
                yield (table, index, key), what
            seen.add(identity)
    host = data.get("host", {})
    if data.get("issuers") and isinstance(host, dict) and "url" not in host:
        yield ("host", "url"), f"missing: where there are issuers, write {fields(Host)['url'].description}"


# --- the environment


def _overlay(written: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[Place, str]]:
    """The file's values with the environment's over them, and which variable each of those came from."""
    data: dict[str, Any] = _copy(written)
    origins: dict[Place, str] = {}
    variables = [name for name in environ if name.startswith(ENVIRONMENT_PREFIX)]
    # Short paths first, so that a whole table and a value in it can both be given.
    for name in sorted(variables, key=lambda name: (name.count("__"), name)):
        segments = name.removeprefix(ENVIRONMENT_PREFIX).split("__")
        where = _place(data, segments, environ[name])
        origins[where] = name
    return data, origins


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _place(data: dict[str, Any], segments: Sequence[str], text: str) -> Place:
    container: Any = data
    annotation: Any = Settings
    where: list[str | int] = []
    for depth, segment in enumerate(segments):
        key, annotation = _step(container, annotation, segment)
        where.append(key)
        last = depth == len(segments) - 1
        inner = _decode(text, annotation) if last else _inner(container, key, annotation)
        if isinstance(container, list) and isinstance(key, int) and key == len(container):
            container.append(inner)
        else:
            container[key] = inner
        container = inner
    return tuple(where)


def _inner(container: Any, key: str | int, annotation: Any) -> Any:
    """The table or array at ``key`` to go on into; what is no table is replaced, since the environment wins."""
    present = None
    if isinstance(container, dict):
        present = container.get(key)
    elif isinstance(key, int) and key < len(container):
        present = container[key]
    if isinstance(present, dict | list):
        return present
    return [] if _shape(annotation)[0] is tuple else {}


def _step(container: Any, annotation: Any, segment: str) -> tuple[str | int, Any]:
    """Which key a segment means, and what belongs there; an unknown one is kept for validation to refuse."""
    kind, arguments = _shape(annotation)
    if isinstance(container, list):
        if segment.isdecimal() and int(segment) <= len(container):
            return int(segment), arguments[0] if kind is tuple else None
        return len(container), None
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = fields(kind).get(segment.lower())
        return segment.lower(), field.annotation if field is not None else None
    value = arguments[1] if kind is dict else None
    return _name(container, segment), value


def _name(container: Mapping[str, Any], segment: str) -> str:
    """A server id or tool name as the file spells it: a variable's name has neither `-` nor `.`, and often no case."""
    if segment in container:
        return segment
    folded = segment.lower()
    for name in container:
        if re.sub(r"[-.]", "_", name.lower()) == folded:
            return name
    return folded if segment.isupper() else segment


def _shape(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """What an annotation is without ``Annotated`` and ``| None``: its class or origin, and its arguments."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _shape(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return _shape(next(item for item in get_args(annotation) if item is not types.NoneType))
    return (annotation, ()) if origin is None else (origin, get_args(annotation))


def _decode(text: str, annotation: Any) -> Any:
    """A variable's value: text where text belongs, else as TOML or JSON would write it."""
    if _shape(annotation)[0] in {str, Literal}:
        return text
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        pass
    else:
        if value.keys() == {"value"}:
            return value["value"]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


# --- faults


def _source(where: Place, origins: Mapping[Place, str], written: Mapping[str, Any], file: str) -> str:
    """Who gave the value, or where the one that is missing should stand."""
    for length in range(len(where), 0, -1):
        if where[:length] in origins:
            return f"environment variable {origins[where[:length]]}"
    # The first part of the way that the file does not have: if variables led there, one of them is the source.
    for length in range(1, len(where) + 1):
        if not _holds(written, where[:length]):
            for path, name in origins.items():
                if path[:length] == where[:length]:
                    return f"environment variable {name}"
            break
    return file


def _holds(data: Any, path: Place) -> bool:
    for key in path:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return False
    return True


def _line(detail: ErrorDetails, origins: Mapping[Place, str], written: Mapping[str, Any], file: str) -> str:
    where = tuple(key for key in detail["loc"] if key != "[key]")
    return f"{_source(where, origins, written, file)}: {_dotted(where)}: {_what(where, detail)}"


def _dotted(where: Place) -> str:
    return ".".join(
        key if isinstance(key, str) and _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        for key in where
    )


def _model_at(where: Place) -> tuple[type[BaseModel], str | None]:
    """What the models say of a place: the table that it is in, and the description of the nearest field above it."""
    annotation: Any = Settings
    table: type[BaseModel] = Settings
    description: str | None = None
    for key in where:
        kind, arguments = _shape(annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            table = kind
            field = fields(kind).get(str(key))
            if field is None:
                return table, None
            annotation, description = field.annotation, field.description
        else:
            # Of a dict the values, of a tuple the items.
            annotation = arguments[-1] if kind is dict else arguments[0]
    return table, description


def _what(where: Place, detail: ErrorDetails) -> str:
    if detail["type"] == "fault":
        return detail["msg"]
    table, description = _model_at(where)
    if detail["type"] == "extra_forbidden":
        return _unknown(str(where[-1]), table)
    if detail["type"] == "missing":
        return f"missing: write {description}"
    if detail["type"].endswith("_type") or detail["type"] == "int_from_float":
        return f"wrong type: write {description}"
    return f"not a value for this key: write {description}"


def _unknown(key: str, table: type[BaseModel]) -> str:
    if issubclass(table, SecretRef):
        return f"unknown key: {NAMED_NOT_WRITTEN}"
    close = difflib.get_close_matches(key.lower(), fields(table), n=1)
    if close:
        return f'unknown key: write "{close[0]}"'
    if table in {Server, Credential} and _LOOKS_LIKE_CREDENTIAL.search(key):
        return f"unknown key: a credential is named, never written: write {CREDENTIAL_FORMS}"
    return f"unknown key: the keys here are {', '.join(fields(table))}"


# --- faults of TOML itself

_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_DECLARED = re.compile(r"Cannot declare (\(.*\)) twice")
_TWICE = ("Cannot overwrite", "Duplicate inline table key", "Cannot mutate immutable namespace", "Cannot redefine")
_HEADER_LINE = re.compile(r"\s*\[\[?\s*((?:temporal|worker|storage|limits|keys|issuers|host|servers)\b[^\]]*?)\s*\]")
_KEY_LINE = re.compile(r"\s*([A-Za-z0-9._-]+)\s*=\s*(\{)?")


def _syntax(text: str, message: str) -> str:
    """Say in our words what tomllib found. Its own may repeat what was written, and seldom name the key."""
    position = _POSITION.search(message)
    lines = text.splitlines() or [""]
    number = int(position[1]) if position is not None and position[1] else len(lines)
    declared = _DECLARED.match(message)
    if declared is not None:
        path = tuple(str(key) for key in ast.literal_eval(declared[1]))
        return f"{_dotted(path)}: {_twice(path)} (line {number})"
    key = _key_near(lines[:number])
    if message.startswith(_TWICE):
        return (
            f"{_dotted(key)}: {_twice(key)} (line {number})" if key else f"line {number}: a key stands twice: keep one"
        )
    where = f"{_dotted(key)}: " if key else ""
    return (
        f"{where}not TOML at line {number}: put text in double quotes, close quotes and brackets, write one "
        "`key = value` a line"
    )


def _twice(path: Place) -> str:
    if len(path) == 2 and path[0] == "servers":  # noqa: PLR2004 - servers.ID
        return f'two servers have the id "{path[1]}": give one of them another'
    return "stands twice: keep one"


def _key_near(lines: Sequence[str]) -> Place:
    """The key that is being written where the lines end, or () if that cannot be told without repeating a value."""
    header: Place = ()
    key: re.Match[str] | None = None
    for line in reversed(lines):
        if (match := _HEADER_LINE.match(line)) is not None:
            try:
                header = tuple(_header_path(match[1]))
            except tomllib.TOMLDecodeError:
                return ()
            break
        key = key or _KEY_LINE.match(line)
    if key is None:
        return header
    place = (*header, *key[1].split("."))
    # What looks like a key may be a line of a value, so only names of ours are repeated, and ids where a table follows.
    if str(place[-1]) in fields(_model_at(place)[0]) or (place[:-1] == ("servers",) and key[2]):
        return place
    return header


def _header_path(text: str) -> Iterator[str]:
    table: Any = tomllib.loads(f"[{text}]")
    while table:
        (key,) = table
        yield key
        table = table[key]
