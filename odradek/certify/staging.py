"""A fault is staged: its rule at the broker, and what the certifier does when the rule is hit."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.certify.cluster import Cluster
from odradek.certify.exchanges import exchanges
from odradek.certify.faults import IN_TRANSACTION, WRITES, Act
from odradek.certify.holding import HeldMoment
from odradek.certify.idleness import Idleness
from odradek.certify.job import Instance, Job, wait_until
from odradek.certify.plan import Injection, Plan
from odradek.certify.seeding import write
from odradek.certify.workload import Seed
from odradek.deadlines import stretched
from odradek.errors import FaultNotHit, OdradekError
from odradek.handle import Handle
from odradek.remote import ENTRIES_MAX, Rule
from odradek.transactions import Transaction

HANDLED_S: Final = stretched(2.0)
"""How long the broker may take to handle a request whose answer is kept back."""
TAKE_OVER_S: Final = stretched(10.0)
"""How long another instance may take to do what a frozen one does not."""
WAKE_S: Final = 1.0
"""What a frozen instance gets to do its worst after it was woken."""
NODE_IS_AWAY_S: Final = 0.2
CUT_S: Final = 1.0
HIT_PAUSE_S: Final = 0.2
"""How long the broker is asked at once whether a rule was hit."""
_NEWEST: Final = 100
"""Requests among which the newest change is looked for."""
_HIT: Final = {"hold": "held", "lose-answer": "answer_lost", "lose-request": "unanswered"}
"""The outcome in the trace of a request that a rule with this action has hit."""
_EXPIRES: Final = "8d"
_CHECKS_MS: Final = 11_000
"""A coordinator looks for transactions that have timed out every ten seconds."""
LEFT_S: Final = 0.5
"""A transaction that no request carries on for so long was left, if there is reason to think so."""


class Staging:
    """The faults of one plan, while the job runs.

    With ``holds`` each moment is held first, and comes out of `next_held`; the fault strikes when that goes on.
    """

    def __init__(
        self,
        cluster: Cluster,
        job: Job,
        plan: Plan,
        is_done: Callable[[], bool],
        seeds: Sequence[Seed] = (),
        *,
        holds: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._holds = holds
        self._held: queue.SimpleQueue[HeldMoment] = queue.SimpleQueue()
        self._cluster, self._broker = cluster, cluster.handle
        self._job, self._is_done, self._seeds = job, is_done, seeds
        self._plan = plan
        self._rules: list[Rule] = []
        self._acting: list[tuple[Rule, threading.Thread]] = []
        self._missed: set[int] = set()
        """Injections whose request or step was held, and gone before the fault could strike."""
        self._ended = threading.Event()
        self._sessions_over = self._transactions_over = 0
        """How many instances were gone when the clocks were moved for them."""
        self._waits_seen: set[int] = set()
        self._idleness = Idleness(now_s)
        self._ended_once: set[tuple[str, int]] = set()
        self.clock_was_moved = False
        self.notes: list[str] = []
        """What was done, in order."""

    def begin(self) -> None:
        for at, injection in enumerate(self._plan.injections):
            rule = self._broker.faults.add(injection.holding_rule if self._holds else injection.rule)
            self._rules.append(rule)
            if self._holds or injection.fault.act is not Act.NOTHING:
                thread = threading.Thread(target=self._act, args=(injection, at), daemon=True)
                thread.start()
                self._acting.append((rule, thread))

    def next_held(self) -> HeldMoment | None:
        """A moment at which the run has come to stand still, if there is one."""
        with contextlib.suppress(queue.Empty):
            return self._held.get_nowait()
        return None

    @property
    def is_over(self) -> bool:
        """Nothing is under way: each act has ended, or its rule has not been hit."""
        return not any(thread.is_alive() and rule.hits for rule, thread in self._acting)

    def hits(self) -> list[int]:
        return [0 if at in self._missed else rule.hits for at, rule in enumerate(self._rules)]

    def release(self) -> bool:
        """Let go what rules still hold: a late request arrives now. True if there was any."""
        held = False
        for rule in self._rules:
            if rule.held:
                held = True
                rule.release()
        return held

    def end(self) -> None:
        self._ended.set()
        for _, thread in self._acting:
            thread.join()

    # -- what is done ------------------------------------------------------------------------------------------

    def _act(self, injection: Injection, at: int) -> None:
        act = injection.fault.act
        with contextlib.suppress(OdradekError):
            is_hit = self._await_hit(self._rules[at])
            if is_hit and self._holds:
                is_hit = self._stand_still(injection, at)
            if is_hit and act is not Act.NOTHING:
                self._acts[act](self, injection, self._rules[at])

    def _stand_still(self, injection: Injection, at: int) -> bool:
        """True if the fault has struck what was held: not if the run, or its connection, has ended meanwhile."""
        holding = self._rules[at]
        held = self._seen(injection)
        self._held.put(held)
        while not held.went_on.wait(HIT_PAUSE_S):
            if self._ended.is_set():
                return False
        striking = self._broker.faults.add(injection.striking_rule)
        holding.release(to=striking)
        if not striking.hits:
            striking.remove()  # it would strike a later request
            self._missed.add(at)
            return False
        self._rules[at] = striking
        return True

    def _seen(self, injection: Injection) -> HeldMoment:
        owner = None if injection.moment.is_step else self._instance(injection)
        return HeldMoment(
            injection,
            self._cluster.bootstrap_servers,
            self._cluster.control_url,
            [(each.number, each.processes()) for each in self._job.alive],
            owner.number if owner else None,
        )

    def _await_hit(self, rule: Rule) -> bool:
        """False if the run has ended before."""
        while not self._ended.is_set():
            with contextlib.suppress(FaultNotHit):
                rule.wait(timeout_s=HIT_PAUSE_S)
                return not self._ended.is_set()
        return False

    def _note(self, text: str) -> None:
        self.notes.append(text)

    def _exchange(self, injection: Injection) -> Mapping[str, Any] | None:
        """The request that the rule has hit: the newest one to which that has happened what the rule does."""
        matchers = dict(injection.moment.matchers)
        names = ("transactional_id", "client_id")
        filters = {name: matchers[name] for name in names if name in matchers and "*" not in matchers[name]}
        entries = self._broker.trace.entries(api=injection.moment.on, limit=50, bodies=False, **filters)
        hit = _HIT.get(injection.fault.action.partition(" ")[0])
        return next(
            (
                each
                for outcome in (hit, "in_progress")
                for each in reversed(entries)
                if each["outcome"] == outcome
            ),
            None,
        )

    def _instance(self, injection: Injection) -> Instance | None:
        """Whose request it was."""
        alive = self._job.alive
        if len(alive) == 1:
            return alive[0]
        exchange = self._exchange(injection)
        return (self._job.owner(exchange["peer"]) if exchange else None) or (alive[0] if alive else None)

    def _kill(self, injection: Injection, _: Rule) -> None:
        instance = self._instance(injection)
        if "answer" in injection.fault.action:
            self._await_handled(injection)
        if instance is not None:
            self._note(f"instance {instance.number} is killed")
            self._job.killed(instance)

    def _kill_all(self, injection: Injection, _: Rule) -> None:
        self._await_handled(injection)
        self._note("all instances are killed")
        for instance in self._job.alive:
            self._job.killed(instance)

    def _await_handled(self, injection: Injection) -> None:
        def handled() -> bool:
            found = self._exchange(injection)
            return found is not None and found["outcome"] == "answer_lost"

        wait_until(handled, HANDLED_S)

    def keep_clock(self) -> None:
        """What a dead instance leaves behind lasts until a time-out; the clock goes there once another one waits for it.

        A member that died, or was told that it is none, is one until its session times out: who joins waits for it, and the
        other members wait for its partitions where none will come in its place. Offsets of its open transaction are pending
        until that times out, unless a producer with the same id comes first: a client whose producer starts with the first
        record only has to wait for them (KIP-447). To be called all the time.
        """
        if not self._cluster.moves_time:
            return
        dead = self._dead
        if self._gone > self._sessions_over and (self._joins_waiting() or self._are_partitions_waited_for()):
            self._sessions_over = self._gone
            self._advance_groups()
        if dead > self._transactions_over and self._are_offsets_waited_for():
            self._transactions_over = dead
            self._advance_transactions()

    def ends_rest(self) -> bool:
        """The job asks for nothing more: the clocks go on to what a cluster would do of itself. False if there is nothing.

        The group takes the partitions of a dead member from it, also where no other one comes, and where a client of a
        living process died or was closed without a word (Kafka Streams' threads do so); the coordinator ends transactions.
        """
        if not self._cluster.moves_time:
            return False
        gone = self._gone
        # A leader that died while it joined leads the generation: the others wait for its assignment.
        waits = self._joins_waiting() | self._waiting("SyncGroup")
        if gone > self._sessions_over or waits - self._waits_seen:
            self._sessions_over = gone
            self._waits_seen |= waits
            self._advance_groups()
            return True
        return self.ends_open_transactions(are_left=True)  # what asks for nothing carries none on

    def ends_open_transactions(self, *, are_left: bool = False) -> bool:
        """The job has done its work. What it left open the coordinator ends: the clock goes there.

        False if nothing is open, if it outlived its time-out, or if a request may carry it on (not where ``are_left``).
        """
        if not self._cluster.moves_time:
            return False
        left = {(each.transactional_id, each.producer_epoch) for each in self._open_transactions()}
        if left <= self._ended_once or not (are_left or self._is_nothing_carried_on()):
            return False
        self._ended_once |= left
        self._advance_transactions()
        return True

    @property
    def _dead(self) -> int:
        return len(self._job.exits) + self._job.kills

    @property
    def _gone(self) -> int:
        return self._dead + self._expelled()

    def _expelled(self) -> int:
        return sum(rule.hits for rule in self._rules if "UNKNOWN_MEMBER_ID" in rule.text)

    def _freeze(self, injection: Injection, rule: Rule) -> None:
        instance = self._instance(injection)
        if instance is None:
            rule.release()
            return
        instance.freeze()
        self._note(f"instance {instance.number} is frozen")
        rule.release()
        self._job.start(instance.number)
        self._job.kills += 1
        self._advance_transactions()
        self._await(self._is_done, TAKE_OVER_S)
        self._note(f"instance {instance.number} wakes")
        instance.thaw()
        self._ended.wait(WAKE_S)

    def _add_instance(self, injection: Injection, rule: Rule) -> None:
        number = 1 + max((each.number for each in self._job.alive), default=0)
        self._start_beside(number, rule)

    def _second_copy(self, injection: Injection, rule: Rule) -> None:
        instance = self._instance(injection)
        self._start_beside(instance.number if instance else 1, rule)

    def _start_beside(self, number: int, rule: Rule) -> None:
        asked = self._asked()
        self._job.start(number)
        self._note(f"instance {number} is started")
        self._await(lambda: self._asked() > asked, TAKE_OVER_S)
        rule.release()

    def _remove_instance(self, injection: Injection, rule: Rule) -> None:
        instance = self._instance(injection)
        if instance is not None:
            self._note(f"instance {instance.number} is asked to end")
            release = threading.Timer(0.1, rule.release)
            release.start()
            with self._job.replaced():
                instance.end()
                release.join()  # behind the run there is no such rule any more
                self._job.kills += 1  # it may have left its group, or not
                self._job.start(instance.number)

    def _start_node(self, injection: Injection, rule: Rule) -> None:
        self._ended.wait(NODE_IS_AWAY_S)
        for node_id, node in self._broker.nodes.items():
            if node.state == "killed":
                node.start()
                self._note(f"node {node_id} is back")

    def _move(self, injection: Injection, rule: Rule) -> None:
        matchers = dict(injection.moment.matchers)
        is_produce = injection.moment.on == "Produce"
        topics = self._topics(matchers) if is_produce else ()
        with contextlib.suppress(OdradekError):
            for to in sorted(self._broker.nodes):
                moved = self._lead(topics, to) if is_produce else self._coordinate(matchers, to)
                if moved:
                    self._note(moved)
                    break
        rule.release()

    def _cut_links(self, injection: Injection, rule: Rule) -> None:
        exchange = self._exchange(injection)
        if exchange is None:
            rule.release()
            return
        node = exchange["node"]
        cuts = [self._broker.faults.add(f"cut {node} {each}") for each in self._broker.nodes if each != node]
        self._note(f"node {node} reaches no other node")
        rule.release()
        self._ended.wait(CUT_S)
        for each in cuts:
            each.remove()
        self._note(f"node {node} reaches all others again")

    def _topics(self, matchers: Mapping[str, str]) -> Collection[str]:
        """The topics of a Produce: those of its matcher, else those that the newest such request named."""
        if "topic" in matchers:
            return {matchers["topic"]}
        newest = exchanges(self._broker.trace.entries(api="Produce", limit=20))
        return next((each.topics for each in reversed(newest) if each.topics), ())

    def _lead(self, topics: Collection[str], to: int) -> str:
        """What was moved; nothing if it was there already."""
        for partition in self._broker.partitions():
            if partition.topic in topics and partition.leader != to:
                self._broker.move_leader(partition.topic, partition.partition, to=to)
                return f"node {to} leads {partition.topic}-{partition.partition}"
        return ""

    def _coordinate(self, matchers: Mapping[str, str], to: int) -> str:
        """As ``_lead``."""
        broker = self._broker
        name = "group" if "group" in matchers else "transactional_id"
        if "*" in matchers.get(name, "*"):
            return ""
        at = next(
            (each for each in broker.transactions.list() if each.transactional_id == matchers[name]), None
        )
        if at is not None and at.coordinator == to:
            return ""
        broker.move_coordinator(**{name: matchers[name]}, to=to)
        return f"node {to} coordinates {name} {matchers[name]}"

    def _time_out_transaction(self, _: Injection, rule: Rule) -> None:
        self._advance_transactions()
        rule.release()

    def _time_out_session(self, _: Injection, rule: Rule) -> None:
        self._advance_groups()
        rule.release()

    def _expire_ids(self, _: Injection, rule: Rule) -> None:
        self._broker.clock.advance(_EXPIRES, only=["ids"])
        self.clock_was_moved = True
        self._note(f"the clock of transactional ids is {_EXPIRES} ahead")
        rule.release()

    def _abort_input(self, _: Injection, rule: Rule) -> None:
        """The first record of each input topic comes once more, in a transaction that aborts."""
        copies = {
            each.topic: replace(each, aborted=True) for each in reversed(self._seeds) if not each.aborted
        }
        write(self._cluster.bootstrap_servers, copies.values())
        self._note(f"a transaction has written to {', '.join(copies)}, and aborted")
        rule.release()

    _acts: Final = {
        Act.ABORT_INPUT: _abort_input,
        Act.KILL: _kill,
        Act.KILL_ALL: _kill_all,
        Act.FREEZE: _freeze,
        Act.ADD_INSTANCE: _add_instance,
        Act.SECOND_COPY: _second_copy,
        Act.REMOVE_INSTANCE: _remove_instance,
        Act.START_NODE: _start_node,
        Act.MOVE: _move,
        Act.CUT: _cut_links,
        Act.TIME_OUT_TRANSACTION: _time_out_transaction,
        Act.TIME_OUT_SESSION: _time_out_session,
        Act.EXPIRE_IDS: _expire_ids,
    }

    # -- clocks ------------------------------------------------------------------------------------------------

    def _advance_transactions(self) -> None:
        by_ms = max((each.timeout_ms for each in self._open_transactions()), default=60_000) + _CHECKS_MS
        self._advance("transactions", by_ms)

    def _open_transactions(self) -> list[Transaction]:
        return [each for each in self._broker.transactions.list() if each.state == "Ongoing"]

    def _advance_groups(self) -> None:
        by_ms = 1000 + max((each.get("session_timeout_ms", 0) for each in self._joined()), default=45_000)
        self._advance("groups", by_ms)

    def _advance(self, domain: str, by_ms: int) -> None:
        self._broker.clock.advance(by_ms, only=[domain])
        self.clock_was_moved = True
        self._note(f"the clock of {domain} is moved by {by_ms} ms")

    def _joined(self) -> list[Mapping[str, Any]]:
        return [each["request"] or {} for each in self._broker.trace.entries(api="JoinGroup", limit=100)]

    def _joins_waiting(self) -> set[int]:
        return self._waiting("JoinGroup")

    def _waiting(self, api: str) -> set[int]:
        """The numbers of the exchanges without an answer so far."""
        entries = self._broker.trace.entries(api=api, limit=100, bodies=False)
        return {int(each["number"]) for each in entries if each["outcome"] == "in_progress"}

    def _are_partitions_waited_for(self) -> bool:
        """Nothing starts in place of one that died, and the others have nothing to do."""
        return self._job.given_up > 0 and self._is_nothing_carried_on()

    def _are_offsets_waited_for(self) -> bool:
        """A consumer asks again and again for offsets of a transaction that no request carries on."""
        newest = self._broker.trace.entries(api="OffsetFetch", limit=1, bodies=False)
        return (
            bool(newest) and "UNSTABLE_OFFSET_COMMIT" in newest[0]["line"] and self._is_nothing_carried_on()
        )

    def _is_nothing_carried_on(self) -> bool:
        return self._idleness.lasts_s(newest_write(self._broker, IN_TRANSACTION)) > LEFT_S

    def _asked(self) -> int:
        """How many producers and members have asked to come in."""
        apis = ("InitProducerId", "JoinGroup", "ConsumerGroupHeartbeat")
        entries = self._broker.trace.entries
        return sum(len(entries(api=api, limit=ENTRIES_MAX, bodies=False)) for api in apis)

    def _await(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        return wait_until(lambda: self._ended.is_set() or holds(), timeout_s)


def newest_write(broker: Handle, apis: Collection[str] = WRITES) -> int:
    """The number of the newest exchange with which the job has asked for a change; 0: none."""
    newest = broker.trace.entries(limit=_NEWEST, bodies=False)
    return max((int(each["number"]) for each in newest if each["api"] in apis), default=0)
