"""Advancing the virtual clock: which timers fire, in which order, at which time, and what the advance waits for."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.clock import NOTHING_DONE, Domain, Periodic, SystemClock
from broker.clock.course import PROMPT_TIMERS_MAX
from broker.clock.durations import BadDuration
from broker.clock.of_node import NodeClock
from broker.clock.virtual import (
    ALL_DOMAINS,
    DEFAULT_DOMAINS,
    DRAIN_TURNS,
    AdvanceCancelled,
    Progress,
    UnknownDomain,
    VirtualClock,
    parse_domains,
)
from tests.support.clock import NOW_MS, FakeClock

DAY_MS = 86_400_000
TRANSACTIONS, IDS, GROUPS, RETENTION = Domain.TRANSACTIONS, Domain.IDS, Domain.GROUPS, Domain.RETENTION


class Bench:
    """A virtual clock on top of a manual clock instead of real time, and a list of the timers that have fired: (name,
    time of the timer's domain)."""

    def __init__(self) -> None:
        self.real = FakeClock()
        self.clock = VirtualClock(self.real)
        self.fired: list[tuple[str, int]] = []

    def set(self, name: str, delay_ms: float, domain: Domain = TRANSACTIONS):
        return self.clock.call_later_ms(delay_ms, lambda: self.note(name, domain), domain)

    def note(self, name: str, domain: Domain = TRANSACTIONS) -> None:
        self.fired.append((name, self.clock.now_ms(domain) - NOW_MS))


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- which domains ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], DEFAULT_DOMAINS),
        (["transactions"], {TRANSACTIONS}),
        (["ids", "groups"], {IDS, GROUPS}),
        (["all"], ALL_DOMAINS),
        (["groups", "all"], ALL_DOMAINS),
        (["connections"], {Domain.CONNECTIONS}),
    ],
)
def test_domains_are_named(names, expected):
    assert parse_domains(names) == expected


def test_a_domain_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(
        UnknownDomain,
        match=r"'sessions' is not a domain of the clock: use one or more of transactions, .*all",
    ):
        parse_domains(["groups", "sessions"])


@pytest.mark.parametrize("domains", [None, {GROUPS}, {RETENTION, IDS}, ALL_DOMAINS])
async def test_only_the_domains_that_are_named_move_and_what_is_written_takes_the_furthest(bench, domains):
    await bench.clock.advance(DAY_MS, domains)
    moved = domains or DEFAULT_DOMAINS
    for domain in Domain:
        expected_ms = DAY_MS if domain in moved else 0
        assert bench.clock.now_ms(domain) == NOW_MS + expected_ms
        assert bench.clock.offsets()[domain.value] == expected_ms
    assert bench.clock.now_ms() == NOW_MS + DAY_MS


async def test_the_part_of_an_age_that_was_advanced_is_known(bench):
    await bench.clock.advance(1_000, {GROUPS})
    bench.real.advance(50)
    await bench.clock.advance(300, {GROUPS})
    bench.real.advance(20)
    parts = {
        age_ms: bench.clock.advanced_within(age_ms, GROUPS) for age_ms in (20, 120, 320, 370, 470, 9_000)
    }
    assert parts == {20: 0, 120: 100, 320: 300, 370: 300, 470: 400, 9_000: 1_300}
    assert bench.clock.advanced_within(9_000, RETENTION) == 0


async def test_until_it_is_moved_it_is_the_clock_beneath(bench):
    bench.set("a", 10)
    bench.real.advance(9)
    assert bench.fired == []
    bench.real.advance(1)
    assert bench.fired == [("a", 10)]
    assert bench.clock.timers(TRANSACTIONS) == []


async def test_it_never_goes_back(bench):
    with pytest.raises(BadDuration, match="cannot go back"):
        await bench.clock.advance(-1)
    with pytest.raises(BadDuration, match="century"):
        await bench.clock.advance(10**15)
    assert bench.clock.now_ms() == NOW_MS


# -- what fires -------------------------------------------------------------------------------------------------


