"""The control of a running broker as Python objects. Each method of these objects is a call of the control port.

remote = connect("http://127.0.0.1:18092")
with remote.faults.add("EndTxn", transactional_id="payments", nth=2, do="lose-answer") as rule:
    ...
    rule.wait()
remote.clock.advance("7d")
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Unpack

from odradek.assertions import Assertions
from odradek.asynchronous import asynchronous
from odradek.control_client import ADVANCE_TIMEOUT_S, CA_VARIABLE, TOKEN_VARIABLE, ControlClient, in_path
from odradek.errors import HIDDEN_IN_TRACEBACKS, ControlUnreachable, FaultNotHit, NotFound
from odradek.instead import came_instead
from odradek.nearest import did_you_mean
from odradek.nodes import Loss, Node, Nodes, Partition, losses, move_coordinator, move_leader, partitions
from odradek.snapshots import Snapshot
from odradek.transactions import Timeline, Transaction, Transactions
from odradek.waiting import WAIT_S, hint_of_coroutine, slices_ms
from odradek.words import ActionWords, Domain, Library, MatchWords, Mechanism, RuleWords, WhenWords

__tracebackhide__ = HIDDEN_IN_TRACEBACKS

CONTROL_VARIABLE: Final = "ODRADEK_CONTROL"
PORT_VARIABLE: Final = "ODRADEK_CONTROL_PORT"
CERTIFICATE_VARIABLE: Final = "ODRADEK_CONTROL_TLS_CERTIFICATE"

ENTRIES_MAX: Final = 10_000
"""Maximum number of exchanges that the control port returns at once: the newest ones."""
MATCH: Final = frozenset(MatchWords.__annotations__)
WHEN: Final = frozenset(WhenWords.__annotations__)
ACTION: Final = frozenset(ActionWords.__annotations__)
"""`MATCH`, `WHEN` and `ACTION` are the keywords of a rule, by section of the rule's JSON form."""


def connect(url: str | None = None, token: str | None = None, ca: str | None = None) -> Remote:
    """Connect to a running broker by the URL of its control port; the default is the environment variable ODRADEK_CONTROL.

    Without ODRADEK_CONTROL, ODRADEK_CONTROL_PORT is used as a port of this machine: the variable that opens the control port
    of a broker. For https, ``ca`` is a PEM file of trusted certificates; the default is ODRADEK_CONTROL_CA, and then the
    system's trust store.
    """
    url = url or os.environ.get(CONTROL_VARIABLE) or _url_of_port(os.environ.get(PORT_VARIABLE))
    if not url:
        raise ControlUnreachable(
            f"no control port is set: give its URL (--control), or set {CONTROL_VARIABLE}; a broker that was "
            "started with --control-port prints it as control=http://..."
        )
    return Remote(ControlClient(url, token or os.environ.get(TOKEN_VARIABLE), ca=ca))


def _url_of_port(port: str | None) -> str | None:
    # For a Service named odradek-control, Kubernetes sets this variable to tcp://10.96.0.1:18092 in each pod.
    if not port or "://" in port:
        return None
    return f"https://localhost:{port}" if os.environ.get(CERTIFICATE_VARIABLE) else f"http://127.0.0.1:{port}"


