"""The protocol against a model: whichever process is killed or suspended at any step, readers get each input row once."""

import dataclasses
import itertools
import random
import shutil
from functools import partial
from pathlib import Path

import pytest

from odradek.spark.sink import store
from odradek.spark.sink.decision_record import Phase
from odradek.spark.sink.errors import DecisionMismatch, MayBeLost, NotDecided, OutcomeUnknown
from odradek.spark.sink.names import driver_id, pool_id
from odradek.spark.sink.plan import SWEEP_INTERVAL_MS, Settings, resolve
from odradek.spark.wire import Retriable
from tests.spark.sink.model import OUT, SETTINGS, Process, World, with_answer
from tests.support.deadlines import LONG_TEST_S

BATCHES = (("a", "b", "c"), ("d", "e", "f", "g"), ("h", "i"))
ROWS = sorted(row for some in BATCHES for row in some)
TASKS = (2, 3, 1)


def settle(world: World, tasks=(1, 2), order: int = -1, restarts: int = 6) -> list[Exception]:
    """Restart the query until it ends without an error, and return the errors of the failed runs.

    If all of ``restarts`` runs fail, raises the last error.
    """
    errors: list[Exception] = []
    for number in range(restarts):
        driver = world.start_driver(f"again-{number}", tasks, order)
        world.run()
        assert driver.ended, "the driver does not end"
        if driver.error is None:
            return errors
        errors.append(driver.error)
    raise errors[-1]


def asked(world: World, restarts: int = 1) -> str:
    """Restart the query ``restarts`` times, and return the error with which the sink stopped it, "" if it ended.

    The error must be the same each time.
    """
    questions = set()
    for number in range(restarts):
        begun = len(world.processes)
        driver = world.start_driver(f"asked-{number}", (1, 2), order=-1)
        world.run()
        errors = [each.error for each in world.processes[begun:] if isinstance(each.error, DecisionMismatch)]
        assert errors or driver.error is None, driver.error
        questions.add(str(errors[0]) if errors else "")
    [question] = questions
    return question


def passing_time(world: World, step: int) -> None:
    time_passes(world)


def hearing(world: World, late: int, step: int) -> None:
    world.kafka.hear(late)


def straight_steps() -> int:
    world = World(BATCHES)
    world.start_driver("first", TASKS)
    world.run()
    world.check()
    world.close()
    return world.steps


STEPS = straight_steps()


def test_a_quiet_run_writes_everything_once_with_few_ids():
    world = World(BATCHES)
    world.start_driver("first", TASKS)
    world.run()
    world.check()
    assert world.kafka.ongoing() == []
    record = world.last_record()
    assert (record.next_batch, record.phase, record.query_id) == (3, Phase.DECIDED, "query-1")
    assert (record.run, record.plan) == (1, 3), "the pool's ids stay the same while nothing fails"
    # Batch 0 has no pool, and batch 1 has one task more than batch 0; the pool of batch 2 has all that it needs.
    own = ["q-1-0-1.0", "q-1-1-1.1", "q-1-2-2.4"]
    pool = [f"q-1-{task}{more}" for task in range(3) for more in ("", "-ticket")]
    assert sorted(world.kafka.ids) == sorted([*own, *pool, "q-driver"])
    world.close()


class TestCrashes:
    @pytest.mark.parametrize("victims", ["driver", "workers", "all"])
    def test_at_every_step(self, victims: str):
        """Readers get each row once if processes are killed at any step and the query is restarted.

        If only the driver is killed, its tasks continue as zombies beside the new driver.
        """
        for at in range(STEPS + 1):
            world = World(BATCHES)
            first = world.start_driver("first", TASKS)

            def strike(step: int, at=at, world=world, first=first) -> None:
                if step != at:
                    return
                tasks = [process for process in world.processes if process is not first]
                for process in (
                    [first, *tasks] if victims == "all" else tasks if victims == "workers" else [first]
                ):
                    process.kill()
                if victims == "driver":
                    world.start_driver("second", (3, 1), order=-1)

            world.run(before_step=strike)
            if victims != "driver" or len(world.processes) == 1:
                settle(world)
            world.check()
            world.close()

    @pytest.mark.more
    def test_twice(self):
        """Readers get each row once if processes are killed again while the restart recovers from the first crash."""
        for first_at, second_at in itertools.product(range(3, STEPS, 9), range(1, STEPS, 8)):
            world = World(BATCHES)
            first = world.start_driver("first", TASKS)

            def strike(step: int, at=first_at, again=first_at + second_at, world=world, first=first) -> None:
                if step == at:
                    first.kill()
                    world.start_driver("second", (2, 2), order=-1)
                if step == again:
                    for process in world.processes:
                        process.kill()

            world.run(before_step=strike)
            settle(world, (3,))
            world.check()
            world.close()

    def test_nothing_of_a_dead_driver_holds_back_readers(self):
        for at in range(STEPS + 1):
            world = World(BATCHES)
            world.start_driver("first", TASKS)
            all_die(world, at)
            settle(world)
            world.check()
            assert world.kafka.ongoing() == [], at
            world.close()


def all_die(world: World, at: int) -> None:
    """Run the world; kill all living processes before its step ``at``."""

    def strike(step: int) -> None:
        if step == at:
            for process in world.processes:
                process.kill()

    world.run(before_step=strike)


def sleepers(world: World, kind: str) -> list[Process]:
    """The processes to suspend: the driver's, or the running task."""
    if kind == "driver":
        return world.processes[:1]
    return [process for process in world.processes[1:] if process.runnable][-1:]


