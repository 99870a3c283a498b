"""An identity provider over HTTP that signs whatever a test asks for, and whose faults are switches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

from aiohttp import web
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, RSAKey

from openwop_mcp.config import Issuer
from tests.support.auth_server import served

__all__ = ("AUDIENCE", "TokenIssuer", "claims_of", "ec_key", "public", "rsa_key", "signed", "token_of")

AUDIENCE = "https://openwop.example.org"


@functools.cache
def rsa_key(name: str = "rsa", size: int = 2048) -> RSAKey:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # of short ones, which a test has to have to see them refused
        return RSAKey.generate_key(size, {"kid": name})


@functools.cache
def ec_key(name: str = "ec", curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve, {"kid": name})


def public(key: RSAKey | ECKey, **more: Any) -> dict[str, Any]:
    """A key as a set of keys has it; members that are None are left out."""
    return {name: value for name, value in {**key.as_dict(private=False), **more}.items() if value is not None}


def claims_of(issuer: str, **more: Any) -> dict[str, Any]:
    """Claims of a token that is good for an hour; members that are None are left out."""
    now = int(time.time())
    told = {
        "iss": issuer,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": now,
        "exp": now + 3600,
        "scope": "runs:read runs:create",
        "org": "acme",
        **more,
    }
    return {name: value for name, value in told.items() if value is not None}


def signed(claims: Mapping[str, Any], key: RSAKey | ECKey, **header: Any) -> str:
    """A token; members of the header that are None are left out."""
    algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
    told = {"alg": algorithm, "kid": key.kid, "typ": "JWT", **header}
    made = {name: value for name, value in told.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[made["alg"]], strict_check_header=False)
    return jws.serialize_compact(made, json.dumps(claims), key, registry=registry)


def token_of(header: Any, claims: Any, signature: bytes = b"x") -> str:
    """What has the shape of a token, whoever signed it."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


class TokenIssuer:
    """The identity provider. What ``answers`` has for a path goes before all else."""

    def __init__(self, *keys: RSAKey | ECKey, path: str = "") -> None:
        self.keys = list(keys) or [rsa_key()]
        self.path = path
        self.origin = ""
        self.metadata: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.answers: dict[str, Callable[[], web.Response]] = {}
        self.hold: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.paths: list[str] = []
        self._stack = contextlib.AsyncExitStack()

    @property
    def issuer(self) -> str:
        return f"{self.origin}{self.path}"

    def settings(self, **more: Any) -> Issuer:
        told = {"issuer": self.issuer, "audience": AUDIENCE, "network": "private", "tenant": "acme", **more}
        return Issuer(**{name: value for name, value in told.items() if value is not None})

    def token(self, key: RSAKey | ECKey | None = None, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        return signed(claims_of(self.issuer, **claims), key or self.keys[0], **(header or {}))

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{any:.*}", self._answer)
        self.origin = await self._stack.enter_async_context(served(app))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(request.path)
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        if request.path in self.answers:
            return self.answers[request.path]()
        if request.path == f"{self.path}/.well-known/openid-configuration":
            return web.json_response({"issuer": self.issuer, "jwks_uri": f"{self.origin}/keys", **self.metadata})
        if request.path == "/keys":
            return web.json_response({"keys": [public(key) for key in self.keys]}, headers=self.headers)
        return web.Response(status=404)
