"""The tables of the REST surface: where it listens, who may do what there, and whose tokens it takes.

Knows no server, and nothing of how a token or a key is judged.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from openwop_mcp.config._secrets import ApiKeyRef, SigningRef
from openwop_mcp.config._tables import Table, fault
from openwop_mcp.config._values import AsTuple, HostPort, Identifier, NotEmpty, Tenant, TenantOrAll, Text, Url

__all__ = (
    "RESERVED_KEY",
    "SCOPES",
    "Host",
    "Issuer",
    "Key",
    "TokenKey",
)

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

RESERVED_KEY = "host"
"""Id of the key that tokens are signed with where the settings have none."""

SigningAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""What may sign a token: public keys alone, since a secret that the host shares with others proves nothing."""


def _scope(text: str) -> str:
    if text == "*" or text in SCOPES:
        return text
    raise ValueError


Scope = Annotated[str, AfterValidator(_scope)]


class TokenKey(Table):
    """A key that tokens of interrupts are signed with."""

    id: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_-]{1,64}$")] = Field(
        description='a name for the key, 1 to 64 of A-Z a-z 0-9 _ -, as in id = "2026-11"'
    )
    """Stands in each token, and says which key signed it."""

    secret: SigningRef = Field(
        description='of 32 characters at least: secret = { env = "NAME" } or secret = { file = "PATH" }'
    )
    """What signs."""


class Host(Table):
    """The REST surface."""

    bind: HostPort = Field("127.0.0.1:8080", description='host and port, as in bind = "127.0.0.1:8080"')
    """Where it listens. It speaks plain HTTP: TLS is the business of what stands before it."""

    url: Identifier | None = Field(
        None, description='the address that clients know it by, as in url = "https://openwop.example.org"'
    )
    """What the tokens of an identity provider are for, and where a client learns of the provider."""

    workflows: Annotated[tuple[Text, ...], AsTuple] = Field((), description='folders, as in workflows = ["flows"]')
    """Where the graphs are, read once at start; relative to the working directory."""

    fixtures: bool = Field(default=False, description="fixtures = true or fixtures = false")
    """Whether the small workflows of the conformance suite are offered as well."""

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
            raise fault(f"'{RESERVED_KEY}' is what the key of the hosts themselves is called: give it another id")
        if len(set(ids)) < len(ids):
            raise fault("two of token_keys have the same id: give each its own")
        return self

    @model_validator(mode="after")
    def _callbacks_link_to_here(self) -> Self:
        if self.callback_secret is not None and self.url is None:
            raise fault("a notification says where to answer: write url as well, the address that clients know")
        return self


class Key(Table):
    """An API key of the host: whose it is and what it may do."""

    id: Text = Field(description='a name for the key, as in id = "dev"')
    """What logs call it. The key itself is in none."""

    secret: ApiKeyRef | None = Field(None, description='secret = { env = "NAME" } or secret = { file = "PATH" }')
    """Where the key is."""

    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="the SHA-256 of the key, 64 lower-case hexadecimal digits"
    )
    """In place of the key, so that it is nowhere on this machine."""

    tenant: Tenant = Field(description='1 to 128 of A-Z a-z 0-9 . _ -, as in tenant = "acme"')
    """Whose runs it creates and sees."""

    subject: Text = Field(description='who uses the key, as in subject = "dev"')
    """Who is told to have started, cancelled or answered."""

    scopes: Annotated[tuple[Scope, ...], AsTuple, NotEmpty] = Field(
        description=f'scopes = ["*"], or some of {", ".join(SCOPES)}'
    )
    """What it may do."""

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.secret is None) == (self.sha256 is None):
            raise fault('write one of secret = { env = "NAME" }, secret = { file = "PATH" } and sha256 = "..."')
        return self


class Issuer(Table):
    """An identity provider whose tokens the host takes, and what they are good for."""

    issuer: Identifier = Field(description='its tokens\' `iss`, as in issuer = "https://login.example.org"')
    """Whose tokens are taken, to the letter."""

    audience: Text = Field(description='what `aud` holds in tokens for this host, as in audience = "openwop"')
    """What a token has to be for: one for others is refused."""

    tenant: Tenant | None = Field(None, description='1 to 128 of A-Z a-z 0-9 . _ -, as in tenant = "acme"')
    """The tenant of all its subjects, where it has one."""

    tenant_claim: Text | None = Field(
        None, description='the claim that says whose tenant a token is of, as in tenant_claim = "org"'
    )
    """Or the claim that says which; the issuer then speaks for each of ``tenants``."""

    tenants: Annotated[tuple[TenantOrAll, ...], AsTuple, NotEmpty] = Field(
        ("*",),
        description='tenants = ["*"], or the names that tenant_claim may give: 1 to 128 of A-Z a-z 0-9 . _ - each',
    )
    """The tenants that it may speak for. Name them where the issuer is not yours."""

    subject_claim: Text = Field("sub", description='the claim that says who it is, as in subject_claim = "sub"')
    """Who the bearer is: something that stays the same, and is used for nobody else."""

    scopes: Annotated[tuple[Scope, ...], AsTuple, NotEmpty] = Field(
        ("*",), description=f'scopes = ["*"], or some of {", ".join(SCOPES)}'
    )
    """What a token may do is what it says in ``scope`` or ``scp``, and nothing that does not stand here."""

    algorithms: Annotated[tuple[SigningAlgorithm, ...], AsTuple, NotEmpty] = Field(
        ("RS256", "ES256"),
        description=f'algorithms = ["ES256"], or more of {", ".join(get_args(SigningAlgorithm))}',
    )
    """What its tokens may be signed with."""

    max_lifetime: int = Field(3660, ge=60, le=86_400, description="a whole number of seconds from 60 to 86400")
    """No token is good for longer, whatever it says: nobody asks the issuer whether one was withdrawn, so that this is
    how long one that was may still be taken. An hour, as most of them have, and a minute for clocks that differ."""

    jwks_uri: Url | None = Field(
        None, description='where its keys are, as in jwks_uri = "https://login.example.org/keys"'
    )
    """By default where its metadata says, ``<issuer>/.well-known/openid-configuration``."""

    network: Literal["public", "private", "any"] = Field("public", description='"public", "private" or "any"')
    """Where it must lie, as for a server."""

    @model_validator(mode="after")
    def _one_tenant(self) -> Self:
        if (self.tenant is None) == (self.tenant_claim is None):
            raise fault('write one of tenant = "acme" and tenant_claim = "org"')
        if self.tenant is not None and self.tenants != ("*",):
            raise fault("tenants belongs to tenant_claim: take it out, or write that in place of tenant")
        return self

    @model_validator(mode="after")
    def _keys_come_unaltered(self) -> Self:
        urls = (self.issuer, self.jwks_uri)
        if not all(self.asks(url) for url in urls if url is not None):
            raise fault('keys that come over http can be exchanged: write https, or network = "private"')
        return self

    @property
    def allowed_scopes(self) -> tuple[str, ...]:
        """The scopes that a token can have, by name."""
        return SCOPES if "*" in self.scopes else self.scopes

    def asks(self, url: str) -> bool:
        """Whether keys may come from a URL: over ``https``, or from where the policy lets nobody else be."""
        scheme = urlsplit(url).scheme
        return scheme == "https" or (scheme == "http" and self.network == "private")
