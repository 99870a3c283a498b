"""Effect identity: what makes two calls one effect, and arguments that say the same, however they are spelled."""

from __future__ import annotations

import decimal
import json
import random
import re
import time
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.effects import identity
from openwop_mcp.effects.identity import Effect, by_key, by_recipe, canonical, digest

PROVIDER_KEY = re.compile(r"[A-Za-z0-9._~-]{22,128}")
LARGE = 4 * 1024 * 1024
DEEP = 100_000
SECONDS = 20
"""Far above what any of these texts takes on a busy machine, far below what quadratic time takes."""

CANONICAL = [
    (b"{}", b"{}"),
    (b" [ ] ", b"[]"),
    (b"\t\r\n null \n", b"null"),
    (b'{"b":1,"a":[true,false,null]}', b'{"a":[true,false,null],"b":1}'),
    # Strings: decoded, then escaped in one way.
    ('"é"'.encode(), b'"\\u00e9"'),
    (b'"\\u00E9"', b'"\\u00e9"'),
    (b'"\\/\\u002f/"', b'"///"'),
    (b'"\\u0022\\\\\\u000a\\t\x7f"', b'"\\"\\\\\\n\\t\\u007f"'),
    (b'"\x7f"', b'"\\u007f"'),
    ('"😀"'.encode(), b'"\\ud83d\\ude00"'),
    (b'"\\uD83D\\uDE00"', b'"\\ud83d\\ude00"'),
    (b'"\\ud83d"', b'"\\ud83d"'),
    (b'"\\ude00\\ud83d"', b'"\\ude00\\ud83d"'),
    # Numbers: exact.
    (b"0", b"0"),
    (b"-0", b"0"),
    (b"-0.0", b"0"),
    (b"0E999999999999999999999", b"0"),
    (b"1.0", b"1"),
    (b"1e0", b"1"),
    (b"10E-1", b"1"),
    (b"1e-00", b"1"),
    (b"-1200", b"-12e2"),
    (b"0.0120", b"12e-3"),
    (b"-1.50e+3", b"-15e2"),
    (b"105", b"105"),
    (b"1E400", b"1e400"),
    (b"1e-999999999999", b"1e-999999999999"),
    (b"10.0e99999999999999999999999999999", b"1e100000000000000000000000000000"),
    (b"123456789012345678901234", b"123456789012345678901234"),
    (b"0.1000000000000000055511151231257827", b"1000000000000000055511151231257827e-34"),
    # Members: by the code points of their decoded names, those of one name as they stood.
    (b'{"a":1,"a":2}', b'{"a":1,"a":2}'),
    (b'{"a":2,"b":0,"a":1}', b'{"a":2,"a":1,"b":0}'),
    (b'{"a":2,"\\u0061":1}', b'{"a":2,"a":1}'),
    (b'{"a":9,"a":10,"a":{"c":1,"b":2}}', b'{"a":9,"a":1e1,"a":{"b":2,"c":1}}'),
    ('{"😀":1,"\uffff":2,"é":3,"z":4,"":5}'.encode(), b'{"":5,"z":4,"\\u00e9":3,"\\uffff":2,"\\ud83d\\ude00":1}'),
    (b'{"\\udfff":1,"\\ud800":2}', b'{"\\ud800":2,"\\udfff":1}'),
    (b'{"b" : "c" , "a" : [ "d" , "e" , { } , { "f" : [ ] } ] }', b'{"a":["d","e",{},{"f":[]}],"b":"c"}'),
    (b'["a",{"b":"\\n","a":"\\u0041"},"\\n",1.0,"\\n"]', b'["a",{"a":"A","b":"\\n"},"\\n",1,"\\n"]'),
    (b'{"}":"{","],":"\\""," , ":",:"}', b'{" , ":",:","],":"\\"","}":"{"}'),
]


class Object(list[tuple[str, Any]]):
    """Members as a model: duplicates and order stay."""


