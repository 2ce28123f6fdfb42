"""`unittest` test cases with a broker: one broker per run, reset before each test.

    class PaymentsTest(OdradekTestCase):
        odradek_options = {"topics": ["orders:4"]}

        def test_a_lost_answer(self):
            self.broker.faults.add("EndTxn", nth=1, do="lose-answer")
            ...  # a client at self.broker.bootstrap_servers
            self.broker.assert_exactly_once("orders", ["paid"])

For other base classes, such as ``unittest.IsolatedAsyncioTestCase``, put ``OdradekMixin`` in front of them.
"""

from __future__ import annotations

import atexit
import unittest
from typing import Any, ClassVar, Final

from odradek.broker import Broker

__all__ = ["OdradekMixin", "OdradekTestCase"]

_brokers: Final[dict[str, Broker]] = {}
"""The brokers of this process, by their options. They end with the process."""


class OdradekMixin:
    """Mixin that resets the broker before each test. Classes with equal options share one broker."""

    odradek_options: ClassVar[dict[str, Any]] = {}
    """Keyword arguments of ``odradek.Broker``: topics, seed, settings, nodes, transaction_version, features, preview,
    tls, users, mechanism.
    """
    broker: Broker
    """The broker, with its faults, clock, trace, transactions, nodes and assertions."""

    def setUp(self) -> None:
        self.broker = _broker_with(self.odradek_options).reset()
        super().setUp()  # type: ignore[misc]


class OdradekTestCase(OdradekMixin, unittest.TestCase):
    """A ``unittest.TestCase`` with a broker."""


def _broker_with(options: dict[str, Any]) -> Broker:
    key = repr(sorted(options.items()))
    if key not in _brokers:
        broker = Broker(**options).start()
        atexit.register(broker.close)
        _brokers[key] = broker
    return _brokers[key]
