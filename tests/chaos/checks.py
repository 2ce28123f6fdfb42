"""Checks of a run, as pure functions of its history and its end. Each check yields a sentence for every violation."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.chaos.history import End, History, Outcome, Place, Seen, Send, View


class Moved(NamedTuple):
    """A consume-process-produce job: partition n of ``source`` goes to partition n of ``sink``."""

    group: str
    source: str
    sink: str

    @staticmethod
    def process(value: str) -> str:
        return f"<{value}>"


def complaints(history: History, end: End, jobs: Iterable[Moved]) -> list[str]:
    """Violations that all checks found; empty for a correct run."""
    jobs = tuple(jobs)
    return [
        *atomic(history, end),
        *acknowledged(history, end),
        *once(end),
        *in_order(history, end),
        *steady(history, end),
        *moved(end, jobs),
        *nothing_hangs(end),
    ]


def _places(records: dict[Place, list[Seen]]) -> dict[str, Place]:
    return {seen.value: place for place, all_seen in records.items() for seen in all_seen}


def atomic(history: History, end: End) -> Iterator[str]:
    """A transaction is visible in all its partitions or in none, in accordance with its outcome."""
    visible = _places(end.committed)
    for transaction in history.transactions:
        there = [send for send in transaction.sends if send.value in visible]
        missing = [send for send in transaction.sends if send.value not in visible]
        first = transaction.sends[0].value if transaction.sends else "-"
        if transaction.outcome is Outcome.COMMITTED and missing:
            yield f"{transaction.who}: the transaction of {first} was committed; lost: {_names(missing)}"
        elif transaction.outcome is Outcome.ABORTED and there:
            yield f"{transaction.who}: the transaction of {first} was aborted; visible: {_names(there)}"
        elif there and missing:
            yield (
                f"{transaction.who}: of the transaction of {first} {_names(there)} are visible, "
                f"{_names(missing)} are not"
            )


def acknowledged(history: History, end: End) -> Iterator[str]:
    """Every acknowledged record is in the log, at the acknowledged offset."""
    committed = [
        send for each in history.transactions if each.outcome is Outcome.COMMITTED for send in each.sends
    ]
    at = {(place, seen.offset): seen.value for place, records in end.committed.items() for seen in records}
    for send in [*history.sends, *committed]:
        if send.offset is not None and at.get((send.place, send.offset)) != send.value:
            found = at.get((send.place, send.offset), "nothing")
            yield f"{send.who}: {send.value} was acknowledged at {send.place}@{send.offset}; there is {found}"


def once(end: End) -> Iterator[str]:
    """No record is in the log twice, not even in aborted transactions."""
    for where, records in (("committed", end.committed), ("written", end.everything)):
        counts = Counter(
            (place.topic, seen.value) for place, all_seen in records.items() for seen in all_seen
        )
        # A job's output may have been written before, in an aborted transaction.
        twice = [
            value
            for (_, value), count in counts.items()
            if count > 1 and not (where == "written" and value.startswith("<"))
        ]
        if twice:
            yield f"{where} more than once: {', '.join(sorted(twice)[:10])}"


def in_order(history: History, end: End) -> Iterator[str]:
    """The records of one producer in one partition are in the order in which it sent them."""
    sent: defaultdict[tuple[str, Place], list[str]] = defaultdict(list)
    sends = [*history.sends, *(send for each in history.transactions for send in each.sends)]
    for send in sends:
        sent[send.who, send.place].append(send.value)
    for (who, place), values in sent.items():
        number = {value: index for index, value in enumerate(values)}
        found = [seen.value for seen in end.everything.get(place, ()) if seen.value in number]
        for before, after in itertools.pairwise(found):
            if number[before] > number[after]:
                yield f"{who}: in {place} {before} stands before {after}, and was sent after it"
                break


def steady(history: History, end: End) -> Iterator[str]:
    """Consumers saw the records of the final log, without a gap and in order."""
    for view in history.views:
        yield from (f"{view.who}: {error}" for error in view.errors)
        records = end.committed if view.committed_only else end.everything
        for place, seen in view.seen.items():
            yield from _steady(view, place, seen, records.get(place, []))


def _steady(view: View, place: Place, seen: Sequence[Seen], at_the_end: Sequence[Seen]) -> Iterator[str]:
    for before, after in itertools.pairwise(seen):
        if after.offset <= before.offset:
            yield f"{view.who}: in {place} it read {after} after {before}"
            return
    for was, now in zip(seen, at_the_end, strict=False):
        if was != now:
            yield f"{view.who}: in {place} it read {was}, where at the end {now} is next"
            return
    if len(seen) > len(at_the_end):
        yield f"{view.who}: in {place} it read {seen[len(at_the_end)]}, which is not there at the end"


def moved(end: End, jobs: Iterable[Moved]) -> Iterator[str]:
    """The output of a job has one result for each input record below its committed offset, in order."""
    for job in jobs:
        sources = {place for place in end.committed if place.topic == job.source}
        for place in sorted(sources):
            position = end.positions.get((job.group, place), 0)
            expected = [job.process(seen.value) for seen in end.committed[place] if seen.offset < position]
            found = [seen.value for seen in end.committed.get(Place(job.sink, place.partition), ())]
            if found != expected:
                yield f"{job.group}: {_difference(place, position, expected, found)}"


def _difference(place: Place, position: int, expected: Sequence[str], found: Sequence[str]) -> str:
    lost = Counter(expected) - Counter(found)
    duplicated = Counter(found) - Counter(expected)
    said = f"its position in {place} is {position}; "
    if not lost and not duplicated:
        return said + "the results stand in another order"
    return said + f"results lost: {sorted(lost)[:10]}, too many: {sorted(duplicated)[:10]}"


def nothing_hangs(end: End) -> Iterator[str]:
    """No transaction is left open: every last stable offset equals the high watermark."""
    for place, (stable, high) in sorted(end.stable_and_high.items()):
        if stable != high:
            yield f"{place}: a transaction hangs: last stable offset {stable}, high watermark {high}"


def _names(sends: Sequence[Send]) -> str:
    names = [f"{send.value} ({send.place})" for send in sends]
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
