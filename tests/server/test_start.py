"""Which modules a broker has imported and which functions it has compiled when the first record is acknowledged. The numbers
do not depend on the machine.

A failing upper bound means that a start does more than before. If that is intended, raise the bound in a commit that says
why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.client import CREATE_TOPICS, find_coordinator_frame, frame, produce_frame, small_batch
from odradek._server import site_folders
from odradek.process import _free_port
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[2]

# From Python 3.13 on, the standard library imports two more modules, and `dataclasses` compiles more functions.
MODULES_MAX = 417 if sys.version_info < (3, 13) else 419
OWN_MODULES_MAX = 257
"""Upper bound for imported modules of `compiled`, `server`, `lab`, `broker`, `storage` and `protocol`."""
OF_THE_CONTROL_PORT = 8
"""Upper bound for modules that only a broker with a control port imports before the port's first request."""
COMPILED_MAX, COMPILED_FOR_THE_CONTROL_PORT = (12, 1) if sys.version_info < (3, 13) else (18, 3)
"""Upper bound for functions compiled from generated source: message codecs, methods of `protocol.slotted` classes."""
COORDINATORS = {"broker.groups.coordinator", "broker.transactions.coordinator"}
# Modules for a control port, groups, transactions or errors, which this broker does not have.
FORBIDDEN = {
    *COORDINATORS,
    *(
        "aiohttp",
        "click",
        "javaproperties",
        "kio",
        "msgspec",
        "re2",
        "structlog",
        "xxhash",
    ),
    *(
        "ast",
        "asyncio.sslproto",
        "decimal",
        "dis",
        "hashlib",
        "hmac",
        "inspect",
        "ipaddress",
        "locale",
        "pickle",
    ),
    *("platform", "shutil", "site", "ssl", "_hashlib", "_ssl", "tempfile", "textwrap", "tokenize", "pkgutil"),
    *(
        "lab.control",
        "lab.control.operations",
        "lab.control.server",
        "lab.control.wiring",
        "lab.faults.engine",
        "lab.views.cluster_views",
    ),
}
ALLOWED = {"lab.control"}
"""The modules of ``FORBIDDEN`` that a broker with a control port imports."""
NEVER = {
    *COORDINATORS,
    "_ssl",
    "aiohttp.client",
    "aiohttp.connector",
    "argparse",
    "importlib.metadata",
    "ssl",
    "urllib.request",
}
"""Modules that no call of the control port imports, in a broker without TLS, groups and transactions."""
PROGRAM = """
import _thread, gc, sys
compiled, by_loop = [], []
loop = _thread.get_ident()
def hook(event, arguments):
    if event == "compile" and str(arguments[1]).startswith("<"):
        compiled.append(str(arguments[1]))
    elif event == "import" and _thread.get_ident() == loop:
        by_loop.append(arguments[0])
sys.addaudithook(hook)
folders, port, data_dir, control_port, *frames = sys.argv[1:]
sys.path[:0] = folders.split(":")
import _socket, os, time, signal
def receive(connection, count):
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data)) or sys.exit("the broker hung up")
    return data
def connect(port):
    while True:
        connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            connection.connect(("127.0.0.1", int(port)))
            return connection
        except OSError:
            connection.close()
            time.sleep(0.01)
def loaded():
    return [name for name, module in [*sys.modules.items()] if module and not vars(module).get("__late__")]
def client():
    connection = connect(port)
    answers = []
    def ask(frame):
        connection.send(bytes.fromhex(frame))
        answers.append(receive(connection, int.from_bytes(receive(connection, 4), "big")).hex())
    ask(frames[0])
    ask(frames[1])
    if control_port:
        control = connect(control_port)
    modules = loaded()
    count = len(compiled)
    for frame in frames[2:]:
        ask(frame)
    looked = loaded()
    by_loop.clear()
    frozen = gc.get_freeze_count()
    statuses = []
    for path in ["/v1/cluster", "/openapi.json", "/metrics"] if control_port else []:
        control.send(b"GET %s HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n" % path.encode())
        statuses.append(receive(control, 12).decode())
        control.close()
        control = connect(control_port)
    asked, asked_by_loop = loaded(), [*by_loop]
    import json
    found = {
        "modules": modules, "compiled": compiled[:count], "answers": answers,
        "looked": looked, "statuses": statuses, "asked": asked, "by_loop": asked_by_loop,
        "frozen": [frozen, gc.get_freeze_count()],
    }
    os.write(2, json.dumps(found).encode())
    os.kill(os.getpid(), signal.SIGTERM)
_thread.start_new_thread(client, ())
from server.__main__ import main
sys.exit(main(["--port", port, "--data-dir", data_dir, *(["--control-port", control_port] if control_port else [])]))
"""