class Exact(NamedTuple):
    """A number as a model: integer times a power of ten."""

    integer: int
    power: int


# Few letters and digits, so that distinct values are often near to one another.
STRINGS = st.text(st.sampled_from('ab"\\/\n\x7fé\uffff😀,:{}[] '), max_size=3) | st.sampled_from(["\ud800", "\udc00"])
NUMBERS = st.builds(Exact, st.integers(-20, 20) | st.integers(), st.integers(-3, 3) | st.integers(-400, 400))
VALUES = st.recursive(
    st.none() | st.booleans() | STRINGS | NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(STRINGS, inner), max_size=4).map(Object),
    max_leaves=12,
)
RANDOM = st.randoms(use_true_random=False)


def meaning(value: Any) -> Any:
    """What a model says, so that two models are equal exactly if they say the same."""
    if isinstance(value, Exact):
        integer, power = value
        while integer and integer % 10 == 0:
            integer, power = integer // 10, power + 1
        return "number", integer, power if integer else 0
    if isinstance(value, Object):
        named: dict[str, list[Any]] = {}
        for name, member in value:
            named.setdefault(name, []).append(meaning(member))
        return "object", named
    if isinstance(value, list):
        return "array", [meaning(item) for item in value]
    return type(value), value


def spell(value: Any, draw: random.Random) -> str:
    """Spell a model as JSON in one of its ways."""
    space = "".join(draw.choices(" \t\n\r", k=draw.choice([0, 0, 1, 2])))
    if isinstance(value, Exact):
        text = spell_number(value, draw)
    elif isinstance(value, Object):
        left = list(value)
        members = []
        while left:
            # Any name may come next, but of one name the first.
            name = draw.choice(left)[0]
            member = left.pop([other for other, _ in left].index(name))
            members.append(f"{space}{spell(member[0], draw)}:{spell(member[1], draw)}")
        text = "{" + (",".join(members) or space) + "}"
    elif isinstance(value, list):
        text = "[" + (",".join(spell(item, draw) for item in value) or space) + "]"
    elif isinstance(value, str):
        text = '"' + "".join(spell_character(character, draw) for character in value) + '"'
    else:
        text = json.dumps(value)
    return space + text + space


def spell_number(value: Exact, draw: random.Random) -> str:
    zeros = draw.choice([0, 0, 1, 3])
    digits = str(abs(value.integer) * 10**zeros)
    power = value.power - zeros
    fraction = draw.choice([0, 0, 1, len(digits) - 1, len(digits) + 2])
    digits = digits.zfill(fraction + 1)
    power += fraction
    whole, rest = digits[: len(digits) - fraction], digits[len(digits) - fraction :]
    mantissa = ("-" if value.integer < 0 else "") + whole + ("." + rest if rest else "")
    if power == 0 and draw.random() < 0.5:
        return mantissa
    sign = "-" if power < 0 else draw.choice(["", "+"])
    return f"{mantissa}{draw.choice('eE')}{sign}{draw.choice(['', '0'])}{abs(power)}"


def spell_character(character: str, draw: random.Random) -> str:
    if "\ud800" <= character <= "\udfff" or draw.random() < 0.3:
        units = character.encode("utf-16-be", "surrogatepass").hex()
        units = draw.choice([units, units.upper()])
        return "".join("\\u" + units[at : at + 4] for at in range(0, len(units), 4))
    if character == "/":
        return draw.choice(["/", "\\/"])
    return json.dumps(character, ensure_ascii=False)[1:-1]


@pytest.mark.parametrize(("text", "expected"), CANONICAL)
def test_a_text_has_the_canonical_form_that_is_written_down_here(text, expected):
    assert canonical(text) == expected


@pytest.mark.parametrize("form", [expected for _, expected in CANONICAL])
def test_the_canonical_form_is_json_and_its_own_canonical_form(form):
    jsontext.check(form)
    assert canonical(form) == form


