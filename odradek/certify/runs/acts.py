"""The certifier's actions on the job and the broker when the rule of a fault has been hit.

Each action is a function. It returns the reason why it had no effect, as a sentence without a full stop, or an empty
string if it had an effect. It runs in a thread of its own, while the rule holds the request or its response.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from odradek.certify.jobs.instance import Instance
from odradek.certify.jobs.job import wait_until
from odradek.certify.plans.faults import WRITES, Act
from odradek.certify.runs.observation import (
    JOINS,
    Entry,
    furthest_delivery,
    furthest_fetch,
    returns_records,
)
from odradek.certify.runs.scene import Scene, Strike
from odradek.certify.runs.seeding import write
from odradek.certify.services.calls import Call
from odradek.certify.share_groups import LOST_LOCK
from odradek.deadlines import stretched
from odradek.errors import OdradekError

HANDLED_S: Final = stretched(2.0)
"""How long the broker may take to handle a request whose response is held, in seconds."""
TAKE_OVER_S: Final = stretched(10.0)
"""How long another instance may take to replace a frozen one, in seconds."""
READ_S: Final = stretched(3.0)
"""How long the job may take to read an aborted transaction of its input, in seconds."""
WAKE_S: Final = 1.0
"""How long a thawed instance runs, and may still write, before the action for the fault "freeze" ends, in seconds."""
NODE_IS_AWAY_S: Final = 0.2
CUT_S: Final = 1.0
ATTRIBUTE_S: Final = 0.1
"""Interval between two queries of the connections of running instances, in seconds."""
_STARTS: Final = 2
"""Number of exits without a request to the broker after which the certifier no longer waits for a request."""
_COMMITS: Final = frozenset({"EndTxn", "OffsetCommit", "TxnOffsetCommit"})
_AT_SERVICE: Final = "service"
"""Stands for the API of a request at a service besides Kafka that changes something."""
_COMES_IN: Final = WRITES | JOINS | {"Fetch", "ShareFetch"}


def perform(scene: Scene, strike: Strike) -> str:
    """Perform the certifier's action for the fault. Returns why the action had no effect, or an empty string."""
    act = _ACTS.get(strike.injection.fault.act)
    return act(scene, strike) if act else ""


# -- instances ------------------------------------------------------------------------------------------------------


def _kill(scene: Scene, strike: Strike) -> str:
    instance = scene.sender(strike)
    if strike.injection.fault.is_between:
        _await_instant(scene, strike)
    if "answer" in strike.injection.fault.action:
        _await_handled(scene, strike)
    if instance is None or not instance.is_alive:
        return "the instance that sent the request had ended already"
    scene.note(f"instance {instance.number} is killed")
    scene.job.killed(instance)
    return ""


def _kill_all(scene: Scene, strike: Strike) -> str:
    _await_handled(scene, strike)
    alive = scene.job.alive
    if not alive:
        return "all instances had ended already"
    scene.note("all instances are killed")
    for instance in alive:
        scene.job.killed(instance)
    return ""


def _await_handled(scene: Scene, strike: Strike) -> None:
    wait_until(lambda: scene.is_handled(strike), HANDLED_S)


def _await_instant(scene: Scene, strike: Strike) -> None:
    """Release the held request, wait for its response, and then wait for the delay in the plan."""
    wait_until(scene.released(strike), HANDLED_S)
    scene.ended.wait(strike.injection.delay_ms / 1000)


def _freeze(scene: Scene, strike: Strike) -> str:
    instance = scene.sender(strike)
    if strike.injection.fault.is_between:
        _await_instant(scene, strike)
    if instance is None or not instance.is_alive:
        strike.rule.release()
        return "the instance that sent the request had ended already"
    number = instance.number
    others = OtherInstances(scene, instance)
    instance.freeze()
    scene.note(f"instance {number} is frozen")
    strike.rule.release()
    ended = len(_ended(scene, number))
    others.started = scene.job.start(number)
    scene.job.kills += 1
    scene.time.time_out_transactions()
    scene.time.expire_locks()

    def is_over() -> bool:
        others.look()
        return scene.is_done() or 0 in _ended(scene, number)[ended:]

    scene.wait_for(is_over, TAKE_OVER_S)
    did = others.did()
    scene.note(f"while instance {number} was frozen, {did or 'no other instance took over'}")
    scene.note(f"instance {number} wakes")
    instance.thaw()
    scene.ended.wait(WAKE_S)
    return "" if did else f"no other instance took over while instance {number} was frozen"


