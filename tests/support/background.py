"""A fixture that runs the broker's background work in the caller's thread instead of a thread pool."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from broker.replicas.manager import ReplicaManager


def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `ReplicaManager.in_background` run its work at once. The returned future has the exception of the work, if
    any."""

    def at_once(_: ReplicaManager, work: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    monkeypatch.setattr(ReplicaManager, "in_background", at_once)