async def test_timers_fire_in_due_order_each_at_its_own_time(bench):
    for name, delay_ms in (("c", 300), ("a", 100), ("b", 200), ("late", 1001)):
        bench.set(name, delay_ms)
    await bench.clock.advance(1000)
    assert bench.fired == [("a", 100), ("b", 200), ("c", 300)]
    assert bench.clock.now_ms(TRANSACTIONS) == NOW_MS + 1000


async def test_what_is_left_of_a_timer_passes_in_real_time(bench):
    bench.set("a", 1000)
    await bench.clock.advance(900)
    bench.real.advance(99)
    assert bench.fired == []
    bench.real.advance(1)
    assert bench.fired == [("a", 1000)]


async def test_timers_of_other_domains_stay_on_real_time(bench):
    bench.set("session", 1000, GROUPS)
    await bench.clock.advance(DAY_MS)
    bench.real.advance(999)
    assert bench.fired == []
    bench.real.advance(1)
    assert bench.fired == [("session", 1000)]


@pytest.mark.parametrize("domains", [[IDS, GROUPS], [GROUPS, IDS]])
async def test_however_domains_are_named_those_due_at_once_fire_in_one_order(bench, domains):
    for domain in (GROUPS, IDS):
        bench.set(domain.name, 1000, domain)
    await bench.clock.advance(400, domains)
    bench.real.advance(600)
    assert [name for name, _ in bench.fired] == ["IDS", "GROUPS"]


async def test_timers_that_a_timer_sets_fire_on_the_way(bench):
    def again() -> None:
        bench.note("tick")
        bench.clock.call_later_ms(40, again, TRANSACTIONS)

    bench.clock.call_later_ms(40, again, TRANSACTIONS)
    await bench.clock.advance(100)
    assert bench.fired == [("tick", 40), ("tick", 80)]


async def test_one_of_the_same_instant_can_still_be_cancelled(bench):
    second: list[Any] = []
    bench.clock.call_later_ms(10, lambda: second[0].cancel(), TRANSACTIONS)
    second.append(bench.set("b", 10))
    bench.set("c", 10)
    await bench.clock.advance(10)
    assert bench.fired == [("c", 10)]


async def test_a_timer_fires_once_however_time_comes_to_it(bench):
    bench.set("a", 10)
    await bench.clock.advance(10)
    bench.real.advance(100)
    await bench.clock.advance(100)
    assert bench.fired == [("a", 10)]


async def test_a_timer_that_fails_is_reported_and_the_rest_goes_on(bench):
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    failure = RuntimeError("broken")

    def fail() -> None:
        raise failure

    bench.clock.call_later_ms(5, fail, TRANSACTIONS)
    bench.set("a", 10)
    await bench.clock.advance(10)
    assert reported == [failure]
    assert bench.fired == [("a", 10)]


async def test_two_advances_at_once_come_one_after_the_other(bench):
    for name, delay_ms in (("a", 10), ("b", 15), ("c", 25)):
        bench.set(name, delay_ms)
    await asyncio.gather(bench.clock.advance(10), bench.clock.advance(20))
    assert bench.fired == [("a", 10), ("b", 15), ("c", 25)]
    assert bench.clock.now_ms() == NOW_MS + 30


async def test_a_reset_goes_back_to_real_time_and_timers_keep_what_is_left_of_them(bench):
    bench.set("passed", 500)
    bench.set("late", DAY_MS + 700)
    bench.set("group", 900, GROUPS)
    await bench.clock.advance(DAY_MS)
    await bench.clock.reset()
    assert set(bench.clock.offsets().values()) == {0}
    assert bench.clock.now_ms() == bench.clock.now_ms(TRANSACTIONS) == NOW_MS
    assert bench.clock.now_for(NOW_MS - 5, TRANSACTIONS) == NOW_MS
    bench.real.advance(650)
    await bench.clock.advance(60, {TRANSACTIONS, GROUPS})
    assert bench.fired == [("passed", 500), ("late", 700)]
    bench.real.advance(190)
    assert bench.fired[2:] == [("group", 900)]


async def test_a_reset_waits_for_an_advance_under_way(bench):
    bench.set("a", 1000)
    advance = asyncio.create_task(bench.clock.advance(DAY_MS))
    await asyncio.sleep(0)
    await bench.clock.reset()
    assert advance.done()
    assert bench.clock.now_ms() == NOW_MS


