"""A real authorization server and a real protected server over HTTP, whose faults are switches."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qsl, unquote_plus, urlencode

import aiohttp
from aiohttp import web

from openwop_mcp.client.auth import OAuthAuthorizer
from openwop_mcp.errors import ConnectError

__all__ = ("AuthServer", "Issued", "Page", "ProtectedServer", "call", "fetching", "served", "visitor")


@dataclass(frozen=True)
class Page:
    """What a fetch brought."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Issued:
    """A token that is good."""

    scopes: tuple[str, ...]
    resource: str | None
    client_id: str | None
    form: dict[str, str]


@contextlib.asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """The origin at which an application answers."""
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class AuthServer:
    """An authorization server. Leave members out of its metadata, or change them, by ``metadata``; None leaves out."""

    def __init__(self, prefix: str = "", well_known: str | None = None) -> None:
        self.prefix = prefix
        self.well_known = well_known or f"/.well-known/oauth-authorization-server{prefix}"
        self.origin = ""
        self.metadata: dict[str, Any] = {}
        self.clients: dict[str, str | None] = {}
        self.tokens: dict[str, Issued] = {}
        self.refresh_tokens: dict[str, Issued] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.paths: list[str] = []
        self.token_requests: list[tuple[dict[str, str], Mapping[str, str]]] = []
        self.registrations: list[dict[str, Any]] = []
        self.registered: dict[str, Any] = {}
        self.answer_token: Callable[[dict[str, str]], web.Response | None] = lambda _: None
        self.token_extra: dict[str, Any] = {"expires_in": 3600}
        self.hold: asyncio.Event | None = None
        self.asked = asyncio.Event()
        self.redirect: Callable[[dict[str, str]], None] = lambda _: None
        self.granted: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda scopes: scopes
        self.authorizations: list[dict[str, str]] = []
        self._numbers = itertools.count(1)
        self._stack = contextlib.AsyncExitStack()

    @property
    def issuer(self) -> str:
        return f"{self.origin}{self.prefix}"

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._log])
        app.router.add_get(self.well_known, self._metadata)
        app.router.add_get(f"{self.prefix}/authorize", self._authorize)
        app.router.add_post(f"{self.prefix}/token", self._token)
        app.router.add_post(f"{self.prefix}/register", self._register)
        self.origin = await self._stack.enter_async_context(served(app))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @web.middleware
    async def _log(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.paths.append(request.path)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _metadata(self, _: web.Request) -> web.Response:
        found = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }
        return web.json_response({name: value for name, value in found.items() if value is not None})

    async def _register(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        self.registrations.append(wanted)
        client_id = f"client-{next(self._numbers)}-of-{self.origin[-5:]}"
        self.clients[client_id] = self.registered.get("client_secret")
        return web.json_response({"client_id": client_id, **wanted, **self.registered}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.authorizations.append(query)
        code = f"code-{next(self._numbers)}"
        self.codes[code] = query
        answer = {"code": code, "state": query["state"], "iss": self.issuer}
        self.redirect(answer)
        return web.Response(status=302, headers={"Location": f"{query['redirect_uri']}?{urlencode(answer)}"})

    async def _token(self, request: web.Request) -> web.Response:
        form = dict(parse_qsl((await request.read()).decode(), keep_blank_values=True))
        self.token_requests.append((form, request.headers))
        self.asked.set()
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answer_token(form)
        if answer is not None:
            return answer
        client_id = self._client(form, request.headers.get("Authorization"))
        if client_id is None and form["grant_type"] != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return web.json_response({"error": "invalid_client"}, status=401)
        before: Issued | None = None
        scope = form.get("scope")
        if form["grant_type"] == "authorization_code":
            query = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if query is None or query["code_challenge"] != challenge or query["redirect_uri"] != form["redirect_uri"]:
                return web.json_response({"error": "invalid_grant"}, status=400)
            scope = query.get("scope")
        if form["grant_type"] == "refresh_token":
            # Good for one use.
            before = self.refresh_tokens.pop(form["refresh_token"], None)
            if before is None or before.client_id != client_id:
                return web.json_response({"error": "invalid_grant"}, status=400)
        scopes = before.scopes if before is not None else self.granted(tuple((scope or "").split()))
        number = next(self._numbers)
        issued = Issued(scopes, form.get("resource"), client_id, form)
        access = f"access-{number}-{self.origin[-5:]}-abcdef"
        self.tokens[access] = issued
        made = {"access_token": access, "token_type": "Bearer", **self.token_extra}
        if form["grant_type"] in {"authorization_code", "refresh_token"}:
            made["refresh_token"] = f"refresh-{number}-abcdef"
            self.refresh_tokens[made["refresh_token"]] = issued
        if scopes:
            made["scope"] = " ".join(scopes)
        return web.json_response(made)

    def _client(self, form: dict[str, str], basic: str | None) -> str | None:
        client_id, secret = form.get("client_id"), form.get("client_secret")
        if basic is not None:
            pair = base64.b64decode(basic.removeprefix("Basic ")).decode().split(":")
            client_id, secret = unquote_plus(pair[0]), unquote_plus(pair[1])
        if client_id is None or client_id not in self.clients:
            return None
        if "client_assertion" in form:
            return client_id
        return client_id if self.clients[client_id] == secret else None

    def revoke(self) -> None:
        """No access token is good any more."""
        self.tokens.clear()


class ProtectedServer:
    """A server that wants tokens of an authorization server."""

    def __init__(self, *issuers: AuthServer, path: str = "/mcp") -> None:
        self.issuers = list(issuers)
        self.path = path
        self.origin = ""
        self.metadata: dict[str, Any] = {}
        self.metadata_path: str | None = f"/.well-known/oauth-protected-resource{path}"
        self.metadata_status = 200
        self.named = True
        self.challenge_scope: str | None = None
        self.needed: dict[str, Sequence[str]] = {}
        self.open = False
        self.broken = False
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        self._stack = contextlib.AsyncExitStack()

    @property
    def url(self) -> str:
        return f"{self.origin}{self.path}"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{any:.*}", self._serve)
        self.origin = await self._stack.enter_async_context(served(app))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _serve(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        if self.metadata_path is not None and request.path == self.metadata_path:
            found = {
                "resource": self.url,
                "authorization_servers": [issuer.issuer for issuer in self.issuers],
                **self.metadata,
            }
            return web.json_response(
                {name: value for name, value in found.items() if value is not None}, status=self.metadata_status
            )
        if request.path != self.path:
            return web.Response(status=404, text="<html>nothing</html>")
        return self._guarded(request)

    def _guarded(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization")
        self.authorizations.append(sent)
        issued = self.issuers[0].tokens.get((sent or "").removeprefix("Bearer ")) if self.issuers else None
        if self.broken or (issued is None and not (self.open and sent is None)):
            more = [] if self.challenge_scope is None else [f'scope="{self.challenge_scope}"']
            return web.Response(status=401, headers={"WWW-Authenticate": self._challenge(*more)})
        needed = self.needed.get(request.query.get("op", ""), ())
        if issued is not None and not set(needed) <= set(issued.scopes):
            more = ['error="insufficient_scope"', f'scope="{" ".join(needed)}"']
            return web.Response(status=403, headers={"WWW-Authenticate": self._challenge(*more)})
        return web.json_response({"ok": True})

    def _challenge(self, *more: str) -> str:
        named = [f'resource_metadata="{self.origin}{self.metadata_path}"'] if self.named and self.metadata_path else []
        return f"Bearer {', '.join([*named, *more])}".strip()


@contextlib.asynccontextmanager
async def fetching() -> AsyncIterator[Callable[..., Any]]:
    """What an authorizer fetches with."""
    async with aiohttp.ClientSession() as session:

        async def fetch(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Page:
            try:
                async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as answer:
                    return Page(answer.status, answer.headers, await answer.read())
            except aiohttp.ClientError as error:
                raise ConnectError(f"no connection: {type(error).__name__}") from error

        yield fetch


async def call(authorizer: OAuthAuthorizer, fetch: Any, url: str, *, tries: int = 4) -> int:
    """One request as the client makes it: again after a refusal, a bounded number of times. Gives its last status."""
    for attempt in range(tries):
        header = await authorizer.header()
        answer = await fetch("POST", url, {} if header is None else dict([header]), b"{}")
        if answer.status not in {401, 403} or attempt == tries - 1:
            return int(answer.status)
        challenges = [answer.headers["WWW-Authenticate"]] if "WWW-Authenticate" in answer.headers else []
        if not await authorizer.refused(answer.status, challenges, header[1] if header else None):
            return int(answer.status)
    raise AssertionError("unreachable")


def visitor(fetch: Any) -> Callable[[str], Any]:
    """A person who agrees to everything, and whose browser says where it was sent."""

    async def visit(url: str) -> str:
        answer = await fetch("GET", url, {}, None)
        return str(answer.headers["Location"])

    return visit
