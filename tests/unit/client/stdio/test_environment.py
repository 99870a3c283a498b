"""What a server's process gets of the worker's environment."""

from __future__ import annotations

from openwop_mcp.client.stdio._process import environment


def test_a_server_gets_what_every_program_needs_and_what_it_is_given() -> None:
    worker = {"PATH": "/bin", "LC_ALL": "C", "XDG_CACHE_HOME": "/c", "LANG": "C", "API_TOKEN": "x", "PATHS": "y"}
    assert environment(worker | {"HTTPS_PROXY": "http://user:password@proxy.example"}, {"LANG": "de", "OWN": "1"}) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "XDG_CACHE_HOME": "/c",
        "LANG": "de",
        "OWN": "1",
    }


def test_a_variable_that_only_begins_as_one_of_those_does_is_not_the_servers() -> None:
    names = ("LC_API_TOKEN", "XDG_SECRET", "XDG_SESSION_ID", "LC_", "LC_ALL_KEYS", "XDG_CACHE_HOME_TOKEN")
    assert environment(dict.fromkeys(names, "s3cr3t") | {"LC_MESSAGES": "C", "XDG_DATA_DIRS": "/d"}, {}) == {
        "LC_MESSAGES": "C",
        "XDG_DATA_DIRS": "/d",
    }