class Remote(Assertions):
    """A running broker, through its control port."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client
        self.faults = Faults(client)
        self.clock = Clock(client)
        self.trace = Trace(client)
        self.transactions = Transactions(client)
        self.nodes = Nodes(client)

    @property
    def bootstrap_servers(self) -> str:
        """The advertised addresses of the running nodes."""
        return str(self.client.get("/v1/cluster")["bootstrap_servers"])

    @property
    def cluster_id(self) -> str:
        """The cluster id, which clients see in their metadata too."""
        return str(self.client.get("/v1/cluster")["cluster_id"])

    def client_config(
        self,
        user: str | None = None,
        password: str | None = None,
        *,
        library: Library = "librdkafka",
        mechanism: Mechanism | None = None,
        ca: str | Path | None = None,
    ) -> dict[str, Any]:
        """The settings with which a client connects to the first listener, as ``Broker.client_config`` returns them.

        The control port reveals no passwords, so a listener with SASL requires ``user`` and ``password``. ``ca`` is a PEM
        file of trusted certificates; the default is the file of the broker's --tls, which exists only on the broker's
        machine.
        """
        from odradek.security import config_of_cluster

        return config_of_cluster(self.client.get("/v1/cluster"), user, password, library, mechanism, ca)

    def reset(self, *, new_cluster_id: bool = False) -> None:
        """Return the broker to the state after its start: only the topics of the start, no groups, transactional ids, rules,
        clock advances or trace.

        Resets all connections first. All nodes run afterwards. Producer ids and topic ids are never issued again. The
        cluster keeps its id, unless ``new_cluster_id`` is True: clients then find another cluster at the same addresses.
        """
        self.client.post("/v1/reset", {"new_cluster_id": True} if new_cluster_id else None)

    reset_async = asynchronous(reset)

    def snapshot(self) -> Snapshot:
        """Snapshot the current state of the broker; ``Snapshot.restore`` returns the broker to it."""
        return Snapshot(self.client)

    def _control_client(self) -> ControlClient:
        return self.client

    def timeline(self, transactional_id: str) -> Timeline:
        """The timeline of a transactional id across all nodes. Raises ``NotFound`` if no running node knows the id."""
        return Timeline(**self.client.get(f"/v1/transactions/{in_path(transactional_id)}/timeline"))

    def share_timeline(
        self, group: str, topic: str | None = None, partition: int | None = None, offset: int | None = None
    ) -> Timeline:
        """The timeline of a share group, of a topic partition in it, or of the record at an offset.

        Who acquired and acknowledged records is known as far as the trace was on. Raises ``NotFound`` for an unknown name.
        """
        query = {"topic": topic, "partition": partition, "offset": offset}
        return Timeline(**self.client.get(f"/v1/groups/{in_path(group)}/timeline", query))

    def partitions(self, topic: str | None = None, *, internal: bool = False) -> list[Partition]:
        """The partitions of one topic, or of all topics, with leaders, leader epochs, ISRs and log end offsets.

        ``internal`` includes those of ``__transaction_state`` and ``__consumer_offsets``.
        """
        return partitions(self.client, topic, internal=internal)

    def losses(self) -> list[Loss]:
        """Committed, perhaps committed or acks=1 records that a replica had and the leader's log no longer contains.

        The oldest loss comes first.
        """
        return losses(self.client)

    def move_leader(self, topic: str, partition: int, *, to: int) -> Partition:
        """Move the leadership of a partition to another replica in the ISR.

        Raises ``ControlRefused`` if that is impossible.
        """
        return move_leader(self.client, topic, partition, to)

    def move_coordinator(
        self, *, transactional_id: str | None = None, group: str | None = None, to: int
    ) -> Partition:
        """Move a transactional id or a group to another coordinator, with all ids or groups of the same partition."""
        return move_coordinator(self.client, transactional_id, group, to)


# -- faults -----------------------------------------------------------------------------------------------------


class Faults:
    """The fault rules of a broker. docs/faults.md describes their language."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client

    def add(self, on: str | None = None, **words: Unpack[RuleWords]) -> Rule:
        """Add a rule, as keywords or as text::

        faults.add("EndTxn", transactional_id="payments", nth=2, do="lose-answer")
        faults.add("EndTxn transactional_id=payments nth=2 -> lose-answer")
        faults.add("Fetch", topic="orders", do="delay", delay="1.5s")
        faults.add("EndTxn", do="answer", fields={"error_code": "CONCURRENT_TRANSACTIONS"})
        faults.add("Produce", principal="User:alice", nth=3, do="remove-acls", acl={"topic": "orders"})
        faults.add(do="cut", nodes=(1, 2), expires=timedelta(seconds=10))
        """
        if not words:
            form: dict[str, Any] = {"rule": on or ""}
        else:
            form = _rule(on, words)
        return Rule(self.client, self.client.post("/v1/faults", form))

    def list(self) -> list[Rule]:
        """All rules, in the order in which they were added."""
        return [Rule(self.client, each) for each in self.client.get("/v1/faults")["faults"]]

    def get(self, fault_id: int) -> Rule:
        return Rule(self.client, self.client.get(f"/v1/faults/{in_path(fault_id)}"))

    def clear(self) -> int:
        """Remove all rules, and return their number. The requests and steps that they held continue."""
        return int(self.client.delete("/v1/faults")["cleared"])

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.list())


