"""Whole and damaged frames of all APIs and versions get a response or are closed, without an error or a delay for others.

python -m tests.fuzz.frames --seed 7 --frames 5000        # one stream again, with this length
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest

from broker.requests.api import APIS, Api, Handler, discover
from protocol.codec import request_codec
from tests.fuzz.frames import fuzz, raw_name
from tests.fuzz.playing import Failure
from tests.fuzz.requests import Requests, World
from tests.support import raw

SEEDS = int(os.environ.get("ODRADEK_FUZZ_SEEDS", "20"))
HEADER_BYTES = 14  # key, version, correlation id, a null client id; one more with tagged fields


def with_handler(api: Api, handler: Handler) -> Api:
    return Api(api.key, api.name, api.versions, api.announced, handler)


@pytest.mark.parametrize("key", sorted(discover()))
def test_our_decoder_reads_the_random_requests(key: int):
    """kio encodes and our codec decodes: no bytes are left over, in any version."""
    api = raw_name(key)
    for version in APIS[key].versions:
        requests = Requests(Random(f"{api}/{version}"), World(["orders"]), {api: range(version, version + 1)})
        for _ in range(3):
            _, _, body = requests.draw()
            request_codec(key, version).decode(raw.encode_body(api, version, body), 0)


def test_a_stream_of_frames():
    work = fuzz(seed=1, frames=60)
    assert work.answered > 20
    assert work.closed > 5


def test_a_handler_that_fails_is_found(monkeypatch: pytest.MonkeyPatch):
    def broken(request: Any, context: Any) -> Any:
        raise RuntimeError("a defect")

    for key, api in discover().items():
        monkeypatch.setitem(APIS, key, with_handler(api, broken) if raw_name(key) == "heartbeat" else api)
    with pytest.raises(Failure, match=r"frame \d+ \(heartbeat v\d\).*a defect"):
        fuzz(seed=1, frames=300)


def test_a_produce_that_is_never_answered_is_found(monkeypatch: pytest.MonkeyPatch):
    async def silent(request: Any, context: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    for key, api in discover().items():
        monkeypatch.setitem(APIS, key, with_handler(api, silent) if raw_name(key) == "produce" else api)
    with pytest.raises(
        Failure, match=r"frame \d+ \(produce v\d+\): neither a response nor a closed connection"
    ):
        fuzz(seed=1, frames=300)


@pytest.mark.more
def test_a_longer_stream():
    fuzz(seed=2, frames=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + SEEDS))
def test_long_streams(seed: int):
    fuzz(seed, frames=5_000)
