"""The stack traces that SIGQUIT prints."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress

from server.stacks import stacks_writer

PIPE_BYTES = 4096


def test_stacks_that_nothing_reads_hold_up_nothing() -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.write(write, bytes(PIPE_BYTES))
    handle = stacks_writer(write)
    for _ in range(100):
        handle(signal.SIGQUIT, None)
    written = b""
    while not written.count(b"thread MainThread: "):
        written += os.read(read, PIPE_BYTES)
    os.set_blocking(read, False)
    with suppress(BlockingIOError):
        written += os.read(read, PIPE_BYTES)
    # The first signal's thread was blocked, so the other signals were ignored.
    assert written.count(b"thread MainThread: ") == 1
    os.close(read)  # the blocked thread ends, too
