"""The table [encryption]: what a key is, and what is said of one that is none. Nothing of a key is ever told."""

from __future__ import annotations

import base64
import os

import pytest

from openwop_mcp.config import SettingsError, load
from openwop_mcp.encryption import encryption_of

KEY = base64.b64encode(bytes(range(32))).decode()
TWO = """
[[encryption.keys]]
id = "{first}"
secret = {{ env = "FIRST" }}

[[encryption.keys]]
id = "{second}"
secret = {{ file = "{file}" }}
"""


def settings(tmp_path, text: str, *, secrets: bool = True, **environ: str):
    file = tmp_path / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return load(str(file), environ=environ, secrets=secrets)


def refused(tmp_path, text: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as raised:
        settings(tmp_path, text, **environ)
    return str(raised.value)


def two(tmp_path, first: str = "a", second: str = "b") -> str:
    return TWO.format(first=first, second=second, file=tmp_path / "key")


def test_keys_are_read_from_variables_and_files(tmp_path):
    (tmp_path / "key").write_text(base64.b64encode(os.urandom(32)).decode() + "\n", encoding="utf-8")
    found = settings(tmp_path, two(tmp_path), FIRST=KEY)
    assert [key.id for key in found.encryption.keys] == ["a", "b"]
    assert encryption_of(found, {"FIRST": KEY}).encrypts


@pytest.mark.parametrize(
    "secret", [KEY[:-4], "x" * 44, base64.b64encode(b"x" * 31).decode(), "not base64 at all, really"]
)
def test_what_is_no_key_is_refused_by_place_and_remedy_and_not_repeated(tmp_path, secret):
    text = '[[encryption.keys]]\nid = "a"\nsecret = { env = "FIRST" }\n'
    said = refused(tmp_path, text, FIRST=secret)
    assert "encryption.keys.0.secret: this is no key" in said
    assert "openssl rand -base64 32" in said
    assert secret not in said


def test_a_key_that_is_written_out_is_refused_and_not_repeated(tmp_path):
    said = refused(tmp_path, f'[[encryption.keys]]\nid = "a"\nsecret = "{KEY}"\n')
    assert "named, never written" in said
    assert KEY not in said


def test_two_keys_need_an_id_and_a_secret_each(tmp_path):
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    assert "two of the keys have the same id" in refused(tmp_path, two(tmp_path, second="a"), FIRST=KEY)
    found = settings(tmp_path, two(tmp_path), FIRST=KEY)
    with pytest.raises(SettingsError, match=r"encryption\.keys\[1\]\.secret: another key has the same secret"):
        encryption_of(found, {"FIRST": KEY})


def test_a_command_that_needs_no_secret_is_told_when_it_does(tmp_path):
    found = settings(tmp_path, '[[encryption.keys]]\nid = "a"\nsecret = { env = "FIRST" }\n', secrets=False)
    with pytest.raises(
        SettingsError, match=r"encryption\.keys\[0\]\.secret: the environment variable FIRST is not set"
    ):
        encryption_of(found, {})


@pytest.mark.parametrize("origin", ["https://ui.example.org/", "https://ui.example.org/path", "*", "ui.example.org"])
def test_a_page_that_may_ask_is_named_as_a_browser_names_it(tmp_path, origin):
    assert "encryption.ui_origins.0" in refused(tmp_path, f'[encryption]\nui_origins = ["{origin}"]\n')
    settings(tmp_path, '[encryption]\nui_origins = ["https://ui.example.org:8233"]\n')
