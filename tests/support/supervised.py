"""Client calls that may hang forever: the program then ends its own process, as a supervisor would.

    supervised(producer.commit_transaction)

The test starts another process. kafka-python 3.0 can lose TxnOffsetCommit or EndTxn when the broker dies. The sender of
kafka-python is then idle, and ``send_offsets_to_transaction`` and ``commit_transaction`` wait without a timeout.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from odradek.deadlines import stretched

STUCK_S: Final = stretched(20)
"""Seconds after which a call counts as hung. A transaction of a few records is much faster."""


def supervised(call: Callable[..., object], *arguments: object) -> None:
    """Call ``call`` with ``arguments``, and end this process if the call takes longer than `STUCK_S`."""
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
