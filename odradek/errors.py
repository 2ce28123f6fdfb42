"""The exceptions, all of which are ``OdradekError``."""

from __future__ import annotations

from operator import methodcaller
from typing import Final


class OdradekError(Exception):
    """An error of Odradek; the text says what is wrong and what to do."""


class BrokerFailed(OdradekError):
    """A broker did not start, did not stop, or left a traceback; the text has the end of its log."""


class ControlUnreachable(OdradekError):
    """The control port does not respond, or not as a control port does."""


class ControlRefused(OdradekError):
    """The control port refused the call; ``status`` is the HTTP status, the text its error message."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class BadClientSettings(OdradekError):
    """The settings by which a command is to secure its connections cannot be."""


class Untrusted(OdradekError):
    """A broker does not trust a command, or the command the broker."""


class NotFound(ControlRefused):
    """The node, rule or transaction does not exist, or not any more."""


class TransactionNotReached(OdradekError):
    """A transactional id did not come into the awaited state; the text has the state that it was in."""


class FaultNotHit(OdradekError):
    """A rule did not reach the awaited number of hits; the text has its number."""


class AssertionFailed(OdradekError, AssertionError):
    """An assertion on the broker does not hold; the text lists what is wrong, with timelines."""


class RecordsHiddenWarning(UserWarning):
    """Decided records were not returned, because what comes before them in the log is undecided; the text names it."""


HIDDEN_IN_TRACEBACKS: Final = methodcaller("errisinstance", (OdradekError, RecordsHiddenWarning))
"""``__tracebackhide__`` of a module: pytest shows the test's own line of these errors, and not the module's."""


class ErrorsOfABroker:
    """The exceptions as attributes of a broker, as PEP 249 has them of a connection.

    In a test the fixture ``odradek`` hides the module of that name: ``odradek.FaultNotHit`` is the class all the same.
    """

    OdradekError = OdradekError
    AssertionFailed = AssertionFailed
    BrokerFailed = BrokerFailed
    ControlRefused = ControlRefused
    ControlUnreachable = ControlUnreachable
    FaultNotHit = FaultNotHit
    NotFound = NotFound
    RecordsHiddenWarning = RecordsHiddenWarning
    TransactionNotReached = TransactionNotReached
