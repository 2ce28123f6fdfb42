"""Replaces the command `docker` for sarama's tests, which stop and start brokers and read their logs.

Each call sends a request to a small HTTP server in the process that started the brokers.

    docker compose stop|start kafka-N
    docker compose logs --since TIME kafka-N
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

URL: Final = "PUBLISHED_DOCKER"

Orders = dict[str, Callable[[int], str]]


@contextlib.contextmanager
def served(orders: Orders, folder: Path) -> Iterator[dict[str, str]]:
    """Yields environment variables for the tests. ``orders`` are functions for stop, start and logs of a broker."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            _, order, node = self.path.split("/")
            try:
                status, text = 200, orders[order](int(node))
            except Exception as failed:
                status, text = 500, repr(failed)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "docker"
    root = Path(__file__).parents[3]
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -m {__name__} "$@"\n')
    program.chmod(0o755)
    try:
        yield {
            URL: f"http://127.0.0.1:{server.server_port}",
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        }
    finally:
        server.shutdown()
        server.server_close()


def _ask(order: str, node: str) -> str:
    request = urllib.request.Request(f"{os.environ[URL]}/{order}/{node}", b"")
    with urllib.request.urlopen(request) as answer:
        found: bytes = answer.read()
    return found.decode()


def main(compose: str, order: str, *arguments: str) -> None:
    assert compose == "compose", "only docker compose is supported"
    assert order in ("stop", "start", "logs"), order
    print(_ask(order, arguments[-1].removeprefix("kafka-")))


if __name__ == "__main__":
    main(*sys.argv[1:])
