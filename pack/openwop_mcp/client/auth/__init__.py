"""Authorization of MCP over HTTP: tokens of machines and of persons, and how they are had.

Opens no socket but the one that a login waits on.
"""

from openwop_mcp.client.auth._authorizer import OAuthAuthorizer
from openwop_mcp.client.auth._code import Visit
from openwop_mcp.client.auth._fetch import CAUSES, Fetch, Fetched
from openwop_mcp.client.auth._login import Login, login
from openwop_mcp.client.auth._loopback import Pasting
from openwop_mcp.client.auth._store import TokenStore

__all__ = ("CAUSES", "Fetch", "Fetched", "Login", "OAuthAuthorizer", "Pasting", "TokenStore", "Visit", "login")
