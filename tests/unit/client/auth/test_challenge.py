"""WWW-Authenticate as servers and gateways write it, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client.auth._challenge import Challenge, bearer, parse

TOKEN = st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=8)
TEXT = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=20)


@pytest.mark.parametrize(
    ("value", "challenges"),
    [
        ("", []),
        ("Bearer", [Challenge("bearer")]),
        ("BEARER realm=x", [Challenge("bearer", {"realm": "x"})]),
        ('Bearer scope="a b", error = "x"', [Challenge("bearer", {"scope": "a b", "error": "x"})]),
        ('Bearer error="a\\"b, Basic c"', [Challenge("bearer", {"error": 'a"b, Basic c'})]),
        (
            'Negotiate YII=, Basic realm="a", Bearer scope="x"',
            [
                Challenge("negotiate", {}, "YII="),
                Challenge("basic", {"realm": "a"}),
                Challenge("bearer", {"scope": "x"}),
            ],
        ),
        ("Basic, Bearer a=b,c=d", [Challenge("basic"), Challenge("bearer", {"a": "b", "c": "d"})]),
        ("Bearer , ,a=b, ,", [Challenge("bearer", {"a": "b"})]),
        ('Bearer a="x" b="y"', [Challenge("bearer", {"a": "x", "b": "y"})]),
        ("Bearer A=1, a=2", [Challenge("bearer", {"a": "1"})]),
        ('Bearer a="never closed', [Challenge("bearer")]),
        ('="x", Bearer a=b', [Challenge("bearer", {"a": "b"})]),
        ('"Bearer a=b, " x, Digest', [Challenge("digest")]),
        (
            "Bearer resource_metadata=https://h/x?a=b, scope=y",
            [Challenge("bearer", {"resource_metadata": "https://h/x?a=b", "scope": "y"})],
        ),
        ("\x00\xff, Bearer", [Challenge("bearer")]),
    ],
)
def test_what_can_be_read_is_read(value: str, challenges: list[Challenge]) -> None:
    assert parse([value])[: len(challenges)] == challenges


@given(st.lists(st.text(max_size=200), max_size=3))
def test_no_text_breaks_the_parser(values: list[str]) -> None:
    for challenge in parse(values):
        assert challenge.scheme == challenge.scheme.lower()


@given(st.text(',=" \\ab', max_size=3000))
def test_text_that_is_made_of_grammar_is_read_in_the_end(value: str) -> None:
    parse([value])


@given(st.lists(st.tuples(TOKEN, st.dictionaries(TOKEN.map(str.lower), TEXT, max_size=4)), min_size=1, max_size=3))
def test_what_was_written_by_the_grammar_comes_back(written: list[tuple[str, dict[str, str]]]) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    parts = [
        f"{scheme} {', '.join(f'{name}={quoted(text)}' for name, text in parameters.items())}".strip()
        for scheme, parameters in written
    ]
    expected = [Challenge(scheme.lower(), parameters) for scheme, parameters in written]
    assert parse([", ".join(parts)]) == expected
    assert parse(parts) == expected


def test_the_bearer_challenge_that_says_more_is_taken() -> None:
    values = ['Basic realm="x", Bearer realm="gateway"', 'Bearer resource_metadata="https://h/m", scope="a"']
    found = bearer(values)
    assert found is not None
    assert found.parameters == {"resource_metadata": "https://h/m", "scope": "a"}
    assert bearer(["Basic"]) is None
    assert bearer(values, "insufficient_scope") is None