def _rule(on: str | None, words: Mapping[str, object]) -> dict[str, Any]:
    form: dict[str, Any] = {"on": on} if on is not None else {}
    for name, value in words.items():
        for part, names in (("match", MATCH), ("when", WHEN), ("action", ACTION)):
            if name in names:
                duration = f"{_milliseconds(value)}ms" if isinstance(value, timedelta) else value
                form.setdefault(part, {})[name] = duration
                break
        else:
            raise TypeError(f"a rule has no keyword {name!r}{_meant(name)}")
    if "do" not in form.get("action", {}):
        raise TypeError('a rule needs an action, for instance do="lose-answer"')
    return form


def _meant(name: str) -> str:
    known = sorted(MATCH | WHEN | ACTION)
    return did_you_mean(name, known) or f"; there is {', '.join(known)}"


class Rule:
    """One fault rule of a broker. If it is used as a context manager, the rule is removed at the end of the block.

    ``hits``, ``matches``, ``held`` and ``spent`` query the broker each time.
    """

    def __init__(self, client: ControlClient, view: Mapping[str, Any]) -> None:
        self.client = client
        self._last = dict(view)
        self.removed = False
        """Whether ``remove`` was called. After that, ``hits`` and the other attributes keep their last values."""
        self.id: int = view["id"]
        self.text: str = view["text"]

    @property
    def hits(self) -> int:
        """The number of matches at which the rule acted."""
        return int(self._now()["hits"])

    @property
    def matches(self) -> int:
        """The number of requests and steps that fit the rule, including those at which it did not act."""
        return int(self._now()["matches"])

    @property
    def held(self) -> list[dict[str, Any]]:
        """The requests and steps that the rule holds now, the oldest first.

        Each dict has ``at`` (its API or point), ``node``, ``connection``, ``client_id``, ``transactional_id``, ``group``,
        ``member``, ``topic``, ``partition`` (None for none or several), ``partitions`` (all of them, such as "orders-3"),
        ``detached``, ``since_ms``.
        """
        return list(self._now()["held"])

    @property
    def released(self) -> list[dict[str, Any]]:
        """The newest requests that the rule held or detached and then released, the oldest first.

        Each dict has the keys of ``held``, ``released_at_ms``, ``outcome`` ("in progress", "answered", "no response",
        "connection closed", "lost") and ``errors``: the error codes of the response by Kafka's names, ``["NONE"]``
        if there was no error.
        """
        return list(self._now()["released"])

    @property
    def spent(self) -> bool:
        """Whether the rule can have no further hits."""
        return bool(self._now()["spent"])

    def as_dict(self) -> dict[str, Any]:
        """The JSON form of the rule, as the control port last returned it."""
        return dict(self._last)

    def wait(self, hits: int = 1, timeout_s: float = WAIT_S) -> Rule:
        """Wait until the rule has this number of hits. Raises ``FaultNotHit`` after the timeout."""
        for slice_ms in slices_ms(timeout_s):
            query = {"hits": hits, "timeout_ms": slice_ms}
            found = self.client.get(f"/v1/faults/{self.id}/wait", query)
            self._last = found["fault"]
            if found["reached"]:
                return self
        raise FaultNotHit(
            f"{self.text}: {self._last['hits']} of {hits} hits after {timeout_s} s ({self._last['matches']} matched)"
            + came_instead(self.client, self._last["rule"])
            + hint_of_coroutine("rule.wait")
        )

    wait_async = asynchronous(wait)

    def release(
        self,
        count: int | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        transactional_id: str | None = None,
        group: str | None = None,
        member: str | None = None,
        offset: int | None = None,
        client_id: str | None = None,
        node: int | None = None,
        to: Rule | None = None,
    ) -> int:
        """Release the requests and steps that the rule holds, all or the oldest ``count``. Returns the number released.

        The keywords select among the held requests and steps: ``rule.release(topic="orders", partition=3)``. ``to`` is
        another rule to which the released requests and steps are passed, as if they arrived now.
        """
        said = {
            "count": count,
            "topic": topic,
            "partition": partition,
            "transactional_id": transactional_id,
            "group": group,
            "member": member,
            "offset": offset,
            "client_id": client_id,
            "node": node,
            "to": to.id if to is not None else None,
        }
        body = {name: value for name, value in said.items() if value is not None}
        return int(self.client.post(f"/v1/faults/{self.id}/release", body)["released"])

    def remove(self) -> None:
        """Remove the rule. The requests and steps that it holds continue. A second call does nothing."""
        try:
            self._last = self.client.delete(f"/v1/faults/{self.id}")
        except NotFound:
            return
        self.removed = True

    def _now(self) -> Mapping[str, Any]:
        self._last = self.client.get(f"/v1/faults/{self.id}")
        return self._last

    def __enter__(self) -> Rule:
        return self

    def __exit__(self, *exc_info: object) -> None:
        with suppress(ControlUnreachable):  # the rule ended with its broker
            self.remove()

    def __repr__(self) -> str:
        return f"<rule {self.id}: {self.text}>"


