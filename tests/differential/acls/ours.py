"""Our broker in this process, without a socket: the handler gets the principal of a request directly."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.loop.coroutines import start
from broker.node.context import RequestContext
from broker.requests.api import discover
from protocol.codec import request_codec
from protocol.frame import parse_request_header, response_header
from tests.differential.acls.asking import Asking, Body
from tests.differential.acls.cases import ASKERS
from tests.differential.acls.kafka import AUTHORIZER
from tests.support import raw
from tests.support.in_process import InProcess


class DirectClient:
    """A client that encodes and decodes each request and response with our codec and with the tests' own codec."""

    def __init__(self, broker: InProcess, principal: str, host: str) -> None:
        self._broker = broker
        self._principal = principal
        self._peer = f"/{host}"

    def ask(self, api: str, version: int, **body: Any) -> Body:
        answer = self._broker.run(self._answer(raw.encode_request(api, version, body, 1)))
        return raw.decode_response(api, version, answer)[1]

    async def _answer(self, frame: bytes) -> bytes:
        header = parse_request_header(frame)
        codec = request_codec(header.api_key, header.api_version)
        first = self._broker.cluster.first
        context = RequestContext(
            first.node, first.listeners[0], header.api_key, header.api_version, "raw", self._peer
        )
        context.principal = self._principal
        answer: Any = discover()[header.api_key].handler(codec.decode(frame, header.body_offset), context)
        if inspect.iscoroutine(answer):
            answer = start(answer, first.node.life)
        if inspect.isawaitable(answer):
            answer = await answer
        chunks = codec.encode(answer)
        return b"".join((response_header(header.api_key, header.api_version, 1), *chunks))

    def close(self) -> None:
        """Do nothing: there is no connection."""


@contextmanager
def ours_with_authorizer(directory: Path) -> Iterator[Asking]:
    with InProcess(directory, settings=AUTHORIZER) as broker:
        askers = {asker: DirectClient(broker, f"User:{user}", host) for asker, (user, host) in ASKERS.items()}
        with Asking(DirectClient(broker, "User:ANONYMOUS", "127.0.0.1"), askers) as asking:
            yield asking
