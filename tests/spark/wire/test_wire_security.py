"""TLS in front of this broker, and the SASL exchanges alone. test_wire_kafka.py tests both against Apache Kafka.

The certificates are in a directory next to this file. ``certificates/make.sh`` made them.
"""

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import odradek
from odradek.spark.wire import Authentication, BadSettings, ClientSettings, Cluster, TransactionalWriter
from odradek.spark.wire.sasl import conversation, jaas_options, scram
from odradek.spark.wire.tls import tls_context
from tests.support import raw
from tests.support.clients import values
from tests.support.deadlines import HANG_S

CERTIFICATES = Path(__file__).parent / "certificates"
TRUST = {
    "kafka.security.protocol": "SSL",
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": str(CERTIFICATES / "authority.pem"),
}
CLIENT = (CERTIFICATES / "client.pem").read_text()
KEY, CHAIN = CLIENT[: CLIENT.index("-----BEGIN CERT")], CLIENT[CLIENT.index("-----BEGIN CERT") :]


def settings_of(bootstrap: str = "a:1", **options: str) -> ClientSettings:
    return ClientSettings.from_options({"kafka.bootstrap.servers": bootstrap, **options})


def jaas(**options: str) -> str:
    said = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {said};"


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def streams_of(client: socket.socket, context: ssl.SSLContext | None) -> Streams:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, client, ssl=context)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def connected(client: socket.socket, target: tuple[str, int], context: ssl.SSLContext | None) -> None:
    """Relay one connection, from its TLS handshake on. Both sockets are closed at its end, and when it is cancelled."""
    # The tests provoke refused certificates, so these errors are not logged.
    with contextlib.suppress(OSError):
        reader, writer = await streams_of(client, context)
        writers = [writer]
        try:
            broker_reader, broker_writer = await asyncio.open_connection(*target)
            writers.append(broker_writer)
            await asyncio.gather(pump(reader, broker_writer), pump(broker_reader, writer))
        finally:
            for each in writers:
                each.transport.abort()
                with contextlib.suppress(OSError):
                    await each.wait_closed()


@contextlib.contextmanager
def relay(port: int, target: tuple[str, int], context: ssl.SSLContext | None = None):
    """Relay connections of a port to ``target``, terminating TLS if there is a context."""

    async def accept(listener: socket.socket, connections: asyncio.TaskGroup) -> None:
        while True:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
            connections.create_task(connected(client, target, context))

    async def serve() -> None:
        with socket.create_server(("127.0.0.1", port)) as listener:
            listener.setblocking(False)
            async with asyncio.TaskGroup() as connections:
                connections.create_task(accept(listener, connections))
                ready.set()

    loop = asyncio.new_event_loop()
    ready, serving = threading.Event(), loop.create_task(serve())
    # The last client may have hung up so recently that the event loop has not noticed: wait for all connections to close.
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.wait([serving]),))
    thread.start()
    try:
        assert ready.wait(HANG_S)
        yield
    finally:
        loop.call_soon_threadsafe(serving.cancel)
        thread.join(HANG_S)
        loop.close()


def tls_before(port: int, target: tuple[str, int], certificate: str, ask_client: bool = False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / certificate)
    if ask_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTIFICATES / "authority.pem")
    return relay(port, target, context)


@pytest.fixture(scope="module")
def hidden_broker():
    """Yields a broker that advertises the address of a TLS relay, and this address."""
    port = raw.free_port()
    with odradek.Broker(
        topics=["t:2"], settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    ) as broker:
        yield broker, port


def direct(broker) -> tuple[str, int]:
    return broker.process.host, broker.process.port


def write_one(settings: ClientSettings, transactional_id: str, value: str) -> None:
    with Cluster(settings) as cluster:
        [producer] = cluster.init_producer_ids([transactional_id], 60_000).values()
        writer = TransactionalWriter(cluster, transactional_id, producer)
        # This is more than one TLS record, and more than a socket accepts in one write.
        writer.write(pa.array([value] + ["x" * 200_000] * 40), topic="t", partitions=pa.array([0] + [1] * 40))
        writer.flush()
        assert cluster.end_transactions([writer.transaction], commit=True) == {transactional_id: None}


def test_all_of_it_goes_through_tls(hidden_broker):
    broker, port = hidden_broker
    with tls_before(port, direct(broker), "server.pem", ask_client=True):
        with_files = TRUST | {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(CERTIFICATES / "client.pem"),
        }
        write_one(settings_of(f"127.0.0.1:{port}", **with_files), "a", "by files")
        with_texts = {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.certificates": (CERTIFICATES / "authority.pem").read_text(),
            "kafka.ssl.keystore.key": KEY.replace("\n", " "),
            "kafka.ssl.keystore.certificate.chain": CHAIN.replace("\n", "\\n"),
        }
        write_one(settings_of(f"127.0.0.1:{port}", **with_texts), "b", "by texts")
    with tls_before(port, direct(broker), "server.pem"):
        write_one(settings_of(f"127.0.0.1:{port}", **TRUST), "c", "without a certificate")
    with relay(port, direct(broker)):
        found = [value for value in values(f"127.0.0.1:{port}", "t") if value and not value.startswith("x")]
    assert found == ["by files", "by texts", "without a certificate"]