@given(VALUES, RANDOM)
@example("\ud800", random.Random(0))
def test_a_value_spelled_in_another_way_keeps_its_digest(value, draw):
    first, second = spell(value, draw).encode(), spell(value, draw).encode()
    assert canonical(first) == canonical(second)
    assert digest(first) == digest(second)


@given(VALUES, VALUES, RANDOM)
@example([1], [True], random.Random(0))
@example(Object([("a", "b")]), ["a", "b"], random.Random(0))
@example(Object([("a", 1), ("a", 2)]), Object([("a", 2), ("a", 1)]), random.Random(0))
def test_two_values_share_a_digest_exactly_if_they_say_the_same(first, second, draw):
    same = meaning(first) == meaning(second)
    assert (digest(spell(first, draw).encode()) == digest(spell(second, draw).encode())) is same


@given(VALUES, RANDOM)
def test_the_canonical_form_says_what_the_text_says(value, draw):
    text = spell(value, draw)

    def read(data: str) -> Any:
        return json.loads(
            data,
            parse_int=decimal.Decimal,
            parse_float=decimal.Decimal,
            object_pairs_hook=lambda pairs: Object(sorted(pairs, key=lambda pair: pair[0])),
        )

    with decimal.localcontext(decimal.Context(prec=1000)):
        assert read(canonical(text.encode()).decode()) == read(text)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"a":1,"a":2}', b'{"a":2,"a":1}'),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1}', b'{"a":1,"a":1}'),
        (b"[1,2]", b"[2,1]"),
        (b"[]", b"{}"),
        (b"1", b'"1"'),
        (b"null", b'"null"'),
        (b"[[],[]]", b"[[[]]]"),
        (b"9007199254740993", b"9007199254740992"),
        (b"0.1", b"0.10000000000000001"),
        (b"1e400", b"1e401"),
        (b"1e-999999999999", b"0"),
        (b"1", b"-1"),
        ('"é"'.encode(), '"e\u0301"'.encode()),
        (b'"\\ud800"', b'"\\ud801"'),
        (b'"\\ud800"', b'"\\\\ud800"'),
        (b'"a"', b'"A"'),
        (b'"a "', b'"a"'),
    ],
)
def test_texts_that_say_different_things_have_different_digests(first, second):
    assert digest(first) != digest(second)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # sha256sum of the canonical form: {}, {"a":1,"b":"\u00e9"} and [1,12e2]
        (None, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        (b" { } ", "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        ('{"b":"é","a":1.0}'.encode(), "6071e7aa781e8adc235db31b17e6d0ee414a17031b1744a38fbf2cd17effcbce"),
        (b"[1, 1200]", "408cfe61a1d194222173e7beb42475f4c7f72d1bc1ae60ba76f54f55d74173d9"),
    ],
)
def test_a_digest_is_the_sha256_of_the_canonical_form(text, expected):
    assert digest(text) == expected


@pytest.mark.parametrize(
    "text", [b"", b" ", b"{", b"[1,]", b"01", b"1 2", b'{"a":1,}', b"NaN", b'"\xff"', b"\xef\xbb\xbf{}", b"'a'"]
)
def test_what_is_not_json_is_refused(text):
    with pytest.raises(jsontext.JsonTextError):
        canonical(text)
    with pytest.raises(jsontext.JsonTextError):
        by_key("t", "s", "tool", "k", text)
    with pytest.raises(jsontext.JsonTextError):
        by_recipe("t", "s", "tool", text, workflow_id="w", part="p", node="n")


