"""What holds the next request of a connection back, as bits."""

from typing import Final

IN_PROGRESS: Final = 1
WRITE_BUFFER_FULL: Final = 2
TURN_OVER: Final = 4
CLOSED: Final = 8
HELD: Final = 16
PAUSED: Final = 64  # its node is
SLICED: Final = 32  # a long request is read, or a long answer written, a slice a turn