class TestZombies:
    @pytest.mark.parametrize("kind", ["driver", "task"])
    @pytest.mark.more
    def test_asleep_at_any_step_awake_at_any_later_one(self, kind: str):
        """A suspended driver is replaced by another driver on the same checkpoint, a suspended task by its next attempt.

        Later the suspended process continues with its old state. It may make a batch fail, which is then written again, but
        readers get each row once.
        """
        for asleep in range(1, STEPS, 3):
            for awake in [*range(1 + asleep % 23, STEPS + 10, 23), 10**9]:
                self.one(kind, asleep, asleep + awake)

    @pytest.mark.slow
    @pytest.mark.timeout(LONG_TEST_S)
    @pytest.mark.parametrize("kind", ["driver", "task"])
    def test_asleep_at_every_step_awake_at_every_later_one(self, kind: str):
        for asleep in range(1, STEPS):
            for awake in [*range(1, STEPS + 10), 10**9]:
                self.one(kind, asleep, asleep + awake)

    def one(self, kind: str, asleep: int, awake: int) -> None:
        world = World(BATCHES)
        world.start_driver("first", TASKS)
        zombies: list[Process] = []

        def strike(step: int) -> None:
            # A second passes at each step, so that each plan looks for open transactions, also those of suspended tasks.
            world.now_ms += 1000
            if step == asleep:
                zombies.extend(sleepers(world, kind))
                for process in zombies:
                    process.frozen = True
                if kind == "driver":
                    world.start_driver("second", (3, 1, 2), order=-1)
            if step == awake:
                for process in zombies:
                    process.frozen = False

        # The resumed process runs first.
        world.run(
            choose=lambda some: next((each for each in zombies if each in some), some[-1]), before_step=strike
        )
        for process in zombies:
            process.frozen = False
        world.run()
        settle(world)
        world.check()
        world.close()

    def test_a_driver_that_tidies_up_late_touches_nothing_of_its_successor(self):
        """A driver that is suspended before it aborts the transaction of a failed attempt harms no successor."""
        for moment in range(0, 60, 2):
            world = World(BATCHES)
            first = world.start_driver("first", TASKS)
            while pool_id("q", 1, 0) not in world.kafka.ongoing():
                world.run_once()
            world.attempts["first", 1, 0][0].kill()
            while world.last_record().next_batch < 2 or len(world.kafka.ongoing()) > 1:
                world.run_once()
            first.frozen = True
            second = world.start_driver("second", (3, 2))
            for _ in range(moment):
                world.run_once()
            first.frozen = False
            for _ in range(12):
                if first.runnable:
                    first.step()
            world.run()
            assert second.ended
            settle(world)
            world.check()
            world.close()

    @pytest.mark.parametrize("when", ["before the decision", "after the decision"])
    @pytest.mark.parametrize("pooled", [False, True])
    def test_an_attempt_that_was_frozen_before_its_init_and_wakes_after_its_successor_has_reported(
        self, when, pooled
    ):
        """The late InitProducerId of a zombie must not abort the transaction of its successor."""
        world = World((("a", "b"), ("c", "d")) if pooled else (("c", "d"),))
        batch = 1 if pooled else 0
        first = world.start_driver("first", (2,))

        # The attempt is at its first step: it initialises its own id, or the ticket of a pool id.
        while ("first", batch, 0) not in world.attempts:
            world.run_once()
        zombie = world.attempts["first", batch, 0][0]
        if not pooled:
            # In the first batch, a task first looks up the query's sink.
            for _ in range(3):
                zombie.step()
        zombie.frozen = True
        while not (
            all_reported(world, batch)
            if when == "before the decision"
            else world.last_record().next_batch > batch
        ):
            world.run_once()
        assert world.last_record().next_batch == (batch if when == "before the decision" else batch + 1)
        zombie.frozen = False
        before = {name: known.producer for name, known in world.kafka.ids.items()}
        while not zombie.ended:
            zombie.step()
        assert {name: known.producer for name, known in world.kafka.ids.items()} != before, (
            "the zombie has sent InitProducerId"
        )
        world.run()
        assert first.error is None, "its successor has its own id, so no batch is written again"
        world.check()
        world.close()


def all_reported(world: World, batch: int) -> bool:
    tasks = [world.attempts.get(("first", batch, task), []) for task in (0, 1)]
    return all(some and some[-1].ended for some in tasks)


def time_passes(world: World) -> None:
    world.now_ms += 1000


