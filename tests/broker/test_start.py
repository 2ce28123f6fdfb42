"""What a broker has imported and compiled when the first record is acknowledged, whatever the machine.

A bound that is missed says that a start does more than before. Where that is meant, the bound moves, in a commit that says
why.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.client import CREATE_TOPICS, frame, produce_frame, small_batch
from odradek._server import site_folders
from odradek.process import _free_port
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.support.deadlines import HANG_S

ROOT = Path(__file__).parents[2]

MODULES_MAX = 410
OWN_MODULES_MAX = 248
"""Of `broker`, `storage` and `protocol`."""
COMPILED_MAX = 12
"""Methods and functions that are made as text: of messages, and of classes of values (`protocol.slotted`)."""
# Each is needed by something that a broker without control port, groups, transactions and mistakes does not do.
FORBIDDEN = {
    *(
        "aiohttp",
        "click",
        "javaproperties",
        "kio",
        "msgspec",
        "prometheus_client",
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
        "broker.control",
        "broker.faults.engine",
        "broker.groups.coordinator",
        "broker.transactions.coordinator",
    ),
}
PROGRAM = """
import sys
compiled = []
def hook(event, arguments):
    if event == "compile" and str(arguments[1]).startswith("<"):
        compiled.append(str(arguments[1]))
sys.addaudithook(hook)
folders, port, data_dir, *frames = sys.argv[1:]
sys.path[:0] = folders.split(":")
import _socket, _thread, os, time, signal
def receive(connection, count):
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data)) or sys.exit("the broker hung up")
    return data
def client():
    while True:
        connection = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            connection.connect(("127.0.0.1", int(port)))
            break
        except OSError:
            connection.close()
            time.sleep(0.01)
    answers = []
    for frame in frames:
        connection.send(bytes.fromhex(frame))
        answers.append(receive(connection, int.from_bytes(receive(connection, 4), "big")).hex())
    modules = [name for name, module in sys.modules.items() if module and not vars(module).get("__late__")]
    count = len(compiled)
    import json
    os.write(2, json.dumps({"modules": modules, "compiled": compiled[:count], "answers": answers}).encode())
    os.kill(os.getpid(), signal.SIGTERM)
_thread.start_new_thread(client, ())
from broker.__main__ import main
sys.exit(main(["--port", port, "--data-dir", data_dir]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    topic = CreatableTopic(name="first", num_partitions=1, replication_factor=1)
    frames = [
        frame(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)),
        produce_frame("first", small_batch()),
    ]
    data_dir = tmp_path_factory.mktemp("start") / "data"
    arguments = [":".join([str(ROOT), *site_folders()]), str(_free_port()), str(data_dir)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, *arguments, *(each.hex() for each in frames)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, list[str]] = json.loads(done.stderr)
    return facts


def test_the_first_record_is_acknowledged(found: dict[str, list[str]]) -> None:
    _, produced = found["answers"]
    # "first", one partition, its index, no error.
    assert bytes([6, *b"first", 2, *bytes(4 + 2)]).hex() in produced


def test_no_module_is_imported_that_nothing_asked_for(found: dict[str, list[str]]) -> None:
    assert FORBIDDEN & {*found["modules"]} == set()


def test_a_start_imports_no_more_modules_than_before(found: dict[str, list[str]]) -> None:
    own = [name for name in found["modules"] if name.startswith(("broker", "storage", "protocol"))]
    assert len(own) <= OWN_MODULES_MAX
    assert len(own) > 0.9 * OWN_MODULES_MAX, "the bound is to be moved down"
    assert len(found["modules"]) <= MODULES_MAX


def test_a_start_compiles_no_more_than_before(found: dict[str, list[str]]) -> None:
    assert len(found["compiled"]) <= COMPILED_MAX
    assert len(found["compiled"]) > 0.6 * COMPILED_MAX, "the bound is to be moved down"
