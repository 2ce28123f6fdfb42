"""Limits for one connection: buffered bytes, and work in one turn of the event loop."""

from typing import Final

# Bytes that the client sent after a request that is still in progress.
BACKLOG_BYTES_MAX: Final = 64 * 1024
# Responses of one turn are collected up to this size, and written with one system call.
ANSWERS_COLLECTED_BYTES: Final = 64 * 1024
# Up to this size, collected responses are joined by copying, which is cheaper than a vectored write.
ANSWERS_JOINED_BYTES_MAX: Final = 16 * 1024
# Requests of one connection in one turn of the event loop. Further requests wait for those of other connections.
REQUESTS_PER_TURN: Final = 32
# After a frame of at least this size, the connection's turn is over.
FRAME_BYTES_PER_TURN: Final = 256 * 1024
