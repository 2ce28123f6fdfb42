"""TLS to the upstream: the cluster's certificate, the proxy's own certificate if the cluster requires it, and clients
without TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proxy import proxy as proxy_module
from proxy.options import parse
from proxy.proxy import Proxy, StartError
from tests.support.deadlines import HANG_S
from tests.support.proxy import HOST, Client, Upstream, proxy_before


class Secured(Upstream):
    """An upstream whose nodes use TLS."""

    def __init__(self, context: ssl.SSLContext, answers: Any = None) -> None:
        super().__init__(answers)
        self._context = context

    async def start(self, node: int) -> None:
        server = await asyncio.start_server(
            lambda reader, writer: self._serve(node, reader, writer), HOST, 0, ssl=self._context
        )
        self._servers[node] = server
        self.ports[node] = server.sockets[0].getsockname()[1]


def made(directory: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate. Returns the files of the certificate and of its key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{HOST}"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
    return certificate, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    directory = tmp_path_factory.mktemp("tls")
    return {name: made(directory, name) for name in ("cluster", "proxy")}


def of_cluster(files: dict[str, tuple[Path, Path]], *, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files["cluster"])
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files["proxy"][0])
    return context


CONTENT = bytes(range(256)) * 3_000


def echo(asked: Any) -> dict[str, Any]:
    return {"error_code": 0, "protocol_type": "x", "protocol_name": "y", "assignment": CONTENT}


@pytest.mark.parametrize("asks", [False, True], ids=["the cluster proves itself", "both prove themselves"])
async def test_requests_and_responses_pass_through_tls(
    files: dict[str, tuple[Path, Path]], asks: bool
) -> None:
    arguments = ["--upstream-ca-file", str(files["cluster"][0])]
    if asks:
        arguments += ["--upstream-cert-file", str(files["proxy"][0])]
        arguments += ["--upstream-key-file", str(files["proxy"][1])]
    async with (
        Secured(of_cluster(files, asks=asks), {"sync_group": echo}) as upstream,
        proxy_before(upstream, *arguments) as proxy,
        Client(proxy.port(1)) as client,
    ):
        who = {"group_id": "g", "generation_id": 1, "member_id": "m"}
        for _ in range(2):
            mine = [{"member_id": "m", "assignment": CONTENT}]
            answer = await client.ask("sync_group", 5, **who, assignments=mine)
            assert answer["assignment"] == CONTENT
        assert [
            each.body["assignments"][0]["assignment"] == CONTENT for each in upstream.heard("sync_group")
        ] == [
            True,
            True,
        ]


@pytest.mark.parametrize("trusted", ["proxy", None], ids=["another certificate", "the system's"])
async def test_a_cluster_that_cannot_prove_itself_is_not_spoken_to(
    files: dict[str, tuple[Path, Path]], trusted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_module, "UPSTREAM_S_MAX", 0.0)
    options = ["--upstream-tls"] if trusted is None else ["--upstream-ca-file", str(files[trusted][0])]
    async with Secured(of_cluster(files)) as upstream:
        proxy = Proxy(parse(["--upstream", upstream.address, "--port", "0", *options], {}))
        with pytest.raises(StartError, match="certificate verify failed"):
            await proxy.start()
        assert upstream.asked == []
