"""JSON over HTTP, for programs on this machine that may not have started yet."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.support.deadlines import HANG_S


def ask_json(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and body of the response. Status 0 if there is no response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or "null")
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