async def test_an_advance_that_is_given_up_stays_where_it_got_to(bench):
    task = asyncio.ensure_future(bench.clock.advance(100))
    bench.clock.call_later_ms(40, task.cancel, TRANSACTIONS)
    bench.set("b", 50)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.clock.now_ms() == NOW_MS + 40
    assert bench.fired == []
    bench.real.advance(10)
    assert bench.fired == [("b", 50)]


async def begun(bench: Bench, by_ms: int = DAY_MS) -> asyncio.Task[None]:
    """Return the running task of an advance by ``by_ms``, in which a timer has fired several times, once each
    second."""

    def again() -> None:
        bench.note("tick")
        bench.clock.call_later_ms(1000, again, TRANSACTIONS)

    again()
    advance = asyncio.create_task(bench.clock.advance(by_ms))
    for _ in range(3 * DRAIN_TURNS):
        await asyncio.sleep(0)
    assert len(bench.fired) > 1
    return advance


async def test_an_advance_under_way_is_shown_with_how_far_it_has_got(bench):
    advance = await begun(bench)
    second = asyncio.create_task(bench.clock.advance(5))
    await asyncio.sleep(0)
    ticks = len(bench.fired) - 1
    assert bench.clock.progress() == Progress(DAY_MS, ticks * 1000, (TRANSACTIONS, IDS), waiting=1)
    for each in (advance, second):
        each.cancel()
    await asyncio.wait([advance, second])
    assert bench.clock.progress() is None


async def test_a_cancelled_advance_ends_with_those_that_wait_and_time_stays_where_it_got_to(bench):
    advances = [await begun(bench), asyncio.create_task(bench.clock.advance(5))]
    await asyncio.sleep(0)
    await bench.clock.cancel()
    ticks = len(bench.fired) - 1
    with pytest.raises(AdvanceCancelled, match=f"the advance by 1d was cancelled after {ticks}s"):
        await advances[0]
    with pytest.raises(AdvanceCancelled, match="by 5ms was cancelled after 0ms"):
        await advances[1]
    assert bench.clock.now_ms() == NOW_MS + 1000 * ticks
    await bench.clock.cancel()
    bench.real.advance(1000)
    assert bench.fired[-1] == ("tick", 1000 * (ticks + 1)), "the timers continue in real time"
    await bench.clock.advance(1000)
    assert bench.fired[-1] == ("tick", 1000 * (ticks + 2))


async def test_a_cancelled_task_is_not_taken_for_a_cancelled_advance(bench):
    advance = await begun(bench)
    advance.cancel()
    with pytest.raises(asyncio.CancelledError):
        await advance


async def test_what_is_due_next_is_told_by_domain(bench):
    bench.set("a", 1000)
    bench.set("b", 400, IDS)
    await bench.clock.advance(300)
    assert bench.clock.pending() == dict.fromkeys((domain.value for domain in Domain), None) | {
        "transactions": 700,
        "ids": 100,
    }


class Set(NamedTuple):
    """A timer: its delay, its domain, and the timers that it sets when it fires."""

    delay_ms: int
    domain: Domain
    then: tuple[tuple[int, Domain], ...]


DOMAINS = st.sampled_from([TRANSACTIONS, IDS, GROUPS])
TIMERS = st.builds(
    Set, st.integers(0, 100), DOMAINS, st.lists(st.tuples(st.integers(0, 60), DOMAINS), max_size=2).map(tuple)
)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["advance", "real"]),
        st.integers(0, 80),
        st.sets(DOMAINS, min_size=1).map(frozenset),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(TIMERS, max_size=8), MOVES)
def test_whatever_is_set_and_moved_every_timer_fires_once_at_its_time_and_in_order(timers, moves):
    asyncio.run(_check_order(timers, moves))


