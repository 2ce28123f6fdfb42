"""The steps of the sink's protocol by name (crash points), and a way to kill a process at such a step in crash tests.

``ODRADEK_SINK_KILL="decision.written:batch=3:nth=2=driver"`` in the environment of the Python processes (Spark passes its
own environment to them) sends SIGKILL when batch 3 reaches ``decision.written`` for the second time. Separate several kills
with commas. The batch is not known while planning: use ``nth`` with ``plan.*``, and not ``batch``. Without the variable a
step costs one comparison.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "ODRADEK_SINK_KILL"

# The steps in the order in which a batch reaches them. plan.*, commit.*, decision.*, end.* and abort.* run in
# short-lived Python processes of Spark's driver, task.* in Python workers.
POINTS: Mapping[str, str] = {
    "plan.started": "the driver plans a batch; nothing has been sent",
    "plan.fenced": "older drivers are fenced, the decision that they had open is aborted",
    "plan.fetched": "the decision record is read",
    "plan.reended": "the transactions of the last decided batch are committed again",
    "plan.recorded": "the record says that a batch is planned",
    "plan.swept": "transactions that a failed run left open are aborted (also reached if there were none)",
    "plan.pooled": "the pool of ids has its epochs; the writer is about to be pickled",
    "task.started": "a task has found out that it must write",
    "task.opened": "it has its first row and an id, and begins to write",
    "task.first-batch-sent": "the first rows were handed to the client",
    "task.flushed": "all rows are acknowledged",
    "task.reported": "the report is ready for the driver (also of a task without rows)",
    "commit.started": "all tasks have reported",
    "commit.checked": "each reported transaction was checked and is open",
    "decision.written": "the record is in the driver's open transaction: the last point before the decision",
    "decision.made": "the decision is committed and was read back",
    "end.first": "the first of the tasks' transactions is committed",
    "end.some": "half of them are committed",
    "end.all": "all are committed: the last point before Spark's commit log",
    "abort.started": "Spark aborts a batch",
    "abort.checked": "it is certain that the batch was not decided and will not be",
    "abort.done": "the open transactions are aborted",
}

_FORM = re.compile(
    r"(?P<point>[\w.-]+)(:batch=(?P<batch>\d+))?(:nth=(?P<nth>\d+))?(=(?P<target>worker|driver|both))?"
)


@dataclass(frozen=True)
class Kill:
    """An armed kill at ``point`` of batch ``batch`` (any if None), the ``nth`` time that it is reached.

    ``target``: ``worker`` is the Python process that reached the point; ``driver`` is the JVM above it, and also the process
    if it belongs to the driver (a task's process does not: it continues without its JVM); ``both`` is both.
    """

    point: str
    batch: int | None
    nth: int
    target: str

    def hits(self, point: str, batch: int | None) -> bool:
        return point == self.point and (self.batch is None or batch is None or batch == self.batch)


def parse(text: str) -> tuple[Kill, ...]:
    """Parse ``"<point>[:batch=N][:nth=K][=worker|driver|both]"``, or several kills separated by commas.

    Raises ``ValueError`` if a kill has another form or an unknown point.
    """
    kills = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        match = _FORM.fullmatch(each)
        if match is None:
            raise ValueError(
                f"{VARIABLE}: {each!r} is not of the form <point>[:batch=N][:nth=K][=worker|driver|both]"
            )
        if match["point"] not in POINTS:
            raise ValueError(
                f"{VARIABLE}: there is no point {match['point']!r}; there are {', '.join(POINTS)}"
            )
        batch = None if match["batch"] is None else int(match["batch"])
        kills.append(Kill(match["point"], batch, int(match["nth"] or 1), match["target"] or "driver"))
    return tuple(kills)


_kills = parse(os.environ.get(VARIABLE, ""))


# Called at each step if it is set, for tests that stop or delay a process instead of killing it.
watcher: Callable[[str, int | None], None] | None = None


def armed() -> bool:
    """Whether a kill point is armed. Then transactions are committed in portions instead of all at once."""
    return bool(_kills) or watcher is not None


def reached(point: str, batch: int | None = None) -> None:
    """Report that this process is at ``point`` of ``batch`` (None while planning), and kill it if a kill is armed there."""
    if watcher is not None:
        watcher(point, batch)
    for kill in _kills:
        if kill.hits(point, batch) and _count(kill) == kill.nth:
            _die(kill.target, point)


def _count(kill: Kill) -> int:
    """The number of times that processes below this JVM have reached the kill's point.

    A file is the counter: each process appends one byte, and the position after it is the process's number."""
    key = zlib.crc32(repr(kill).encode())
    path = Path(tempfile.gettempdir()) / f"odradek-sink-kill-{_jvm_above() or 0}-{key:08x}"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, b".")
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)


def _jvm_above() -> int | None:
    # Imported here so that only a process with the variable pays for the import.
    from odradek.spark.processes import jvm_above

    return jvm_above()


def _die(target: str, point: str) -> None:
    of_the_driver = not point.startswith("task.")
    jvm = _jvm_above()
    if target in ("driver", "both") and jvm is not None:
        os.kill(jvm, signal.SIGKILL)
    if target in ("worker", "both") or of_the_driver:
        os.kill(os.getpid(), signal.SIGKILL)
