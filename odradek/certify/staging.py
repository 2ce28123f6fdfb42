"""A fault is staged: its rule at the broker, and what the certifier does when the rule is hit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from odradek.broker import Broker
from odradek.certify.exchanges import exchanges
from odradek.certify.faults import Act
from odradek.certify.job import Instance, Job, wait_until
from odradek.certify.plan import Injection, Plan
from odradek.certify.seeding import write
from odradek.certify.workload import Seed
from odradek.deadlines import stretched
from odradek.errors import FaultNotHit, OdradekError
from odradek.remote import Rule

HANDLED_S: Final = stretched(2.0)
"""How long the broker may take to handle a request whose answer is kept back."""
TAKE_OVER_S: Final = stretched(10.0)
"""How long another instance may take to do what a frozen one does not."""
WAKE_S: Final = 1.0
"""What a frozen instance gets to do its worst after it was woken."""
NODE_IS_AWAY_S: Final = 0.2
HIT_PAUSE_S: Final = 0.2
"""How long the broker is asked at once whether a rule was hit."""
_EXPIRES: Final = "8d"
_CHECKS_MS: Final = 11_000
"""A coordinator looks for transactions that have timed out every ten seconds."""


class Staging:
    """The faults of one plan, while the job runs."""

    def __init__(
        self, broker: Broker, job: Job, plan: Plan, is_done: Callable[[], bool], seeds: Sequence[Seed] = ()
    ) -> None:
        self._broker, self._job, self._is_done, self._seeds = broker, job, is_done, seeds
        self._plan = plan
        self._rules: list[Rule] = []
        self._acting: list[tuple[Rule, threading.Thread]] = []
        self._ended = threading.Event()
        self._timed_out = 0
        self.notes: list[str] = []
        """What was done, in order."""

    def begin(self) -> None:
        for injection in self._plan.injections:
            rule = self._broker.faults.add(injection.rule)
            self._rules.append(rule)
            if injection.fault.act is not Act.NOTHING:
                thread = threading.Thread(target=self._act, args=(injection, rule), daemon=True)
                thread.start()
                self._acting.append((rule, thread))

    @property
    def is_over(self) -> bool:
        """Nothing is under way: each act has ended, or its rule has not been hit."""
        return not any(thread.is_alive() and rule.hits for rule, thread in self._acting)

    def hits(self) -> list[int]:
        return [rule.hits for rule in self._rules]

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

    def _act(self, injection: Injection, rule: Rule) -> None:
        with contextlib.suppress(OdradekError):
            if self._await_hit(rule):
                self._acts[injection.fault.act](self, injection, rule)

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
        """The request that the rule has hit: the newest one that was stopped or whose answer was kept back."""
        matchers = dict(injection.moment.matchers)
        names = ("transactional_id", "client_id")
        filters = {name: matchers[name] for name in names if name in matchers and "*" not in matchers[name]}
        entries = self._broker.trace.entries(api=injection.moment.on, limit=50, bodies=False, **filters)
        stopped = [each for each in entries if each["outcome"] in ("held", "answer_lost", "in_progress")]
        return stopped[-1] if stopped else None

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
        """A member that died, or was told that it is none, is one until its session times out; who joins waits for it.

        The clock of groups goes there. To be called all the time.
        """
        gone = len(self._job.exits) + self._job.kills + self._expelled()
        if gone > self._timed_out and self._is_join_waiting():
            self._timed_out = gone
            self._advance_groups()

    def _expelled(self) -> int:
        rules = zip(self._plan.injections, self._rules, strict=False)
        return sum(rule.hits for injection, rule in rules if "UNKNOWN_MEMBER_ID" in injection.rule)

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
            threading.Timer(0.1, rule.release).start()
            instance.end()
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
        self._note(f"the clock of transactional ids is {_EXPIRES} ahead")
        rule.release()

    def _abort_input(self, _: Injection, rule: Rule) -> None:
        """The first record of each input topic comes once more, in a transaction that aborts."""
        copies = {
            each.topic: replace(each, aborted=True) for each in reversed(self._seeds) if not each.aborted
        }
        write(self._broker.bootstrap_servers, copies.values())
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
        Act.TIME_OUT_TRANSACTION: _time_out_transaction,
        Act.TIME_OUT_SESSION: _time_out_session,
        Act.EXPIRE_IDS: _expire_ids,
    }

    # -- clocks ------------------------------------------------------------------------------------------------

    def _advance_transactions(self) -> None:
        open_ones = [each for each in self._broker.transactions.list() if each.state == "Ongoing"]
        by_ms = max((each.timeout_ms for each in open_ones), default=60_000) + _CHECKS_MS
        self._broker.clock.advance(by_ms, only=["transactions"])
        self._note(f"the clock of transactions is moved by {by_ms} ms")

    def _advance_groups(self) -> None:
        by_ms = 1000 + max((each.get("session_timeout_ms", 0) for each in self._joined()), default=45_000)
        self._broker.clock.advance(by_ms, only=["groups"])
        self._note(f"the clock of groups is moved by {by_ms} ms")

    def _joined(self) -> list[Mapping[str, Any]]:
        return [each["request"] or {} for each in self._broker.trace.entries(api="JoinGroup", limit=100)]

    def _is_join_waiting(self) -> bool:
        entries = self._broker.trace.entries(api="JoinGroup", limit=100, bodies=False)
        return any(each["outcome"] == "in_progress" for each in entries)

    def _asked(self) -> int:
        """How many producers and members have asked to come in."""
        apis = ("InitProducerId", "JoinGroup", "ConsumerGroupHeartbeat")
        entries = self._broker.trace.entries
        return sum(len(entries(api=api, limit=10_000, bodies=False)) for api in apis)

    def _await(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        return wait_until(lambda: self._ended.is_set() or holds(), timeout_s)