async def _check_order(timers, moves) -> None:
    bench = Bench()
    clock = bench.clock
    due: dict[int, tuple[float, Domain]] = {}
    fired: list[int] = []

    def add(delay_ms: int, domain: Domain, then) -> None:
        number = len(due)
        due[number] = (clock.now_ms(domain) + delay_ms, domain)

        def fire() -> None:
            assert clock.now_ms(domain) == due[number][0], "each timer fires at the time at which it was due"
            fired.append(number)
            for more_ms, other in then:
                add(more_ms, other, ())

        clock.call_later_ms(delay_ms, fire, domain)

    for timer in timers:
        add(*timer)
    for how, by_ms, domains in moves:
        before, began_ms = len(fired), {domain: clock.now_ms(domain) for domain in Domain}
        if how == "advance":
            await clock.advance(by_ms, domains)
        else:
            bench.real.advance(by_ms)
        assert not [
            n for n, (due_ms, domain) in due.items() if due_ms < clock.now_ms(domain) and n not in fired
        ]
        # The timers of all advanced domains fire in the order of their distance from the start of the advance.
        into_ms = [due[number][0] - began_ms[due[number][1]] for number in fired[before:]]
        assert into_ms == sorted(into_ms)
    assert len(set(fired)) == len(fired)


# -- rounds without work ------------------------------------------------------------------------------------------


async def test_rounds_without_anything_to_do_are_passed_over_and_keep_their_step(bench):
    wanted: list[float | None] = [None]
    Periodic(bench.clock, 100, lambda: bench.note("round"), TRANSACTIONS, lambda: wanted[0])
    await bench.clock.advance(1_030)
    assert bench.fired == []
    wanted[0] = NOW_MS + 1_250
    await bench.clock.advance(370)
    assert bench.fired == [("round", 1_300), ("round", 1_400)]
    wanted[0] = None
    bench.real.advance(100)
    assert bench.fired[2:] == [("round", 1_500)], "in real time no round is skipped"


async def test_work_that_counts_its_rounds_is_told_of_those_that_are_passed_over(bench):
    counted: list[int] = []
    Periodic(
        bench.clock, 100, lambda: counted.append(1), TRANSACTIONS, lambda: NOW_MS + 1_250, counted.append
    )
    await bench.clock.advance(1_030)
    assert counted == [10]
    await bench.clock.advance(370)
    assert counted == [10, 2, 1, 1]


async def test_a_killed_node_has_no_rounds_and_a_live_one_passes_them_over_too(bench):
    node = NodeClock(bench.clock)
    due_ms = NOW_MS + 450
    Periodic(node, 100, lambda: bench.note("round"), TRANSACTIONS, lambda: due_ms)
    await bench.clock.advance(460)
    assert bench.fired == []
    await bench.clock.advance(50)
    assert bench.fired == [("round", 500)]
    node.stop()
    await bench.clock.advance(1_000)
    assert bench.fired == [("round", 500)]


async def test_periodic_work_can_be_cancelled_by_a_timer_of_the_advance(bench):
    """As by a fault rule that kills a node during an advance."""
    rounds = Periodic(bench.clock, 100, lambda: bench.note("round"), TRANSACTIONS, lambda: None)
    bench.clock.call_later_ms(50, rounds.cancel, TRANSACTIONS)
    await bench.clock.advance(250, [TRANSACTIONS])
    assert bench.fired == []


async def test_what_happens_on_the_way_can_give_a_round_something_to_do(bench):
    wanted: list[float | None] = [None]
    Periodic(bench.clock, 100, lambda: bench.note("round"), TRANSACTIONS, lambda: wanted[0])

    def begin() -> None:
        wanted[0] = bench.clock.now_ms(TRANSACTIONS) + 30

    bench.clock.call_later_ms(480, begin, TRANSACTIONS)
    await bench.clock.advance(650)
    assert bench.fired == [("round", 600)]


async def test_work_that_follows_real_time_is_done_once_however_far_it_is_advanced(bench):
    Periodic(
        bench.clock,
        5_000,
        lambda: bench.note("flush", RETENTION),
        RETENTION,
        lambda: 0,
        once_per_advance=True,
    )
    await bench.clock.advance(2 * DAY_MS + 1, {RETENTION})
    assert bench.fired == [("flush", 5_000)]
    await bench.clock.advance(DAY_MS, {RETENTION})
    assert bench.fired[1:] == [("flush", 2 * DAY_MS + 5_000)], "the rounds keep their period"
    bench.real.advance(5_000)
    assert len(bench.fired) == 3


# -- clients that are served during an advance ------------------------------------------------------------------


