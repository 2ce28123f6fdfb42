"""The broker's background work, done in the turn of its caller: no thread decides when it happens."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from broker.replicas.manager import ReplicaManager


def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ReplicaManager.in_background` runs its work at once; what the work raises is in the future that it returns."""

    def at_once(_: ReplicaManager, work: Callable[[], object]) -> Future[object]:
        future: Future[object] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    monkeypatch.setattr(ReplicaManager, "in_background", at_once)
