"""The exceptions and the warning of this package. All exceptions are subclasses of ``OdradekError``."""

from __future__ import annotations

from operator import methodcaller
from typing import Final


class OdradekError(Exception):
    """Base class of the exceptions. The text describes what is wrong and what to do."""


class BrokerFailed(OdradekError):
    """A broker did not start, did not stop, or logged a traceback. The text ends with the last lines of its log."""


class ControlUnreachable(OdradekError):
    """There is no response from the control port, or the response is not that of a control port."""


class ControlRefused(OdradekError):
    """The control port rejected the call. ``status`` is the HTTP status, the text its error message."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class BadClientSettings(OdradekError):
    """The security settings of a command are invalid or contradictory."""


class Untrusted(OdradekError):
    """A TLS handshake failed, for instance because one side does not trust the other's certificate."""


class NotFound(ControlRefused):
    """The requested object (such as a node, rule or topic) does not exist, or no longer exists."""


class TransactionNotReached(OdradekError):
    """A transactional id did not reach the expected state in time. The text names the last state of the id."""


class FaultNotHit(OdradekError):
    """A rule did not have the expected number of hits in time. The text gives its number of hits."""


class AssertionFailed(OdradekError, AssertionError):
    """An assertion on the broker failed. The text lists the differences and the timelines."""


class RecordsHiddenWarning(UserWarning):
    """Decided records were not returned because an undecided transaction precedes them in the log.

    The text names the transaction.
    """


HIDDEN_IN_TRACEBACKS: Final = methodcaller("errisinstance", (OdradekError, RecordsHiddenWarning))
"""Value for a module's ``__tracebackhide__``: pytest shows the test's line for this package's errors and warning."""


class ErrorsOfABroker:
    """The exception classes as attributes of a broker, as PEP 249 does for a connection.

    The fixture ``odradek`` shadows the module ``odradek`` in a test; ``odradek.FaultNotHit`` is the class nevertheless.
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