class TestFailures:
    """One request of a process times out in the client. The cluster may have handled the request or not."""

    @pytest.mark.parametrize("heard", [True, False])
    def test_at_every_step(self, heard: bool):
        for at in range(STEPS):
            world = World(BATCHES)
            first = world.start_driver("first", TASKS)
            world.fails_at, world.heard = at, heard
            # Time passes, so that each plan looks for open transactions.
            world.run(before_step=partial(passing_time, world))
            world.fails_at = -1
            assert first.ended, "it hangs"
            assert not isinstance(first.error, MayBeLost)
            settle(world)
            world.check()
            assert world.kafka.ongoing() == []
            world.close()

    def test_what_is_decided_is_not_aborted_by_giving_up(self):
        """Spark calls abort after commit has raised, which may be after the decision: a decided batch is not aborted."""
        seen = 0
        for at in range(STEPS):
            world = World(BATCHES[:1])
            first = world.start_driver("first", (3,))
            world.fails_at, world.heard = at, True
            world.run()
            assert first.ended, "it hangs"
            if world.record() is not None and world.last_record().next_batch == 1 and first.error is not None:
                seen += 1
                assert isinstance(first.error, OutcomeUnknown | Retriable)
                world.check_committed_at_most_once()
                settle(world)
                world.check()
            world.close()
        assert seen >= 4, "the decision, and each EndTxn"

    @pytest.mark.more
    def test_for_a_while_beginning_at_any_step(self):
        for at, long in itertools.product(range(STEPS), (4, 9)):
            world = World(BATCHES)
            first = world.start_driver("first", TASKS)
            world.fails_at, world.fails_for, world.heard = at, long, at % 2 == 0
            world.run()
            assert first.ended, "it hangs"
            world.fails_at = -1
            settle(world)
            world.check()
            world.close()

    @pytest.mark.more
    def test_a_coordinator_that_was_deposed_answers_from_its_memory(self):
        """A deposed coordinator returns an old record and accepts no commits.

        A broker that acknowledges a commit has the newest record.
        """
        for deposed, crash in itertools.product(range(0, STEPS, 3), range(0, STEPS, 7)):
            if crash < deposed:
                continue
            world = World(BATCHES)
            world.start_driver("first", TASKS)

            def strike(step: int, deposed=deposed, crash=crash, world=world) -> None:
                if step == deposed:
                    world.kafka.memory = dict(world.kafka.offsets)
                if step == crash:
                    for process in world.processes:
                        process.kill()

            world.run(before_step=strike)
            settle(world)
            world.check()
            world.close()

    def test_the_end_that_makes_the_decision_is_heard_later(self):
        """If the EndTxn that decides is handled only after its timeout and Spark's abort, rows are written once.

        The driver does not know the outcome of the EndTxn, and fails.
        """
        for late in range(12):
            world = World(BATCHES[:2])
            first = world.start_driver("first", (2,))
            while not all_reported(world, 0):
                world.run_once()
            world.kafka.deaf_to_driver = True
            world.run(before_step=partial(hearing, world, late))
            assert isinstance(first.error, OutcomeUnknown)
            world.kafka.hear(0)
            settle(world)
            world.check()
            world.close()

    @pytest.mark.parametrize("verified", [True, False])
    @pytest.mark.more
    def test_an_end_of_the_driver_s_transaction_is_repeated_and_comes_late(self, verified: bool):
        """Readers get each row once if an EndTxn of the driver is repeated, and its first copy arrives late.

        Without the verification of KIP-890 (before Kafka 3.6) offsets can then be pending forever.
        """
        for at in range(STEPS):
            world = World(BATCHES)
            world.kafka.verified = verified
            first = world.start_driver("first", TASKS)

            def arrive(step: int, at=at, world=world) -> None:
                if step == at and world.kafka.ended_by_driver:
                    world.kafka.end_late(*world.kafka.ended_by_driver)

            world.run(before_step=arrive)
            if not first.ended:
                # The record is pending in a transaction that has ended, and the client times out.
                assert not verified
                first.kill()
                world.kafka.time_out_pending()
            settle(world)
            world.check()
            world.close()


class TestIntruders:
    """Another program initialises a transactional id that a task has reported, or a timeout aborts its transaction."""

    def until_reported(self, world: World) -> Process:
        first = world.start_driver("first", (2,))
        while not all_reported(world, 0):
            world.run_once()
        return first

    @pytest.mark.parametrize("take", ["init", "time_out"])
    def test_before_the_decision_the_batch_is_replayed(self, take):
        world = World(BATCHES[:2])
        first = self.until_reported(world)
        getattr(world.kafka, take)("q-1-1-1.1")
        world.run()
        assert isinstance(first.error, NotDecided)
        assert "q-1-1-1.1" in str(first.error)
        assert world.kafka.read_committed() == []
        settle(world)
        world.check()
        world.close()

    @pytest.mark.parametrize("take", ["init", "time_out"])
    def test_after_the_decision_it_is_loud_until_the_user_says_what_is_to_be_done(self, take):
        for answer in ("again", "without"):
            world = World(BATCHES[:2])
            first = self.until_reported(world)
            while world.last_record().next_batch == 0:
                world.run_once()
            getattr(world.kafka, take)("q-1-1-1.1")
            world.run()
            assert isinstance(first.error, MayBeLost)
            for number in range(3):
                again = world.start_driver(f"again-{number}", (2,))
                world.run()
                assert "firstBatch=0@1 to write all of it again" in str(self.task_error(world, again)), number
            read = world.kafka.read_committed()
            assert read == ["a", "c"], "the other transaction is committed"
            with_answer(world, 0 if answer == "again" else 1)
            settle(world)
            expected = sorted(read + (world.expected if answer == "again" else list(BATCHES[1])))
            assert world.kafka.read_committed() == expected
            # If the option stays set, it has no further effect.
            world.checkpoint.commits.discard(1)
            settle(world)
            assert world.kafka.read_committed() == expected
            world.close()

    def test_each_loss_of_one_batch_is_a_question_of_its_own(self):
        """Each loss of the same batch stops the query, and needs a ``firstBatch`` of its own.

        Three times the batch is decided, all processes die, and its transactions time out.
        """
        world = World(BATCHES[:2])
        for number in range(4):
            driver = world.start_driver(f"driver-{number}", (2,))
            if number == 3:
                world.run()
                break
            die_when_decided(world, driver)
            for each in world.kafka.ongoing():
                world.kafka.time_out(each)
            asked = world.last_record().decision
            sentence = self.refusal(world, f"asks-{number}")
            assert (
                f"firstBatch=0@{asked} to write all of it again, or firstBatch=1@{asked} to continue"
                in sentence
            )
            with_answer(world, 0)
        world.check()
        world.close()

    def refusal(self, world: World, name: str) -> str:
        again = world.start_driver(name, (2,))
        world.run()
        return str(self.task_error(world, again))

    @staticmethod
    def task_error(world: World, driver: Process) -> Exception | None:
        assert driver.error is not None
        return next(each.error for each in reversed(world.processes) if each.error and each is not driver)


