"""The workers' processes, and what is known of each: alive or not, inside a transaction or not."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

INSIDE = "begin"


@dataclass(slots=True)
class _Hand:
    process: subprocess.Popen[str]
    last_word: str = ""

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last_word = line.split(" ")[0]


class Crew:
    """Starts, kills and ends workers. Their complaints are kept in a file each."""

    def __init__(self, source: str, sink: str, directory: Path) -> None:
        self._source = source
        self._sink = sink
        self._directory = directory
        self._hands: dict[int, _Hand] = {}

    def start(self, number: int, bootstrap: str) -> None:
        command = [sys.executable, "-I", "-m", "odradek.demo.worker", bootstrap, str(number)]
        with (self._directory / f"worker-{number}.log").open("a") as complaints:
            process = subprocess.Popen(
                [*command, self._source, self._sink],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,
            )
        hand = self._hands[number] = _Hand(process)
        threading.Thread(target=hand.listen, daemon=True).start()

    def dead(self) -> list[int]:
        """Workers that have ended, by a kill or by giving up."""
        return [number for number, hand in self._hands.items() if hand.process.poll() is not None]

    def kill(self, number: int) -> bool:
        """kill -9; whether the last that was heard of the worker is that it had begun a transaction."""
        hand = self._hands[number]
        hand.process.kill()
        hand.process.wait()
        return hand.last_word == INSIDE

    def complaints(self, number: int) -> str:
        """The last line that a worker wrote to its error output."""
        lines = (self._directory / f"worker-{number}.log").read_text().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        for hand in self._hands.values():
            hand.process.kill()
            hand.process.wait()
            for pipe in (hand.process.stdin, hand.process.stdout):
                if pipe is not None:
                    pipe.close()
        self._hands.clear()
