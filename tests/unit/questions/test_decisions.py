"""What an answer decides, and who is taken to have given it."""

from __future__ import annotations

import pytest

from openwop_mcp.questions.decisions import attributed

ALICE = b'{"subjectId":"alice"}'


def test_an_approval_is_by_whoever_gave_it_whatever_it_says() -> None:
    answer = b'{ "action" : "accept", "decidedBy":"ceo", "n":1.10 }'
    assert attributed("approval", answer, ALICE) == b'{"action":"accept","decidedBy":"alice","n":1.10}'


def test_an_approval_that_names_nobody_stays_as_it_was_given() -> None:
    answer = b'{ "action" : "accept" }'
    assert attributed("approval", answer, ALICE) == answer


@pytest.mark.parametrize("subject", [b"null", b"{}", b'"alice"'])
def test_an_approval_of_somebody_unknown_is_by_nobody(subject: bytes) -> None:
    assert attributed("approval", b'{"action":"accept","decidedBy":"ceo"}', subject) == (
        b'{"action":"accept","decidedBy":null}'
    )


def test_in_any_other_answer_the_word_is_its_authors() -> None:
    answer = b'{"decidedBy":"x"}'
    assert attributed("custom", answer, ALICE) is answer
