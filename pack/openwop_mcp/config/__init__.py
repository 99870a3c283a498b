"""Settings: one TOML file under the environment, checked whole before anything starts; a fault says what to write.

Owns names, shapes, limits and defaults of the settings, and the rule that a secret is named there and never written.
Knows nothing of HTTP or Temporal. No message holds a value that was given: it may be a secret in the wrong place.
"""

from openwop_mcp.config._encryption import Encryption, EncryptionKey, EncryptionKeyRef
from openwop_mcp.config._environment import ENVIRONMENT_PREFIX
from openwop_mcp.config._host import RESERVED_KEY, SCOPES, Host, Issuer, Key, TokenKey
from openwop_mcp.config._load import DEFAULT_FILE, load
from openwop_mcp.config._logs import Logs
from openwop_mcp.config._secrets import (
    MIN_SECRET,
    Credential,
    HeaderCredential,
    KeyRef,
    OAuth,
    SecretRef,
    SigningRef,
    VariableRef,
)
from openwop_mcp.config._servers import TOOLS_COMMANDS, EffectivePolicy, Retry, Server, Timeouts, ToolPolicy
from openwop_mcp.config._settings import Settings
from openwop_mcp.config._tables import SettingsError, fields
from openwop_mcp.config._worker import DEFAULT_CLASS, Limits, Storage, Temporal, Worker, WorkerClass

__all__ = (
    "DEFAULT_CLASS",
    "DEFAULT_FILE",
    "ENVIRONMENT_PREFIX",
    "MIN_SECRET",
    "RESERVED_KEY",
    "SCOPES",
    "TOOLS_COMMANDS",
    "Credential",
    "EffectivePolicy",
    "Encryption",
    "EncryptionKey",
    "EncryptionKeyRef",
    "HeaderCredential",
    "Host",
    "Issuer",
    "Key",
    "KeyRef",
    "Limits",
    "Logs",
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
    "WorkerClass",
    "fields",
    "load",
)
