"""Bits of a connection, each of which is a reason for not handling the connection's next request yet."""

from typing import Final

IN_PROGRESS: Final = 1
WRITE_BUFFER_FULL: Final = 2
TURN_OVER: Final = 4
CLOSED: Final = 8
HELD: Final = 16
PAUSED: Final = 64  # the node is paused
SLICED: Final = 32  # a long request is being decoded, or a long response encoded, in slices
