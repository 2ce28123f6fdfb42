"""Programs whose library can wait for ever: they end themselves then, as who supervises them would end them.

    with Supervised():
        producer.begin_transaction()
        ...
        producer.commit_transaction()

The test starts another one. kafka-python 3.0 can forget TxnOffsetCommit or EndTxn when the broker dies. Its sender is idle
then, with nothing in flight, and ``send_offsets_to_transaction`` and ``commit_transaction`` wait without a timeout.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final

from odradek.deadlines import stretched

STUCK_S: Final = stretched(20)
"""So long no transaction of a few records takes."""


class Supervised:
    """What is done within takes no longer than `STUCK_S`, or the process ends."""

    def __enter__(self) -> None:
        self._timer = threading.Timer(STUCK_S, self._end)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        print("stuck in a transaction", file=sys.stderr, flush=True)
        os._exit(1)
