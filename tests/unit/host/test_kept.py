"""What is remembered: within its bytes, the latest used stays."""

from __future__ import annotations

from host.kept import Kept


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    kept: Kept[str] = Kept(30)
    for name in "abc":
        kept.put(name, name.upper(), 10)
    assert kept.get("a") == "A"
    kept.put("d", "D", 10)
    assert [kept.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    assert kept.size == 30


def test_what_is_put_again_takes_up_its_new_size() -> None:
    kept: Kept[str] = Kept(30)
    kept.put("a", "A", 10)
    kept.put("a", "B", 25)
    assert (kept.get("a"), kept.size) == ("B", 25)


def test_the_last_one_stays_though_it_be_too_large_by_itself() -> None:
    kept: Kept[str] = Kept(30)
    kept.put("a", "A", 10)
    kept.put("b", "B", 100)
    assert (kept.get("a"), kept.get("b"), kept.size) == (None, "B", 100)
    kept.put("c", "C", 1)
    assert (kept.get("b"), kept.get("c"), kept.size) == (None, "C", 1)


def test_what_is_taken_out_is_gone() -> None:
    kept: Kept[str] = Kept(30)
    kept.put("a", "A", 10)
    assert kept.pop("a") == "A"
    assert (kept.pop("a"), kept.get("a"), kept.size) == (None, None, 0)