def die_when_decided(world: World, driver: Process) -> None:
    """Kill all processes right after a decision, before any of its transactions is committed."""
    before = world.last_record().decision if world.record() else 0
    while (world.last_record().decision if world.record() else 0) == before:
        assert not driver.ended, driver.error
        world.run_once()
    for process in world.processes:
        process.kill()


class TestStrays:
    """Transactions that remain open after a query has ended, or that tasks of the ended query open later."""

    def ended(self, at: int, batches=BATCHES) -> World:
        """A world in which a query has ended, and then a task has continued that was suspended at the step ``at``.

        Another attempt has done the work of the task.
        """
        world = World(batches)
        world.start_driver("first", TASKS)
        sleeping: list[Process] = []

        def strike(step: int) -> None:
            if step == at:
                sleeping.extend(sleepers(world, "task"))
                for process in sleeping:
                    process.frozen = True

        world.run(before_step=strike)
        for process in sleeping:
            process.frozen = False
        world.run()
        world.check()
        return world

    @pytest.mark.parametrize("by", ["the next start", "resolve"])
    def test_nothing_of_an_ended_query_holds_back_readers(self, by):
        left = 0
        for at in range(STEPS):
            world = self.ended(at)
            left += bool(world.kafka.ongoing())
            world.now_ms += SWEEP_INTERVAL_MS
            if by == "resolve":
                assert resolved(world).error is None
            else:
                world.batches.append(("j", "k"))
                settle(world)
            world.check()
            assert world.kafka.ongoing() == [], at
            world.close()
        assert left > 5

    @pytest.mark.parametrize("by", ["the next start", "resolve"])
    def test_an_id_that_is_no_longer_in_the_pool_is_aborted_under_new_names(self, by):
        """The open transaction of an id that has left the pool is aborted, and all ids of the pool get new names.

        The pool has a limit, and a task whose id has left the pool may still write with the id.
        """
        world = self.ended(STEPS)
        world.kafka.add("q-1-7", world.kafka.init("q-1-7"), [(OUT, 0)])
        world.now_ms += SWEEP_INTERVAL_MS
        if by == "resolve":
            assert resolved(world).error is None
        else:
            world.batches.append(("j",))
            settle(world)
        assert world.kafka.ongoing() == []
        assert world.last_record().run == 4
        world.check()
        world.close()

    def test_a_driver_that_died_in_the_middle_of_its_decision_holds_nothing_back(self):
        for at in range(STEPS + 1):
            world = World(BATCHES)
            world.start_driver("first", TASKS)
            all_die(world, at)
            assert resolved(world).error is None
            assert world.kafka.ongoing() == [], at
            settle(world)
            world.check()
            world.close()

    def test_a_name_without_a_sink_leaves_nothing(self):
        world = World(BATCHES)
        assert resolved(world).result is None
        assert world.kafka.ids == {}
        # The name of another sink may begin with this name.
        world.kafka.add("q-2-driver", world.kafka.init("q-2-driver"), [("__consumer_offsets", 0)])
        assert resolved(world).result is None
        assert list(world.kafka.ids) == world.kafka.ongoing() == ["q-2-driver"]
        world.close()

    def test_a_lost_record_s_strays_are_aborted_and_their_names_not_used_again(self):
        world = self.ended(STEPS // 2)
        while not world.kafka.ongoing():
            world.kafka.add("q-1-0", world.kafka.ids["q-1-0"].producer, [(OUT, 0)])
        world.kafka.offsets.clear()
        world.checkpoint.commits.clear()
        world.checkpoint.offsets.clear()
        world.batches = [("x", "y")]
        assert "has committed transactions" in asked(world)
        with_answer(world, 0)
        settle(world)
        assert world.kafka.ongoing() == []
        assert world.last_record().run > 1
        world.close()

    @pytest.mark.more
    def test_beside_a_running_query_at_any_time_and_late(self):
        """`resolve`, suspended at any step beside a running query and resumed later, loses and duplicates no row.

        It causes at most a replay, and touches no id that was initialised later.
        """
        for at, long in itertools.product(range(1, STEPS, 9), (0, 3, 11, 41, 10**9)):
            for sleeps in (0, 4, 8):
                world = World(BATCHES)
                world.start_driver("first", TASKS)
                late: list[Process] = []

                def strike(step: int, at=at, long=long, sleeps=sleeps, world=world, late=late) -> None:
                    if step == at:
                        late.append(start_resolve(world))
                        for _ in range(sleeps):
                            if late[0].runnable:
                                late[0].step()
                        late[0].frozen = bool(long)
                    if step == at + long and late:
                        late[0].frozen = False

                world.run(before_step=strike)
                for process in late:
                    process.frozen = False
                world.run()
                errors = settle(world)
                assert not any(isinstance(each, MayBeLost) for each in errors)
                world.check()
                world.close()


def start_resolve(world: World) -> Process:
    return world.spawn("resolve", lambda: resolve(world.cluster(), world.settings, world.now_ms))


def resolved(world: World) -> Process:
    process = start_resolve(world)
    world.run()
    assert process.ended, "it hangs"
    return process


class TestTopics:
    """The output topic is deleted, and created again at once or by the next task that writes to the topic."""

    def failures(self, world: World, at: int, created_again: bool) -> list[str]:
        """Delete the topic and kill all processes at the step ``at``, then restart; return the errors `MayBeLost`."""

        def strike(step: int) -> None:
            if step == at:
                for process in world.processes:
                    process.kill()
                world.kafka.delete_topic()
                if created_again:
                    world.kafka.create_topic()

        world.start_driver("first", TASKS)
        world.run(before_step=strike)
        world.start_driver("again", (2,))
        world.run()
        return [str(each.error) for each in world.processes if isinstance(each.error, MayBeLost)]

    @pytest.mark.parametrize("created_again", [True, False])
    @pytest.mark.more
    def test_what_spark_has_not_heard_of_is_written_to_the_new_one_or_asked_about(self, created_again):
        asked = 0
        for at in range(STEPS + 1):
            world = World(BATCHES)
            heard: list[str] = []

            def note(at=at, world=world, heard=heard) -> None:
                heard.extend(row for batch in world.checkpoint.commits for row in BATCHES[batch])

            world.kafka.delete_topic = noting(world.kafka.delete_topic, note)
            sentences = self.failures(world, at, created_again)
            if sentences:
                asked += 1
                assert "out was deleted or created again since" in sentences[0]
                assert "to write all of it again" in sentences[0]
                done = max(world.checkpoint.commits, default=-1)
                with_answer(world, done + 1)
                settle(world)
            assert world.kafka.read_committed() == [row for row in world.expected if row not in heard], at
            world.close()
        assert asked > len(BATCHES), (
            "between the decision of a batch and Spark's commit there are several steps"
        )

    def test_a_topic_that_is_made_anew_under_a_batch_costs_a_replay_or_a_question(self):
        outcomes = set()
        for at in range(STEPS):
            world, first = self.made_anew(at)
            outcomes.add(type(first.error))
            if isinstance(first.error, MayBeLost):
                assert "out was deleted or created again before all of its" in str(first.error)
                with_answer(world, 0)
            settle(world)
            # Rows may be lost without an error only if their batch was completely written before.
            assert world.kafka.read_committed() in (
                [[], world.expected] if first.error is None else [world.expected]
            )
            world.close()
        assert outcomes == {type(None), NotDecided, MayBeLost}

    def test_a_topic_that_the_record_has_no_room_for_is_looked_at_too(self, monkeypatch):
        def slimmest(record, chunks_max):
            return dataclasses.replace(record.without_partitions(), topics={})

        monkeypatch.setattr(store, "fitting", slimmest)
        outcomes = set()
        for at in range(STEPS):
            world, first = self.made_anew(at)
            outcomes.add(type(first.error))
            world.close()
        assert outcomes == {type(None), NotDecided, MayBeLost}

    def made_anew(self, at: int) -> tuple[World, Process]:
        """A driver that writes one batch. At the step ``at`` the output topic is deleted and created again."""
        world = World(BATCHES[:1])
        first = world.start_driver("first", (2,))

        def strike(step: int) -> None:
            if step == at:
                world.kafka.delete_topic()
                world.kafka.create_topic()

        world.run(before_step=strike)
        return world, first


def noting(function, note):
    def both() -> None:
        note()
        function()

    return both


class TestLateRequests:
    @pytest.mark.more
    def test_a_repeated_init_comes_late_at_every_step(self):
        """Readers get each row once if InitProducerId is repeated after a lost response, and the first copy arrives late."""
        probe = World(BATCHES)
        probe.start_driver("first", TASKS)
        probe.run()
        names = sorted(probe.kafka.ids)
        probe.close()
        for name, at in itertools.product(names, range(1, STEPS + 20, 7)):
            world = World(BATCHES)
            world.lost = {name}
            world.start_driver("first", TASKS)

            def arrive(step: int, at=at, world=world) -> None:
                if step >= at and world.kafka.late:
                    world.kafka.init(world.kafka.late.pop())

            world.run(before_step=arrive)
            errors = settle(world)
            assert all(isinstance(each, NotDecided) for each in errors)
            world.check()
            world.close()

    def test_a_lost_answer_costs_no_replay(self):
        for name in ("q-1-0", "q-1-0-1.0", "q-1-0-ticket"):
            world = World(BATCHES)
            world.lost = {name}
            first = world.start_driver("first", TASKS)
            world.run()
            assert first.error is None
            world.check()
            world.kafka.init(name)
            world.check()
            world.close()


class TestChance:
    @pytest.mark.parametrize(
        "seed", [*range(50), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(50, 1000))]
    )
    def test_anything_at_any_time(self, seed: int):
        rng = random.Random(seed)
        rows = iter(f"{number:03}" for number in range(1000))
        world = World([[next(rows) for _ in range(rng.randrange(7))] for _ in range(5)])
        world.start_driver("driver-0", [rng.randint(1, 4) for _ in range(3)])

        def strike(step: int) -> None:
            living = [process for process in world.processes if not process.ended]
            if world.kafka.late and rng.random() < 0.1:
                world.kafka.init(world.kafka.late.pop())
            dice = rng.random()
            if dice < 0.01 and living:
                rng.choice(living).kill()
            elif dice < 0.03 and living:
                rng.choice(living).frozen ^= True
            elif dice < 0.04 and living:
                world.lost = {pool_id("q", 1, 0), f"q-{world.last_record().run if world.record() else 1}-1"}
            elif dice < 0.05 and len([each for each in living if each.name.startswith("driver")]) < 3:
                world.start_driver(
                    f"driver-{step}", [rng.randint(1, 4) for _ in range(3)], rng.choice((1, -1))
                )
            elif dice < 0.07:
                world.now_ms += SWEEP_INTERVAL_MS // 2
            elif dice < 0.08 and len([each for each in living if each.name == "resolve"]) < 2:
                start_resolve(world)

        world.run(choose=rng.choice, before_step=strike)
        for process in world.processes:
            process.frozen = False
        world.run()
        settle(world)
        world.check()
        world.close()


