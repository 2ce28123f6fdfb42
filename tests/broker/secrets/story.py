"""A broker with a secret in each possible place, clients that use the secrets, and everything that the broker shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Self
from urllib.request import Request, urlopen

from broker.security.sasl.clients import ScramClient
from tests.broker.secrets.planted import PLANTED, SALT, SALTED_PASSWORD
from tests.support import raw
from tests.support.deadlines import HANG_S

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTENER = "listener.name.client"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    f"{LISTENER}.plain.sasl.jaas.config": (
        f'{PLAIN} required username="broker" password="{PLANTED["jaas-own-password"]}" '
        f'user_alice="{PLANTED["plain-password"]}";'
    ),
    f"{LISTENER}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    f"{LISTENER}.oauthbearer.sasl.jaas.config": (
        f'{OAUTH} required unsecuredLoginStringClaim_sub="{PLANTED["oauth-claim"]}";'
    ),
    "ssl.truststore.password": PLANTED["store-password"],
    "delegation.token.secret.key": PLANTED["delegation-secret-key"],
    "config.providers.vault.param.password": PLANTED["plugin-password"],
    "odradek.control.token": PLANTED["control-token"],
    "odradek.control.token.look": PLANTED["look-token"],
    "connection.failed.authentication.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice;User:carol",
}
BROKER = 4
LAST = "list_groups"
"""The API of the last request in the story."""
SET = 0


@dataclass
class Client:
    """One connection of a client."""

    port: int
    wire: raw.Wire = field(init=False)

    def __post_init__(self) -> None:
        self.wire = raw.Wire("127.0.0.1", self.port, timeout=HANG_S)

    def ask(self, api: str, version: int, **body: Any) -> dict[str, Any]:
        self.wire.send_frame(raw.encode_request(api, version, body, 1))
        return dict(raw.decode_response(api, version, self.wire.receive_frame())[1])

    def login(self, mechanism: str, *tokens: bytes, version: int = 2) -> list[dict[str, Any]]:
        self.ask("sasl_handshake", 1, mechanism=mechanism)
        return [self.ask("sasl_authenticate", version, auth_bytes=token) for token in tokens]

    def plain(self, password: str, user: str = "alice") -> dict[str, Any]:
        (answer,) = self.login("PLAIN", f"\0{user}\0{password}".encode())
        return answer


def alteration(name: str, key: str, value: str) -> dict[str, Any]:
    config = {"name": key, "config_operation": SET, "value": value}
    return {"resource_type": BROKER, "resource_name": name, "configs": [config]}


class Story:
    """The requests of the clients. ``secrets`` also has the secrets that these requests create: HMACs of tokens, SCRAM
    messages."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.admin_port, self.port = ports["PLAINTEXT"], ports["CLIENT"]
        self._stack = ExitStack()
        self.secrets: list[bytes] = []
        self.heard: list[bytes] = []
        """The responses to the clients."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def client(self) -> Client:
        """Connect to the SASL listener."""
        return self.connect(self.port)

    def admin(self) -> Client:
        return self.connect(self.admin_port)

    def connect(self, port: int) -> Client:
        client = Client(port)
        self._stack.callback(client.wire.close)
        return client

    def tell(self) -> None:
        self.passwords()
        self.settings()
        self.tokens()
        self.strays()
        self.admin().ask(LAST, 0)

    def hear(self, answer: object) -> None:
        self.heard.append(repr(answer).encode())

    def passwords(self) -> None:
        assert self.client().plain(PLANTED["plain-password"])["error_code"] == 0
        for wrong in (PLANTED["wrong-password"], f"{PLANTED['wrong-password']}\0more"):
            answer = self.client().plain(wrong)
            assert answer["error_code"] == 58
            self.hear(answer)
        self.hear(self.client().login("SCRAM-SHA-256", f"n,,n=x,r={PLANTED['wrong-password']},".encode()))
        token = f"n,,\x01auth=Bearer {PLANTED['oauth-claim']}\x01\x01".encode()
        self.hear(self.client().login("OAUTHBEARER", token))
        self.scram()
        raw_tokens = self.client()
        raw_tokens.ask("sasl_handshake", 0, mechanism="PLAIN")
        raw_tokens.wire.send_frame(f"\0alice\0{PLANTED['raw-token-password']}".encode())

    def scram(self) -> None:
        admin = self.admin()
        upserts = [
            {
                "name": "bob",
                "mechanism": 1,
                "iterations": 4096,
                "salt": SALT,
                "salted_password": SALTED_PASSWORD,
            }
        ]
        self.hear(admin.ask("alter_user_scram_credentials", 0, deletions=[], upsertions=upserts))
        self.hear(admin.ask("describe_user_scram_credentials", 0, users=None))
        client = self.client()
        scram = ScramClient("SCRAM-SHA-256", "bob", PLANTED["scram-password"])
        (challenge,) = client.login("SCRAM-SHA-256", scram.first())
        proof = scram.evaluate(challenge["auth_bytes"])
        assert proof is not None
        self.secrets.append(proof.partition(b",p=")[2])
        self.hear(client.ask("sasl_authenticate", 1, auth_bytes=proof))

    def settings(self) -> None:
        admin = self.admin()
        for name, key, value in (
            ("1", f"{LISTENER}.ssl.key.password", PLANTED["dynamic-key-password"]),
            ("1", "listener.name.elsewhere.plain.sasl.jaas.config", PLANTED["dynamic-jaas-password"]),
            ("1", f"{LISTENER}.ssl.keystore.key", f"-----BEGIN {PLANTED['dynamic-key-pem']}"),
            ("1", "ssl.key.password", PLANTED["refused-password"]),
            ("1", "delegation.token.secret.key", PLANTED["refused-password"]),
            ("", f"{LISTENER}.ssl.key.password", PLANTED["refused-password"]),
            ("2", "sasl.jaas.config", PLANTED["refused-password"]),
            ("", "of.a.plugin", PLANTED["dynamic-plugin-password"]),
        ):
            resources = [alteration(name, key, value)]
            self.hear(admin.ask("incremental_alter_configs", 1, resources=resources, validate_only=False))
        configs = [{"name": "sasl.jaas.config", "value": PLANTED["replaced-password"]}]
        resources = [{"resource_type": BROKER, "resource_name": "1", "configs": configs}]
        self.hear(admin.ask("alter_configs", 2, resources=resources, validate_only=True))
        for version in range(1, 5):
            asked = [
                {"resource_type": BROKER, "resource_name": name, "configuration_keys": None}
                for name in ("1", "")
            ]
            more = {"include_documentation": True} if version > 2 else {}
            answer = admin.ask("describe_configs", version, resources=asked, include_synonyms=True, **more)
            names = {config["name"] for result in answer["results"] for config in result["configs"]}
            assert {"of.a.plugin", f"{LISTENER}.plain.sasl.jaas.config"} <= names
            self.hear(answer)

    def tokens(self) -> None:
        client = self.client()
        client.plain(PLANTED["plain-password"])
        made = client.ask(
            "create_delegation_token",
            3,
            owner_principal_type=None,
            owner_principal_name=None,
            renewers=[],
            max_lifetime=-1,
        )
        assert made["error_code"] == 0
        self.secrets.append(made["hmac"])
        client.ask("describe_delegation_token", 3, owners=None)
        self.hear(client.ask("renew_delegation_token", 2, hmac=made["hmac"], renew_period=-1))
        self.hear(client.ask("expire_delegation_token", 2, hmac=made["hmac"], expiry_time_period=-1))

    def held(self, control: Control) -> bytes:
        """Hold a request with a fault rule, and return what the control port shows about the request."""
        control.post("/v1/faults", {"rule": "IncrementalAlterConfigs nth=1 -> hold"})
        client, name = self.admin(), f"{LISTENER}.ssl.keystore.password"
        resources = [alteration("1", name, PLANTED["dynamic-key-password"])]
        body = {"resources": resources, "validate_only": True}
        client.wire.send_frame(raw.encode_request("incremental_alter_configs", 1, body, 1))
        control.get("/v1/faults/1/wait?hits=1")
        views = control.get("/v1/faults") + control.get("/v1/trace?outcome=held&bodies=true")
        control.post("/v1/faults/1/release")
        self.hear(client.wire.receive_frame())
        return views + control.get("/v1/faults")

    def strays(self) -> None:
        """Send a password where none is expected: as a frame, in a SaslHandshake, and to a listener without
        SASL."""
        stray = PLANTED["stray-password"].encode()
        for port in (self.port, self.admin_port):
            for frame in (b"\0alice\0" + stray, b"\0\x11\0\1\0\0\0\1\xff\xff" + stray, stray):
                self.connect(port).wire.send_frame(frame)
        self.hear(self.admin().ask("sasl_authenticate", 1, auth_bytes=stray))


class Control:
    """A client of the control port."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> bytes:
        return self._ask(Request(self.url + path))

    def post(self, path: str, body: object = None) -> bytes:
        data = json.dumps(body or {}).encode()
        return self._ask(Request(self.url + path, data, {"Content-Type": "application/json"}))

    def _ask(self, request: Request) -> bytes:
        with self._open(request) as answer:
            return answer.read()

    def _open(self, request: Request) -> HTTPResponse:
        request.add_header("Authorization", f"Bearer {PLANTED['control-token']}")
        answer = urlopen(request, timeout=HANG_S)
        assert isinstance(answer, HTTPResponse)
        return answer

    def views(self) -> Iterator[tuple[str, bytes]]:
        """Yield the path and body of each GET response of the control port that is not a stream."""
        document = json.loads(self.get("/openapi.json"))
        for path, methods in document["paths"].items():
            if "get" in methods and "{" not in path and path not in ("/v1/trace/follow", "/v1/watch"):
                yield path, self.get(path)

    @contextmanager
    def following(self) -> Iterator[HTTPResponse]:
        """Context manager: follow the trace, and yield its stream."""
        with self._open(Request(f"{self.url}/v1/trace/follow?bodies=true&values=true")) as answer:
            answer.readline()  # from here on the stream has every exchange
            yield answer

    def command(self, *words: str) -> bytes:
        program = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"
        environ = {
            **os.environ,
            "ODRADEK_CONTROL": self.url,
            "ODRADEK_CONTROL_TOKEN": PLANTED["control-token"],
        }
        done = subprocess.run([sys.executable, "-c", program, *words], env=environ, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


def metadata_log(data: Path) -> bytes:
    return b"".join(each.read_bytes() for each in data.rglob("*.log") if "__cluster_metadata" in str(each))