# -- time -------------------------------------------------------------------------------------------------------


class Clock:
    """The broker's clock. docs/time.md describes its domains."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client

    def advance(self, by: str | int | timedelta, only: Domain | Iterable[Domain] = ()) -> None:
        """Advance the clock: ``"7d"``, ``"1h30m"``, milliseconds, or a timedelta.

        Everything due in between has happened when the call returns. If another advance is in progress, the call waits for
        it first. If the program ends during the advance, or `cancel` is called (this call then raises ``ControlRefused``),
        the clock stays at the time that it has reached.
        """
        body: dict[str, Any] = {"by": by} if isinstance(by, str) else {"by_ms": _milliseconds(by)}
        domains = [only] if isinstance(only, str) else list(only)
        self.client.post("/v1/clock/advance", {**body, "only": domains}, ADVANCE_TIMEOUT_S)

    advance_async = asynchronous(advance)

    def cancel(self) -> None:
        """Cancel the current advance and those that wait for it. The clock stays at the time it has reached."""
        self.client.delete("/v1/clock/advance")

    @property
    def now_ms(self) -> int:
        """The broker's current time in ms, with which it timestamps records."""
        return int(self.show()["now_ms"])

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    @property
    def ahead_ms(self) -> dict[str, int]:
        """How far each domain is ahead of real time, in ms."""
        return dict(self.show()["ahead_ms"])

    def show(self) -> dict[str, Any]:
        """The clock as the control port returns it."""
        return dict(self.client.get("/v1/clock"))


def _milliseconds(by: int | timedelta) -> int:
    return by // timedelta(milliseconds=1) if isinstance(by, timedelta) else by


# -- the trace --------------------------------------------------------------------------------------------------


class Trace:
    """The trace of a broker.

    If it is used as a context manager, the trace is on inside the block, and afterwards on or off as before. Filters are
    api, version, node, connection, client_id, transactional_id, producer_id, outcome.
    """

    def __init__(self, client: ControlClient) -> None:
        self.client = client
        self._was_running: list[bool] = []

    def start(self) -> None:
        self.client.post("/v1/trace/start")

    def stop(self) -> None:
        self.client.post("/v1/trace/stop")

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.client.get("/v1/trace", {"limit": 1, "bodies": False})["status"])

    def entries(self, **filters: object) -> list[dict[str, Any]]:
        """The recorded exchanges by arrival.

        Keywords: the filters of `Trace`, and the query parameters ``since``, ``limit``, ``bodies`` and ``values``.
        """
        return list(self.client.get("/v1/trace", filters)["exchanges"])

    def pcap(self, path: str | Path, **filters: object) -> None:
        """Write the recorded exchanges to ``path``, as a capture file for Wireshark and tshark."""
        with Path(path).open("wb") as target:
            self.client.download("/v1/trace.pcap", filters, target)

    @contextmanager
    def follow(self, **filters: object) -> Iterator[Iterator[dict[str, Any]]]:
        """Iterate over the exchanges as they complete, until the broker ends::

        with broker.trace.follow(api="EndTxn") as exchanges:
            for exchange in exchanges:
                ...
        """
        with self.client.lines("/v1/trace/follow", filters) as lines:
            next(lines, None)  # the status line: after it, no exchange is missed
            yield lines

    def __enter__(self) -> Trace:
        self._was_running.append(self.status["running"])
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if not self._was_running.pop():
            with suppress(ControlUnreachable):  # the broker may have been killed inside the block
                self.stop()


__all__ = [
    "CA_VARIABLE",
    "CONTROL_VARIABLE",
    "TOKEN_VARIABLE",
    "WAIT_S",
    "Clock",
    "Faults",
    "Loss",
    "Node",
    "Nodes",
    "Partition",
    "Remote",
    "Rule",
    "Timeline",
    "Trace",
    "Transaction",
    "Transactions",
    "connect",
]
