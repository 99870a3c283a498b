"""Reads the secrets that the settings name, anew for each use, and tells the redactor of each before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from openwop_mcp.client.auth._grants import Client
from openwop_mcp.config import OAuth, SecretRef, SettingsError
from openwop_mcp.errors import AuthorizationError

__all__ = ("Secrets",)


class Secrets:
    """The secrets of one server's settings.

    Args:
        oauth: The settings.
        environ: Where they are.
        on_secret: Is told each one.
    """

    def __init__(self, oauth: OAuth, environ: Mapping[str, str], on_secret: Callable[[str], None]) -> None:
        self._oauth = oauth
        self._environ = environ
        self.tell = on_secret

    def client(self) -> Client:
        """The client that the settings describe.

        Raises:
            AuthorizationError: A secret cannot be had any more; cause ``credential``.
        """
        return Client(
            self._oauth.client_id,
            self._reveal("client_secret", self._oauth.client_secret),
            self._reveal("private_key", self._oauth.private_key),
            self._oauth.token_auth,
        )

    def assertion(self) -> str:
        """The JWT that a platform issued.

        Raises:
            AuthorizationError: It cannot be had any more; cause ``credential``.
        """
        found = self._reveal("assertion", self._oauth.assertion)
        assert found is not None
        return found

    def _reveal(self, key: str, reference: SecretRef | None) -> str | None:
        if reference is None:
            return None
        try:
            secret = reference.reveal(self._environ)
        except SettingsError as error:
            raise AuthorizationError(f"servers.<id>.credential.oauth.{key}: {error}", cause="credential") from None
        self.tell(secret)
        return secret
