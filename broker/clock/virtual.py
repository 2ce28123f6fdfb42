"""A clock that can be advanced, separately for each domain.

Before the first ``advance`` it shows the time of the clock below it (normally `SystemClock`). ``docs/time.md`` is for users.

    clock = VirtualClock()
    await clock.advance(parse_duration_ms("7d"))                      # transactions and ids
    await clock.advance(60_000, parse_domains(["groups"]))

Each domain has an offset to real time, which only grows. Timers that are due during an advance fire in order, and see the
time at which they are due: the clock goes from one instant to the next, and drains the loop at each of them.

*To drain* means to run the event loop until the consequences of an instant are over: run ``DRAIN_TURNS`` turns of the loop,
wait for all work in threads (``wait_for``), and repeat both until there is no such work, at most ``DRAIN_ROUNDS_MAX`` times.
The clock does not wait for other processes, such as clients and their next requests.

Clients run in real time, and are served during an advance. Their requests must not delay it: work that depends on them is
done once (`Periodic.once_per_advance`), and timers of waiting requests stop the clock at most ``PROMPT_TIMERS_MAX`` times.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterable
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from broker.clock import (
    NOTHING_DONE,
    Clock,
    Domain,
    Periodic,
    SystemClock,
    Timer,
    is_dead,
    periodic_of,
)
from broker.clock.durations import checked_duration_ms, duration_text
from broker.logging import get_logger
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from broker.clock.course import Course

ALL: Final = "all"
ALL_DOMAINS: Final = frozenset(Domain)
DEFAULT_DOMAINS: Final = frozenset({Domain.TRANSACTIONS, Domain.IDS})

DRAIN_TURNS: Final = 10
"""Turns of the event loop in a drain. The longest chain of callbacks that schedule each other has about six."""
DRAIN_S_MAX: Final = 30.0
"""Seconds after which an advance no longer waits for a piece of work in a thread, for example on a slow disk."""
DRAIN_ROUNDS_MAX: Final = 20
"""Maximum number of waits for threads in a drain. An instant causes about six pieces of work in threads, one after the
other. If there are many more, clients cause them: with ``flush.messages=1`` each batch of a producer needs an fsync.
"""
ADVANCES_REMEMBERED: Final = 1000

log = get_logger()


class AdvanceCancelled(Exception):
    """The advance was cancelled. The exception's text is an error message for the user."""


class UnknownDomain(ValueError):
    """The clock has no domain of the requested name. The exception's text is an error message for the user."""


def parse_domains(names: Iterable[str]) -> frozenset[Domain]:
    """Parse names of domains, as in `odradek clock advance --only`. Without names, return the default domains."""
    found: set[Domain] = set()
    for name in names:
        try:
            found |= ALL_DOMAINS if name == ALL else {Domain(name)}
        except ValueError:
            known = ", ".join([*(domain.value for domain in Domain), ALL])
            raise UnknownDomain(
                f"{name!r} is not a domain of the clock: use one or more of {known}"
            ) from None
    return frozenset(found) or DEFAULT_DOMAINS


def _over() -> None:
    """Do nothing: replaces the callback of a timer that has fired or was cancelled."""


