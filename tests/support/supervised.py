"""Calls of a library that can wait for ever: the program ends itself then, as who supervises it would end it.

    supervised(producer.commit_transaction)

The test starts another one. kafka-python 3.0 can forget TxnOffsetCommit or EndTxn when the broker dies. Its sender is idle
then, with nothing in flight, and ``send_offsets_to_transaction`` and ``commit_transaction`` wait without a timeout.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from odradek.deadlines import stretched

STUCK_S: Final = stretched(20)
"""So long no transaction of a few records takes."""


def supervised(call: Callable[..., object], *arguments: object) -> None:
    """Make a call; if it takes longer than `STUCK_S`, the process ends."""
    timer = threading.Timer(STUCK_S, _end)
    timer.daemon = True
    timer.start()
    try:
        call(*arguments)
    finally:
        timer.cancel()


def _end() -> None:
    print("stuck in a transaction", file=sys.stderr, flush=True)
    os._exit(1)
