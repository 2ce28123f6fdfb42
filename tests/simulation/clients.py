"""The clients of a simulation. Each is a coroutine that continues through all faults until ``Stop`` is set."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tests.simulation.consumers import Reader, committed_offset
from tests.simulation.ledger import Ledger, Spot, Verdict, View, Work
from tests.simulation.producers import MustAbort, MustRestart, Producer
from tests.simulation.wire import Gone, Wire

PAUSE_S: Final = (0.1, 3.0)
ABORTS: Final = 0.2
IMPATIENT: Final = 0.2
"""Probability that a transaction is aborted before the response to its last batch."""
LARGE_BYTES: Final = 64 * 1024
"""Size of a value for which a leader recompresses a batch in several slices (``storage.validation``)."""
HAUNTS: Final = 0.5
"""Probability that a fenced producer continues to send records for a short time."""
BUMPS: Final = 0.5
"""Probability that an idempotent producer bumps its epoch after an error (KIP-360), instead of getting a new id."""
BUMPS_ANYWAY: Final = 0.2
"""Probability of an epoch bump without an error, so that many batches are the first of their epoch."""
ZOMBIE_PAUSE_S: Final = (5.0, 60.0)
COPIED_AT_ONCE: Final = 5
IN_FLIGHT_MAX: Final = 5
"""Batches in flight, as in Kafka's producer: the leader recognises repetitions of the last five batches of a partition."""


class Stop:
    """A flag: once it is set, clients begin no new work."""

    def __init__(self) -> None:
        self.now = False


async def transact(
    wire: Wire,
    spots: Sequence[Spot],
    ledger: Ledger,
    stop: Stop,
    transactional_id: str,
    level: int,
    pause_s: tuple[float, float] = PAUSE_S,
) -> None:
    """Run transactions over several partitions, and abort some. Other clients may use the same transactional id.

    ``level``: the transaction version.
    """
    producer = Producer(wire, transactional_id, level=level, wrote=ledger.wrote)
    await producer.live()
    number = 0
    while not stop.now:
        await asyncio.sleep(wire.random.uniform(*pause_s))
        number += 1
        work = ledger.begin(wire.name, number)
        try:
            await _one_transaction(producer, spots, work)
        except MustAbort as error:
            wire.say(f"{number} is aborted: {error}")
            work.verdict = Verdict.ABORTED
            await producer.abort()
        except MustRestart as error:
            wire.say(f"{number} restarts: {error}")
            if error.is_fenced and wire.random.random() < HAUNTS:
                number += 1
                await _haunt(producer, spots, ledger.begin(wire.name, number))
            await producer.live()
        wire.say(f"{number} {work.verdict.value}")
    wire.close()


async def _one_transaction(producer: Producer, spots: Sequence[Spot], work: Work) -> None:
    random = producer.wire.random
    work.verdict = Verdict.ABORTED  # until the commit is requested
    for _ in range(random.randint(1, 4)):
        spot = random.choice(spots)
        batches = random.choice((1, 1, 1, 3))
        await producer.send(
            spot, *([work.value(spot) for _ in range(random.randint(1, 3))] for _ in range(batches))
        )
        if random.random() < 0.05:
            await asyncio.sleep(random.uniform(1, 60))  # some exceed the transaction timeout
    if random.random() < IMPATIENT:
        spot = random.choice(spots)
        with suppress(Gone):
            padding = b"." * random.choice((0, LARGE_BYTES))
            await producer.send_and_forget(spot, [work.value(spot) + padding])
        await asyncio.sleep(random.choice((0.0, random.uniform(0, 0.01), random.uniform(0, 2))))
        await producer.end(committed=False)
        return
    committed = random.random() >= ABORTS
    if committed:
        work.verdict = Verdict.UNKNOWN
    await producer.end(committed=committed)
    if committed:
        work.verdict = Verdict.COMMITTED


async def _haunt(producer: Producer, spots: Sequence[Spot], work: Work) -> None:
    """Send records as a fenced producer. No read_committed consumer may see these records."""
    work.verdict = Verdict.ABORTED
    spot = producer.wire.random.choice(spots)
    await producer.haunt(spot, [work.value(spot)])


async def number_batches(wire: Wire, spots: Sequence[Spot], ledger: Ledger, stop: Stop) -> None:
    """Run an idempotent producer. Each batch whose append it knows of must be in the log exactly once."""
    producer = Producer(wire, None, level=2, wrote=ledger.wrote)
    await producer.live()
    number, life = 0, 0
    while not stop.now:
        await asyncio.sleep(wire.random.uniform(*PAUSE_S))
        number += 1
        spot = wire.random.choice(spots)
        works = [
            ledger.begin(f"{wire.name}-{life}", number + more)
            for more in range(wire.random.randint(1, IN_FLIGHT_MAX))
        ]
        number = works[-1].number
        batches = [[work.value(spot) for _ in range(wire.random.randint(1, 3))] for work in works]
        for work in works:
            work.verdict = Verdict.UNKNOWN
        try:
            await producer.send(spot, *batches)
            for work in works:
                work.verdict = Verdict.COMMITTED
            if wire.random.random() < BUMPS_ANYWAY:
                life += 1
                producer.bump()
        except (MustAbort, MustRestart) as error:
            wire.say(f"{number}: {error}")
            # In-flight batches of the old producer id or epoch arrive in any order with those that follow.
            life += 1
            if wire.random.random() < BUMPS:
                producer.bump()
            else:
                await producer.live()
    wire.close()


async def read(wire: Wire, spot: Spot, isolation: str, view: View, stop: Stop) -> None:
    """Consume a partition until ``stop`` is set."""
    reader = Reader(wire, spot, isolation, view)
    while not stop.now:
        try:
            found = await reader.fetch()
        except Gone:
            await wire.back_off()
            continue
        if found:
            wire.say(f"read {spot[0]}-{spot[1]} {found[0]} .. {found[-1]}")
    wire.close()


async def copy(wire: Wire, sources: Sequence[Spot], target: str, group: str, stop: Stop, level: int) -> None:
    """Consume, transform, produce: copy each source partition to the target partition of the same index.

    The transaction of the copied records also commits the offsets of their sources.
    """
    producer = Producer(wire, wire.name, level=level)
    await producer.live()
    while not stop.now:
        await asyncio.sleep(wire.random.uniform(*PAUSE_S) / 4)
        source = wire.random.choice(sources)
        try:
            offset = await committed_offset(wire, group, source)
            reader = Reader(wire, source, "read_committed")
            reader.position = offset
            found = (await reader.fetch(500))[:COPIED_AT_ONCE]
        except Gone:
            await wire.back_off()
            continue
        if found:
            await _copy_some(producer, source, target, group, [at for at, _ in found])
    wire.close()


async def _copy_some(producer: Producer, source: Spot, target: str, group: str, offsets: list[int]) -> None:
    wire, index = producer.wire, source[1]
    try:
        await producer.send((target, index), [f"copy {index}:{offset}".encode() for offset in offsets])
        await producer.send_offsets(group, {source: offsets[-1] + 1})
        await producer.end(committed=wire.random.random() >= ABORTS)
        wire.say(f"copied {index}: {offsets}")
    except MustAbort as error:
        wire.say(f"copy is aborted: {error}")
        await producer.abort()
    except MustRestart as error:
        wire.say(f"copy restarts: {error}")
        await producer.live()