class TestRefusals:
    def finished(self) -> World:
        world = World(BATCHES)
        world.start_driver("first", TASKS)
        world.run()
        return world

    def failure(self, world: World) -> str:
        driver = world.start_driver("again", (1,))
        world.run()
        return str(TestIntruders.task_error(world, driver))

    def test_a_new_checkpoint_is_not_taken_for_the_old_one(self):
        """A new checkpoint is not taken for the old one: its batches 0, 1, 2 would be skipped as decided, and lost."""
        world = self.finished()
        world.checkpoint.query_id = "query-2"
        world.checkpoint.commits.clear()
        assert "belongs to another query (query-1" in self.failure(world)
        with_answer(world, 0)
        settle(world)
        assert world.kafka.read_committed() == sorted(world.expected * 2)
        assert world.last_record().query_id == "query-2"
        world.close()

    def test_an_old_checkpoint_is_not_taken_for_the_newest(self):
        world = self.finished()
        world.checkpoint.commits = {0}
        assert "the checkpoint is an old one" in self.failure(world)
        assert world.kafka.read_committed() == world.expected
        world.close()

    def test_an_old_checkpoint_that_is_restored_twice_is_written_again_twice(self):
        world = self.finished()
        for number in (2, 3):
            world.checkpoint.commits = {0}
            decision = world.last_record().decision
            assert f"set the option firstBatch=1@{decision} to write again" in self.failure(world)
            with_answer(world, 1)
            settle(world)
            assert world.kafka.read_committed() == sorted(
                [*BATCHES[0], *BATCHES[1] * number, *BATCHES[2] * number]
            )
        world.close()

    def test_an_answer_that_would_lose_a_batch_that_was_never_decided_is_refused(self):
        world = World(BATCHES)
        with_answer(world, 1)
        assert "firstBatch=1@0 would lose batch 0" in self.failure(world)
        world.settings = World(BATCHES).settings
        settle(world)
        world.check()
        world.batches.append(("j",))
        with_answer(world, 4)
        assert (
            "would lose batch 3: the decision record of the sink q says that it was never decided"
            in self.failure(world)
        )
        assert world.checkpoint.commits == {0, 1, 2}
        world.close()

    def test_a_lost_record_is_not_taken_for_a_new_query(self):
        world = self.finished()
        world.kafka.offsets.clear()
        world.checkpoint.commits = {0, 1}
        assert "has not decided any batch" in self.failure(world)
        with_answer(world, 3)
        settle(world)
        world.check()
        world.close()

    def test_the_option_must_fit_the_batch(self):
        world = self.finished()
        world.kafka.offsets.clear()
        world.checkpoint.commits = {0, 1}
        with_answer(world, 0)
        assert "firstBatch=0@0 does not fit: the query is at batch 2" in self.failure(world)
        world.close()

    def test_the_option_stays_where_it_is_without_harm(self):
        """The option firstBatch does no harm if it is set from the start and stays set after a crash at any step."""
        for at in range(0, STEPS, 2):
            world = World(BATCHES)
            with_answer(world, 0)
            world.start_driver("first", TASKS)
            all_die(world, at)
            settle(world)
            world.check()
            world.close()


