"""Secrets as the settings name them, and the credentials that are made of them; no value of one is ever written there.

Reads a secret where it is, and sends it nowhere. No message repeats one, or what may be one in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from openwop_mcp.config._tables import SettingsError, Table, fault
from openwop_mcp.config._values import CREDENTIAL_FORMS, Text, Url
from openwop_mcp.redaction import KNOWN, MIN_SECRET

__all__ = (
    "MIN_SECRET",
    "NAMED_NOT_WRITTEN",
    "ApiKeyRef",
    "Credential",
    "HeaderCredential",
    "KeyRef",
    "OAuth",
    "SecretRef",
    "SigningRef",
    "TemporalKeyRef",
    "TemporalSecretRef",
    "VariableRef",
)

MIN_SIGNING = 32
"""Characters of a secret that signs: below that it may be found by trying, whoever has one thing that it signed."""

TRANSPORT_HEADERS = frozenset(
    {"accept", "connection", "content-length", "content-type", "host", "idempotency-key", "transfer-encoding"}
)
"""Headers that the transport writes itself, besides all that begin with ``Mcp-``."""

NAMED_NOT_WRITTEN = 'a credential is named, never written: { env = "NAME" } or { file = "PATH" }'

_TELLABLE_VARIABLE = re.compile(r"[A-Z][A-Z0-9]{0,15}(_[A-Z0-9]{1,15})*")
"""The name of a variable that may be repeated in a message. A token that was put where its variable's name is due has
longer words, or small letters, and is not repeated."""

_PRIVATE_KEY = re.compile(r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _header_name(text: str) -> str:
    if _HEADER_NAME.fullmatch(text) is None:
        raise ValueError
    if text.lower() in TRANSPORT_HEADERS or text.lower().startswith("mcp-"):
        raise fault("the transport writes this header itself: name the one that the server takes a credential in")
    return text


class SecretRef(Table):
    """Where a secret is: a variable of the environment or a file. The secret itself is read when it is needed."""

    one_line: ClassVar[bool] = True
    shortest: ClassVar[int] = MIN_SECRET
    needed: ClassVar[bool] = True

    env: Text | None = Field(None, description='the name of an environment variable, as in { env = "NAME" }')
    file: Text | None = Field(None, description='the path of a file, as in { file = "PATH" }')

    @model_validator(mode="before")
    @classmethod
    def _never_inline(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return value
        raise fault(f"{NAMED_NOT_WRITTEN}; take out what stands there, and replace it where it was issued")

    @model_validator(mode="after")
    def _resolvable(self, info: ValidationInfo) -> Self:
        if (self.env is None) == (self.file is None):
            raise fault('write one of { env = "NAME" } and { file = "PATH" }')
        if self.needed and info.context is not None:
            try:
                self.reveal(info.context["environ"])
            except SettingsError as error:
                raise fault(str(error)) from None
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
        if self._is_secret:
            # Here, where all of them are read: from now on no line of the log repeats it.
            KNOWN.read((self.env, self.file), secret)
        return secret

    @property
    def _is_secret(self) -> bool:
        return True

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


class ApiKeyRef(SecretRef):
    """Where a key of the host's is. Whoever serves the host reads it: a worker needs no key, and has it nowhere."""

    needed: ClassVar[bool] = False


class VariableRef(SecretRef):
    """Where the value of a program's variable is, which may be a secret or not."""

    one_line: ClassVar[bool] = False
    shortest: ClassVar[int] = 1

    secret: bool = Field(default=True, description="secret = true or secret = false")
    """Whether it is looked for in what the program sends back, as a credential is: the path of a folder need not be."""

    @property
    def _is_secret(self) -> bool:
        return self.secret


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


class TemporalSecretRef(SecretRef):
    """Where a secret is that Temporal is shown. It is read by what connects: ``dev`` has a Temporal of its own."""

    needed: ClassVar[bool] = False


class TemporalKeyRef(KeyRef):
    """Where a private key is that Temporal is shown, likewise."""

    needed: ClassVar[bool] = False


