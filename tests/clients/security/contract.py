"""The handshake tests: a test file makes a class for a client from `Handshakes`, with the client's names of the errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, ClassVar, Protocol

import pytest

from tests.clients.security.cells import COMMITTED, REFUSALS, SESSIONS, WELCOME, Cell, Refusal, write_cells
from tests.clients.security.local import LocalClient
from tests.clients.security.world import World
from tests.support.foreign import Program, Running

Outcomes = Mapping[str, Mapping[str, Any]]
"""Outcome of each cell (a connection and an action) by the cell's name."""


class Run(Protocol):
    """A running client that carries out some cells (connections with an action)."""

    def finish(self) -> Outcomes:
        """Stop the cells whose action is ``stay``, and return the outcomes of all cells."""
        ...


class ProgramRun:
    def __init__(self, command: Sequence[str], cells: Sequence[Cell], world: World, title: str) -> None:
        file = write_cells(cells, world, title, world.certificates / "cells.json")
        self._running: Running = Program(command).start("handshakes", file)

    def finish(self) -> Outcomes:
        with self._running as running:
            return {each["cell"]: each for each in running.finish()}


class LocalRun:
    def __init__(self, kind: type[LocalClient], cells: Sequence[Cell], world: World, title: str) -> None:
        self._client = kind(world, title)
        self._begun: Mapping[str, Future[dict[str, Any]]] = self._client.start(cells)

    def finish(self) -> Outcomes:
        self._client.finish()
        return {name: begun.result() for name, begun in self._begun.items()}


class Handshakes:
    title: ClassVar[str]
    """Name of the client, also used in the names of its topics."""
    says: ClassVar[Mapping[str, str]]
    """Name of a cell (a connection and an action) that must fail -> regular expression for the client's error.

    The expression matches the class of the error, and the text if the broker sent one.
    """
    keeps_to_itself: ClassVar[frozenset[str]] = frozenset()
    """Names of cells (connections with an action) in which the client raises an error before it connects."""
    authenticates_again: ClassVar[bool] = True
    """Whether the client reauthenticates on its connections (KIP-368).

    Otherwise the broker closes the connections when their sessions expire, and the client connects again.
    """

    @classmethod
    def begin(cls, cells: Sequence[Cell], world: World) -> Run:
        raise NotImplementedError

    @classmethod
    def outcomes_in(cls, world: World) -> Outcomes:
        cells = [*WELCOME, *(refusal.cell for refusal in REFUSALS)]
        world.add_topics(cell.topic(cls.title) for cell in cells if cell.does == "transaction")
        return cls.begin(cells, world).finish()

    @pytest.mark.parametrize("cell", WELCOME, ids=lambda cell: cell.name)
    def test_it_commits_and_reads_as_its_user(self, outcomes: Outcomes, cell: Cell) -> None:
        outcome = outcomes[cell.name]
        assert "error" not in outcome, outcome
        assert outcome["values"] == COMMITTED

    @pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
    def test_it_is_refused(self, outcomes: Outcomes, world: World, refusal: Refusal) -> None:
        said = outcomes[refusal.name]["error"]
        assert re.search(self.says[refusal.name], said), said
        if refusal.log and refusal.name not in self.keeps_to_itself:
            told = [f"{each['reason']}: {each['error']}" for each in world.refused()]
            assert any(re.match(refusal.log, line) for line in told), told

    def test_its_sessions_end(self, world: World) -> None:
        """The sessions of the client's connections expire, and the client continues to write without an error."""
        world.add_topics(cell.topic(self.title) for cell in SESSIONS)
        with world.control.trace.follow(api="SaslHandshake") as exchanges:
            run = self.begin(SESSIONS, world)
            waiting = {cell.name: Sessions() for cell in SESSIONS}
            while not all(each.are_over(self.authenticates_again) for each in waiting.values()):
                exchange = next(exchanges)
                if exchange["client_id"] in waiting:
                    waiting[exchange["client_id"]].begun(exchange["connection"])
        for outcome in run.finish().values():
            assert "error" not in outcome, outcome
            assert outcome["written"] > 0
        ended = sum("the session has expired" in each["error"] for each in world.refused())
        assert self.authenticates_again or ended >= 2


class Sessions:
    """Sessions of one client, by connection."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def begun(self, connection: int) -> None:
        self._counts[connection] = self._counts.get(connection, 0) + 1

    def are_over(self, again: bool) -> bool:
        """Whether two sessions have ended: on one connection if ``again`` (KIP-368), otherwise on several."""
        return max(self._counts.values(), default=0) > 2 if again else len(self._counts) > 3