def begin(tmp_path_factory: pytest.TempPathFactory, control_port: str = "") -> dict[str, list[Any]]:
    topic = CreatableTopic(name="first", num_partitions=1, replication_factor=1)
    frames = [
        frame(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)),
        produce_frame("first", small_batch()),
        *(find_coordinator_frame("first", kind) for kind in (0, 1)),
    ]
    data_dir = tmp_path_factory.mktemp("start") / "data"
    folders = ":".join([str(ROOT), *site_folders()])
    arguments = [folders, str(_free_port()), str(data_dir), control_port]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, *arguments, *(each.hex() for each in frames)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, list[Any]] = json.loads(done.stderr)
    return facts


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return begin(tmp_path_factory)


@pytest.fixture(scope="module")
def with_control_port(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return begin(tmp_path_factory, str(_free_port()))


def own(modules: list[str]) -> list[str]:
    return [
        name
        for name in modules
        if name.startswith(("broker", "compiled", "lab", "server", "storage", "protocol"))
    ]


def test_the_first_record_is_acknowledged(found: dict[str, list[str]]) -> None:
    produced = found["answers"][1]
    # Topic "first", one partition, its index, error code 0.
    assert bytes([6, *b"first", 2, *bytes(4 + 2)]).hex() in produced


def test_no_module_is_imported_that_nothing_asked_for(found: dict[str, list[str]]) -> None:
    assert FORBIDDEN & {*found["modules"]} == set()


def test_a_start_imports_no_more_modules_than_before(found: dict[str, list[str]]) -> None:
    count = len(own(found["modules"]))
    assert count <= OWN_MODULES_MAX
    assert count > 0.9 * OWN_MODULES_MAX, "the bound is too high and must be lowered"
    assert len(found["modules"]) <= MODULES_MAX


def test_a_start_compiles_no_more_than_before(found: dict[str, list[str]]) -> None:
    assert len(found["compiled"]) <= COMPILED_MAX
    assert len(found["compiled"]) > 0.6 * COMPILED_MAX, "the bound is too high and must be lowered"


def test_a_control_port_costs_a_start_a_few_modules(
    found: dict[str, list[str]], with_control_port: dict[str, list[str]]
) -> None:
    """A start with a control port imports only a few more modules, even if a client has connected to the port without
    sending."""
    modules = {*with_control_port["modules"]}
    assert "lab.control.listener" in modules
    assert FORBIDDEN & modules == ALLOWED
    assert len(modules) <= MODULES_MAX + OF_THE_CONTROL_PORT
    assert len(own([*(modules - {*found["modules"]})])) <= OF_THE_CONTROL_PORT
    assert len(with_control_port["compiled"]) <= COMPILED_MAX + COMPILED_FOR_THE_CONTROL_PORT


def test_who_looks_for_a_coordinator_loads_none(found: dict[str, list[str]]) -> None:
    assert "protocol.messages.find_coordinator" in found["looked"]
    assert COORDINATORS & {*found["looked"]} == set()


def test_the_control_port_loads_what_serves_it_and_no_more(with_control_port: dict[str, list[str]]) -> None:
    assert with_control_port["statuses"] == ["HTTP/1.1 200"] * 3
    assert "aiohttp.web" in with_control_port["asked"]
    assert NEVER & {*with_control_port["asked"]} == set()


def test_the_loop_imports_nothing_for_the_control_port(with_control_port: dict[str, list[str]]) -> None:
    """A thread imports the modules for the control port's first call, as these imports would block the broker's clients."""
    assert with_control_port["by_loop"] == []


def test_the_collector_passes_over_what_the_first_call_has_loaded(
    with_control_port: dict[str, list[int]],
) -> None:
    """The garbage collector ignores the objects that the control port's first call has created: traversing them would block
    the event loop."""
    before, after = with_control_port["frozen"]
    assert after > 1.5 * before > 0