class SigningRef(SecretRef):
    """Where a secret is that something is signed with."""

    shortest: ClassVar[int] = MIN_SIGNING


class OAuth(Table):
    """How a token is had from the server's authorization server (MCP 2026-07-28, authorization)."""

    grant: Literal["client_credentials", "authorization_code", "jwt_bearer"] = Field(
        description='"client_credentials", "authorization_code" or "jwt_bearer"'
    )
    """A machine's own credentials, what a person obtained with `login`, or an assertion that a platform issued."""

    client_id: Text | None = Field(None, description='what the authorization server calls us, as in client_id = "pack"')
    """Without one, in the grant of a person, we register ourselves."""

    client_secret: SecretRef | None = Field(
        None, description='client_secret = { env = "NAME" } or client_secret = { file = "PATH" }'
    )
    """What a machine proves itself by."""

    private_key: KeyRef | None = Field(None, description='a PEM file, as in private_key = { file = "PATH" }')
    """The same without a shared secret (RFC 7523)."""

    assertion: SecretRef | None = Field(None, description='a JWT, as in assertion = { file = "PATH" }')
    """Read anew for each token, since platforms rotate the file."""

    scope: Text | None = Field(None, description='scopes with spaces between them, as in scope = "read write"')
    """Without it what the server asks for."""

    issuer: Url | None = Field(None, description='the only issuer to trust, as in issuer = "https://auth.example.org"')
    """Without it the first that the server names, which the worker then holds it to."""

    token_auth: Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"] | None = Field(
        None, description='"client_secret_basic", "client_secret_post", "private_key_jwt" or "none"'
    )
    """How we prove ourselves, where the metadata leaves a choice."""

    client_metadata_url: Url | None = Field(
        None,
        description='where our client metadata document is, as in client_metadata_url = "https://example.org/pack.json"',
    )
    """Names us at authorization servers that read such documents, in place of a registration."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        proofs = [self.client_secret is not None, self.private_key is not None]
        if self.grant == "client_credentials" and (self.client_id is None or sum(proofs) != 1):
            raise fault("client_credentials needs client_id and one of client_secret and private_key: write them")
        if self.grant == "jwt_bearer" and self.assertion is None:
            raise fault('jwt_bearer needs the JWT: write assertion = { file = "PATH" }')
        if self.grant != "jwt_bearer" and self.assertion is not None:
            raise fault('assertion belongs to grant = "jwt_bearer": take it out, or change the grant')
        if sum(proofs) > 1:
            raise fault("write one of client_secret and private_key")
        if any(proofs) and self.client_id is None:
            raise fault("a secret or key without client_id is nobody's: write client_id")
        return self


class HeaderCredential(Table):
    """A credential that goes into a header of its own."""

    name: Annotated[str, AfterValidator(_header_name)] = Field(description='a header, as in name = "X-Api-Key"')
    """The header that carries it."""

    value: SecretRef = Field(description='value = { env = "NAME" } or value = { file = "PATH" }')
    """What it carries."""


class Credential(Table):
    """What a server is shown to let us in."""

    bearer: SecretRef | None = Field(None, description='bearer = { env = "NAME" }')
    """A token, in ``Authorization``."""

    header: HeaderCredential | None = Field(
        None, description='header = { name = "X-Api-Key", value = { env = "NAME" } }'
    )
    """The same in a header of its own."""

    oauth: OAuth | None = Field(None, description='a table, as in oauth = { grant = "client_credentials", ... }')
    """A token that the worker has to get."""

    @model_validator(mode="before")
    @classmethod
    def _never_inline(cls, value: object) -> object:
        if isinstance(value, Mapping | Credential):
            return value
        raise fault(
            f"a credential is named, never written: write {CREDENTIAL_FORMS}; take out what stands there, and replace "
            "it where it was issued"
        )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.bearer, self.header, self.oauth)) != 1:
            raise fault(f"write one of {CREDENTIAL_FORMS}")
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
