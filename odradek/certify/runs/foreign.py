"""Any Kafka cluster as the cluster of a run, through a proxy in front of it (docs/proxy.md).

A proxy sees only requests and responses, and cannot advance the cluster's time: faults affect requests, and there are no
snapshots. The certifier creates the topics, which must not exist. Before each run it recreates the outputs and deletes the
groups that earlier runs created: those that the job named in requests through the proxy, and that did not exist before the
first run. The certifier changes nothing else.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from odradek._server import command
from odradek.certify.exchanges import exchanges
from odradek.certify.plans.faults import Reach
from odradek.certify.runs.cluster import groups_of, held_up
from odradek.certify.runs.seeding import configure, with_aborted, write
from odradek.certify.workload import Workload
from odradek.control_client import ControlClient
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.handle import Handle
from odradek.process import BrokerProcess
from odradek.remote import ENTRIES_MAX, Remote
from odradek.topics import Record
from odradek.words import Isolation

TOOL_S: Final = stretched(90.0)
GONE_S: Final = stretched(30.0)
"""How long a deleted topic may still appear in listings, in seconds."""
PAUSE_S: Final = 0.05
_MARKERS: Final = ("COMMIT", "ABORT")


class _Proxy(Handle):
    """The handle of a proxy: the assertions and methods that use its control port."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._remote: Remote | None = None

    @property
    def _control(self) -> Remote:
        if self._remote is None:
            self._remote = Remote(ControlClient(self._process.control_url))
        return self._remote


class Foreign:
    """The cluster at ``workload.upstream``, with the topics of this certification."""

    reaches: Final = (Reach.CALL,)
    moves_time: Final = False

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._directory = tempfile.TemporaryDirectory(prefix="odradek-", ignore_cleanup_errors=True)
        upstream = ("--upstream", workload.upstream)
        self._process = BrokerProcess(
            Path(self._directory.name), *upstream, program="proxy", control=True, is_temporary=True
        )
        self.handle: Final = _Proxy(self._process)
        self._topics = dict(each.partition(":")[::2] for each in workload.topics)
        self._created: list[str] = []
        self._theirs: frozenset[str] = frozenset()
        """Groups that existed before the first run."""
        self._named: set[str] = set()
        """Groups that requests of the job have named."""

    @property
    def bootstrap_servers(self) -> str:
        return self._process.bootstrap_servers

    @property
    def control_url(self) -> str:
        return self._process.control_url

    # -- preparation of a run ------------------------------------------------------------------------------------

    def start(self) -> None:
        self._process.start()
        self._theirs = frozenset(self._listed("group", "group_id"))
        self.handle.trace.start()
        self._create(self._topics)
        write(self._workload.upstream, with_aborted(self._workload.seeds))
        configure(self._workload.upstream, self._workload.group_configs)

    def close(self) -> None:
        try:
            with contextlib.suppress(OdradekError):
                self._delete_groups()
                self._delete(self._created)
                configure(self._workload.upstream, self._workload.group_configs, is_deleted=True)
        finally:
            self._process.close()
            self._directory.cleanup()

    def restore(self) -> None:
        """Recreate the outputs and delete the job's groups. The input remains, because no job writes to it."""
        self._delete_groups()
        outputs = [each for each in self._topics if each not in self._workload.inputs]
        self._delete(outputs)
        deadline = time.monotonic() + GONE_S
        while set(outputs) & set(self._listed("topic", "topic")) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        self._create(outputs)

    def revive(self) -> None:
        """Do nothing: no fault kills a node of this cluster."""

    def _create(self, names: Collection[str]) -> None:
        by_settings: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            count, _, configs = self._topics[name].partition(":")
            # A comma that is not followed by a name belongs to the value, as in `odradek serve --topic`.
            settings = [word for each in re.split(r",(?=[a-z.]+=)", configs) if each for word in ("-c", each)]
            by_settings.setdefault(tuple(settings), []).append(f"{name}:{count or 1}")
        for options, wanted in by_settings.items():
            self._tool("topic", "create", *wanted, *options)
        self._created += [name for name in names if name not in self._created]

    def _delete(self, names: Collection[str]) -> None:
        if names:
            self._tool("topic", "delete", *names)

    def _delete_groups(self) -> None:
        """Delete the groups that the job created. After a kill, the groups may still have members for a while."""
        entries = self.handle.trace.entries(limit=ENTRIES_MAX)
        self._named |= {each.group for each in exchanges(entries) if each.group}
        brought = self._named & set(self._listed("group", "group_id")) - self._theirs
        if brought:
            self._tool("group", "delete", "--with-members", *sorted(brought))

    # -- queries -------------------------------------------------------------------------------------------------

    def groups(self) -> list[dict[str, Any]]:
        return groups_of(self.handle)

    def records(self, topics: Collection[str], isolation: Isolation = "read_committed") -> list[Record]:
        options = ["-u"] if isolation == "read_uncommitted" else []
        lines = self._tool("consume", *topics, "--json", *options).splitlines()
        return list(_records(map(json.loads, lines)))

    def open_transactions(self, topics: Collection[str]) -> list[str]:
        return [
            held_up(each["topic"], each["partition"], each["last_stable"], one)
            for each in self._shown(topics)
            for one in each["open"]
        ]

    def reach(self, topics: Collection[str]) -> int:
        names = ("high_watermark", "last_stable")
        return sum(max(0, each[name] or 0) for each in self._shown(topics) for name in names)

    def _shown(self, topics: Collection[str]) -> list[dict[str, Any]]:
        client = self.handle._control.client
        return [
            each
            for topic in topics
            for each in client.get("/v1/views/partitions", {"topic": topic})["partitions"]
        ]

    def _listed(self, what: str, name: str) -> list[str]:
        return [each[name] for each in json.loads(self._tool(what, "list", "--json"))]

    def _tool(self, *words: str) -> str:
        """Run an `odradek` command against the cluster itself, bypassing the proxy with its rules and trace."""
        done = subprocess.run(
            command("tool", *words, "-b", self._workload.upstream),
            capture_output=True,
            text=True,
            timeout=TOOL_S,
        )
        if done.returncode:
            raise OdradekError(f"{self._workload.upstream}: {done.stderr.strip()}")
        return done.stdout


def _content(seen: dict[str, Any], name: str) -> str | bytes | None:
    text: str | None = seen.get(name)
    return text if name in seen else bytes.fromhex(seen[f"{name}_hex"])


def _records(seen: Iterator[dict[str, Any]]) -> Iterator[Record]:
    for each in seen:
        if each["outcome"] not in _MARKERS:
            yield Record(
                topic=each["topic"],
                partition=each["partition"],
                offset=each["offset"],
                timestamp_ms=each["timestamp"],
                key=_content(each, "key"),
                value=_content(each, "value"),
                headers=tuple((name, value) for name, value in each["headers"]),
                producer_id=each["producer_id"],
                producer_epoch=each["producer_epoch"],
                is_transactional=each["outcome"] is not None,
                outcome=each["outcome"],
            )
