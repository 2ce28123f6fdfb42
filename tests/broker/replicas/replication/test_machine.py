"""Three nodes under random operations: producers, transactions, links, pauses, kills, elections.

ODRADEK_REPLICATION_EXAMPLES=3000 runs more examples.

With clean elections and min.insync.replicas=2 no record that was acknowledged with acks=all may be lost.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.replicas.partition import AppendResult, Partition
from broker.replicas.replication.leading import Leading
from protocol.errors import ErrorCode
from storage.producers import ProducerStateManager
from tests.support.nodes import Nodes
from tests.support.points import Gate

OK = ErrorCode.none
EXAMPLES = int(os.environ.get("ODRADEK_REPLICATION_EXAMPLES", "40"))
SCRATCH = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
NODE_IDS = st.sampled_from([1, 2, 3])
PRODUCERS = st.sampled_from([7, 8])


class Replication(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.home = Path(tempfile.mkdtemp(prefix="replication-", dir=SCRATCH))
        self.acknowledged: dict[int, bytes] = {}
        """The records that were acknowledged to a client with acks=all, by offset."""
        self.sequences = {7: 0, 8: 0}
        self.open: set[int] = set()
        self.count = 0
        self.watermark = (0, 0)
        self.committed = 0
        """The highest high watermark that any leader has had."""
        self.slow_disks: set[int] = set()
        """The nodes whose disks block every write."""
        self.gate = Gate("log.write", lambda at: at.node_id in self.slow_disks)
        self.joined_unheard: list[tuple[int, ...]] = []
        """ISRs that a leader requested with a new replica that could not fetch at that moment. Must stay
        empty."""

        async def open_nodes() -> None:
            self.nodes = Nodes(self.home)
            self.nodes.injection.points = self.gate
            self.nodes.controller.watch_isr = self._check_join
            self.nodes.create(min_isr=2)

        self._run(open_nodes())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    def teardown(self) -> None:
        if hasattr(self, "nodes"):
            try:
                self._run(self._end())
            finally:
                self.nodes.end()
                self._run(self._let_go())
                self.loop.close()
                shutil.rmtree(self.home)

    async def _let_go(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.get_running_loop().shutdown_default_executor()

    async def _end(self) -> None:
        """Start all nodes, mend all links, and check that all replicas are equal and have every acknowledged record."""
        nodes = self.nodes
        self._mend_all()
        for node_id in {1, 2, 3} - nodes.running.keys():
            nodes.start(node_id)
        await nodes.settle()
        await nodes.pass_time(2000)
        leader = nodes.leader
        assert set(nodes.isr()) == {1, 2, 3}
        assert leader.high_watermark == leader.log_end_offset
        assert nodes.content(1) == nodes.content(2) == nodes.content(3)
        self._check_acknowledged(leader)
        for node_id in (1, 2, 3):
            self._check_producers(nodes.on(node_id))

    def _check_join(self, isr: tuple[int, ...]) -> None:
        links, state = self.nodes.injection.links, self.nodes.controller.state()
        for node_id in set(isr) - set(state.isr):
            if (
                node_id not in self.nodes.running
                or links.is_paused(node_id, "t", 0)
                or links.is_cut(node_id, state.leader)
                or links.is_cut(state.leader, node_id)
            ):
                self.joined_unheard.append(isr)

    # -- clients ------------------------------------------------------------------------------------------------

    @property
    def led(self) -> bool:
        return self.nodes.controller.state().leader in self.nodes.running

    def _value(self) -> bytes:
        self.count += 1
        return b"%d" % self.count + b"." * (self.count % 50)

    def _note(self, result: AppendResult, value: bytes) -> None:
        if result.error is not OK or result.duplicate:
            return
        outcome = self.nodes.outcome(result)

        def settle(error: ErrorCode) -> None:
            if error is OK:
                self.acknowledged[result.base_offset] = value

        if outcome.error is not None:
            settle(outcome.error)
        else:
            outcome.hear = settle

    @precondition(lambda self: self.led)
    @rule(acks=st.sampled_from([-1, -1, 1]))
    def append(self, acks: int) -> None:
        async def work() -> None:
            value = self._value()
            result = self.nodes.append(value, acks=acks)
            if acks == -1:
                self._note(result, value)

        self._run(work())

    @precondition(lambda self: self.led)
    @rule(producer_id=PRODUCERS, transactional=st.booleans())
    def produce(self, producer_id: int, transactional: bool) -> None:
        """Produce like a client that continues with the leader's next sequence."""

        async def work() -> None:
            entry = self.nodes.leader.log.producers.entries.get(producer_id)
            sequence = entry.last_sequence + 1 if entry is not None else 0
            is_open = entry is not None and entry.current_txn_first_offset >= 0
            value = self._value()
            producer = (producer_id, 0, sequence)
            self._note(
                self.nodes.append(value, producer=producer, transactional=transactional or is_open), value
            )

        self._run(work())

    @precondition(lambda self: self.led)
    @rule(producer_id=PRODUCERS, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        async def work() -> None:
            self.nodes.mark(producer_id, committed=committed)

        self._run(work())

    @precondition(lambda self: self.led)
    @rule(producer_id=PRODUCERS, back=st.integers(1, 5))
    def repeat(self, producer_id: int, back: int) -> None:
        """Repeat one of a producer's last five batches. Any leader recognizes it as a duplicate."""

        async def work() -> None:
            entry = self.nodes.leader.log.producers.entries.get(producer_id)
            if entry is None or len(entry.batches) < back:
                return
            known = entry.batches[-back]
            producer = (producer_id, entry.epoch, known.first_sequence)
            result = self.nodes.append(b"again", producer=producer, acks=1)
            assert result.duplicate
            assert result.base_offset == known.first_offset

        self._run(work())

    # -- changes of nodes and links -----------------------------------------------------------------------------

    @rule(sender=NODE_IDS, receiver=NODE_IDS)
    def cut(self, sender: int, receiver: int) -> None:
        async def work() -> None:
            if sender != receiver and not self.nodes.injection.links.is_cut(sender, receiver):
                self.nodes.injection.links.cut(sender, receiver)

        self._run(work())

    @rule(node_id=NODE_IDS)
    def pause(self, node_id: int) -> None:
        async def work() -> None:
            if not self.nodes.injection.links.is_paused(node_id, "t", 0):
                self.nodes.injection.links.pause(node_id)

        self._run(work())

    @rule(sender=NODE_IDS, receiver=NODE_IDS, delay_ms=st.sampled_from([5, 100]))
    def slow(self, sender: int, receiver: int, delay_ms: int) -> None:
        async def work() -> None:
            if sender != receiver and not self.nodes.injection.links.delay_ms(sender, receiver):
                self.nodes.injection.links.slow(sender, receiver, delay_ms)

        self._run(work())

    @rule()
    def mend(self) -> None:
        async def work() -> None:
            self._mend_all()
            await self.nodes.settle()

        self._run(work())

    def _mend_all(self) -> None:
        links = self.nodes.injection.links
        self._release()
        for sender in (1, 2, 3):
            if links.is_paused(sender, "t", 0):
                links.resume(sender)
            for receiver in (1, 2, 3):
                if links.is_cut(sender, receiver):
                    links.mend(sender, receiver)
                if delay_ms := links.delay_ms(sender, receiver):
                    links.quicken(sender, receiver, delay_ms)

    @rule(node_id=NODE_IDS)
    def hold_writes(self, node_id: int) -> None:
        self.slow_disks.add(node_id)

    @rule()
    def release_writes(self) -> None:
        async def work() -> None:
            self._release()

        self._run(work())

    def _release(self) -> None:
        self.slow_disks.clear()
        held, self.gate.held = self.gate.held, []
        for each in held:
            if each.at.node_id in self.nodes.running:
                each.go_on()

    @rule(node_id=NODE_IDS)
    def fsync(self, node_id: int) -> None:
        async def work() -> None:
            if node_id in self.nodes.running:
                await self.nodes.fsync(node_id)

        self._run(work())

    @rule(node_id=NODE_IDS)
    def kill(self, node_id: int) -> None:
        async def work() -> None:
            if node_id in self.nodes.running:
                self._kill(node_id)

        self._run(work())

    def _kill(self, node_id: int) -> None:
        self.gate.held = [each for each in self.gate.held if each.at.node_id != node_id]
        self.nodes.kill(node_id)

    @precondition(lambda self: self.led)
    @rule(count=st.integers(1, 4))
    def die_with_a_tail(self, count: int) -> None:
        """Append records that no follower fetches, and kill the leader. The leader's log has diverged when its
        node starts again."""

        async def work() -> None:
            nodes, leader_id = self.nodes, self.nodes.controller.state().leader
            others = [each for each in (1, 2, 3) if each != leader_id]
            for node_id in others:
                nodes.injection.links.pause(node_id)
            for _ in range(count):
                nodes.append(self._value(), acks=1)
            self._kill(leader_id)
            for node_id in others:
                nodes.injection.links.resume(node_id)

        self._run(work())

    @precondition(lambda self: self.led)
    @rule()
    def too_few_are_left(self) -> None:
        """Pause all followers, append a record, and let the leader remove them from the ISR
        (``replica.lag.time.max.ms``)."""

        async def work() -> None:
            nodes, leader_id = self.nodes, self.nodes.controller.state().leader
            for node_id in {1, 2, 3} - {leader_id}:
                if not nodes.injection.links.is_paused(node_id, "t", 0):
                    nodes.injection.links.pause(node_id)
            nodes.append(self._value(), acks=1)
            await nodes.pass_time(50_000)

        self._run(work())

    @rule(node_id=NODE_IDS)
    def stop(self, node_id: int) -> None:
        async def work() -> None:
            if node_id in self.nodes.running:
                self.gate.held = [each for each in self.gate.held if each.at.node_id != node_id]
                await self.nodes.stop(node_id)

        self._run(work())

    @rule(node_id=NODE_IDS)
    def start(self, node_id: int) -> None:
        async def work() -> None:
            if node_id not in self.nodes.running:
                self.nodes.start(node_id)
                await self.nodes.settle()

        self._run(work())

    @precondition(lambda self: self.led)
    @rule(node_id=NODE_IDS)
    def lead(self, node_id: int) -> None:
        async def work() -> None:
            state = self.nodes.controller.state()
            if node_id != state.leader and node_id in state.isr and node_id in self.nodes.running:
                self.nodes.lead(node_id)

        self._run(work())

    @rule(delay_ms=st.sampled_from([0, 0, 10, 1000, 50_000]))
    def time_passes(self, delay_ms: int) -> None:
        async def work() -> None:
            await self.nodes.settle()
            await self.nodes.pass_time(delay_ms)

        self._run(work())

    @precondition(lambda self: self.led)
    @rule(share=st.floats(0, 1))
    def roll(self, share: float) -> None:
        async def work() -> None:
            log = self.nodes.leader.log
            if log.exists and log.active.size:
                log.roll(self.nodes.clock.now)

        self._run(work())

    # -- invariants ---------------------------------------------------------------------------------------------

    @invariant()
    def offsets_are_in_order(self) -> None:
        if not hasattr(self, "nodes"):
            return
        for replicas in self.nodes.running.values():
            for each in replicas.opened():
                assert each.log_start_offset <= each.last_stable_offset <= each.high_watermark
                assert each.high_watermark <= each.log_end_offset

    @invariant()
    def one_leaders_high_watermark_does_not_go_back(self) -> None:
        if hasattr(self, "nodes") and self.led:
            leader = self.nodes.leader
            epoch, high_watermark = self.watermark
            assert leader.leader_epoch != epoch or leader.high_watermark >= high_watermark
            self.watermark = (leader.leader_epoch, leader.high_watermark)

    @invariant()
    def only_a_leader_commits(self) -> None:
        if not hasattr(self, "nodes"):
            return
        if self.led:
            self.committed = max(self.committed, self.nodes.leader.high_watermark)
        for node_id in self.nodes.running:
            assert self.nodes.on(node_id).high_watermark <= self.committed

    @invariant()
    def only_a_follower_that_fetches_joins(self) -> None:
        if hasattr(self, "nodes"):
            assert not self.joined_unheard

    @invariant()
    def replicas_agree_on_what_is_committed(self) -> None:
        if not hasattr(self, "nodes") or not self.led:
            return
        leader, nodes = self.nodes.leader, self.nodes
        for node_id in nodes.isr():
            if node_id in nodes.running and isinstance(leader.leading, Leading):
                common = min(leader.high_watermark, nodes.on(node_id).high_watermark)
                assert nodes.content(node_id, common) == nodes.content(
                    nodes.controller.state().leader, common
                )

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        if hasattr(self, "nodes") and self.led:
            self._check_acknowledged(self.nodes.leader)

    def _check_acknowledged(self, leader: Partition) -> None:
        there = {
            record.offset: record.value
            for batch in leader.log.batches()
            if not batch.is_control
            for record in batch.records()
        }
        for offset, value in self.acknowledged.items():
            assert there.get(offset) == value, f"offset {offset} of {self.acknowledged}"

    def _check_producers(self, partition: Partition) -> None:
        """Check that the producer state in memory equals the state that a replay of all batches gives."""
        log, again = partition.log, ProducerStateManager()
        for batch in log.batches():
            again.replay(batch)
        known = {each.producer_id: each for each in log.producers.snapshot()}
        assert known == {each.producer_id: each for each in again.snapshot()}
        assert list(log.producers.open_transactions()) == list(again.open_transactions())


Replication.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestReplication = Replication.TestCase
