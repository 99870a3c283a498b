"""The cache of results: what is kept, for whom, for how long, and what makes it stale."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client._cache import CACHEABLE, Asker, ResultCache

ASKER = Asker(tenant="acme", origin="https://a", revision="2026-07-28", principal="ann", context=1)

OTHERS = {
    "tenant": replace(ASKER, tenant="rival"),
    "origin": replace(ASKER, origin="https://b"),
    "revision": replace(ASKER, revision="2025-11-25"),
    "principal": replace(ASKER, principal="bob"),
    "context": replace(ASKER, context=2),
}


@dataclass(frozen=True)
class Answer:
    result: bytes
    http_status: int = 200


class Bench:
    """A cache, its clock, and the shortest way to ask it."""

    def __init__(self, **limits: int) -> None:
        self.now = 100.0
        self.cache: ResultCache[Answer] = ResultCache(lambda: self.now, **limits)

    def put(
        self,
        ttl: str = "60000",
        *,
        scope: str = '"private"',
        method: str = "tools/list",
        params: bytes = b"{}",
        asker: Asker = ASKER,
        more: str = "",
    ) -> Answer:
        answer = Answer(f'{{"ttlMs":{ttl},"cacheScope":{scope}{more}}}'.encode())
        self.cache.keep(self.cache.begin(asker, method, params), answer)
        return answer

    def get(self, method: str = "tools/list", params: bytes = b"{}", asker: Asker = ASKER) -> Answer | None:
        return self.cache.find(asker, method, params)

    def read(self, uri: str) -> bool:
        return self.get("resources/read", f'{{"uri":"{uri}"}}'.encode()) is not None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_result_is_served_as_it_came_until_its_time_is_up(bench: Bench) -> None:
    answer = bench.put("1500")
    bench.now += 1.499
    assert bench.get() is answer
    bench.now += 0.001
    assert bench.get() is None


@pytest.mark.parametrize("ttl", ["0", "-1", "-1e400", "null", '"60000"', "true", "1.5", "1e-400", "[]", "{}"])
def test_what_is_no_whole_number_of_milliseconds_is_stale_at_once(bench: Bench, ttl: str) -> None:
    bench.put(ttl)
    assert bench.get() is None


def test_a_result_that_says_nothing_of_its_age_is_not_kept(bench: Bench) -> None:
    bench.cache.keep(bench.cache.begin(ASKER, "tools/list", b"{}"), Answer(b'{"tools":[]}'))
    assert bench.get() is None


@pytest.mark.parametrize("ttl", ["3600001", "1e300", "1E400", "99999999999999999999999"])
def test_no_server_is_believed_for_more_than_an_hour(bench: Bench, ttl: str) -> None:
    bench.put(ttl)
    bench.now += 3599.9
    assert bench.get() is not None
    bench.now += 0.1
    assert bench.get() is None


@pytest.mark.parametrize("method", sorted(CACHEABLE))
def test_lists_reads_and_discovery_are_kept(bench: Bench, method: str) -> None:
    answer = bench.put(method=method)
    assert bench.get(method) is answer


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "completion/complete", "ping"])
def test_what_acts_is_never_kept(bench: Bench, method: str) -> None:
    bench.put(method=method)
    assert bench.get(method) is None


@pytest.mark.parametrize("member", ["inputResponses", "requestState", "request\\u0053tate"])
def test_the_answer_to_a_further_round_is_never_kept(bench: Bench, member: str) -> None:
    params = f'{{"uri":"x","{member}":{{}}}}'.encode()
    bench.put(method="resources/read", params=params)
    assert bench.get("resources/read", params) is None
    assert bench.get("resources/read", b'{"uri":"x"}') is None


@pytest.mark.parametrize("kind", ['"input_required"', '"task"', "null", "7"])
def test_an_interim_answer_is_never_kept(bench: Bench, kind: str) -> None:
    bench.put(method="resources/read", more=f',"resultType":{kind}')
    assert bench.get("resources/read") is None


def test_a_complete_result_may_say_so(bench: Bench) -> None:
    bench.put(more=',"resultType":"complete"')
    assert bench.get() is not None


@pytest.mark.parametrize("scope", ['"private"', "null", '"PUBLIC"', '"everyone"', "true"])
@pytest.mark.parametrize("other", OTHERS)
def test_a_private_result_is_for_one_asker(bench: Bench, scope: str, other: str) -> None:
    bench.put(scope=scope)
    assert bench.get(asker=OTHERS[other]) is None
    assert bench.get() is not None


@pytest.mark.parametrize("other", OTHERS)
def test_a_public_result_crosses_principals_and_contexts_alone(bench: Bench, other: str) -> None:
    bench.put(scope='"public"')
    assert (bench.get(asker=OTHERS[other]) is not None) is (other in {"principal", "context"})


def test_one_s_own_private_result_goes_before_a_public_one(bench: Bench) -> None:
    own = bench.put()
    bench.put(scope='"public"', asker=OTHERS["principal"])
    assert bench.get() is own


def test_other_parameters_are_another_request_and_meta_is_none(bench: Bench) -> None:
    page = bench.put(params=b'{"cursor":"","_meta":{"progressToken":7}}')
    assert bench.get(params=b'{"_meta":{},"cursor":""}') is page
    assert bench.get(params=b"{}") is None
    assert bench.get(params=b'{"cursor":"2"}') is None


def test_each_page_has_its_own_clock(bench: Bench) -> None:
    bench.put("2000")
    bench.now += 1
    bench.put("2000", params=b'{"cursor":"2"}')
    bench.now += 1
    assert bench.get() is None
    assert bench.get(params=b'{"cursor":"2"}') is not None


LISTS = {
    "notifications/tools/list_changed": {"tools/list"},
    "notifications/prompts/list_changed": {"prompts/list"},
    "notifications/resources/list_changed": {"resources/list", "resources/templates/list"},
    "notifications/resources/updated": {"resources/read"},
    "notifications/message": set(),
}


@pytest.mark.parametrize("notification", LISTS)
@pytest.mark.parametrize("scope", ['"public"', '"private"'])
def test_a_notification_drops_what_it_concerns_for_everyone_and_nothing_else(
    bench: Bench, notification: str, scope: str
) -> None:
    for method in CACHEABLE:
        for asker in (ASKER, *OTHERS.values()):
            bench.put(method=method, asker=asker, scope=scope)
    bench.cache.drop("https://a", notification, b"{}")
    for method in CACHEABLE:
        for asker in (ASKER, *OTHERS.values()):
            gone = method in LISTS[notification] and asker.origin == "https://a"
            assert (bench.get(method, asker=asker) is None) is gone


def test_an_update_drops_the_resource_its_parts_and_its_wholes(bench: Bench) -> None:
    uris = ["file:///a", "file:///a/b", "file:///a/b/c", "file:///x"]
    for uri in uris:
        bench.put(method="resources/read", params=f'{{"uri":"{uri}"}}'.encode())
    bench.cache.drop("https://a", "notifications/resources/updated", b'{"uri":"file:///a/b"}')
    assert [uri for uri in uris if bench.read(uri)] == ["file:///x"]


def test_a_refused_cursor_drops_all_pages_of_that_list(bench: Bench) -> None:
    bench.put()
    bench.put(params=b'{"cursor":"2"}')
    kept = bench.put(method="prompts/list")
    bench.cache.drop_list("https://a", "tools/list")
    assert bench.get() is None
    assert bench.get(params=b'{"cursor":"2"}') is None
    assert bench.get("prompts/list") is kept


def test_a_new_authorization_drops_what_only_the_old_one_might_see(bench: Bench) -> None:
    bench.put()
    bench.put(scope='"public"', method="prompts/list")
    bench.put(asker=OTHERS["principal"])
    bench.cache.authorization_changed(replace(ASKER, context=9))
    assert bench.get() is None
    assert bench.get("prompts/list") is not None
    assert bench.get(asker=OTHERS["principal"]) is not None


def test_a_request_under_way_does_not_bring_back_what_was_dropped(bench: Bench) -> None:
    answer = Answer(b'{"ttlMs":60000}')
    before = bench.cache.begin(ASKER, "tools/list", b"{}")
    other = bench.cache.begin(ASKER, "prompts/list", b"{}")
    bench.cache.drop("https://a", "notifications/tools/list_changed")
    after = bench.cache.begin(ASKER, "tools/list", b'{"cursor":"2"}')
    for ticket in (before, other, after):
        bench.cache.keep(ticket, answer)
    assert bench.get() is None
    assert bench.get("prompts/list") is answer
    assert bench.get(params=b'{"cursor":"2"}') is answer


def test_a_read_under_way_is_void_only_if_its_resource_was_updated(bench: Bench) -> None:
    tickets = [bench.cache.begin(ASKER, "resources/read", f'{{"uri":"{uri}"}}'.encode()) for uri in ("a:1", "a:2")]
    bench.cache.drop("https://a", "notifications/resources/updated", b'{"uri":"a:1"}')
    for ticket in tickets:
        bench.cache.keep(ticket, Answer(b'{"ttlMs":60000}'))
    assert not bench.read("a:1")
    assert bench.read("a:2")


def test_a_request_that_was_given_up_leaves_nothing(bench: Bench) -> None:
    bench.cache.begin(ASKER, "tools/list", b"{}")
    gc.collect()
    assert not list(bench.cache._under_way)


def test_the_least_recently_used_goes_first() -> None:
    bench = Bench(max_entries=2)
    bench.put(params=b'{"cursor":"1"}')
    bench.put(params=b'{"cursor":"2"}')
    assert bench.get(params=b'{"cursor":"1"}') is not None
    bench.put(params=b'{"cursor":"3"}')
    assert [n for n in "123" if bench.get(params=f'{{"cursor":"{n}"}}'.encode()) is not None] == ["1", "3"]


def test_a_result_larger_than_the_cache_is_not_kept_and_pushes_nothing_out() -> None:
    bench = Bench(max_bytes=200)
    kept = bench.put()
    bench.put(method="prompts/list", more=f',"x":"{"x" * 200}"')
    assert bench.get("prompts/list") is None
    assert bench.get() is kept


@pytest.mark.parametrize("scope", ['"public"', '"private"'])
def test_a_newer_answer_takes_the_place_of_an_older_one_of_any_scope(bench: Bench, scope: str) -> None:
    for older in ('"public"', '"private"'):
        bench.put(scope=older)
        newer = bench.put(scope=scope)
        assert bench.get() is newer
        bench.put("0", scope=older)
        assert bench.get() is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "public", "drop", "list", "auth", "wait"]),
        st.sampled_from(sorted(CACHEABLE)),
        st.sampled_from([ASKER, *OTHERS.values()]),
        st.integers(0, 120),
    ),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_its_bounds_hold_and_its_books_are_right(steps: list[tuple[str, str, Asker, int]]) -> None:
    bench = Bench(max_entries=5, max_bytes=400)
    for step, method, asker, size in steps:
        match step:
            case "put" | "public":
                scope = f'"{step}"'
                bench.put(scope=scope, method=method, asker=asker, more=f',"x":"{"x" * size}"')
            case "drop":
                bench.cache.drop(asker.origin, f"notifications/{method.split('/')[0]}/list_changed")
            case "list":
                bench.cache.drop_list(asker.origin, method)
            case "auth":
                bench.cache.authorization_changed(asker)
            case _:
                bench.now += size
        entries = bench.cache._entries
        assert len(entries) <= 5
        assert bench.cache._bytes == sum(entry.size for entry in entries.values()) <= 400