@pytest.mark.parametrize("levels", [512, DEEP])
def test_depth_is_no_limit(levels):
    assert canonical(b"[ " * levels + b"]" * levels) == b"[" * levels + b"]" * levels
    nested = b'{"b":1.0,"a":' * levels + b"{ }" + b"}" * levels
    assert canonical(nested) == b'{"a":' * levels + b"{}" + b',"b":1}' * levels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1" + b"0" * LARGE, b"1e%d" % LARGE),
        (b"0." + b"0" * LARGE + b"1", b"1e-%d" % (LARGE + 1)),
        (b"12e-" + b"0" * LARGE + b"1", b"12e-1"),
        (b"100e" + b"9" * LARGE, b"1e1" + b"0" * (LARGE - 1) + b"1"),
        (b"0.1e-" + b"9" * LARGE, b"1e-1" + b"0" * LARGE),
        (b"7" * LARGE, b"7" * LARGE),
        (b"[ 1 ," + b" " * LARGE + b"2" + b"\n" * LARGE + b"]" + b"\t" * LARGE, b"[1,2]"),
        (b'["a\\u0062' + b"\\/" * LARGE + b'"]', b'["ab' + b"/" * LARGE + b'"]'),
        (
            b'{"b": 0, "a": ' * DEEP + b'"' + b"x" * LARGE + b'"' + b"}" * DEEP,
            b'{"a":' * DEEP + b'"' + b"x" * LARGE + b'"' + b',"b":0}' * DEEP,
        ),
        (b"[" + b"10," * (LARGE // 8) + b"1]", b"[" + b"1e1," * (LARGE // 8) + b"1]"),
    ],
    ids=[
        "zeros behind",
        "zeros before",
        "zeros in an exponent",
        "exponent that carries",
        "exponent that carries downwards",
        "integer",
        "white space",
        "escapes",
        "string far down",
        "numbers",
    ],
)
def test_large_texts_take_linear_time(text, expected):
    started = time.process_time()
    form = canonical(text)
    assert time.process_time() - started < SECONDS
    assert expected is None or form == expected


def shuffled_names():
    names = [f"k{number:06}" for number in range(2 * identity.STRIDE + 1)]
    mixed = random.Random(1).sample(names, len(names))
    return mixed, names


def test_no_call_of_c_code_has_more_than_a_stride_to_do(monkeypatch):
    most = 0

    def counting(values, **options):
        nonlocal most
        ordered = sorted(values, **options)
        most = max(most, len(ordered))
        return ordered

    monkeypatch.setattr(identity, "sorted", counting, raising=False)
    mixed, names = shuffled_names()
    text = b"{" + b",".join(b'"%s":["x"]' % name.encode() for name in mixed) + b"}"
    assert canonical(text) == b"{" + b",".join(b'"%s":["x"]' % name.encode() for name in names) + b"}"
    assert most == identity.STRIDE
    array = "[" + ",".join(['"x"'] * (2 * identity.STRIDE)) + "]"
    assert max(match["verbatim"].count("x") for match in identity._LEXEME.finditer(array)) <= identity.STRIDE
    assert canonical(array.encode()) == array.encode()


def test_many_members_of_one_name_all_stay_in_their_order():
    text = b"{" + b",".join(b'"a":%d' % (2 * number + 1) for number in range(identity.STRIDE + 2)) + b"}"
    assert canonical(text) == text


def test_an_applications_decimal_context_changes_no_digest():
    with decimal.localcontext(decimal.Context(prec=2, Emax=5, Emin=-5)):
        assert canonical(b"12345e98765") == b"12345e98765"


# --- identity ---------------------------------------------------------------------------------------------------------

RECIPE = {"workflow_id": "run:7", "part": "p0", "node": "charge#1"}


def test_a_business_identity_is_the_hash_of_tenant_server_tool_and_key():
    effect = by_key("acme", "billing", "charge", "order-17", b'{"amount":10}')
    # printf '["openwop-mcp/business-identity/1", "acme", "billing", "charge", "order-17"]' | sha256sum, in base64url
    assert effect == Effect(
        "acme", "i9TnufpTCJ7xV4UJYNmilbT_tKXw0RdMPCGnLJ6DhfQ", "business-identity", digest(b'{"amount":10}')
    )
    assert effect.effect_id == "acme/i9TnufpTCJ7xV4UJYNmilbT_tKXw0RdMPCGnLJ6DhfQ"
    assert effect.provider_key == "i9TnufpTCJ7xV4UJYNmilbT_tKXw0RdMPCGnLJ6DhfQ"


