"""A table of ways ("shapes") in which users start Kafka's images: `docker run` options, variables, properties files."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.docker import Docker, transaction
from tests.support.raw import free_port

MAP = "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"
ADVERTISED = "KAFKA_ADVERTISED_LISTENERS"
PROPERTIES = "listeners=PLAINTEXT://:{port}\nadvertised.listeners=PLAINTEXT://localhost:{port}\n"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


@dataclass(frozen=True)
class Shape:
    """The variables, options, arguments and files of one ``docker run -p PORT:PORT``. Each may contain ``{port}``."""

    variables: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    client: dict[str, str] | None = field(default_factory=dict)
    """Settings of a client outside the container; None if no outside client can connect."""


SHAPES = {
    "an advertised port": Shape({ADVERTISED: "PLAINTEXT://localhost:{port}"}),
    "--port": Shape(arguments=("--port", "{port}")),
    "listeners= as an argument": Shape(arguments=("listeners=PLAINTEXT://:{port}",)),
    "KAFKA_LISTENERS": Shape({"KAFKA_LISTENERS": "PLAINTEXT://:{port}"}),
    # The service `broker` of Confluent's cp-all-in-one-kraft.
    "a listener bound to the host's name": Shape(
        {
            "KAFKA_NODE_ID": "1",
            MAP: "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
            ADVERTISED: "PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:{port}",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
            "KAFKA_LISTENERS": "PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:{port}",
            "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LOG_DIRS": "/var/lib/kafka/logs",
            "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
        },
        ("--hostname", "broker"),
    ),
    "bitnami's variables": Shape(
        {
            "KAFKA_CFG_LISTENERS": "PLAINTEXT://:{port},CONTROLLER://:9093",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:{port}",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        }
    ),
    "a file where apache/kafka has it": Shape(files={"/mnt/shared/config/server.properties": PROPERTIES}),
    "a file over the image's": Shape(files={"/etc/odradek/server.properties": PROPERTIES}),
    "a file without listeners": Shape(
        {ADVERTISED: "PLAINTEXT://localhost:{port}"},
        files={"/mnt/shared/config/server.properties": "num.partitions=2\n"},
    ),
    "TLS with certificates of clients": Shape(
        {"KAFKA_SSL_CLIENT_AUTH": "required", ADVERTISED: "SSL://localhost:{port}"},
        arguments=("--tls",),
        client=None,
    ),
    "SASL": Shape(
        {"ODRADEK_SASL": "alice:secret", ADVERTISED: "SASL_PLAINTEXT://localhost:{port}"}, client=LOGIN
    ),
    "three nodes": Shape(arguments=("--nodes", "3"), client=None),
    "IPv6 alone": Shape(
        {"KAFKA_LISTENERS": "PLAINTEXT://[::1]:9092"},
        ("--sysctl", "net.ipv6.conf.lo.disable_ipv6=0"),
        client=None,
    ),
    "loopback alone": Shape({"KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9092"}, client=None),
    "apache/kafka's start script": Shape(
        {ADVERTISED: "PLAINTEXT://localhost:{port}"}, arguments=("/etc/kafka/docker/run",)
    ),
    "confluentinc/cp-kafka's start script": Shape(
        {ADVERTISED: "PLAINTEXT://localhost:{port}"}, arguments=("/etc/confluent/docker/run",)
    ),
    "beside a Service of Kubernetes called odradek": Shape(
        {
            "ODRADEK_SERVICE_HOST": "10.0.0.7",
            "ODRADEK_SERVICE_PORT": "9092",
            "ODRADEK_SERVICE_PORT_KAFKA": "9092",
            "ODRADEK_PORT": "tcp://10.0.0.7:9092",
            "ODRADEK_PORT_9092_TCP": "tcp://10.0.0.7:9092",
            "ODRADEK_PORT_9092_TCP_PROTO": "tcp",
            "ODRADEK_CONTROL_SERVICE_HOST": "10.0.0.8",
            "ODRADEK_CONTROL_PORT": "tcp://10.0.0.8:18092",
            "KAFKA_SERVICE_HOST": "10.0.0.9",
            "KAFKA_PORT": "tcp://10.0.0.9:9092",
            ADVERTISED: "PLAINTEXT://localhost:{port}",
        }
    ),
}


def check(docker: Docker, shape: Shape) -> None:
    port = str(free_port())

    def here(text: str) -> str:
        return text.replace("{port}", port)

    variables = [
        word for name, value in shape.variables.items() for word in ("--env", f"{name}={here(value)}")
    ]
    files = {path: here(text) for path, text in shape.files.items()}
    options = ["--publish", f"{port}:{port}", *variables, *shape.options]
    with docker.container(options, [*map(here, shape.arguments)], files=files) as broker:
        broker.until_healthy()
        if shape.client is not None:
            assert transaction(f"localhost:{port}", **shape.client) == ["paid"]
        warned = [line for line in broker.log.splitlines() if "unknown property" in line]
        assert warned == []
        assert broker.stop() == 0, broker.log
