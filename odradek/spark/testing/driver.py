"""Run a Spark driver as a child process, and kill it at a step of the exactly-once sink or at any time.

kill_driver_after("decision.made", [sys.executable, "job.py", ...], batch=1)
run_driver([sys.executable, "job.py", ...])             # the same job again: nothing lost, nothing duplicated
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from odradek.child import Child
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.spark import processes
from odradek.spark.sink.points import POINTS, VARIABLE

TIMEOUT_S: Final = stretched(180.0)
_TAIL_LINES: Final = 40
# As in the fixture's session: the optimizing compiler costs a driver that runs for seconds more time than it saves.
SHORT_LIVED: Final = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class DriverFailed(OdradekError):
    """A driver did not end as expected; the message contains the end of its output."""


class Driver:
    """The processes of a driver: the command that starts it, its JVM, and Spark's Python workers.

    ``environment`` overrides variables of this process, and both override ``SHORT_LIVED``. The end of the ``with`` block
    kills all remaining processes.
    """

    def __init__(
        self, command: Sequence[str | os.PathLike[str]], environment: Mapping[str, str] = {}
    ) -> None:
        # The driver's TMPDIR: there the sink counts how often a step was reached, for this driver alone.
        self._directory = tempfile.TemporaryDirectory(prefix="odradek-driver-", ignore_cleanup_errors=True)
        self._log = Path(self._directory.name) / "log"
        inherited = {**SHORT_LIVED, **os.environ, "TMPDIR": self._directory.name}
        self.process = Child(command, self._log, environment={**inherited, **environment})

    @property
    def output(self) -> str:
        """The driver's output so far."""
        return self._log.read_text("utf-8", "replace")

    def wait(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait for the driver's end, and return its exit code. Raises ``DriverFailed`` after ``timeout_s``."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DriverFailed(f"the driver has not ended after {timeout_s:g} s:\n{self.tail()}") from None

    def kill(self) -> None:
        """Send SIGKILL to the driver and all processes that it has started, as after a crash of the machine."""
        for each in processes.of_session(self.process.pid):
            processes.kill(each)
        self.process.kill()

    def times_at_step(self) -> int:
        """How often processes of the driver have reached the step at which one of them is to be killed."""
        counters = Path(self._directory.name).glob("odradek-sink-kill-*")
        return max((each.stat().st_size for each in counters), default=0)

    def tail(self) -> str:
        return "\n".join(self.output.splitlines()[-_TAIL_LINES:])

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        self._directory.cleanup()


def run_driver(
    command: Sequence[str | os.PathLike[str]],
    environment: Mapping[str, str] = {},
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Run a driver to its end and return its output. Raises ``DriverFailed`` if its exit code is not 0."""
    with Driver(command, environment) as driver:
        if code := driver.wait(timeout_s):
            raise DriverFailed(f"the driver ended with exit code {code}:\n{driver.tail()}")
        return driver.output


def kill_driver_after(
    step: str,
    command: Sequence[str | os.PathLike[str]],
    *,
    batch: int | None = None,
    nth: int = 1,
    target: str = "driver",
    environment: Mapping[str, str] = {},
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Run a driver, and kill it when its exactly-once sink reaches ``step`` of ``batch`` for the ``nth`` time.

    The steps are those of ``odradek.spark.sink.points.POINTS``. ``target`` is ``driver``, ``both``, or ``worker``. With
    ``worker`` only the Python process of the task is killed: Spark retries the task, and the driver must end with exit code
    0. With ``driver`` and ``both`` all processes of the driver have ended when the call returns. Raises ``DriverFailed`` if
    the sink never reaches the step.
    """
    if step not in POINTS:
        raise OdradekError(f"there is no step {step!r}; there are {', '.join(POINTS)}")
    order = step + ("" if batch is None else f":batch={batch}") + f":nth={nth}={target}"
    with Driver(command, {**environment, VARIABLE: order}) as driver:
        code = driver.wait(timeout_s)
        if driver.times_at_step() < nth:
            raise DriverFailed(
                f"the driver ended with exit code {code} before it reached the step {order}:\n{driver.tail()}"
            )
        if (code == 0) != (target == "worker" and step.startswith("task.")):
            raise DriverFailed(
                f"the driver ended with exit code {code} after it reached the step {order}:\n{driver.tail()}"
            )
