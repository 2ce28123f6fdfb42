"""``make oracle VERSION=4.4.0``: compares a release of Apache Kafka with the one that the broker is compared with.

python -m tests.oracle 4.4.0               # prints what differs: settings, features, error codes, versions of APIs
python -m tests.oracle 4.4.0 --write       # also writes the tables of settings of the broker
python -m tests.oracle 4.4.0 --record      # also runs every recorder, and prints the stories whose responses differ
python -m tests.oracle 4.4.0 --record acls # runs the recorders whose names are given
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.oracle.tables import differences, read_tables, render
from tests.support import raw
from tests.support.deadlines import HANG_S
from tests.support.java import KAFKA_VERSION, ORACLE_VARIABLE
from tests.support.kafka_oracle import ask, format_directory, started

ROOT: Final = Path(__file__).parents[2]


class Recorder(NamedTuple):
    """A program that records responses of Apache Kafka, and the files that it writes."""

    module: str
    files: str


RECORDERS: Final[Mapping[str, Recorder]] = {
    "stories": Recorder("tests.differential.record", "tests/differential/recorded/*.json"),
    "cluster": Recorder("tests.differential.cluster.record", "tests/differential/recorded_cluster/*.json"),
    "handshakes": Recorder(
        "tests.differential.handshakes.record", "tests/differential/handshakes/recorded.json"
    ),
    "acls": Recorder("tests.differential.acls.kafka", "tests/differential/acls/recorded.jsonl"),
    "refusals": Recorder("tests.broker.security.refusals.record", "tests/broker/security/refusals/**/*.json"),
    "console-tools": Recorder(
        "tests.differential.console_tools.record", "tests/differential/console_tools/recorded/*.json"
    ),
    "sweep": Recorder("tests.clients.jvm.sweep", "tests/clients/jvm/kafka/recorded.json"),
    "share-groups": Recorder(
        "tests.clients.share_session", "tests/clients/share_groups_on_apache_kafka.json"
    ),
    "kcat": Recorder("tests.clients.kcat_session", "tests/clients/kcat_on_apache_kafka.txt"),
    "directories": Recorder("tests.clients.record_directories", "tests/clients/directories/*"),
}


def announced(version: str) -> dict[str, str]:
    """The versions of each API that a broker of this release announces, by API key: ``{"0": "0-13"}``."""
    with (
        tempfile.TemporaryDirectory(prefix="kafka-oracle-") as home,
        started(format_directory(Path(home), release=version), release=version) as oracle,
    ):
        wire = raw.Wire(oracle.host, oracle.port, timeout=HANG_S)
        answer = ask(wire, "api_versions", 4, client_software_name="odradek", client_software_version="0")
        wire.close()
    return {
        str(each["api_key"]): f"{each['min_version']}-{each['max_version']}" for each in answer["api_keys"]
    }


def record(name: str, version: str) -> Iterator[str]:
    """Run a recorder with this release, and yield a line for each story whose recording differs from before."""
    recorder = RECORDERS[name]
    before = stories(recorder.files)
    environment = {**os.environ, ORACLE_VARIABLE: version}
    subprocess.run([sys.executable, "-m", recorder.module], cwd=ROOT, env=environment, check=True)
    after = stories(recorder.files)
    for story in sorted(before.keys() | after.keys()):
        if before.get(story) != after.get(story):
            yield f"{name}: {story}"


def stories(pattern: str) -> dict[str, Any]:
    """The recordings in these files by ``file: story``, or by ``file`` if a file is no object of stories."""
    found: dict[str, Any] = {}
    for file in sorted(ROOT.glob(pattern)):
        content: Any = file.read_bytes()
        if file.suffix == ".json":
            content = json.loads(content)
        if isinstance(content, dict):
            found |= {f"{file.name}: {story}": told for story, told in content.items()}
        else:
            found[file.name] = content
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="make oracle", description=__doc__.splitlines()[0])
    parser.add_argument("version", help="a release of Apache Kafka, such as 4.4.0")
    parser.add_argument(
        "--record", nargs="*", choices=[*RECORDERS], metavar="RECORDER", help=", ".join(RECORDERS)
    )
    parser.add_argument("--write", action="store_true", help="write the broker's tables of settings")
    parser.add_argument("--since", default=KAFKA_VERSION, help="the release to compare with (%(default)s)")
    given = parser.parse_args(arguments)
    tables = read_tables(given.version)
    lines = [*differences(read_tables(given.since), tables)]
    old, new = ({"versions of APIs": announced(version)} for version in (given.since, given.version))
    lines += differences(old, new)
    for module, text in render(tables, given.version).items() if given.write else ():
        module.write_text(text, "utf-8")
    for name in RECORDERS if given.record == [] else given.record or ():
        lines += record(name, given.version)
    print("\n".join(lines) or f"{given.version} does not differ from {given.since}")


if __name__ == "__main__":
    main(sys.argv[1:])
