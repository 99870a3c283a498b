"""What a process knows is forgotten when nobody knows it any more, and not before."""

from __future__ import annotations

from pathlib import Path

from openwop_mcp.config._secrets import SecretRef
from openwop_mcp.redaction import KNOWN, MARK, MAX_TOKENS, Known, Redactor
from openwop_mcp.redaction._known import MAX_READ


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
    for number in range(MAX_TOKENS + 1):
        redactor.rotate(f"token-{number:04}")
        redactor.rotate(f"token-{number:04}")
    told = known.redactor.text(f"from-the-settings token-0000 token-0001 token-{MAX_TOKENS:04}")
    assert told == f"{MARK} token-0000 {MARK} {MARK}"


def test_one_process_may_know_more_than_one_server_has() -> None:
    known = Known()
    for number in range(10 * MAX_TOKENS):
        known.add(f"token-{number:04}")
    assert known.redactor.text("token-0000") == MARK


def test_of_a_place_whose_secret_rotates_the_last_few_are_known() -> None:
    known = Known()
    known.read("elsewhere", "from-the-settings")
    for number in range(3 * MAX_READ):
        known.read("assertion", f"assertion-{number:04}")
        known.read("assertion", f"assertion-{number:04}")
    told = [known.redactor.text(f"assertion-{number:04}") for number in range(3 * MAX_READ)]
    assert told[-MAX_READ:] == [MARK] * MAX_READ
    assert MARK not in told[:-MAX_READ]
    assert known.redactor.text("from-the-settings") == MARK


def test_the_log_forgets_what_a_file_of_the_settings_held_long_ago(tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    reference = SecretRef(env=None, file=str(file))
    for number in range(3 * MAX_READ):
        file.write_text(f"assertion-of-{tmp_path.name}-{number:04}", encoding="utf-8")
        assert KNOWN.redactor.text(reference.reveal({})) == MARK
    assert KNOWN.redactor.text(f"assertion-of-{tmp_path.name}-0000") == f"assertion-of-{tmp_path.name}-0000"


def test_what_a_place_holds_no_more_is_known_for_as_long_as_a_client_uses_it() -> None:
    known = Known()
    redactor = Redactor((), also=known)
    known.read("token", "in-use-still")
    redactor.add("in-use-still")
    for number in range(2 * MAX_READ):
        known.read("token", f"another-{number:04}")
    assert known.redactor.text("in-use-still") == MARK
