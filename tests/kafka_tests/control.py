"""The server that starts clusters of Odradek for the stand-ins of Kafka's test kits (`stand_ins/Control.java`).

A connection is one cluster. A request is a line of JSON, and so is its response; ``error`` in a response is the reason why a
request failed.

| request | response |
| --- | --- |
| `configure`: directory, cluster_id, nodes (id, settings); may have features, login_config, users, principals | {} |
| `start`: start all nodes | ports, by node id and listener name |
| `stop`: stop all nodes | {} |
| `start_node`, `stop_node`: id | {} |
| `count_closed` | how many connections were closed by `failed` authentication or as `expired`, by the log |
"""

from __future__ import annotations

import json
import shutil
import socketserver
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import odradek
from broker.metadata.features import SUPPORTED_FEATURES
from broker.security.sasl.mechanism import AUTHENTICATION_FAILED
from odradek.process import BrokerFailed, BrokerProcess
from tests.support import principals
from tests.support.raw import free_port

LEFT_OUT: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "early.start.listeners",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "server.max.startup.time.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    }
)
"""Settings that are not passed on: the stand-ins replace them, or they have no meaning here."""
PRINCIPAL_BUILDER: Final = "principal.builder.class"
QUORUM: Final = "controller.quorum."
STAND_IN: Final = "STAND-IN"
"""A listener on which the stand-in of an authorizer changes ACLs as a super user."""
SUPER_USER: Final = "User:stand-in"
AUTHORIZER: Final = "authorizer.class.name"
PROTOCOLS: Final = "listener.security.protocol.map"
PERSISTER: Final = "group.share.persister.class.name"
"""With an empty name a test has a persister that keeps nothing. Here a share coordinator on one node keeps the states."""
ONE_SHARE_COORDINATOR: Final = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
REASON_LINES_MAX: Final = 12


class Cluster:
    """The nodes of one test: their settings, ports, and at most one process."""

    def __init__(self) -> None:
        self._directory = Path()
        self._ports: dict[str, dict[str, int]] = {}
        self._broker: BrokerProcess | None = None

    def do(self, request: Mapping[str, Any]) -> dict[str, Any]:
        match request["do"]:
            case "configure":
                self._configure(request)
            case "start":
                assert self._broker is not None
                self._broker.start()
                return {"ports": self._ports}
            case "stop":
                assert self._broker is not None
                self._broker.terminate()
            case "start_node" | "stop_node" as what:
                assert self._broker is not None
                node = odradek.connect(self._broker.control_url).nodes[request["id"]]
                node.start() if what == "start_node" else node.stop()
            case "count_closed":
                return self._count_closed()
        return {}

    def _configure(self, request: Mapping[str, Any]) -> None:
        nodes = request["nodes"]
        ids = [each["id"] for each in nodes]
        if ids != list(range(ids[0], ids[0] + len(ids))):
            raise BrokerFailed(f"the ids of the brokers are not consecutive: {ids}")
        first = _of_broker(nodes[0]["settings"])
        settings = {"odradek.defaults": "kafka", "node.id": str(ids[0]), **first}
        for number, node in enumerate(nodes, 1):
            own = _of_broker(node["settings"]).items() - first.items()
            settings |= {f"odradek.node.{number}.{name}": value for name, value in own}
            settings[f"odradek.node.{number}.listeners"] = self._listeners(node["id"], node["settings"])
        self._directory = Path(request["directory"] + "-odradek")
        self._directory.mkdir(exist_ok=True)
        file = self._directory / "server.properties"
        file.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in sorted(settings.items())))
        environment = {
            "CLUSTER_ID": request["cluster_id"],
            "ODRADEK_SASL": "\n".join(request.get("users", ())),
        }
        environment |= principals.as_variable(request.get("principals", {}) | {STAND_IN: SUPER_USER})
        if login_config := request.get("login_config"):
            environment["KAFKA_OPTS"] = f"-Djava.security.auth.login.config={login_config}"
        arguments = ["--config", str(file), "--nodes", str(len(nodes))]
        for name, level in request.get("features", {}).items():
            if level < SUPPORTED_FEATURES[name][1]:
                arguments += ["--feature", f"{name}={level}"]
        self._broker = BrokerProcess(
            self._directory,
            *arguments,
            data_dir=Path(request["directory"]),
            environment=environment,
            control=len(nodes) > 1,
        )

    def _count_closed(self) -> dict[str, int]:
        assert self._broker is not None
        closed = [each for each in self._broker.events if each["event"] == "connection closed"]
        return {
            "failed": sum(each["reason"] == AUTHENTICATION_FAILED for each in closed),
            "expired": sum("session has expired" in each.get("error", "") for each in closed),
        }

    def _listeners(self, node_id: int, settings: Mapping[str, str]) -> str:
        """The listeners of a node, with ports that stay the same when the node is started again."""
        controllers = settings.get("controller.listener.names", "CONTROLLER").split(",")
        ports = self._ports.setdefault(str(node_id), {})
        listeners = []
        for listener in settings["listeners"].split(","):
            name, _, address = listener.partition("://")
            if name not in controllers:
                host, _, port = address.rpartition(":")
                ports.setdefault(name, int(port) or free_port())
                listeners.append(f"{name}://{host or 'localhost'}:{ports[name]}")
        if settings.get(AUTHORIZER):
            ports.setdefault(STAND_IN, free_port())
            listeners.append(f"{STAND_IN}://localhost:{ports[STAND_IN]}")
        return ",".join(listeners)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.kill() if self._broker.is_running else None
            self._broker.close()
            shutil.rmtree(self._directory, ignore_errors=True)


def _of_broker(settings: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in settings.items()
        if name not in LEFT_OUT and not name.startswith(QUORUM) and not name.endswith(PRINCIPAL_BUILDER)
    }
    if kept.pop(PERSISTER, None) == "":
        kept = ONE_SHARE_COORDINATOR | kept
    if kept.get(AUTHORIZER):
        kept["super.users"] = ";".join(filter(None, (kept.get("super.users"), SUPER_USER)))
        kept[PROTOCOLS] = ",".join(filter(None, (kept.get(PROTOCOLS), f"{STAND_IN}:PLAINTEXT")))
    return kept


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


class _Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        cluster = Cluster()
        try:
            for line in self.rfile:
                try:
                    response = cluster.do(json.loads(line))
                except Exception as error:  # the test fails with this reason
                    response = {"error": f"Odradek: {_shortened(str(error))}"}
                self.wfile.write(json.dumps(response).encode() + b"\n")
        finally:
            cluster.close()


def _shortened(text: str) -> str:
    return "\n".join(text.splitlines()[-REASON_LINES_MAX:])


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def serving() -> Iterator[int]:
    """Yield the port of a server on the loopback address."""
    with _Server(("127.0.0.1", 0), _Connection) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