def test_an_activity_recipe_is_the_hash_of_tenant_place_server_tool_and_arguments():
    effect = by_recipe("acme", "billing", "charge", None, **RECIPE)
    # As above: tag, tenant, workflow id, part, node, server id, tool name, digest of the arguments
    assert effect == Effect("acme", "CjEkaAn-1Kawl-fmyl3sCyu2Ci_NsDbmZJDorjjirKI", "activity-recipe", digest(b"{}"))
    assert effect.effect_id == "acme/CjEkaAn-1Kawl-fmyl3sCyu2Ci_NsDbmZJDorjjirKI"
    assert effect.provider_key == "CjEkaAn-1Kawl-fmyl3sCyu2Ci_NsDbmZJDorjjirKI"


def test_arguments_are_not_part_of_a_business_identity_but_stand_beside_it():
    first = by_key("acme", "billing", "charge", "order-17", b'{"amount":10}')
    second = by_key("acme", "billing", "charge", "order-17", b'{"amount":11}')
    assert first.effect_id == second.effect_id
    assert first.digest != second.digest


def test_arguments_are_part_of_an_activity_recipe_however_they_are_spelled():
    first = by_recipe("acme", "billing", "charge", b'{"amount":10,"to":"a"}', **RECIPE)
    assert by_recipe("acme", "billing", "charge", b'{ "to":"\\u0061", "amount":1e1 }', **RECIPE) == first
    assert by_recipe("acme", "billing", "charge", b'{"amount":11,"to":"a"}', **RECIPE).opaque != first.opaque


def test_no_arguments_and_an_empty_object_are_one_effect():
    assert by_key("t", "s", "tool", "k", None) == by_key("t", "s", "tool", "k", b"{}")
    assert by_recipe("t", "s", "tool", None, **RECIPE) == by_recipe("t", "s", "tool", b" {} ", **RECIPE)


@pytest.mark.parametrize("at", range(4))
def test_each_part_of_a_business_identity_tells_effects_apart(at):
    parts = ["a", "b", "c", "d"]
    other = [*parts[:at], "x", *parts[at + 1 :]]
    assert by_key(*parts, None).opaque != by_key(*other, None).opaque


@pytest.mark.parametrize("field", ["tenant", "server_id", "tool", "workflow_id", "part", "node"])
def test_each_part_of_an_activity_recipe_tells_effects_apart(field):
    parts = {"tenant": "a", "server_id": "b", "tool": "c", "arguments": None, **RECIPE}
    assert by_recipe(**parts).opaque != by_recipe(**(parts | {field: "x"})).opaque


def test_the_two_keyings_never_share_an_identity():
    recipe = by_recipe("a", "e", "f", None, workflow_id="b", part="c", node="d")
    assert by_key("a", "b", "c", "d", None).opaque != recipe.opaque


AWKWARD = st.text(st.sampled_from('a",\\[] \ud83d\ude00😀\x00é'), max_size=4)


@given(st.tuples(AWKWARD, AWKWARD, AWKWARD, AWKWARD), st.tuples(AWKWARD, AWKWARD, AWKWARD, AWKWARD))
@example(("a", "bc", "", ""), ("ab", "c", "", ""))
@example(("a", "b", "c", 'd", "e'), ("a", "b", 'c", "d', "e"))
@example(("", "", "", "\ud83d\ude00"), ("", "", "", "😀"))
@example(("", "", "", "\ud83d"), ("", "", "", "\\ud83d"))
@example(("", "", "", "\ud83d"), ("", "", "", "\ude00"))
def test_identities_are_the_same_exactly_if_all_their_parts_are(first, second):
    one, other = by_key(*first, None), by_key(*second, None)
    assert (one.opaque == other.opaque) is (first == second)
    assert PROVIDER_KEY.fullmatch(one.provider_key)
    assert len(one.opaque) == 43
    assert one.effect_id == f"{first[0]}/{one.opaque}"
