"""What a process knows is forgotten when nobody knows it any more, and not before."""

from __future__ import annotations

from openwop_mcp.redaction import MARK, MAX_SECRETS, Known, Redactor


def test_a_secret_is_known_as_long_as_one_part_knows_it() -> None:
    known = Known()
    known.add("s3cr3t-token")
    known.add("s3cr3t-token")
    known.drop("s3cr3t-token")
    assert known.redactor.text("s3cr3t-token") == MARK
    known.drop("s3cr3t-token")
    assert known.redactor.text("s3cr3t-token") == "s3cr3t-token"


def test_tokens_that_a_server_has_no_more_are_forgotten_and_settings_are_not() -> None:
    known = Known()
    known.add("from-the-settings")
    redactor = Redactor((), also=known)
    redactor.add("from-the-settings")
    for number in range(MAX_SECRETS + 1):
        redactor.add(f"token-{number:04}")
        redactor.add(f"token-{number:04}")
    told = known.redactor.text(f"from-the-settings token-0000 token-0001 token-{MAX_SECRETS:04}")
    assert told == f"{MARK} token-0000 {MARK} {MARK}"


def test_one_process_may_know_more_than_one_server_has() -> None:
    known = Known()
    for number in range(10 * MAX_SECRETS):
        known.add(f"token-{number:04}")
    assert known.redactor.text("token-0000") == MARK
