"""Runs a fuzz test of one seed on a broker in virtual time. An unhandled exception in the event loop fails the test."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from tests.simulation.loop import SimLoop


class Failure(AssertionError):
    """The broker did not handle an input correctly. The message has the seed and the input."""


class Work(Protocol):
    async def run(self, count: int, /) -> None:
        """Start a broker and send ``count`` random inputs to it.

        An input is a frame in `Fuzz`, and a client with a broken login in `Logins`.
        """
        ...

    def log(self, logger: Any, method: str, event: MutableMapping[str, Any], /) -> Any:
        """A structlog processor that checks each log line of the broker, and drops it."""
        ...


W = TypeVar("W", bound=Work)


def play(make: Callable[[int, Path, SimLoop], W], seed: int, count: int) -> W:
    """Run one seed. Raises ``Failure`` if the broker does not handle an input correctly."""
    loop = SimLoop(seed)
    failures: list[Any] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if memory.is_dir() else None) as directory,
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        work = make(seed, Path(directory) / "data", loop)
        structlog.configure(processors=[work.log], cache_logger_on_first_use=False)
        try:
            runner.run(work.run(count))
        finally:
            structlog.reset_defaults()
    if failures:
        raise Failure(f"seed {seed}: {failures[0].get('message')}: {failures[0].get('exception')!r}")
    return work


def play_seeds(
    arguments: Sequence[str],
    description: str | None,
    what: str,
    default: int,
    fuzz: Callable[[int, int], W],
    told: Callable[[W], str],
) -> int:
    """Run a fuzz test from the command line, with ``--seed``, ``--seeds``, and a number of inputs such as ``--frames``.

    ``what`` is the name of that last option, ``default`` its default. ``told`` returns the summary of a seed's run.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(f"--{what}", dest="count", type=int, default=default)
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.seeds):
        print(f"seed {seed}: {told(fuzz(seed, options.count))}", flush=True)
    return 0