def _add_instance(scene: Scene, strike: Strike) -> str:
    return _start_beside(scene, strike, 1 + max((each.number for each in scene.job.alive), default=0))


def _second_copy(scene: Scene, strike: Strike) -> str:
    instance = scene.sender(strike)
    return _start_beside(scene, strike, instance.number if instance else 1)


def _start_beside(scene: Scene, strike: Strike, number: int) -> str:
    """Start instance ``number``, and hold the request that was hit until the new instance has sent a request.

    If the job has a group, the new instance must also have joined the group. Returns why there was no effect, or
    "".
    """
    others = OtherInstances(scene)
    ended = _ended(scene, number)
    has_group = any(each["members"] for each in scene.cluster.groups())
    others.started = scene.job.start(number)
    scene.note(f"instance {number} is started")

    def has_come() -> bool:
        is_in = not has_group or others.joined()
        return (bool(others.did()) and is_in) or len(_ended(scene, number)) - len(ended) >= _STARTS

    scene.wait_for(has_come, TAKE_OVER_S)
    strike.rule.release()
    if did := others.did():
        scene.note(did)
        # A second producer with the same id fences the first one, in a group or not.
        is_added = strike.injection.fault.act is Act.ADD_INSTANCE
        return (
            f"instance {number} never joined the group"
            if is_added and has_group and not others.joined()
            else ""
        )
    codes = _ended(scene, number)[len(ended) :]
    why = f": it ended with exit code {codes[-1]}" if codes else ""
    scene.note(f"instance {number} sent no request{why}")
    return f"the instance that was started sent no request{why}"


def _ended(scene: Scene, number: int) -> list[int]:
    """The exit codes of instance ``number``: one for each time that it ended by itself."""
    return [each.code for each in scene.job.exits if each.instance == number]


def _remove_instance(scene: Scene, strike: Strike) -> str:
    instance = scene.sender(strike)
    if instance is None or not instance.is_alive:
        strike.rule.release()
        return "the instance that sent the request had ended already"
    scene.note(f"instance {instance.number} gets SIGTERM")
    release = threading.Timer(0.1, strike.rule.release)
    release.start()
    with scene.job.replaced():
        instance.end()
        release.join()  # the timer must use the rule before the run ends, and the rule with it
        scene.job.kills += 1  # the instance may not have left its group
        scene.job.start(instance.number)
    return ""


class OtherInstances:
    """Observer of the requests that other instances send after the certifier's action began.

    With ``frozen``, the requests of all instances but this one count; otherwise only those of instances that are
    started later.

    A connection is assigned to the running instance whose process has it. A new connection whose process has ended
    is assigned to the instance that was ``started``, if all earlier instances are still running.
    """

    def __init__(self, scene: Scene, frozen: Instance | None = None) -> None:
        self._scene, self._frozen = scene, frozen
        self._before = tuple(scene.job.alive)
        self.started: Instance | None = None
        self._known = frozenset(scene.observation.peers())
        self._since = scene.observation.newest()
        self._calls = len(scene.services.calls())
        """Number of requests at services besides Kafka before the action."""
        self._owners: dict[str, Instance | None] = {}
        self._looked = 0.0

    def look(self) -> None:
        """Assign new connections to instances. The caller polls this, as it works only while the instances run."""
        if time.monotonic() - self._looked >= ATTRIBUTE_S:
            self.did()
            self._looked = time.monotonic()

    def did(self) -> str:
        """A sentence such as ``instance 2 joined and committed``; an empty string if no other instance did anything."""
        found: list[Entry] = [
            *self._scene.observation.arrived(self._since, _COMES_IN),
            *(_entry(each) for each in self._scene.services.calls()[self._calls :]),
        ]
        for each in found:
            peer = each["peer"]
            if each["from_node"] is None and peer not in self._owners:
                self._owners[peer] = self._scene.job.owner(peer) or self._of_ended(peer)
        named = [
            (self._name(owner), each)
            for each in found
            if (owner := self._owners.get(each["peer"])) is not None and self._counts(owner, each)
        ]
        return "; ".join(
            f"{name} {actions_text([each for one, each in named if one == name])}"
            for name in dict.fromkeys(name for name, _ in named)
        )

    def joined(self) -> bool:
        """Whether another instance joined a group, or, without joining, read, wrote or committed."""
        return any(word in self.did() for word in ("joined", "read", "wrote", "committed"))

    def _of_ended(self, peer: str) -> Instance | None:
        is_new = peer not in self._known and all(each.is_alive for each in self._before)
        return self.started if is_new else None

    def _name(self, owner: Instance) -> str:
        is_second = owner not in self._before and any(each.number == owner.number for each in self._before)
        return f"{'the new ' if is_second else ''}instance {owner.number}"

    def _counts(self, owner: Instance, entry: Entry) -> bool:
        if owner not in self._before:
            return True
        # An earlier instance has its own work: it takes over only if the group rebalances.
        is_taking = entry["api"] in ("JoinGroup", "InitProducerId") or (
            entry["api"] == "ShareFetch" and returns_records(entry)
        )
        return self._frozen not in (None, owner) and is_taking


