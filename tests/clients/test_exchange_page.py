"""The commands of docs/exchange.md work as documented."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.test_kafka_directories import Written
from tests.support.broker import Broker, StartBroker
from tests.support.clients import values
from tests.support.deadlines import HANG_S
from tests.support.dump import dump

PAGE = Path(__file__).parents[2] / "docs" / "exchange.md"
Run = Callable[[list[str]], str]


def commands() -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def odradek(arguments: list[str], home: Path) -> str:
    start = "import sys; sys.argv[0] = 'odradek'; from odradek.cli import main; main()"
    command = [sys.executable, "-c", start, *arguments]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def serve(arguments: list[str], home: Path, start_broker: StartBroker) -> Broker:
    option, directory, *more = arguments
    assert option == "--data-dir"
    return start_broker(*more, data_dir=home / directory)


@pytest.mark.java
@pytest.mark.xdist_group("jvm")
def test_every_command_does_what_the_page_says(tmp_path: Path, start_broker: StartBroker):
    written = Written(tmp_path, "clean")
    written.data.rename(tmp_path / "kafka-data")
    (tmp_path / "copied").mkdir()
    shutil.copytree(tmp_path / "kafka-data" / "flow-0", tmp_path / "copied" / "flow-0")
    ran = []
    for program, *arguments in commands():
        ran.append((program, arguments[0]))
        match program, arguments:
            case "odradek", ["serve", *rest]:
                broker = serve(rest, tmp_path, start_broker)
                assert {"0.0", "4.2"} & set(values(broker.bootstrap, "flow")) == {"0.0"}
                broker.terminate()
            case "odradek", _:
                odradek(arguments, tmp_path)
            case "bin/kafka-server-start.sh", [settings]:
                # test_kafka_directories shows that Kafka starts on such a directory.
                assert f"log.dirs={tmp_path / 'exported'}" in (tmp_path / settings).read_text()
            case "bin/kafka-dump-log.sh", [*flags, "--files", file]:
                assert "endTxnMarker: COMMIT" in dump([tmp_path / file], *flags)
            case _:
                raise AssertionError(f"there is no test for {program} {arguments}")
    assert [program for program, _ in ran].count("odradek") == 4