async def test_waits_of_requests_that_come_meanwhile_stop_the_clock_so_many_times(bench):
    """An advance stops at most ``PROMPT_TIMERS_MAX`` times for a client that sends another Fetch, during the
    advance, whenever one has timed out."""

    def fetch() -> None:
        bench.note("fetch", Domain.REQUESTS)
        bench.clock.call_later_ms(500, fetch, Domain.REQUESTS)

    fetch()
    bench.set("lag", DAY_MS / 2, Domain.REPLICATION)
    await bench.clock.advance(DAY_MS, ALL_DOMAINS)
    fetched_ms = [at_ms for name, at_ms in bench.fired if name == "fetch"]
    # The first two fetches are sent before the advance.
    stops = [500 * number for number in range(PROMPT_TIMERS_MAX + 2)]
    # After that limit, one Fetch times out when the clock stops for another timer, and one at the end of the advance.
    assert fetched_ms == [*stops, DAY_MS / 2]
    bench.real.advance(0)
    assert bench.fired[-1] == ("fetch", DAY_MS)
    bench.real.advance(500)
    assert bench.fired[-1] == ("fetch", DAY_MS + 500)


async def test_clients_that_keep_a_thread_busy_do_not_hold_up_a_drain(bench):
    """An advance waits only a limited number of times for clients that keep the disk busy. With ``flush.messages=1``
    each batch is synced, and a client sends the next batch before the advance finds an idle disk."""
    is_over = False

    def sync() -> None:
        if not is_over:
            work = asyncio.ensure_future(asyncio.sleep(0))
            work.add_done_callback(lambda _: sync())
            bench.clock.wait_for(work)

    sync()
    bench.set("a", 10)
    await bench.clock.advance(DAY_MS)
    is_over = True
    assert bench.fired == [("a", 10)]


# -- draining ---------------------------------------------------------------------------------------------------


async def test_between_two_instants_the_loop_drains(bench):
    async def chain() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        bench.note("end of a")

    tasks = []
    bench.clock.call_later_ms(10, lambda: tasks.append(asyncio.ensure_future(chain())), TRANSACTIONS)
    bench.set("b", 11)
    await bench.clock.advance(20)
    assert bench.fired == [("end of a", 10), ("b", 11)]


async def test_time_stands_still_while_a_thread_is_at_work_and_what_it_sets_off_runs(bench):
    loop, may_end = asyncio.get_running_loop(), threading.Event()

    def begin() -> None:
        work = loop.run_in_executor(None, may_end.wait)
        bench.clock.wait_for(work)
        work.add_done_callback(lambda _: bench.note("done"))
        loop.call_later(0.02, may_end.set)

    bench.clock.call_later_ms(10, begin, TRANSACTIONS)
    bench.set("b", 11)
    await bench.clock.advance(20)
    assert bench.fired == [("done", 10), ("b", 11)]


async def test_work_that_is_cut_into_turns_belongs_to_its_instant(bench):
    def turn(left: int) -> None:
        bench.note(f"{left} left")
        if left:
            bench.clock.call_later_ms(0, lambda: turn(left - 1), TRANSACTIONS)

    bench.clock.call_later_ms(10, lambda: turn(2), TRANSACTIONS)
    bench.set("b", 11)
    await bench.clock.advance(20)
    assert bench.fired == [("2 left", 10), ("1 left", 10), ("0 left", 10), ("b", 11)]


async def test_an_instant_in_which_nothing_was_done_is_not_waited_for(bench):
    turns = []

    async def count() -> None:
        while True:
            turns.append(bench.clock.now_ms())
            await asyncio.sleep(0)

    def look() -> object:
        bench.clock.call_later_ms(10, look, TRANSACTIONS)
        return NOTHING_DONE

    counting = asyncio.ensure_future(count())
    look()
    await bench.clock.advance(1_000)
    counting.cancel()
    at_instants = [turns.count(NOW_MS + instant) for instant in range(10, 1_000, 10)]
    assert max(at_instants) < DRAIN_TURNS
    assert min(at_instants) > 0, "other tasks run at each instant all the same"


# -- the age of a timestamp -------------------------------------------------------------------------------------


