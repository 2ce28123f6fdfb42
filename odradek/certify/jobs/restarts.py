"""What a supervisor does with an instance that has ended: whether it starts it again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHORT_LIFE_S: Final = 1.0
FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Restart:
    """Which ends of an instance are followed by a start."""

    with_success: bool
    """Exit code 0 too."""
    most: int | None
    """Of each instance; None: without a limit."""

    @classmethod
    def parse(cls, text: str) -> Restart:
        """``always``, ``on-failure``, ``never``, or how often after a failure. ``ValueError`` for all else."""
        if text in _NAMED:
            return _NAMED[text]
        if not text.isdecimal():
            raise ValueError(f"{text!r}: expected always, on-failure, never or a number")
        return cls(with_success=False, most=int(text))

    def __str__(self) -> str:
        return next((name for name, each in _NAMED.items() if each == self), str(self.most))

    def starts_again(self, code: int, starts: int) -> bool:
        """After this exit code (of a signal: below 0) of an instance that was started again so often before."""
        return (code != 0 or self.with_success) and (self.most is None or starts < self.most)


ALWAYS: Final = Restart(with_success=True, most=None)
"""As ``restartPolicy: Always`` of Kubernetes."""
ON_FAILURE: Final = Restart(with_success=False, most=None)
NEVER: Final = Restart(with_success=False, most=0)
_NAMED: Final = {"always": ALWAYS, "on-failure": ON_FAILURE, "never": NEVER}


class BackOff:
    """The delay before an instance is started again: longer from one short life to the next, as supervisors do."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def delay_s(self, life_s: float) -> float:
        """0 after a life that was not short."""
        if life_s >= SHORT_LIFE_S:
            self._next_s = FIRST_DELAY_S
            return 0.0
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_DELAY_S)
        return delay_s
