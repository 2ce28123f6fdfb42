"""What each kind of service implements, and the services of one run."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.certify.judging.check import Check, run_command
from odradek.certify.services.calls import Call, ServiceRule, Traffic
from odradek.certify.services.specs import Feed, ServiceOutput, StageSpec
from odradek.deadlines import stretched
from odradek.errors import OdradekError
from odradek.remote import Clock
from odradek.topics import Record

if TYPE_CHECKING:
    from odradek.certify.services.files import Files

CALL_S: Final = stretched(60.0)
"""Maximum time for one operation of a proxy, in seconds."""
_SERVER_WIDE: Final = re.compile("PREPARE TRANSACTION|REPLICATION_SLOT", re.IGNORECASE)
_T = TypeVar("_T")


class Service(Protocol):
    """A service behind a proxy. One object serves all runs of one `Stage`; the runs follow one another.

    The proxy runs in the event loop of `Loop`; the methods are called by the certifier's threads.
    """

    @property
    def traffic(self) -> Traffic:
        """The requests of the current run, and its rules."""
        ...

    def start(self, loop: Loop, feeds: Sequence[Feed]) -> None:
        """Check that the service can be reached, start the proxy, and prepare the state with which each run begins.

        ``feeds`` are the inputs that this service holds, such as rows. Raises `OdradekError` with the reason if the service
        cannot be reached or prepared.
        """
        ...

    def restore(self) -> None:
        """Close the connections of the previous run, and return the service to the state after ``start``."""
        ...

    def values(self) -> Mapping[str, str]:
        """Placeholders for the job's command: ``{"postgres": "postgresql://user@127.0.0.1:40123/app"}``."""
        ...

    def records(self, output: ServiceOutput) -> list[Record]:
        """The rows or requests of an output, read behind the proxy.

        ``topic`` is the label of the output, ``value`` a JSON object, ``partition`` -1, ``offset`` the number of the row.
        """
        ...

    def open_transactions(self) -> list[str]:
        """A sentence for each transaction that the job has left open or prepared, and that holds back others."""
        ...

    def close(self) -> None:
        """Close the proxy, and remove what ``start`` and ``restore`` have created."""
        ...


