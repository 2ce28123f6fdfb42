"""What can go wrong, in sentences. All of it is an ``OdradekError``."""

from __future__ import annotations


class OdradekError(Exception):
    """Something of Odradek's went wrong; the text says what, and what to do."""


class BrokerFailed(OdradekError):
    """A broker did not start, did not stop, or left a traceback; the text has the end of its log."""


class ControlUnreachable(OdradekError):
    """Nobody answers at the control port, or not as one does."""


class ControlRefused(OdradekError):
    """The control port said no; ``status`` is that of HTTP, the text its sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class NotFound(ControlRefused):
    """There is no such node, rule or transaction (any more)."""


class FaultNotHit(OdradekError):
    """A rule did not have the hits that were waited for; the text says how many it had."""
