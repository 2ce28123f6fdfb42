"""A minimal server for comparison, which every run measures next to the broker.

``python -m benchmarks.plain PORT FILE``: one blocking thread per process, one connection. The response to a frame of up to
64 KiB has as many bytes as Kafka's Produce response. A larger frame is written to FILE first (plain ``write``). The response
to a frame that starts with ``READ`` is 1 MiB of FILE (``pread`` and send). No protocol, no checks, no event loop.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.client import LARGE_BATCH_BYTES, SIZE, Client
from benchmarks.targets import HOST, Target

READ: Final = b"READ"
ANSWER: Final = SIZE.pack(60) + bytes(60)


class Plain(Target):
    """The minimal server as a target."""

    name = "plain"

    def command(self, port: int, data: Path, settings: Mapping[str, str]) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.plain", str(port), str(data / "file")]


def serve(connection: socket.socket, file: int) -> None:
    client = Client(connection)
    position = 0
    while True:
        received = client.receive()
        if bytes(received[: len(READ)]) == READ:
            data = os.pread(file, LARGE_BATCH_BYTES, position)
            connection.sendall(SIZE.pack(len(data)))
            connection.sendall(data)
            continue
        if len(received) > 1 << 16:
            position += os.pwrite(file, received, position)
        connection.sendall(ANSWER)


def main(port: int, path: str) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(file, bytes(2 * LARGE_BATCH_BYTES), 0)
    with socket.create_server((HOST, port)) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                serve(connection, file)
            except Exception:
                connection.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