@pytest.mark.parametrize(
    ("certificate", "trusted", "sentence"),
    [
        ("elsewhere.pem", "authority.pem", "IP address mismatch"),
        ("server.pem", "stranger.pem", "certificate verify failed"),
    ],
)
def test_no_request_is_sent_to_a_server_that_is_not_trusted(hidden_broker, certificate, trusted, sentence):
    broker, port = hidden_broker
    options = TRUST | {"kafka.ssl.truststore.location": str(CERTIFICATES / trusted)}
    with (
        tls_before(port, direct(broker), certificate),
        Cluster(settings_of(f"127.0.0.1:{port}", **options)) as cluster,
    ):
        with pytest.raises(Authentication, match=sentence) as caught:
            cluster.partitions_of("t")
        assert caught.value.code == "SSL_HANDSHAKE_FAILED"


def test_a_server_with_another_name_is_accepted_without_endpoint_identification(hidden_broker):
    broker, port = hidden_broker
    settings = settings_of(
        f"127.0.0.1:{port}", **TRUST, **{"kafka.ssl.endpoint.identification.algorithm": ""}
    )
    with tls_before(port, direct(broker), "elsewhere.pem"), Cluster(settings) as cluster:
        assert cluster.partitions_of("t") == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kafka.ssl.truststore.type": "JKS"}, r"kafka\.ssl\.truststore\.type=JKS is not supported"),
        ({"kafka.ssl.truststore.location": "nowhere.pem"}, r"cannot be read from nowhere\.pem"),
        (
            {"kafka.ssl.keystore.location": "me.p12", "kafka.ssl.keystore.type": "PKCS12"},
            "PKCS12 is not supported",
        ),
        ({"kafka.ssl.keystore.key": KEY}, r"kafka\.ssl\.keystore\.certificate\.chain"),
    ],
)
def test_unsupported_tls_settings_are_refused(options, sentence):
    with pytest.raises(BadSettings, match=sentence):
        Cluster(settings_of(**(TRUST | options)))


def test_without_tls_there_is_no_context():
    assert tls_context(settings_of()) is None


def test_scram_is_that_of_rfc_7677():
    talk = scram("sha256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert next(talk) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert talk.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()) == (
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    with pytest.raises(StopIteration):
        talk.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("first", "final", "sentence"),
    [
        ("r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "v=AAAA", "signature is wrong"),
        ("r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "e=invalid-proof", "invalid-proof"),
        ("r=mine-theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1", "", "1 iterations"),
        ("r=theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "", "another nonce"),
        ("r=mine,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "", "another nonce"),
        ("e=unknown-user", "", "unknown-user"),
    ],
)
def test_a_server_with_a_wrong_scram_signature_is_refused(first, final, sentence):
    def converse() -> None:
        talk = scram("sha512", "user", "pencil", "mine")
        next(talk)
        talk.send(first.encode())
        talk.send(final.encode())

    with pytest.raises(Authentication, match=sentence):
        converse()


def test_user_names_are_escaped_for_scram():
    assert next(scram("sha256", "a=b,c", "x", "n")) == b"n,,n=a=3Db=2Cc,r=n"


def test_credentials_are_read_as_java_reads_them():
    config = 'o.a.k.PlainLoginModule required\n  username="al\\"ice" password=\'p;w=1 \' user_bob=plain;'
    assert jaas_options(config) == {"username": 'al"ice', "password": "p;w=1 ", "user_bob": "plain"}


def sasl(mechanism: str, config: str = "", **options: str) -> ClientSettings:
    return settings_of(
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": config,
            **options,
        }
    )


def test_plain_and_oauthbearer_send_their_credentials_at_once():
    assert next(conversation(sasl("PLAIN", jaas(username="ä", password="p w")))) == "\0ä\0p w".encode()
    token = next(conversation(sasl("OAUTHBEARER", **{"kafka.sasl.oauthbearer.token": "abc"})))
    assert token == b"n,,\x01auth=Bearer abc\x01\x01"


def test_a_token_that_is_made_up_is_not_issued_later_in_its_millisecond(monkeypatch: pytest.MonkeyPatch):
    """The time at which a generated token is issued is truncated to milliseconds.

    Kafka refuses a token that seems to be issued in the future.
    """
    monkeypatch.setattr(time, "time_ns", lambda: 1_795_000_000_123_999_999)
    said = next(conversation(sasl("OAUTHBEARER", jaas(unsecuredLoginStringClaim_sub="alice"))))
    claims = said.split(b".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4))) == {
        "sub": "alice",
        "iat": 1_795_000_000.123,
        "exp": 1_795_003_600.123,
    }


@pytest.mark.parametrize(
    ("mechanism", "sentence"),
    [
        ("GSSAPI", "kafka.sasl.mechanism is GSSAPI, but this client supports only PLAIN, SCRAM"),
        ("PLAIN", "needs a username and a password for PLAIN"),
        ("SCRAM-SHA-256", "needs a username and a password"),
        ("OAUTHBEARER", "needs kafka.sasl.oauthbearer.token"),
    ],
)
def test_incomplete_sasl_settings_are_refused(mechanism, sentence):
    with pytest.raises(BadSettings) as caught:
        next(conversation(sasl(mechanism, jaas(username="me"))))
    assert sentence in str(caught.value)