class TestLostFiles:
    """Files of the checkpoint are lost, so Spark plans the last batch again."""

    def one(self, at: int, planned_anew: str, settings: Settings = SETTINGS) -> tuple[World, bool]:
        """Kill all processes at the step ``at``, and remove the file of the batch that Spark has not committed.

        ``planned_anew``: the rows of the batch that Spark plans in its place; "" for as many rows, of which one is
        different. Returns the world, and whether the batch was decided (False if there is no such batch).
        """
        world = World(BATCHES, settings)
        world.start_driver("first", TASKS)
        all_die(world, at)
        [lost, *_] = [*(set(world.checkpoint.offsets) - world.checkpoint.commits), None]
        if lost is None:
            return world, False
        del world.checkpoint.offsets[lost]
        world.batches[lost] = tuple(planned_anew) or (*BATCHES[lost][:-1], "other")
        record = world.record()
        return world, record is not None and record.next_batch > lost

    @pytest.mark.parametrize("planned_anew", ["stuvwxyz", "d", ""], ids=["more", "fewer", "as many"])
    def test_a_decided_batch_that_was_planned_anew_is_not_passed_over(self, planned_anew: str):
        questions = 0
        for at in range(0, STEPS + 1, 3):
            world, decided = self.one(at, planned_anew)
            if decided:
                questions += 1
                assert "Spark has planned another one in its place" in asked(world, restarts=2)
                assert set(world.kafka.read_committed()) <= set(ROWS)
            else:
                settle(world)
                world.check()
            world.close()
        assert questions > 5

    def test_the_question_has_two_answers(self):
        decided, at = False, STEPS
        while not decided:
            at -= 1
            world, decided = self.one(at, "hij")
        question = asked(world)
        decision = world.last_record().decision
        assert "it had 2 rows and has 3 now" in question
        assert (
            f"firstBatch=2@{decision} writes this batch as well, firstBatch=3@{decision} continues"
            in question
        )
        with_answer(world, 3)
        settle(world)
        assert world.kafka.read_committed() == ROWS
        world.checkpoint.commits.discard(2)
        with_answer(world, 2)
        settle(world)
        assert world.kafka.read_committed() == sorted([*ROWS, *"hij"])
        world.close()

    def test_without_the_hash_the_rows_are_counted(self):
        counted = dataclasses.replace(SETTINGS, hashed=False)
        for at in range(0, STEPS, 3):
            world, decided = self.one(at, "", counted)
            settle(world)
            assert world.kafka.read_committed() == (ROWS if decided else world.expected)
            world.close()
            world, decided = self.one(at, "stuvwxyz", counted)
            if decided:
                assert "and has 8 now" in asked(world)
            world.close()

    def test_a_query_that_is_not_deterministic_is_known_by_its_offsets(self, tmp_path: Path, caplog):
        """A query that is not deterministic is recognised by its offsets.

        Each replay has the same number of different rows: they are written once, and a warning is logged.
        """
        warned = 0
        for at in range(0, STEPS, 2):
            world = World(BATCHES, dataclasses.replace(SETTINGS, checkpoint=str(tmp_path / str(at))))
            world.deterministic = False
            world.start_driver("first", TASKS)
            all_die(world, at)
            settle(world)
            assert [row[0] for row in world.kafka.read_committed()] == world.expected
            assert caplog.text.count("is not deterministic") <= 1
            warned += caplog.text.count("is not deterministic")
            caplog.clear()
            world.close()
        assert warned > 3

    def test_another_number_of_rows_from_the_same_offsets_is_a_question(self, tmp_path: Path):
        """Another number of rows from the same offsets is an error, until the user sets ``firstBatch``.

        Either the query is not deterministic, or its source was created again: the sink cannot know which.
        """
        questions = 0
        for at in range(0, STEPS, 2):
            world = World(BATCHES[:1], dataclasses.replace(SETTINGS, checkpoint=str(tmp_path / str(at))))
            world.deterministic, world.steady = False, False
            world.start_driver("first", TASKS)
            all_die(world, at)
            record = world.record()
            decided = record is not None and record.next_batch > 0 and not world.checkpoint.commits
            question = asked(world)
            assert ("it had 3 rows and has 4 now. Its offsets are the same" in question) == decided
            questions += decided
            world.close()
        assert questions > 1

    def test_its_offsets_must_be_those_that_were_decided(self, tmp_path: Path):
        """A batch that was planned again, with as many rows as the decided one but different ones, stops the
        query."""
        questions = 0
        for at in range(0, STEPS, 2):
            world, decided = self.one(
                at, "", dataclasses.replace(SETTINGS, checkpoint=str(tmp_path / str(at)))
            )
            if decided:
                questions += 1
                assert "rows are different ones" in asked(world)
            world.close()
        assert questions > 5

    def test_without_the_hash_the_offsets_tell(self, tmp_path: Path):
        """Without the hash the offsets show that a batch was planned again with as many other rows.

        These rows do not count as written.
        """
        questions = 0
        for at in range(0, STEPS, 2):
            world, decided = self.one(
                at, "", dataclasses.replace(SETTINGS, hashed=False, checkpoint=str(tmp_path / str(at)))
            )
            if decided:
                questions += 1
                question = asked(world)
                assert "rows are of other offsets" in question
                assert "contentHash" not in question, "it would not help"
            else:
                settle(world)
                world.check()
            world.close()
        assert questions > 5

    def test_without_the_hash_a_replay_is_known_by_its_offsets(self, tmp_path: Path, caplog):
        for at in range(0, STEPS, 2):
            counted = dataclasses.replace(SETTINGS, hashed=False, checkpoint=str(tmp_path / str(at)))
            world = World(BATCHES, counted)
            world.deterministic = False
            world.start_driver("first", TASKS)
            all_die(world, at)
            settle(world)
            assert [row[0] for row in world.kafka.read_committed()] == world.expected
            assert "is not deterministic" not in caplog.text
            world.close()


