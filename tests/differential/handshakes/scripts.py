"""Sequences of frames of clients that are not authenticated yet, valid and invalid ones, with the broker's responses.

A script is a function that gets a `Dialogue`. The responses are the transcript by which two brokers are compared.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from scramp import ScramClient

from odradek.deadlines import stretched
from tests.support import raw
from tests.support.deadlines import HANG_S

HEARS_S: Final = HANG_S
ENDS_S: Final = stretched(2.0)
OVER_S: Final = 0.5
"""Seconds to wait until a session on the listener SHORT, which lasts for 200 ms, has expired."""
LISTENERS: Final = {
    "FIRST": {},
    "AGAIN": {"connections.max.reauth.ms": "600000"},
    "SHORT": {"connections.max.reauth.ms": "200"},
}
"""Additional settings by listener. Each listener uses SASL_PLAINTEXT, with PLAIN and both SCRAM mechanisms."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORDS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
_MODULE: Final = "org.apache.kafka.common.security"


def settings() -> dict[str, str]:
    """Settings of a broker with all listeners, without their addresses."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    found = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:SASL_PLAINTEXT" for name in LISTENERS)
    }
    for name, own in LISTENERS.items():
        prefix = f"listener.name.{name.lower()}."
        found[f"{prefix}sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        found[f"{prefix}plain.sasl.jaas.config"] = f"{_MODULE}.plain.PlainLoginModule required {users};"
        for mechanism in MECHANISMS[1:]:
            found[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = (
                f"{_MODULE}.scram.ScramLoginModule required;"
            )
        found |= {f"{prefix}{key}": value for key, value in own.items()}
    return found


class Dialogue:
    """One connection and the responses on it."""

    def __init__(self, port: int) -> None:
        self._wire = raw.Wire("127.0.0.1", port, timeout=HEARS_S)
        self.heard: list[Any] = []

    def close(self) -> None:
        self._wire.close()

    def say(self, frame: bytes) -> bytes | None:
        """Send a frame and return the response. None if the broker has closed the connection."""
        try:
            self._wire.send_frame(frame)
            return self._wire.receive_frame()
        except raw.Closed:
            self.heard.append("closed")
            return None

    def ask(self, api: str, version: int, **body: Any) -> Mapping[str, Any]:
        answer = self.say(raw.encode_request(api, version, body, 7))
        if answer is None:
            return {}
        _, decoded = raw.decode_response(api, version, answer)
        self.heard.append({api: _told(api, decoded)})
        return decoded

    def versions(self, version: int = 3, software: str = "test") -> None:
        body = {"client_software_name": software, "client_software_version": "1"} if version >= 3 else {}
        self.ask("api_versions", version, **body)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        self.ask("sasl_handshake", version, mechanism=mechanism)

    def authenticate(self, token: bytes, version: int = 2) -> bytes:
        return bytes(self.ask("sasl_authenticate", version, auth_bytes=token).get("auth_bytes", b""))

    def plain(self, user: str = "alice", password: str | None = None, version: int = 2) -> None:
        self.authenticate(plain_token(user, password), version)

    def metadata(self) -> None:
        self.ask("metadata", 12, topics=[])

    def raw_token(self, token: bytes) -> bytes:
        answer = self.say(token)
        if answer is None:
            return b""
        self.heard.append({"token": answer[:2].hex()})
        return answer

    def hear_the_end(self) -> None:
        """Record whether the broker closes the connection."""
        try:
            self._wire.receive_frame(timeout=ENDS_S)
            self.heard.append("a frame")
        except raw.Closed:
            self.heard.append("closed")
        except raw.Silence:
            self.heard.append("silence")


def _told(api: str, answer: Mapping[str, Any]) -> Any:
    if api == "sasl_authenticate":
        token = bytes(answer["auth_bytes"])
        kept = ("error_code", "error_message", "session_lifetime")
        return {**{name: answer.get(name) for name in kept}, "token": token[:2].hex() if token else ""}
    return {name: answer[name] for name in ("error_code", "mechanisms") if name in answer}


def plain_token(user: str, password: str | None = None, authorization_id: str = "") -> bytes:
    secret = PASSWORDS.get(user, "") if password is None else password
    return "\0".join((authorization_id, user, secret)).encode()


def scram(
    dialogue: Dialogue, user: str = "alice", password: str | None = None, mechanism: str = "SCRAM-SHA-256"
) -> list[str]:
    """Do both rounds of SCRAM; return the client's messages."""
    client = ScramClient([mechanism], user, PASSWORDS.get(user, "") if password is None else password)
    said = [client.get_client_first()]
    server_first = dialogue.authenticate(said[0].encode())
    if server_first:
        client.set_server_first(server_first.decode())
        said.append(client.get_client_final())
        server_final = dialogue.authenticate(said[1].encode())
        if server_final:
            client.set_server_final(server_final.decode())
    return said


