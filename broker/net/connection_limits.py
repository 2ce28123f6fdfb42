"""How much one connection may keep, and do in one turn of the loop."""

from typing import Final

# Sent by the client behind a request in progress.
BACKLOG_BYTES_MAX: Final = 64 * 1024
# Answers of one turn are collected up to this size and written with one system call.
ANSWERS_COLLECTED_BYTES: Final = 64 * 1024
# Smaller ones are copied together: that is cheaper than to hand the system a list of pieces.
ANSWERS_JOINED_BYTES_MAX: Final = 16 * 1024
# Of one connection in one turn of the loop: thousands of tiny requests wait for those of others.
REQUESTS_PER_TURN: Final = 32
# A frame as large as this is the last of its connection in a turn.
FRAME_BYTES_PER_TURN: Final = 256 * 1024
