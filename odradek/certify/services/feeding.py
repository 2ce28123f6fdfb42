"""Give the job its input that is not in topics: files in the run's directory, and requests to the job's own port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.certify.services.specs import FILES, PORT, Feed


class Feeding:
    """The feeding of one run. Rows are not among it: they are in the database with which the run begins."""

    def __init__(self, feeds: Sequence[Feed], data: Path) -> None:
        self._files = [each for each in feeds if each.stage == FILES]
        self._requests = [each for each in feeds if each.stage == "http"]
        self._data = data
        self._port = _free_port() if self._requests else 0

    def values(self) -> Mapping[str, str]:
        """Placeholders for the job's command: the port at which it has to serve the requests."""
        return {PORT: str(self._port)} if self._port else {}

    def begin(self) -> None:
        """Link the files into the run's directory, and begin to send the requests."""

    @property
    def is_over(self) -> bool:
        """Whether the job has accepted all the requests."""
        return True

    def end(self) -> None:
        """End the sending of requests."""


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