Script = Callable[[Dialogue], object]
SCRIPTS: dict[str, tuple[str, Script]] = {}
"""Scripts by name, each with its listener."""


def script(listener: str = "FIRST") -> Callable[[Script], Script]:
    def keep(function: Script) -> Script:
        SCRIPTS[function.__name__] = (listener, function)
        return function

    return keep


@script()
def in_order(it: Dialogue) -> None:
    it.versions()
    it.handshake()
    it.plain()
    it.metadata()


@script()
def without_versions(it: Dialogue) -> None:
    it.handshake()
    it.plain(version=0)
    it.versions()
    it.metadata()


@script()
def metadata_first(it: Dialogue) -> None:
    it.metadata()


@script()
def token_first(it: Dialogue) -> None:
    it.plain()


@script()
def versions_then_token(it: Dialogue) -> None:
    it.versions()
    it.plain()


@script()
def versions_twice(it: Dialogue) -> None:
    it.versions()
    it.versions()


@script()
def versions_that_there_are_not(it: Dialogue) -> None:
    for _ in range(2):
        answer = it.say(struct.pack(">hhihB", 18, 99, 7, -1, 0))
        it.heard.append(None if answer is None else answer[4:6].hex())
    it.versions()
    it.handshake()


@script()
def software_without_a_name(it: Dialogue) -> None:
    it.versions(software="")
    it.versions()
    it.handshake()


@script()
def unknown_mechanism(it: Dialogue) -> None:
    it.handshake("GSSAPI")
    it.hear_the_end()


@script()
def mechanism_in_small_letters(it: Dialogue) -> None:
    it.handshake("plain")
    it.hear_the_end()


@script()
def metadata_during_the_exchange(it: Dialogue) -> None:
    it.handshake()
    it.metadata()
    it.hear_the_end()


@script()
def versions_during_the_exchange(it: Dialogue) -> None:
    it.handshake()
    it.versions()
    it.hear_the_end()


@script()
def handshake_twice(it: Dialogue) -> None:
    it.handshake()
    it.handshake()
    it.hear_the_end()


@script()
def produce_during_the_exchange(it: Dialogue) -> None:
    it.handshake()
    it.ask("fetch", 4, replica_id=-1, max_wait=0, min_bytes=0, max_bytes=1, isolation_level=0, topics=[])
    it.hear_the_end()


@script()
def wrong_password(it: Dialogue) -> None:
    it.handshake()
    it.plain(password="no", version=0)
    it.hear_the_end()


@script()
def wrong_password_v2(it: Dialogue) -> None:
    it.versions()
    it.handshake()
    it.plain(password="no")
    it.hear_the_end()


@script()
def unknown_user(it: Dialogue) -> None:
    it.handshake()
    it.plain("carol", "x", version=1)
    it.hear_the_end()


