"""Serve the certificate over HTTP during the certification: the page, which reloads itself, and its JSON."""

from __future__ import annotations

import json
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from odradek.certify.certificate import Certificate
from odradek.certify.report.certificate import as_dict
from odradek.certify.report.page import page

HOST: Final = "127.0.0.1"
REFRESH_S: Final = 2


class Live:
    """HTTP server for one certificate, until the end of the block.

    with Live(certifier.certificate, port=0) as live:
        print(live.url)
        certifier.run()
    """

    def __init__(self, certificate: Certificate, port: int) -> None:
        """Port 0 selects a free port. Raises ``OSError`` if the port is in use."""

        class Handler(_Handler):
            shown = certificate

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Live:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    shown: Certificate

    def do_GET(self) -> None:  # called by http.server under this name
        if self.path == "/":
            self._answer("text/html; charset=utf-8", page(self.shown, refresh_s=REFRESH_S))
        elif self.path == "/certificate.json":
            self._answer("application/json", json.dumps(progress(self.shown)))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the terminal shows the progress."""


def progress(certificate: Certificate) -> dict[str, Any]:
    """The content of ``certificate.json``, with the elapsed time."""
    passed_s = certificate.took_s or time.monotonic() - certificate.began
    return as_dict(certificate) | {"took_s": round(passed_s, 1), "is_over": bool(certificate.took_s)}