def _entry(call: Call) -> Entry:
    """A request at a service besides Kafka, in the form of the trace."""
    api = _AT_SERVICE if call.is_write else "Fetch"
    return {"api": api, "peer": call.peer, "from_node": None, "line": call.line}


def actions_text(entries: Iterable[Entry]) -> str:
    """Describe what an instance did.

    >>> actions_text([{"api": "JoinGroup"}, {"api": "Fetch"}, {"api": "EndTxn"}])
    'joined and committed'
    """
    apis = {each["api"] for each in entries}
    said = [
        word
        for word, those in (
            ("joined", {"JoinGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat"}),
            ("initialised a producer", {"InitProducerId"}),
            ("wrote", {"Produce", _AT_SERVICE}),
            ("committed", _COMMITS),
            ("acknowledged", {"ShareAcknowledge"}),
        )
        if apis & those
    ]
    return " and ".join(filter(None, [", ".join(said[:-1]), *said[-1:]])) or "read"


# -- nodes ----------------------------------------------------------------------------------------------------------


def _start_node(scene: Scene, strike: Strike) -> str:
    scene.ended.wait(NODE_IS_AWAY_S)
    for node_id, node in scene.cluster.handle.nodes.items():
        if node.state == "killed":
            node.start()
            scene.note(f"node {node_id} is started again")
    return ""


def _move(scene: Scene, strike: Strike) -> str:
    on = strike.injection.moment.on
    is_led = on in ("Produce", "ShareFetch", "ShareAcknowledge")
    topics: Collection[str] = ()
    if is_led:
        topics = _topics(scene, strike) if on == "Produce" else {each.topic for each in scene.seeds}
    moved = ""
    with contextlib.suppress(OdradekError):
        for to in sorted(scene.cluster.handle.nodes):
            moved = _lead(scene, topics, to) if is_led else _coordinate(scene, strike.matchers, to)
            if moved:
                scene.note(moved)
                break
    strike.rule.release()
    return "" if moved else "nothing was moved"


def _topics(scene: Scene, strike: Strike) -> Collection[str]:
    """The topics of the Produce that was hit: the topic of the rule, else those of the latest Produce request."""
    named = strike.matchers.get("topic")
    return {named} if named else scene.observation.produced_topics()


def _lead(scene: Scene, topics: Collection[str], to: int) -> str:
    """Move the leadership of one partition of the topics to the node.

    Returns a description of the move; an empty string if the node leads all partitions already.
    """
    broker = scene.cluster.handle
    for partition in broker.partitions():
        if partition.topic in topics and partition.leader != to:
            broker.move_leader(partition.topic, partition.partition, to=to)
            return f"node {to} leads {partition.topic}-{partition.partition}"
    return ""


def _coordinate(scene: Scene, matchers: Mapping[str, str], to: int) -> str:
    """Make the node ``to`` the coordinator of the group or transactional id that the rule matches.

    Returns a description of the move; an empty string if there was none.
    """
    broker = scene.cluster.handle
    if "group" in matchers:
        broker.move_coordinator(group=matchers["group"], to=to)
        return f"node {to} coordinates group {matchers['group']}"
    for each in broker.transactions.list():
        is_meant = fnmatchcase(each.transactional_id, matchers.get("transactional_id", ""))
        if is_meant and each.coordinator != to:
            broker.move_coordinator(transactional_id=each.transactional_id, to=to)
            return f"node {to} coordinates transactional_id {each.transactional_id}"
    return ""