async def test_what_is_written_ahead_of_a_domain_ages_with_the_domain(bench):
    """The age of a timestamp that is ahead of a domain's clock grows with that clock. After an advance of the domain
    "retention" by a week, a new transaction times out as usual, not a week later."""
    clock = bench.clock
    await clock.advance(7 * DAY_MS, {RETENTION})
    start_ms = clock.now_ms()
    assert clock.now_for(start_ms, TRANSACTIONS) == start_ms
    bench.real.advance(60_000)
    assert clock.now_for(start_ms, TRANSACTIONS) == start_ms + 60_000
    await clock.advance(DAY_MS, {TRANSACTIONS})
    assert clock.now_for(start_ms, TRANSACTIONS) == start_ms + 60_000 + DAY_MS
    assert clock.now_for(start_ms, IDS) == start_ms + 60_000


async def test_what_was_written_before_an_advance_of_another_domain_ages_by_real_time_only(bench):
    start_ms = bench.clock.now_ms()
    bench.real.advance(1_000)
    await bench.clock.advance(7 * DAY_MS, {RETENTION})
    bench.real.advance(1_000)
    assert bench.clock.now_for(start_ms, TRANSACTIONS) == start_ms + 2_000
    assert bench.clock.now_for(start_ms, RETENTION) == start_ms + 2_000 + 7 * DAY_MS


async def test_the_first_advance_ages_what_was_written_before_it_while_it_is_under_way(bench):
    """Timestamps from before the first advance of a domain age during that advance, not only at its end: a transaction
    that times out during the advance must not have started in the future."""
    start_ms = bench.clock.now_ms()
    seen = []
    for domain in (TRANSACTIONS, RETENTION):
        look = lambda domain=domain: seen.append(bench.clock.now_for(start_ms, domain) - start_ms)  # noqa: E731
        bench.clock.call_later_ms(60_000, look, TRANSACTIONS)
    await bench.clock.advance(DAY_MS, {TRANSACTIONS})
    assert seen == [60_000, 0]


@pytest.mark.parametrize(("domain", "age_ms"), [(IDS, DAY_MS // 2), (GROUPS, 0)])
async def test_what_is_written_on_the_way_ages_from_there(bench, domain, age_ms):
    written = []
    bench.clock.call_later_ms(DAY_MS // 2, lambda: written.append(bench.clock.now_ms()), IDS)
    await bench.clock.advance(DAY_MS)
    assert bench.clock.now_for(written[0], domain) - written[0] == age_ms


async def test_what_is_written_in_the_millisecond_of_an_advance_is_before_it_or_after_it(bench):
    """A timestamp from before an advance ages by the advance, and a timestamp from after it does not, even if all
    of this happens within one millisecond of real time."""
    clock = bench.clock
    await clock.advance(7 * DAY_MS, {RETENTION})
    before_ms = clock.now_ms()
    await clock.advance(30_000)
    after_ms = clock.now_ms()
    await clock.advance(45_000)
    assert clock.now_for(before_ms, TRANSACTIONS) - before_ms == 75_000
    assert clock.now_for(after_ms, TRANSACTIONS) - after_ms == 45_000


_OF_TWO = st.sampled_from([{TRANSACTIONS}, {RETENTION}, {TRANSACTIONS, RETENTION}])
_STEPS = st.lists(
    st.one_of(st.just("tick"), st.just("write"), st.tuples(st.integers(0, 5), _OF_TWO)), max_size=12
)


@given(_STEPS)
async def test_each_record_ages_with_each_domain_whatever_is_advanced_and_when(steps):
    bench = Bench()
    clock = bench.clock
    written: list[tuple[int, dict[Domain, int]]] = []
    for step in steps:
        if step == "tick":
            bench.real.advance(1)
        elif step == "write":
            written.append((clock.now_ms(), {domain: clock.now_ms(domain) for domain in Domain}))
        else:
            await clock.advance(*step)
    for written_ms, then_ms in written:
        for domain in Domain:
            age_ms = clock.now_for(written_ms, domain) - written_ms
            assert age_ms == clock.now_ms(domain) - then_ms[domain]
    assert written == sorted(written, key=lambda each: each[0])


async def test_the_machines_clock_sees_everything_as_it_is():
    clock = SystemClock()
    assert abs(clock.now_for(5, GROUPS) - clock.now_ms()) < 1_000