class VirtualTimer:
    """A timer of a `VirtualClock`. The real clock below the virtual one calls the timer when it is due in real time."""

    __slots__ = ("_pending", "arrival", "base", "callback", "due_ms")

    def __init__(
        self,
        pending: dict[VirtualTimer, None],
        due_ms: float,
        arrival: int,
        callback: Callable[[], object],
    ) -> None:
        self._pending = pending
        self.due_ms = due_ms
        """When the timer is due, in the time of its domain."""
        self.arrival = arrival
        self.callback = callback
        self.base: Timer | None = None

    def arm(self, base: Timer) -> None:
        """Set ``base``, a timer of the clock below that fires this timer in real time; cancel the previous ``base``."""
        if self.base is not None:
            self.base.cancel()
        self.base = base

    def cancel(self) -> None:
        if self in self._pending:
            del self._pending[self]
        # The callback may refer to this timer (a request keeps its timer), and ``base`` does. Clearing both breaks the
        # reference cycles, so that the timer is freed at once.
        self.callback = _over
        if self.base is not None:
            self.base.cancel()
            self.base = None

    def __call__(self) -> None:
        """Call the timer's callback, because the timer is due in real time."""
        callback = self.callback
        del self._pending[self]
        self.callback, self.base = _over, None
        callback()

    def fire_now(self) -> bool:
        """Fire during an advance. Returns whether the callback did anything.

        An exception is passed to the event loop's exception handler, as for any timer.
        """
        callback = self.callback
        self.cancel()
        try:
            return callback() is not NOTHING_DONE
        except Exception as error:
            context = {"message": "exception in a timer", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            return True

    @property
    def is_pending(self) -> bool:
        return self in self._pending

    def idle_until_ms(self) -> float:
        """Time of the first round in which the timer has work, at least ``due_ms``; infinite if it never has any."""
        work = periodic_of(self.callback)
        if work is None or work.idle_until_ms is None:
            return self.due_ms
        busy_at_ms = work.busy_at_ms()
        if busy_at_ms is None:
            return float("inf")
        return self._round_at(busy_at_ms, work.interval_ms)

    def skip_to(self, now_ms: float) -> None:
        """Skip the rounds of periodic work before ``now_ms``, in which there is nothing to do."""
        work = periodic_of(self.callback)
        assert work is not None
        self._pass_over(work, self._rounds_before(now_ms, work.interval_ms))

    def catch_up(self, now_ms: float) -> None:
        """Skip the rounds of periodic work before the round that is about to run. Sets ``due_ms`` to that round."""
        work = periodic_of(self.callback)
        if work is not None:
            self._pass_over(work, int((now_ms - self.due_ms) // work.interval_ms))

    def _pass_over(self, work: Periodic, rounds: int) -> None:
        if rounds > 0:
            self.due_ms += rounds * work.interval_ms
            if work.passed_over is not None:
                work.passed_over(rounds)

    def _round_at(self, at_ms: float, interval_ms: float) -> float:
        """Time of the first round of periodic work at or after ``at_ms``."""
        return self.due_ms + self._rounds_before(at_ms, interval_ms) * interval_ms

    def _rounds_before(self, at_ms: float, interval_ms: float) -> int:
        return max(0, ceil((at_ms - self.due_ms) / interval_ms))


class _Advance(NamedTuple):
    """A past advance: the time for new records, and the time of each domain, when it began and ended."""

    began_written_ms: int
    ended_written_ms: int
    began_ms: dict[Domain, int]
    ended_ms: dict[Domain, int]


class Progress(NamedTuple):
    """The clock's advance in progress, as the control port shows it."""

    by_ms: int
    moved_ms: int
    domains: tuple[Domain, ...]
    waiting: int
    """Number of further advances that wait for this one."""


class SavedTime(NamedTuple):
    """The state of a clock in a snapshot.

    It has the milliseconds by which each domain and the time for new records are ahead of real time, and the past
    advances.
    """

    offsets_ms: dict[Domain, int]
    written_offset_ms: int
    advances: tuple[_Advance, ...]


class VirtualClock:
    """A `broker.clock.Clock` that can be advanced. One instance serves all nodes of a broker."""

    skew_ms: Final = 0

    def __init__(self, real: Clock | None = None) -> None:
        self._real: Clock = real or SystemClock()
        # Each append reads the time, so the system's clock is called directly.
        self._time_ns = time.time_ns if real is None else lambda: self._real.now_ms() * 1_000_000
        self._offsets_ms = dict.fromkeys(Domain, 0)
        # The largest offset, plus a millisecond for each advance that would not have changed it (`_separate`).
        self._written_offset_ms = 0
        self._timers: dict[Domain, dict[VirtualTimer, None]] = {domain: {} for domain in Domain}
        self._arrivals = 0
        self._course: Course | None = None
        self._one_at_a_time = asyncio.Lock()
        self._callers: list[asyncio.Task[Any]] = []
        """Tasks that have called `advance`: the first one advances the clock, the others wait."""
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._under_way: set[asyncio.Future[Any]] = set()
        self._advances: list[_Advance] = []

    # -- the clock ----------------------------------------------------------------------------------------------

    def now_ms(self, domain: Domain | None = None) -> int:
        offset_ms = self._written_offset_ms if domain is None else self._offsets_ms[domain]
        time_ns = self._time_ns  # called as a method, CPython 3.11 would look it up in the class each time
        now_ns = time_ns()
        return now_ns // 1_000_000 + offset_ms

    def cluster_ms(self) -> int:
        return self.now_ms()

    def call_later_ms(self, delay_ms: float, callback: Callable[[], object], domain: Domain) -> VirtualTimer:
        if delay_ms < 0:
            delay_ms = 0
        due_ms = self._real.now_ms() + self._offsets_ms[domain] + delay_ms
        self._arrivals = arrival = self._arrivals + 1
        pending = self._timers[domain]
        timer = VirtualTimer(pending, due_ms, arrival, callback)
        timer.base = self._real.call_later_ms(delay_ms, timer, domain)
        pending[timer] = None
        if self._course is not None and domain in self._course.offsets:
            self._course.add(domain, timer, at_once=not delay_ms)
        return timer

    def now_for(self, written_ms: int, domain: Domain) -> int:
        if not self._advances:
            # No advance has ended yet. The first one may be in progress, which `now_ms` takes into account.
            return self.now_ms(domain)
        return written_ms + self.now_ms(domain) - self._seen(written_ms, domain)

    def _seen(self, written_ms: int, domain: Domain) -> int:
        """Time of a domain at the instant when the clock's time for new records was ``written_ms``."""
        # A timestamp in the millisecond in which an advance began belongs to the time before it.
        index = bisect_left(self._advances, written_ms, key=lambda advance: advance.began_written_ms) - 1
        if index < 0:
            first = self._advances[0]
            return written_ms + first.began_ms[domain] - first.began_written_ms
        advance = self._advances[index]
        began_ms, ended_ms = advance.began_ms[domain], advance.ended_ms[domain]
        if written_ms >= advance.ended_written_ms:
            return written_ms + ended_ms - advance.ended_written_ms
        # During the advance: the domain advanced at the same rate as the record time, or did not advance.
        part = (written_ms - advance.began_written_ms) / (advance.ended_written_ms - advance.began_written_ms)
        return began_ms + round((ended_ms - began_ms) * part)

    def wait_for(self, work: Awaitable[object]) -> None:
        future = asyncio.ensure_future(work)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    # -- state --------------------------------------------------------------------------------------------------

    def offset_ms(self, domain: Domain) -> int:
        return self._offsets_ms[domain]

    def advanced_within(self, age_ms: int, domain: Domain) -> int:
        """How much of the last ``age_ms`` milliseconds of a domain were advances that have ended, and not real time."""
        since_ms = self.now_ms(domain) - age_ms
        found = 0
        for advance in reversed(self._advances):
            if advance.ended_ms[domain] <= since_ms:
                break
            found += advance.ended_ms[domain] - max(advance.began_ms[domain], since_ms)
        return found

    def timers(self, domain: Domain) -> list[VirtualTimer]:
        """The pending timers of a domain, in the order in which they were set."""
        return list(self._timers[domain])

    def offsets(self) -> dict[str, int]:
        """Domain -> milliseconds by which the domain is ahead of real time."""
        return {domain.value: offset_ms for domain, offset_ms in self._offsets_ms.items()}

    def pending(self) -> dict[str, int | None]:
        """Domain -> milliseconds until its next timer fires; None if the domain has no timer."""
        return {
            domain.value: min(
                (ceil(max(0, timer.due_ms - self.now_ms(domain))) for timer in timers), default=None
            )
            for domain, timers in self._timers.items()
        }

    def progress(self) -> Progress | None:
        """The advance in progress; None if there is none."""
        course = self._course
        if course is None:
            return None
        return Progress(course.by_ms, course.moved_ms, tuple(course.offsets), len(self._callers) - 1)

    def cancel_dead(self) -> None:
        """Remove the timers of dead nodes, which would do nothing."""
        for timers in self._timers.values():
            for timer in [each for each in timers if is_dead(each.callback)]:
                timer.cancel()

    # -- advancing ----------------------------------------------------------------------------------------------

    async def advance(self, by_ms: int, domains: Collection[Domain] | None = None) -> None:
        """Advance the domains (by default transactions and ids) by ``by_ms``.

        Returns when all timers that were due have fired and the loop has drained. A second call waits for the first. Raises
        ``BadDuration`` if ``by_ms`` is negative or too large, and ``AdvanceCancelled`` after `cancel`. After a cancellation,
        the clock keeps the time that it has reached.
        """
        from broker.clock.course import Course  # most brokers never advance their clock

        checked_duration_ms(by_ms)
        caller = asyncio.current_task()
        assert caller is not None
        self._callers.append(caller)
        moved_ms = 0
        try:
            async with self._one_at_a_time:
                moved = domains or DEFAULT_DOMAINS
                # Sort the domains: timers of several domains that are due at the same time must fire in a fixed order.
                offsets = {domain: self._offsets_ms[domain] for domain in Domain if domain in moved}
                course = self._course = Course(by_ms, offsets, self._timers)
                try:
                    await self._drain()
                    await self._pass(course)
                    await self._drain()
                finally:
                    # Also after a cancellation: from the time reached, the clock continues in real time.
                    self._course = None
                    self._arm_again(course)
                    moved_ms = course.moved_ms
        except asyncio.CancelledError:
            log.info("advance cancelled", by=duration_text(by_ms), moved=duration_text(moved_ms))
            if caller not in self._cancelled:
                raise
            caller.uncancel()
            text = f"the advance by {duration_text(by_ms)} was cancelled after {duration_text(moved_ms)}"
            raise AdvanceCancelled(text) from None
        finally:
            self._callers.remove(caller)
            self._cancelled.discard(caller)

    async def cancel(self) -> None:
        """Cancel the advance in progress, and those that wait for it. The clock keeps the time that it has reached."""
        for caller in self._callers:
            if caller not in self._cancelled:
                self._cancelled.add(caller)
                caller.cancel()
        async with self._one_at_a_time:
            return

    async def reset(self) -> None:
        """Go back to real time, after a running advance has ended. Timers keep their remaining delays.

        Only for a broker whose state is discarded as well, since timestamps of the advanced time would be in the future.
        """
        await self.restore(SavedTime(dict.fromkeys(Domain, 0), 0, ()))

    async def saved(self) -> SavedTime:
        """Return how far each domain is ahead of real time, after a running advance has ended."""
        async with self._one_at_a_time:
            return SavedTime(dict(self._offsets_ms), self._written_offset_ms, tuple(self._advances))

    async def restore(self, saved: SavedTime) -> None:
        """Set the offsets of ``saved``, for a broker whose state is restored as well."""
        async with self._one_at_a_time:
            for domain, offset_ms in self._offsets_ms.items():
                for timer in self._timers[domain]:
                    timer.due_ms += saved.offsets_ms[domain] - offset_ms
            self._offsets_ms = dict(saved.offsets_ms)
            self._written_offset_ms = saved.written_offset_ms
            self._advances = list(saved.advances)

    async def _pass(self, course: Course) -> None:
        """Run the advance, and record the times when it begins and ends. The recorded period excludes the drains before
        and after the advance, since real time passes in them."""
        began_written_ms, began_ms = self._nows()
        self._separate(course)
        try:
            await self._run(course)
        finally:
            ended_written_ms, ended_ms = self._nows()
            self._advances.append(_Advance(began_written_ms, ended_written_ms, began_ms, ended_ms))
            del self._advances[:-ADVANCES_REMEMBERED]

    def _nows(self) -> tuple[int, dict[Domain, int]]:
        """Return (time for new records, time of each domain)."""
        return self.now_ms(), {domain: self.now_ms(domain) for domain in Domain}

    def _separate(self, course: Course) -> None:
        """Make record timestamps after an advance differ from those before it.

        If a domain that does not advance is further ahead, the record time does not change during the advance. As an advance
        takes less than a millisecond, records before and after it could otherwise have the same timestamp.
        """
        if course.by_ms and max(course.offsets.values()) + course.by_ms <= self._written_offset_ms:
            self._written_offset_ms += 1

    async def _run(self, course: Course) -> None:
        end_ms = self._real.now_ms() + course.by_ms
        while (due_ms := course.next_due_ms()) <= end_ms:
            instant_ms = ceil(due_ms)
            self._move(course, instant_ms - self._real.now_ms())
            # Long work is split by timers without a delay, all of which belong to this instant.
            something_done = False
            while timers := course.take(instant_ms):
                for timer in timers:
                    if timer.is_pending:  # another timer of the same instant may have cancelled it
                        something_done |= timer.fire_now()
                await asyncio.sleep(0)
            if something_done:
                await self._drain()
        self._move(course, course.by_ms)

    def _move(self, course: Course, moved_ms: int) -> None:
        """Set the offsets for an advance by ``moved_ms``. Time never goes back: timers that were due while the loop drained
        fire a little late."""
        course.moved_ms = min(max(course.moved_ms, moved_ms), course.by_ms)
        for domain, offset_ms in course.offsets.items():
            self._offsets_ms[domain] = offset_ms + course.moved_ms
        self._written_offset_ms = max(self._written_offset_ms, *self._offsets_ms.values())

    def _arm_again(self, course: Course) -> None:
        course.pass_over(self._real.now_ms() + course.moved_ms)
        for domain in course.offsets:
            now_ms = self.now_ms(domain)
            for timer in self.timers(domain):
                timer.arm(self._real.call_later_ms(timer.due_ms - now_ms, timer, domain))

    async def _drain(self) -> None:
        """Run the event loop until the consequences of an instant are over (the module's docstring defines this)."""
        for _ in range(DRAIN_ROUNDS_MAX):
            for _ in range(DRAIN_TURNS):
                await asyncio.sleep(0)
            if not self._under_way:
                return
            _, late = await asyncio.wait(set(self._under_way), timeout=DRAIN_S_MAX)
            if late:
                log.warning("clock advances before work in threads is done", pieces=len(late))
                self._under_way -= late
