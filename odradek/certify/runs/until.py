"""The condition under which a run is done: set by the user with ``--until``, or selected by a run without faults."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.durations import seconds


@dataclass(frozen=True, slots=True)
class Until:
    """The condition for the end of a run: ``lag=0``, ``exit``, ``records=N``, ``idle=TIME``, ``check``, or ``auto``.

    ``auto``: the first run without faults selects one of the other conditions.
    """

    what: str = "lag"
    number: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Until:
        name, _, value = text.partition("=")
        try:
            if name == "lag" and value in ("", "0"):
                return cls("lag")
            if name in ("exit", "check", "auto") and not value:
                return cls(name)
            if name == "records" and int(value) > 0:
                return cls("records", int(value))
            if name == "idle":
                return cls("idle", seconds(value))
        except ValueError:
            pass
        raise ValueError(f"{text!r}: expected lag=0, exit, records=NUMBER, idle=TIME, check or auto")

    @property
    def is_chosen(self) -> bool:
        """Whether the condition is known, i.e. not ``auto``."""
        return self.what != "auto"

    def __str__(self) -> str:
        if self.what == "idle":
            return f"idle={self.number:g}s"
        return {"lag": "lag=0", "records": f"records={self.number:g}"}.get(self.what, self.what)

    @property
    def words(self) -> str:
        """The condition for the end of a run, as a clause for messages."""
        return {
            "lag": "a group has committed all the input",
            "exit": "the job ends by itself",
            "records": f"the outputs have {self.number:g} records",
            "idle": f"the job has requested no change for {self.number:g} s",
            "check": "the check accepts the outputs",
        }.get(self.what, "the first run without faults has selected a condition")