@script()
def two_parts(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(b"alice\0alice-secret")


@script()
def five_parts(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(b"\0alice\0alice-secret\0\0x")


@script()
def no_user(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(b"\0\0alice-secret")


@script()
def no_password(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(b"\0alice\0")


@script()
def no_token(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(b"")


@script()
def own_authorization_id(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(plain_token("alice", authorization_id="alice"))
    it.metadata()


@script()
def another_authorization_id(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(plain_token("alice", authorization_id="bob"))


@script()
def sasl_once_more(it: Dialogue) -> None:
    """A client cannot authenticate again on a connection whose session has no lifetime."""
    it.handshake()
    it.plain()
    it.handshake()
    it.plain()
    it.metadata()


@script()
def raw_tokens(it: Dialogue) -> None:
    it.versions()
    it.handshake(version=0)
    it.raw_token(plain_token("alice"))
    it.metadata()


@script()
def raw_token_wrong(it: Dialogue) -> None:
    it.handshake(version=0)
    it.raw_token(plain_token("alice", "no"))


@script()
def raw_tokens_of_scram(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256", version=0)
    client = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORDS["alice"])
    client.set_server_first(it.raw_token(client.get_client_first().encode()).decode())
    client.set_server_final(it.raw_token(client.get_client_final().encode()).decode())
    it.metadata()


@script()
def a_request_among_raw_tokens(it: Dialogue) -> None:
    it.handshake(version=0)
    it.plain()


@script()
def scram_256(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    scram(it)
    it.metadata()


@script()
def scram_512(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-512")
    scram(it, "bob", mechanism="SCRAM-SHA-512")
    it.metadata()


@script()
def scram_wrong_password(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    scram(it, password="no")
    it.hear_the_end()


@script()
def scram_unknown_user(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    scram(it, "carol", "x")
    it.hear_the_end()


@script()
def scram_token_unknown(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    it.authenticate(b"n,,n=token,r=abcdef,tokenauth=true")


@script()
def scram_extension_unknown(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    it.authenticate(b"n,,n=alice,r=abcdef,more=1")


@script()
def scram_with_channel_binding(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    it.authenticate(b"p=tls-unique,,n=alice,r=abcdef")


@script()
def scram_as_another(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    it.authenticate(b"n,a=bob,n=alice,r=abcdef")


@script()
def scram_garbage(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-512")
    it.authenticate(b"\xff\xfe\x00garbage")


@script()
def scram_final_of_another_exchange(it: Dialogue) -> None:
    """The final SCRAM message has the server nonce of another exchange."""
    it.handshake("SCRAM-SHA-256")
    client = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORDS["alice"], c_nonce="abcdef")
    it.authenticate(client.get_client_first().encode())
    it.authenticate(b"c=biws,r=abcdefghij,p=" + b"A" * 43 + b"=")


@script()
def plain_token_to_scram(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    it.plain()


@script()
def frame_too_large(it: Dialogue) -> None:
    it.handshake()
    it.say(b"\0" * 524_289)


@script()
def frame_as_large_as_may_be(it: Dialogue) -> None:
    it.handshake()
    it.authenticate(b"\0alice\0" + b"x" * 524_200)


@script()
def http(it: Dialogue) -> None:
    it.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


@script()
def empty_frame(it: Dialogue) -> None:
    it.say(b"")


@script()
def handshake_of_a_version_to_come(it: Dialogue) -> None:
    it.say(struct.pack(">hhih", 17, 9, 7, -1) + b"\0\5PLAIN")


@script()
def token_of_a_version_to_come(it: Dialogue) -> None:
    it.handshake()
    it.say(struct.pack(">hhih", 36, 9, 7, -1) + b"\0\0\0\0")


@script("AGAIN")
def again(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    it.metadata()
    it.handshake()
    it.plain()
    it.metadata()


@script("AGAIN")
def again_twice_within_a_second(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    for _ in range(2):
        it.handshake()
        it.plain()
    it.metadata()


@script("AGAIN")
def again_by_another_mechanism(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    it.handshake("SCRAM-SHA-256")
    it.authenticate(b"n,,n=alice,r=abcdef")
    it.hear_the_end()


@script("AGAIN")
def again_by_a_mechanism_that_there_is_not(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    it.handshake("GSSAPI")
    it.hear_the_end()


@script("AGAIN")
def again_as_another(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    it.handshake()
    it.plain("bob")
    it.hear_the_end()


@script("AGAIN")
def again_with_a_wrong_password(it: Dialogue) -> None:
    it.handshake("SCRAM-SHA-256")
    scram(it)
    it.handshake("SCRAM-SHA-256")
    scram(it, password="no")
    it.hear_the_end()


@script("AGAIN")
def metadata_while_again(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    it.handshake()
    it.metadata()
    it.hear_the_end()


@script("SHORT")
def session_over(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    time.sleep(OVER_S)
    it.metadata()


@script("SHORT")
def again_after_the_end(it: Dialogue) -> None:
    it.handshake()
    it.plain()
    time.sleep(OVER_S)
    it.handshake()
    it.plain()


def run(name: str, ports: Mapping[str, int]) -> list[Any]:
    listener, function = SCRIPTS[name]
    dialogue = Dialogue(ports[listener])
    try:
        function(dialogue)
    finally:
        dialogue.close()
    return dialogue.heard
