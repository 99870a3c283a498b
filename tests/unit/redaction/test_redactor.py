"""Credentials are taken out of texts and errors: however they are spelled, wherever they stand, and soon."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from urllib.parse import quote, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, HttpStatusError, RpcError
from openwop_mcp.redaction import MARK, MAX_CLEANED, MAX_TOKENS, Redactor, _redactor
from tests.support.cost import cost

TOKEN = base64.urlsafe_b64encode(bytes(range(256)) * 12).decode()[:4000]


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _readable_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/")


def _all_escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04X}" for character in text)


def _percent(text: str) -> str:
    return quote(text, safe="")


def _all_percent(text: str) -> str:
    return "".join(f"%{octet:02x}" for octet in text.encode())


def _html(text: str) -> str:
    return "".join(one if one.isalnum() else f"&#{ord(one)};" for one in text)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "upper case": str.upper,
    "json": _json,
    "readable json": _readable_json,
    "json in json": lambda text: _json(_json(text)),
    "all escaped": _all_escaped,
    "percent": _percent,
    "all percent": _all_percent,
    "percent twice": lambda text: _percent(_percent(text)),
    "percent of json": lambda text: _percent(_json(text)),
    "json three times": lambda text: _readable_json(_readable_json(_readable_json(text))),
    "html": _html,
    "html in json": lambda text: _json(_html(text)),
    "json of percent": lambda text: _json(_percent(text)),
}

credentials = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=8, max_size=100).filter(
    lambda text: text == text.strip()
)
surroundings = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=30)


def _unescape(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else found[2]

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", character, text, flags=re.DOTALL)


def _readings(text: str) -> set[str]:
    once = {text, _unescape(text), unquote(text)}
    return once | {read(one) for one in once for read in (_unescape, unquote)}


def _rpc(error: bytes) -> RpcError:
    return RpcError("m", rpc_code=1, error=error, http_status=200, not_processed=False)


def _cleaned(redactor: Redactor, error: bytes) -> bytes:
    found = _rpc(error)
    redactor.clean(found)
    return found.error


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(credentials, surroundings, surroundings)
@example("41ab%41\\u0041", "%", "41")
@example("\\" * 8, "\\", '"\n')
@example('a"/+=%\\z', "\u20ac", "%")
def test_an_echo_in_no_spelling_and_at_no_place_survives(spelling: str, secret: str, before: str, after: str) -> None:
    cleaned = Redactor([secret]).text(SPELLINGS[spelling](f"{before}{secret}{after}"))
    assert MARK in cleaned
    # What is left beside a mark is not one more echo, however often the text held the credential.
    for part in cleaned.split(MARK):
        assert not any(secret.lower() in reading.lower() for reading in _readings(part))


@given(credentials, st.binary(max_size=20), st.binary(max_size=20), st.booleans(), surroundings)
def test_an_echo_in_base64_never_survives(
    secret: str, before: bytes, after: bytes, for_urls: bool, around: str
) -> None:
    spell = base64.urlsafe_b64encode if for_urls else base64.b64encode
    encoded = spell(before + secret.encode() + after).decode()
    own = encoded[(len(before) * 8 + 5) // 6 : (len(before) + len(secret)) * 8 // 6]
    for text in (f"{around}{encoded}{around}", json.dumps(encoded).replace("/", "\\/"), quote(encoded, safe="")):
        cleaned = Redactor([secret]).text(text)
        assert MARK in cleaned
        assert own not in unquote(cleaned.replace("\\", ""))


@pytest.mark.parametrize("width", [60, 64, 76])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", range(45, 60))
def test_base64_that_is_broken_into_lines_is_read_across_them(width: int, end: str, before: int) -> None:
    whole = base64.b64encode(b"x" * before + b"sk-live/9d8f7a6b5c4e" + b"y" * 60).decode()
    folded = end.join(whole[at : at + width] for at in range(0, len(whole), width))
    assert end in folded[:-20]
    for text in (folded, _json(folded), _readable_json(folded), _json(_json(folded))):
        cleaned = Redactor(["sk-live/9d8f7a6b5c4e"]).text(text)
        assert cleaned.count(MARK) == 1
        assert len(cleaned) < len(text) - 10


@pytest.mark.parametrize("spelling", ["json", "readable json", "percent", "percent in lower case"])
@pytest.mark.parametrize("before", range(3))
def test_what_base64_was_made_of_may_have_been_escaped(spelling: str, before: int) -> None:
    secret = 'sk/live+9d8f"7a6b'
    spelled = _percent(secret).lower() if spelling == "percent in lower case" else SPELLINGS[spelling](secret)
    blob = base64.b64encode(b"x" * before + spelled.encode() + b"y").decode()
    assert MARK in Redactor([secret]).text(blob)


@pytest.mark.parametrize(
    "spelled", ["sk&#43;live&#x2F;&quot;1234", "sk&#x2b;live&#047;&#34;1234", "SK+live/&quot;1234"]
)
def test_a_page_of_html_is_read(spelled: str) -> None:
    assert Redactor(['sk+live/"1234']).text(f"<p>Bearer {spelled}</p>") == f"<p>Bearer {MARK}</p>"
    assert Redactor(['sk+live/"1234']).text(f"&#xFFFFFF; {spelled} &#9999999;") == f"&#xFFFFFF; {MARK} &#9999999;"


@pytest.mark.parametrize("kept", ["sk&#43;li", "sk&#43;li&", "sk&#43;li&#", "sk&#43;li&#x2", "sk&#43;li&#118"])
def test_a_page_of_html_that_is_cut_off_shows_no_part(kept: str) -> None:
    assert Redactor(["sk+live/1234"]).text(f"<p>{kept}…") == f"<p>{MARK}…"


@given(
    st.text("ab\\%41u0e", max_size=3),
    st.text("ab\\%41u0e", min_size=8, max_size=20),
    st.text('ab\\%41u0e"\u20ac ', max_size=300),
)
def test_a_text_without_the_credential_is_unchanged(first: str, rest: str, text: str) -> None:
    # No text of these characters holds a tilde in any spelling.
    redactor = Redactor([f"{first}~{rest}"])
    assert redactor.text(text) == text
    data = json.dumps({"code": 1, "message": text, text: [text]}).encode()
    assert _cleaned(redactor, data) == data


@pytest.mark.parametrize("spelling", ["plain", "json", "readable json", "all escaped", "percent", "all percent"])
@given(st.data(), st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=8, max_size=60))
def test_a_credential_that_is_cut_off_is_not_shown_in_part(spelling: str, data: st.DataObject, secret: str) -> None:
    spell = SPELLINGS[spelling]
    spelled = spell(secret)
    kept = data.draw(st.integers(len(spell(secret[:4])), len(spelled)))
    redactor = Redactor([secret])
    cleaned = redactor.text(f"\u20ac \u20ac{spelled[:kept]}…")
    assert re.fullmatch(r"\u20ac \u20ac(\[credential\])+…", cleaned)
    message = json.dumps({"message": f"\u20ac {secret[:4]}…"}, ensure_ascii=data.draw(st.booleans()))
    told = json.loads(_cleaned(redactor, message.encode()))
    assert told == {"message": f"\u20ac {MARK}…"}


def test_an_excerpt_that_was_cut_elsewhere_keeps_what_looks_like_a_beginning() -> None:
    assert Redactor(["sk-1234567890"]).text("sk-12 is no key, sk…") == "sk-12 is no key, sk…"


JSON = st.recursive(
    st.none() | st.integers() | surroundings, lambda inner: st.lists(inner) | st.dictionaries(surroundings, inner)
)


@given(credentials, JSON, surroundings, st.sampled_from(sorted(SPELLINGS)), st.booleans())
@example("u0041u0042", "\x00A\x00B", "\\", "plain", True)
@example('",":"",":"', ["", "", ""], '"', "plain", True)
def test_an_error_stays_json_and_holds_no_echo(
    secret: str, other: object, around: str, spelling: str, ascii_only: bool
) -> None:
    echo = SPELLINGS[spelling](f"{around}{secret}{around}")
    data = json.dumps({"data": [{echo: 1.10, "b": echo}], "other": other}, ensure_ascii=ascii_only).encode()
    cleaned = _cleaned(Redactor([secret]), data)
    jsontext.check(cleaned)
    told = json.loads(cleaned)
    [name, _] = told["data"][0]
    for text in (name, told["data"][0]["b"]):
        assert MARK in text
        for part in text.split(MARK):
            assert not any(secret.lower() in reading.lower() for reading in _readings(part))


def test_an_error_keeps_every_byte_beside_the_echo() -> None:
    data = b'{"code": 1.0,"message":"\\u00e9 \\/ s\\u0065cret\\/key\\u002d1\\n", "d":[1.10, "\\ud800"] }'
    kept = data.replace(b"s\\u0065cret\\/key\\u002d1", MARK.encode())
    assert _cleaned(Redactor(["secret/key-1"]), data) == kept


def test_an_error_at_the_limit_is_kept_and_one_over_it_is_outlined() -> None:
    redactor = Redactor(["Bearer sk-1234567890"])
    data = b'{"code":1,"message":"%b","data":"sk-1234567890"}'
    fits = data % (b"x" * (MAX_CLEANED - len(data) + 2))
    assert _cleaned(redactor, fits) == fits.replace(b"sk-1234567890", MARK.encode())
    error = _rpc(data % (b"x" * MAX_CLEANED))
    error.message = "it said sk-1234567890"
    omitted = len(error.error)
    for _ in range(2):
        redactor.clean(error)
        assert json.loads(error.error) == {"code": 1, "message": f"it said {MARK}", "omittedBytes": omitted}


def test_without_a_credential_an_error_of_any_length_is_left() -> None:
    data = b'{"data":"%b"}' % (b"x" * MAX_CLEANED)
    assert _cleaned(Redactor([]), data) == data


PAIR = base64.b64encode(b"user:s3cr3tpassw0rd").decode()


@pytest.mark.parametrize(
    ("value", "echo", "told"),
    [
        ("Bearer s3cr3t-token", "Bearer s3cr3t-token", f"Bearer {MARK}"),
        ("bearer s3cr3t-token", "s3cr3t-token", MARK),
        ("BEARER  s3cr3t-token", "s3cr3t-token", MARK),
        ("Token abcdef0123456789", "abcdef0123456789", MARK),
        ("SSWS abcdef0123456789", "abcdef0123456789", MARK),
        ("SSWS abcdef0123456789", "SSWS abcdef0123456789", MARK),
        ("my secret value 1", "key=my secret value 1", f"key={MARK}"),
        ("Bearer short", "Bearer short", MARK),
        ("Bearer short", "short", "short"),
        (f"Basic {PAIR}", f"Basic {PAIR}", f"Basic {MARK}"),
        (f"basic {PAIR}", PAIR, MARK),
        (f"Basic {PAIR.rstrip('=')}", "as user:s3cr3tpassw0rd", f"as {MARK}"),
        (f"Basic {PAIR}", "user with s3cr3tpassw0rd", f"user with {MARK}"),
        (f"Basic {PAIR}", "user%3As3cr3tpassw0rd", MARK),
        ("Basic " + base64.b64encode("user:pässwörter".encode("latin-1")).decode(), "no pässwörter", f"no {MARK}"),
        ("Basic " + base64.b64encode(b"user:pass").decode(), "pass for user:pass", f"pass for {MARK}"),
        ("Basic not-base64-at-all", "not-base64-at-all", MARK),
        ("s3cr3t!", "s3cr3t!", "s3cr3t!"),
    ],
)
def test_a_credential_of_any_scheme_is_replaced(value: str, echo: str, told: str) -> None:
    assert Redactor([value]).text(f"denied: {echo}.") == f"denied: {told}."


def test_credentials_that_overlap_leave_nothing_between_them() -> None:
    assert Redactor(["abcdefgh1234", "1234ijklmnop"]).text("<abcdefgh1234ijklmnop>") == f"<{MARK}>"


def test_a_key_of_several_lines_is_found_in_json() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"
    assert Redactor([key]).text(json.dumps({"key": key})) == f'{{"key": "{MARK}"}}'


@pytest.mark.parametrize("end", ["\n", "\r\n", r"\n", r"\r\n"])
def test_a_key_is_found_line_by_line_and_its_labels_say_nothing(end: str) -> None:
    body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj", "MzEfYyji"]
    lines = ["-----BEGIN PRIVATE KEY-----", *body, "short==", "-----END PRIVATE KEY-----"]
    redactor = Redactor([end.join([*lines, ""])])
    assert [redactor.text(f"  {line} ") for line in lines] == [
        f"  {line} " if line not in body else f"  {MARK} " for line in lines
    ]
    kept = redactor.json(jsontext.encode({"said": body[1]}))
    assert kept is not None
    assert kept.data == b'{"said":"%b"}' % MARK.encode()
    spelled = base64.b64encode(body[1].encode()).decode()
    assert spelled[:-4] not in redactor.text(f"data: {spelled}")


def test_a_rule_between_the_lines_of_a_secret_hides_no_other() -> None:
    first, rule, second = "the-first-secret-of-all", "-" * 24, "the second secret of all"
    redactor = Redactor([f"{first}\n{rule}\n  {second}\n"])
    assert redactor.text(f"{first}\n{rule}\n{second}") == f"{MARK}\n{rule}\n{MARK}"


def test_the_ordinary_lines_of_a_file_that_is_a_secret_stay_in_results() -> None:
    token = "token: eyJhbGciOiJSUzI1NiJ9"
    redactor = Redactor([f"apiVersion: v1\nkind: Config\nusers:\n  {token}\n"])
    assert redactor.text(f"kind: Config\nusers:\n{token}") == f"kind: Config\nusers:\n{MARK}"


def test_a_secret_of_one_line_is_no_secret_in_parts() -> None:
    path = r"C:\notes\nightly-builds"
    assert Redactor([path]).text("ightly-builds") == "ightly-builds"


def test_the_errors_that_led_to_one_are_cleaned_too() -> None:
    error, cause = ConnectError("no"), ConnectError("to s3cr3t-token")
    cause.facts["tried"] = ["a s3cr3t-token", 1]
    error.__cause__ = cause
    Redactor(["s3cr3t-token"]).clean(error)
    assert (cause.message, str(cause), cause.facts["tried"]) == (f"to {MARK}", f"to {MARK}", [f"a {MARK}", 1])


@pytest.mark.parametrize("one", ["s3cr3t-token", "cut off here…"], ids=["echoes", "excerpts"])
def test_a_long_error_that_is_little_else_than_echoes_stays_an_outline(one: str) -> None:
    sent = json.dumps({"code": -1, "message": "m", "data": [one] * 100_001}).encode()
    error = RpcError("m", rpc_code=-1, error=sent, http_status=200, not_processed=False)
    Redactor(["s3cr3t-token"]).clean(error)
    assert error.whole is not None
    assert error.whole() == error.error
    assert json.loads(error.error) == {"code": -1, "message": "m", "omittedBytes": len(sent)}


def test_what_a_refusal_says_of_access_is_cleaned_too() -> None:
    error = HttpStatusError(
        "no", status=401, delivery=Delivery.NOT_PROCESSED, challenges=['Bearer error="x", got="s3cr3t-token"']
    )
    Redactor(["s3cr3t-token"]).clean(error)
    assert error.challenges == [f'Bearer error="x", got="{MARK}"']


def test_only_the_end_of_a_long_text_is_searched_for_a_beginning() -> None:
    redactor = Redactor(["sk-1234567890"])
    text = "b" * 5_000_000
    assert redactor.text(text + " sk-1234…") == f"{text} {MARK}…"
    # A look at each byte took three times that.
    assert cost(lambda: redactor.text(text + " sk-1234…")) < 0.5  # seconds


def test_of_many_tokens_those_told_last_are_looked_for() -> None:
    redactor = Redactor(())
    for number in range(MAX_TOKENS):
        redactor.rotate(f"token-{number:04}")
        redactor.rotate("refresh-token")
    assert redactor.text("refresh-token token-0000 token-0001 token-0031") == f"{MARK} token-0000 {MARK} {MARK}"


def test_secrets_of_settings_are_looked_for_always_however_many_they_are() -> None:
    secrets = [f"variable-{number:04}" for number in range(3 * MAX_TOKENS)]
    redactor = Redactor(secrets)
    redactor.rotate("made-permanent")
    redactor.add("made-permanent")
    for number in range(2 * MAX_TOKENS):
        redactor.rotate(f"token-{number:04}")
        redactor.rotate(secrets[0])
    assert {redactor.text(secret) for secret in (*secrets, "made-permanent")} == {MARK}
    assert redactor.text("token-0031 token-0032") == f"token-0031 {MARK}"


def _tokens(count: int) -> list[str]:
    return [f"Bearer eyJhbGciOiJSUzI1NiJ9{number:03}{TOKEN}" for number in range(count)]


def test_long_tokens_are_taken_in_at_once() -> None:
    def take_in() -> None:
        redactor = Redactor(())
        for token in _tokens(200):
            redactor.add(token)

    assert cost(take_in) < 1


@pytest.mark.parametrize(
    "unit", ["x", "\\\\", "a%", "%41", "%2541", "\\u0041", '\\"%25', '","', 'eyJh…","', "eyJhbGciOiJSUzI1NiJ9"]
)
@pytest.mark.parametrize("size", [60_000, 4_000_000])
def test_no_error_takes_long_to_clean(unit: str, size: int) -> None:
    redactor = Redactor(_tokens(MAX_TOKENS))
    data = b'{"code":1,"message":"m","data":["%b"]}' % (unit.encode() * (size // len(unit.encode())))
    assert cost(lambda: jsontext.check(_cleaned(redactor, data))) < 1


@pytest.mark.parametrize("secret", ["a" * 8, "a" * 4000, "a" * 4000 + "b"])
def test_a_credential_that_repeats_itself_costs_no_quadratic_time(secret: str) -> None:
    redactor = Redactor([secret])

    def clean() -> None:
        for text in ("a" * 60_000, "\\u0061" * 10_000, "a" * 60_000 + "…"):
            jsontext.check(_cleaned(redactor, b'{"data":"%b"}' % text.encode()))

    assert cost(clean) < 2


def test_a_secret_that_is_told_while_a_thread_makes_a_search_is_looked_for_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    redactor = Redactor(["first-secret"])
    made = _redactor.Search

    def overtaken(forms: Iterable[bytes]) -> _redactor.Search:
        forms = list(forms)
        redactor.add("second-secret")
        return made(forms)

    monkeypatch.setattr(_redactor, "Search", overtaken)
    assert redactor.text("first-secret") == MARK
    assert redactor.text("first-secret second-secret") == f"{MARK} {MARK}"
