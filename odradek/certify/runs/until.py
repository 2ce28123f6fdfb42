"""When a run is done: what the user says with ``--until``, or what a run without faults shows."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.durations import seconds


@dataclass(frozen=True, slots=True)
class Until:
    """``lag=0``, ``exit``, ``records=N``, ``idle=TIME``, ``check``, or ``auto``: chosen by the first run without faults."""

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
        """Not left to the first run without faults."""
        return self.what != "auto"

    def __str__(self) -> str:
        if self.what == "idle":
            return f"idle={self.number:g}s"
        return {"lag": "lag=0", "records": f"records={self.number:g}"}.get(self.what, self.what)

    @property
    def words(self) -> str:
        """What a run waits for, as a clause."""
        return {
            "lag": "a group has committed all of the input",
            "exit": "the job ends by itself",
            "records": f"the outputs hold {self.number:g} records",
            "idle": f"the job has asked for no change in {self.number:g} s",
            "check": "the check says yes",
        }.get(self.what, "the first run without faults shows it")