def lose_group(world: World, where: Path | None) -> None:
    for group, partition in list(world.kafka.offsets):
        if group == world.settings.name:
            del world.kafka.offsets[group, partition]


def lose_all_groups(world: World, where: Path | None) -> None:
    world.kafka.offsets.clear()


def time_out(world: World) -> None:
    """Time out the open transactions: OffsetFetch waits for them, and a query with another name does not abort them."""
    for each in world.kafka.ongoing():
        world.kafka.time_out(each)


def seven_days(world: World, where: Path | None) -> None:
    time_out(world)
    world.kafka.offsets.clear()
    world.kafka.ids.clear()


def move_unnamed(world: World, where: Path | None) -> None:
    """Move the checkpoint, whose location determines the name of an unnamed query's sink.

    ``where``: the new path; None if the checkpoint is not a local directory.
    """
    time_out(world)
    if (
        where is not None
        and world.settings.checkpoint is not None
        and Path(world.settings.checkpoint).exists()
    ):
        shutil.copytree(world.settings.checkpoint, where)
    place = None if where is None else str(where)
    world.settings = dataclasses.replace(world.settings, name="odradek-0123", checkpoint=place)


def rename(world: World, where: Path | None) -> None:
    time_out(world)
    world.settings = dataclasses.replace(world.settings, name="renamed")


def another_decision_topic(world: World, where: Path | None) -> None:
    world.settings = dataclasses.replace(world.settings, topic="elsewhere")


def lose_decision_topic(world: World, where: Path | None) -> None:
    """Delete the decision topic, and use another one. With the topic Kafka deletes its committed offsets in all groups.

    ``where`` is not used: all functions in ``LOSSES`` have the same arguments.
    """
    world.kafka.offsets.clear()
    another_decision_topic(world, where)


LOSSES = [
    lose_group,
    lose_all_groups,
    seven_days,
    move_unnamed,
    rename,
    another_decision_topic,
    lose_decision_topic,
]