def _cut_links(scene: Scene, strike: Strike) -> str:
    exchange = scene.observation.struck(strike.injection)
    if exchange is None:
        strike.rule.release()
        return "the request had ended before the links could be cut"
    broker, node = scene.cluster.handle, exchange["node"]
    cuts = [broker.faults.add(f"cut {node} {each}") for each in broker.nodes if each != node]
    scene.note(f"node {node} is cut off from all other nodes")
    strike.rule.release()
    scene.ended.wait(CUT_S)
    for each in cuts:
        each.remove()
    scene.note(f"node {node} is connected to the other nodes again")
    return ""


# -- time -----------------------------------------------------------------------------------------------------------


def _time_out_transaction(scene: Scene, strike: Strike) -> str:
    named = strike.matchers.get("transactional_id", "*")
    is_open = any(
        "*" in named or each.transactional_id == named for each in scene.observation.open_transactions()
    )
    scene.time.time_out_transactions()
    strike.rule.release()
    return "" if is_open else "no transaction was open"


def _time_out_session(scene: Scene, strike: Strike) -> str:
    members = sum(each["members"] for each in scene.cluster.groups())
    scene.time.time_out_sessions()
    strike.rule.release()
    return "" if members else "no group had a member"


def _expire_locks(scene: Scene, strike: Strike) -> str:
    held = scene.observation.struck(strike.injection)
    scene.time.expire_locks()
    strike.rule.release()
    if held is None:
        return "the request had ended already"
    scene.wait_for(lambda: scene.observation.is_over(held), HANDLED_S)
    found = scene.observation.arrived(int(held["number"]) - 1, [held["api"]])
    return "" if found and LOST_LOCK in found[0]["line"] else "no acknowledgement was refused"


def _delay_records(scene: Scene, strike: Strike) -> str:
    """Freeze the instance while the broker handles its ShareFetch, and until the locks of the records have run out."""
    held = scene.observation.struck(strike.injection)
    instance = scene.sender(strike)
    if held is None or instance is None or not instance.is_alive:
        strike.rule.release()
        return "the instance that sent the request had ended already"
    instance.freeze()
    strike.rule.release()
    scene.wait_for(lambda: scene.observation.is_over(held), HANDLED_S)
    scene.time.expire_locks()
    scene.note(f"instance {instance.number} gets its records after their locks have run out")
    instance.thaw()
    found = scene.observation.arrived(int(held["number"]) - 1, [held["api"]])
    return "" if found and returns_records(found[0]) else "the response had no records"


def _expire_ids(scene: Scene, strike: Strike) -> str:
    transactions = scene.cluster.handle.transactions
    before = {each.transactional_id for each in transactions.list()}
    scene.time.expire_ids()
    after = {each.transactional_id for each in transactions.list()}
    strike.rule.release()
    return "" if before - after else "no transactional id expired"


# -- the input ------------------------------------------------------------------------------------------------------


def _abort_input(scene: Scene, strike: Strike) -> str:
    """Write the first record of each input topic again, in a transaction that aborts."""
    copies = {each.topic: replace(each, aborted=True) for each in reversed(scene.seeds) if not each.aborted}
    before = _ends(scene, copies)
    write(scene.cluster.bootstrap_servers, copies.values())
    scene.note(f"a transaction wrote to {', '.join(copies)} and aborted")
    since = scene.observation.newest()
    strike.rule.release()
    after = _ends(scene, copies)
    written = {key: end for key, end in before.items() if after.get(key, end) > end}
    read: list[tuple[str, int]] = []

    def is_read() -> bool:
        entries = scene.observation.arrived(since, ["Fetch", "ShareFetch"], bodies=True)
        read[:] = [
            key
            for key, end in written.items()
            if furthest_fetch(entries, *key) > end or furthest_delivery(entries, *key) >= end
        ]
        return len(read) == len(written) or not scene.job.alive

    scene.wait_for(is_read, READ_S)
    return "" if read else "the job did not read as far as the aborted transaction"


def _ends(scene: Scene, topics: Collection[str]) -> dict[tuple[str, int], int]:
    """The high watermark of each (topic, partition)."""
    found = [each for each in scene.cluster.handle.partitions() if each.topic in topics]
    return {(each.topic, each.partition): each.high_watermark or 0 for each in found}


_ACTS: Final[Mapping[Act, Callable[[Scene, Strike], str]]] = {
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
    Act.EXPIRE_LOCKS: _expire_locks,
    Act.DELAY_RECORDS: _delay_records,
    Act.EXPIRE_IDS: _expire_ids,
}
