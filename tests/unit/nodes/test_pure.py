"""What the core nodes do."""

from __future__ import annotations

import pytest

from openwop_mcp.nodes import NodeError, delay_ms, evaluate


def test_identity_gives_back_the_bytes_it_was_given() -> None:
    payload = b'{ "n": 1.10, "big": 123456789012345678901234, "e": "\\u00e9" }'
    assert evaluate("core.identity", b"{}", {"payload": payload}) == {"payload": payload}


def test_fail_fails_with_its_message() -> None:
    with pytest.raises(NodeError, match="by design") as caught:
        evaluate("core.fail", b'{"message":"by design"}', {})
    assert caught.value.code == "internal_error"


@pytest.mark.parametrize(("inputs", "expected"), [(b"250", 250), (b"250.0", 250), (b"2.5e2", 250), (b"0", 0)])
def test_a_delay_is_any_spelling_of_a_whole_number(inputs: bytes, expected: int) -> None:
    assert delay_ms(b'{"delayMs":7}', {"delayMs": inputs}) == expected


def test_a_delay_without_input_takes_its_config() -> None:
    assert delay_ms(b'{"delayMs":7}', {}) == 7


@pytest.mark.parametrize("value", [b"-1", b"0.5", b"86400001", b'"1"', b"true", b"null", b"1e400"])
def test_a_delay_that_is_no_whole_number_in_bounds_is_refused(value: bytes) -> None:
    with pytest.raises(NodeError, match="delayMs") as caught:
        delay_ms(b"{}", {"delayMs": value})
    assert caught.value.code == "validation_error"


def test_a_delay_that_nobody_sets_is_refused() -> None:
    with pytest.raises(NodeError, match="delayMs"):
        delay_ms(b"{}", {})
