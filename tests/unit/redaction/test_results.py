"""A result is left as it is, byte for byte, but for a secret in its strings."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.redaction import MARK, Redacted, Redactor, TooManyEchoesError
from openwop_mcp.redaction._redactor import MAX_ECHOES
from openwop_mcp.redaction._views import PIECE
from tests.support.cost import cost

SECRET = "sk-live/9d8f7a6b5c4e3d2f"
ROOT = Path(__file__).parents[3]


def _left(data: bytes, *secrets: str) -> Redacted | None:
    return Redactor(secrets or (SECRET,)).json(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.booleans())
@example({"a": ['"', "\\", "%41", "\u20ac", "é"]}, False)
def test_a_result_without_a_secret_is_the_same_object(value: object, ascii_only: bool) -> None:
    assert _left(json.dumps(value, ensure_ascii=ascii_only).encode()) is None


def test_every_byte_beside_the_secret_is_kept_and_the_original_is_told_by_its_digest() -> None:
    data = (
        b'{ "n": [1.0, 1e400, 123456789012345678901234],"t":"\\u00e9 sk-live\\/9d8f7a6b5c4e3d2f \\n",'
        b'"t":"SK-LIVE/9D8F7A6B5C4E3D2F"}'
    )
    left = _left(data)
    assert left is not None
    assert left.data == (
        b'{ "n": [1.0, 1e400, 123456789012345678901234],"t":"\\u00e9 [credential] \\n","t":"[credential]"}'
    )
    assert left.count == 2
    assert left.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        SECRET.replace("/", "\\/"),
        SECRET.replace("s", "\\u0073"),
        SECRET.replace("/", "\\\\/"),
        SECRET.replace("-", "\\\\u002D"),
        quote(SECRET, safe=""),
        quote(quote(SECRET, safe=""), safe=""),
        "".join(f"%{byte:02X}" for byte in SECRET.encode()),
        f'{{\\"token\\": \\"{SECRET}\\"}}',
    ],
)
def test_a_secret_is_found_in_every_spelling(spelled: str) -> None:
    left = _left(b'{"text":"it is %b."}' % spelled.encode())
    assert left is not None
    assert left.count == 1
    jsontext.check(left.data)
    assert MARK.encode() in left.data
    assert b"9d8f" not in left.data.lower()


@pytest.mark.parametrize("before", range(9))
@pytest.mark.parametrize("spell", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("slashes", ["/", "\\/"])
def test_a_secret_in_a_blob_is_found_at_each_alignment(before: int, spell: object, slashes: str) -> None:
    blob = spell(b"x" * before + SECRET.encode() + b"\xff\xfe end").decode().replace("/", slashes)
    left = _left(b'{"contents":[{"uri":"file:///a","blob":"%b"}]}' % blob.encode())
    assert left is not None
    jsontext.check(left.data)
    shown = json.loads(left.data)["contents"][0]["blob"].split(MARK)
    assert len(shown) == 2
    # At an edge that no byte of the blob ends at, some bits are left of one character.
    assert len("".join(shown)) <= len(blob.replace("\\", "")) - len(SECRET) * 8 // 6 + 2


def test_what_is_no_string_is_left() -> None:
    assert _left(b'{"a":1234567890}', "1234567890") is None
    assert _left(b'{"a":"1","b":"2"}', '","b":"') is None


@pytest.mark.parametrize(
    ("data", "there"),
    [
        (b'{"a":1234567890}', True),
        (b'{"a":"1234567890","b":[0,-1234567890.5]}', True),
        (b'{"a":"1234567890"}', False),
        (b'{"a":123456789}', False),
    ],
)
def test_a_secret_of_digits_is_told_of_where_it_is_a_number(data: bytes, *, there: bool) -> None:
    assert Redactor([SECRET, "Bearer 1234567890"]).has_number(data) == there
    assert not Redactor([SECRET]).has_number(data)


def test_an_escape_is_never_cut_in_two() -> None:
    # As text the secret begins with the letter of the escape.
    assert _left(b'{"a":"\\nsecret-1"}', "nsecret-1") is None


def test_a_key_of_an_object_is_a_string_too() -> None:
    left = _left(b'{"%b":1}' % SECRET.encode())
    assert left is not None
    assert left.data == b'{"[credential]":1}'


def test_a_beginning_that_the_server_has_cut_off_is_left() -> None:
    assert _left('{"a":"sk-live/9d…"}'.encode()) is None


@pytest.mark.parametrize("unit", ["\\u0073", "%2d", "\\\\", "\\/", "\\\\u002d", "x", "&#x2d;"])
@pytest.mark.parametrize("shift", range(7))
def test_a_secret_is_found_wherever_a_long_text_is_parted(unit: str, shift: int) -> None:
    spelled = "".join(f"\\u{ord(character):04x}" for character in SECRET)
    for beside in (spelled, SECRET.replace("-", "&#000045;"), SECRET.replace("/", "\\/"), quote(SECRET, safe="")):
        room = PIECE - len(beside) // 2 - shift
        filler = "x" * (room % len(unit)) + unit * (room // len(unit))
        left = _left(f'{{"a":"{filler}{beside} {unit * 20}"}}'.encode())
        assert left is not None
        assert left.data == f'{{"a":"{filler}{MARK} {unit * 20}"}}'.encode()


def test_an_answer_of_echoes_alone_is_refused() -> None:
    with pytest.raises(TooManyEchoesError):
        _left(b'["%b"]' % (SECRET.encode() * (MAX_ECHOES + 1)))


def test_a_small_result_costs_next_to_nothing() -> None:
    redactor = Redactor([f"Bearer {SECRET}"])
    data = json.dumps({"content": [{"type": "text", "text": "Grüezi, " * 60}]}).encode()

    def thousand() -> None:
        for _ in range(1000):
            redactor.json(data)

    assert cost(thousand) < 0.1  # seconds: some 7 µs each


@pytest.mark.parametrize(
    "unit", ["x", "eyJh", "\\u0041", "%2541", "\\\\u0041", "\\/", '","', "&#43;", "&", "x" * 60 + "\\n"]
)
def test_the_work_is_linear_in_the_result(unit: str) -> None:
    redactor = Redactor([f"Bearer {SECRET}"])

    def took(size: int) -> float:
        data = b'["%b"]' % (unit.encode() * (size // len(unit)))
        return cost(lambda: redactor.json(data))

    assert took(4_000_000) < 0.05 + 30 * took(400_000)


def test_a_hostile_result_takes_a_few_times_its_size_of_memory() -> None:
    program = f"""
        import resource, sys
        sys.path.insert(0, {str(ROOT / "pack")!r})
        from openwop_mcp.redaction import Redactor
        redactor = Redactor([{SECRET!r}])
        data = b'["%b"]' % (b"\\\\u0041" * 2_000_000 + {SECRET.encode()!r})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert redactor.json(data).count == 1
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / len(data))
    """
    told = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
    assert float(told.stdout) < 6