class Loop:
    """An event loop in a thread of its own, in which the proxies run."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Awaitable[_T]) -> _T:
        """Run a coroutine in the loop, and return its result."""

        async def awaited() -> _T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(CALL_S)

    def close(self) -> None:
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(CALL_S)
        self.loop.close()

    @staticmethod
    async def _end() -> None:
        """End what is in progress, so that the loop closes the connections."""
        await asyncio.sleep(
            0
        )  # a task that is cancelled before its first step would not close its connection
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        if others:
            await asyncio.wait(others)
        await asyncio.sleep(0)


class Services:
    """The services of one stage. Without ``stages``, outputs or feeds, all methods do nothing."""

    def __init__(
        self, stages: Iterable[StageSpec], outputs: Sequence[ServiceOutput], feeds: Sequence[Feed]
    ) -> None:
        self._stages, self._outputs, self._feeds = tuple(stages), outputs, feeds
        self._services: dict[str, Service] = {}
        self._loop: Loop | None = None
        self._files = _files(outputs)

    def start(self) -> None:
        if not self._stages:
            return
        self._loop = Loop()
        for spec in self._stages:
            service = spec.service(self._loop.loop)
            self._services[spec.name] = service
            service.start(self._loop, [each for each in self._feeds if each.stage == spec.name])

    def restore(self, data: Path, values: Mapping[str, str] = MappingProxyType({})) -> None:
        """Prepare a run, whose directory is ``data``. ``values`` are placeholders of the user's reset commands."""
        if self._files is not None:
            self._files.begin(data)
        for each in self._services.values():
            each.restore()
            each.traffic.begin()
        for spec in self._stages:
            if spec.reset is not None:
                self._reset(spec.name, spec.reset, {**values, "data": str(data), **self.values()})

    def _reset(self, name: str, command: Check, values: Mapping[str, str]) -> None:
        """Run the user's command. Its requests through the proxy are not the job's."""
        code, lines = run_command(command, values)
        if code != 0:
            ended = "did not end in time" if code is None else f"ended with exit code {code}"
            raise OdradekError("\n".join([f"--stage-reset {name}: {command.command} {ended}", *lines]))
        self._services[name].traffic.begin()

    def follow(self, clock: Clock) -> None:
        """Count the time of requests as the broker's trace does, after the broker's clock was advanced or restored.

        The times of both ends are then of one clock. The trace has the time of the domain that is the furthest ahead.
        """
        if self._services:
            ahead_us = 1000 * max(clock.ahead_ms.values(), default=0)
            for each in self._services.values():
                each.traffic.ahead_us = ahead_us

    def close(self) -> None:
        with ExitStack() as stack:  # an error of one does not keep the others open
            if self._loop is not None:
                stack.callback(self._loop.close)
            for each in self._services.values():
                stack.callback(each.close)

    # -- faults --------------------------------------------------------------------------------------------------

    def add_rule(self, service: str, text: str) -> ServiceRule:
        """Add a rule at a service, in the form that `calls` describes."""
        if service not in self._services:
            raise OdradekError(f"the plan needs --stage {service}=...")
        return self._services[service].traffic.add(text)

    # -- what the job does ---------------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        return list(self._services)

    @property
    def file_names(self) -> frozenset[str]:
        """The files of all outputs, relative to the run's directory."""
        return frozenset() if self._files is None else self._files.names

    def now_us(self) -> int:
        """The time in us since the epoch, by the clock of the broker's trace if there is a service."""
        return next((each.traffic.now_us() for each in self._services.values()), time.time_ns() // 1000)

    @property
    def requests(self) -> int:
        """Number of requests at all services since their start, which grows with each."""
        return sum(each.traffic.requests for each in self._services.values())

    @property
    def writes(self) -> int:
        """Number of requests that may change state, and of changes of output files, since the start."""
        return sum(each.traffic.writes for each in self._services.values()) + self._file_changes

    @property
    def has_writes(self) -> bool:
        """Whether the job has sent a request in this run that may change state, or has written an output file."""
        has_files = self._files is not None and self._files.are_there
        return has_files or any(
            call.is_write for each in self._services.values() for call in each.traffic.calls()
        )

    @property
    def handled(self) -> int:
        """Number of requests that may change state and that services have handled, and of changes of output files."""
        return sum(each.traffic.handled for each in self._services.values()) + self._file_changes

    @property
    def _file_changes(self) -> int:
        return 0 if self._files is None else self._files.changes

    @property
    def has_server_wide_names(self) -> bool:
        """Whether the job has used names in this run that are unique in a whole PostgreSQL server.

        They are those of prepared transactions and replication slots. Two runs at a time would use the same ones.
        """
        return any(_SERVER_WIDE.search(each.line) for each in self.calls())

    def peers(self) -> list[str]:
        """The connections (host:port) of this run's requests, the latest first."""
        return list(dict.fromkeys(each.peer for each in reversed(self.calls())))

    def calls(self) -> list[Call]:
        """The requests of this run at all services, by arrival."""
        found = [call for each in self._services.values() for call in each.traffic.calls()]
        return sorted(found, key=lambda each: each.arrived_us)

    # -- outputs -------------------------------------------------------------------------------------------------

    def values(self) -> dict[str, str]:
        return {name: value for each in self._services.values() for name, value in each.values().items()}

    def records(self) -> list[Record]:
        """The records of all outputs that are not topics, as they are now."""
        found: list[Record] = []
        for output in self._outputs:
            source = self._services[output.stage] if output.stage else self._files
            assert source is not None
            found += source.records(output)
        return found

    def open_transactions(self) -> list[str]:
        return [sentence for each in self._services.values() for sentence in each.open_transactions()]


def _files(outputs: Sequence[ServiceOutput]) -> Files | None:
    if all(each.stage for each in outputs):
        return None
    from odradek.certify.services.files import Files

    return Files([each for each in outputs if not each.stage])
