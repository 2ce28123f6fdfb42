"""Who does what in a simulation: each is a task that goes on until it is told to stop, whatever happens to the nodes."""

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
"""So often a transaction is aborted before the answer to its last batch is there."""
LARGE_BYTES: Final = 64 * 1024
"""More than a leader compresses at once (``storage.validation``)."""
HAUNTS: Final = 0.5
"""Of the instances that are fenced, so many go on for a moment."""
BUMPS: Final = 0.5
"""After an error an idempotent producer goes on in its next epoch (KIP-360), or with another id."""
BUMPS_ANYWAY: Final = 0.2
"""Without an error, so that there are many first batches of epochs, with the sequences of the epoch before."""
ZOMBIE_PAUSE_S: Final = (5.0, 60.0)
COPIED_AT_ONCE: Final = 5
IN_FLIGHT_MAX: Final = 5
"""As in Kafka's producer: five of one partition may be under way and still be told from their repetitions."""


class Stop:
    """Set once: no new work is begun."""

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
    """Transactions over several partitions, some of which it aborts itself. Others may work under the same id."""
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
    work.verdict = Verdict.ABORTED  # until it is asked to be committed
    for _ in range(random.randint(1, 4)):
        spot = random.choice(spots)
        batches = random.choice((1, 1, 1, 3))
        await producer.send(
            spot, *([work.value(spot) for _ in range(random.randint(1, 3))] for _ in range(batches))
        )
        if random.random() < 0.05:
            await asyncio.sleep(random.uniform(1, 60))  # some are open for too long
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
    """What a fenced producer sends is invisible to read_committed readers."""
    work.verdict = Verdict.ABORTED
    spot = producer.wire.random.choice(spots)
    await producer.haunt(spot, [work.value(spot)])


async def number_batches(wire: Wire, spots: Sequence[Spot], ledger: Ledger, stop: Stop) -> None:
    """An idempotent producer: what it is told was written is there once."""
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
            # What the old life has under way comes in any order with what follows.
            life += 1
            if wire.random.random() < BUMPS:
                producer.bump()
            else:
                await producer.live()
    wire.close()


async def read(wire: Wire, spot: Spot, isolation: str, view: View, stop: Stop) -> None:
    """Read a partition for ever."""
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
    """Consume, transform, produce: each source goes to the partition of the same number, offsets with the records."""
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
