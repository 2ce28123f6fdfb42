"""The restart policy of the supervisor: whether an ended instance is started again, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SHORT_LIFE_S: Final = 1.0
FIRST_DELAY_S: Final = 0.1
LONGEST_DELAY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart policy: after which exits an instance is started again."""

    with_success: bool
    """Whether exit code 0 is followed by a restart too."""
    most: int | None
    """Maximum number of restarts of each instance; None for no limit."""

    @classmethod
    def parse(cls, text: str) -> Restart:
        """Parse ``always``, ``on-failure``, ``never``, or the maximum number of restarts after failures.

        Raises ``ValueError`` for any other text.
        """
        if text in _NAMED:
            return _NAMED[text]
        if not text.isdecimal():
            raise ValueError(f"{text!r}: expected always, on-failure, never or a number")
        return cls(with_success=False, most=int(text))

    def __str__(self) -> str:
        return next((name for name, each in _NAMED.items() if each == self), str(self.most))

    def starts_again(self, code: int, starts: int) -> bool:
        """Whether to restart an instance after this exit code (negative for a signal) and ``starts`` earlier restarts."""
        return (code != 0 or self.with_success) and (self.most is None or starts < self.most)


ALWAYS: Final = Restart(with_success=True, most=None)
"""Same as ``restartPolicy: Always`` in Kubernetes."""
ON_FAILURE: Final = Restart(with_success=False, most=None)
NEVER: Final = Restart(with_success=False, most=0)
_NAMED: Final = {"always": ALWAYS, "on-failure": ON_FAILURE, "never": NEVER}


class BackOff:
    """The delay before a restart, which grows while the instance keeps ending soon after its start."""

    def __init__(self) -> None:
        self._next_s = FIRST_DELAY_S

    def delay_s(self, life_s: float) -> float:
        """The delay in seconds before the restart of an instance that ran for ``life_s``; 0 if it ran long enough."""
        if life_s >= SHORT_LIFE_S:
            self._next_s = FIRST_DELAY_S
            return 0.0
        delay_s = self._next_s
        self._next_s = min(2 * delay_s, LONGEST_DELAY_S)
        return delay_s