class TestLostRecords:
    """The record of the first batch is lost or not found, and the sink must not take the query for a new one."""

    # After seven days nothing of the sink is left in the cluster; only a readable checkpoint shows that it was used.
    @pytest.mark.parametrize(
        ("loss", "local"),
        [(loss, local) for loss in LOSSES for local in (True, False) if local or loss is not seven_days],
    )
    def test_the_first_batch_is_not_written_twice(self, loss, local: bool, tmp_path: Path):
        questions = 0
        for at in range(0, STEPS, 2):
            world = World(
                BATCHES[:1],
                dataclasses.replace(SETTINGS, checkpoint=str(tmp_path / str(at)) if local else None),
            )
            world.start_driver("first", (2,))
            all_die(world, at)
            if world.checkpoint.commits:
                break
            record, written = world.record(), world.kafka.read_committed()
            loss(world, tmp_path / f"{at}-moved" if local else None)
            question = asked(world, restarts=2 if record is not None and written else 1)
            world.check_committed_at_most_once()
            if written:
                questions += 1
                assert (
                    "has not been written yet, set the option firstBatch=0@0; if it has, firstBatch=1@0"
                    in question
                )
            if question:
                with_answer(world, 1 if written else 0, 0)
                settle(world)
            assert written or world.kafka.read_committed() == world.expected
            world.close()
        assert questions >= 2

    def test_a_new_query_is_asked_nothing(self, tmp_path):
        for at in range(0, STEPS, 3):
            world = World(BATCHES[:1], dataclasses.replace(SETTINGS, checkpoint=str(tmp_path / str(at))))
            world.start_driver("first", (2,))
            all_die(world, at)
            settle(world)
            world.check()
            world.close()

    def test_without_the_right_to_the_group_of_the_query_a_warning_says_what_is_missing(self, caplog):
        world = World(BATCHES)
        world.kafka.refused_groups = "odradek-query-"
        world.start_driver("first", TASKS)
        world.run()
        world.check()
        assert (
            "without READ on the group odradek-query-query-1 the sink cannot check at the query's first batch"
            in caplog.text
        )
        world.close()

    def test_a_name_that_is_set_back_goes_on(self, tmp_path):
        world = World(BATCHES, dataclasses.replace(SETTINGS, checkpoint=str(tmp_path / "checkpoint")))
        world.start_driver("first", TASKS)
        while len(world.kafka.read_committed()) < len(BATCHES[0]):
            world.run_once()
        for process in world.processes:
            process.kill()
        before = world.settings
        rename(world, None)
        assert "the sink q (decisionTopic place)" in asked(world)
        world.settings = before
        settle(world)
        world.check()
        world.close()


class TestOneDecisionPartition:
    """The decision topic has one partition, so the write before each read goes to the partition of the record."""

    def world(self) -> World:
        world = World(BATCHES)
        world.kafka.decision_partitions = 1
        return world

    def test_a_quiet_run_and_a_crash_at_any_step(self):
        for at in range(0, STEPS + 20, 3):
            world = self.world()
            world.start_driver("first", TASKS)
            all_die(world, at)
            settle(world)
            world.check()
            world.close()

    def test_a_coordinator_that_was_deposed_answers_from_its_memory(self):
        """A deposed coordinator, which returns an old record as the newest, causes no duplicated batch."""
        for deposed in range(0, STEPS, 9):
            world = self.world()
            world.start_driver("first", TASKS)

            def strike(step: int, deposed=deposed, world=world) -> None:
                if step == deposed:
                    world.kafka.memory = dict(world.kafka.offsets)
                if step == deposed + 20:
                    for process in world.processes:
                        process.kill()

            world.run(before_step=strike)
            settle(world)
            world.check()
            world.close()


def test_a_batch_that_took_too_long_is_not_decided():
    world = World(BATCHES[:1])
    first = world.start_driver("first", (2,))
    while not all_reported(world, 0):
        world.run_once()
    world.now_ms += 820_000
    world.run()
    assert isinstance(first.error, NotDecided)
    assert "it took 820 s" in str(first.error)
    settle(world)
    world.check()
    world.close()


def test_strays_of_attempts_that_lost_are_aborted():
    """The open transaction of a copy that lost is aborted, although the copy is slower than its rival and continues."""
    world = World(BATCHES)
    world.start_driver("first", TASKS)
    while ("first", 1, 1) not in world.attempts:
        world.run_once()
    loser = world.attempts["first", 1, 1][0]
    while pool_id("q", 1, 1) not in world.kafka.ongoing():
        loser.step()
    loser.frozen = True
    world.run()
    world.check()
    assert world.kafka.ongoing() == []
    world.close()


def test_a_copy_that_lost_against_the_first_attempt_holds_no_reader_back():
    """A speculative copy that lost to the first attempt holds no reader back.

    Spark starts the copy while the first attempt writes with the pool's id, in the last batch.
    """
    world = World(BATCHES[:2])
    world.start_driver("first", TASKS)
    while ("first", 1, 1) not in world.attempts:
        world.run_once()
    [winner] = world.attempts["first", 1, 1]
    while pool_id("q", 1, 1) not in world.kafka.ongoing():
        winner.step()
    winner.frozen = True
    while len(world.attempts["first", 1, 1]) < 2:
        world.run_once()
    copy = world.attempts["first", 1, 1][1]
    before = set(world.kafka.ongoing())
    while set(world.kafka.ongoing()) == before:
        copy.step()
    copy.frozen, winner.frozen = True, False
    world.run()
    world.check()
    assert world.kafka.ongoing() == []
    world.close()


def test_the_driver_s_id_is_no_task_s():
    world = World(BATCHES[:1])
    world.start_driver("first", (1,))
    world.run()
    assert driver_id("q") in world.kafka.ids
    assert all(partition[0] == OUT for partition in world.kafka.logs)
    world.close()
