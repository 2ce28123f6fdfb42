"""The output of kcat in one session of produce, read, query, list, transactions and groups, with any broker.

    python -m tests.clients.kcat_session     records the output with Apache Kafka

`tests/clients/test_kcat.py` compares it with the output with our broker.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.deadlines import HANG_S

RECORDED = Path(__file__).parent / "kcat_on_apache_kafka.txt"

ONE = ("-t", "orders", "-p", "0")
# One line for each step: kcat's arguments, and its standard input.
STEPS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("-P", *ONE, "-K:", "-Z", "-H", "trace=7", "-H", "empty="), "k1:one\nk2:two\nk3:\nk4:four\n"),
    # In a topic of its own: Kafka may respond before the marker is in the log, and other records might precede it then.
    (("-P", "-t", "transfers", "-X", "transactional.id=kcat-1"), "in a transaction\nand another\n"),
    (("-P", "-t", "orders", "-X", "partitioner=murmur2", "-K:"), "".join(f"key-{n}:{n}\n" for n in range(9))),
    *((("-P", *ONE, "-z", codec), f"{codec} {'long ' * 50}\n") for codec in ("gzip", "snappy", "lz4")),
    (("-P", "-t", "payments"), "".join(f"{n}\n" for n in range(9))),
    (("-P", "-t", "no:such", "-p", "0"), "refused\n"),
    (("-C", *ONE, "-o", "beginning", "-e", "-J"), ""),
    (("-C", *ONE, "-o", "1", "-c", "2", "-f", "%t %p %o %k %K %s %S %h\\n"), ""),
    (("-C", "-t", "transfers", "-p", "0", "-o", "0", "-e", "-J", "-X", "isolation.level=read_committed"), ""),
    (("-C", *ONE, "-o", "-2", "-e", "-f", "%o %S\\n", "-X", "isolation.level=read_committed"), ""),
    (("-C", "-t", "orders", "-o", "beginning", "-e", "-X", "check.crcs=true", "-f", "%p %o %k\\n"), ""),
    (("-C", *ONE, "-o", "s@0", "-o", "e@1", "-e", "-f", "%o\\n"), ""),
    (("-C", *ONE, "-o", "1000", "-e"), ""),
    (("-C", "-t", "missing", "-e"), ""),
    (("-Q", "-t", "orders:0:-1"), ""),
    (("-Q", "-t", "orders:0:-2"), ""),
    (("-Q", "-t", "orders:0:1"), ""),
    (("-Q", "-t", "orders:7:-1"), ""),
    (("-L", "-t", "orders"), ""),
    (("-L", "-t", "orders", "-J"), ""),
    (("-L", "-t", "missing"), ""),
    (("-G", "readers", "-X", "auto.offset.reset=earliest", "-c", "5", "payments"), ""),
    (("-G", "readers", "-X", "auto.offset.reset=earliest", "-e", "payments"), ""),
    (("-G", "others", "-X", "auto.offset.reset=earliest", "-X", "group.instance.id=one", "-e", "^ord.*"), ""),
)


def session(bootstrap: str) -> str:
    """The output of the session, without values that differ in each run."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {"orders": 2, "payments": 1, "transfers": 1}
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        made.result(HANG_S)
    return "\n".join(_step(bootstrap, call, given) for call, given in STEPS)


def _step(bootstrap: str, call: tuple[str, ...], given: str) -> str:
    # Without this setting kcat looks for an unknown topic for half a minute.
    quick = ("-X", "topic.metadata.propagation.max.ms=0", "-m", "10")
    mode = 2 if call[0] == "-G" else 1
    command = ["kcat", *call[:mode], "-b", bootstrap, *quick, *call[mode:]]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=HANG_S, check=False)
    shown = " ".join(call)
    # Partitions are read concurrently: only the order within a partition is fixed.
    several = call[0] == "-G" or ("-C" in call and "-p" not in call)
    printed = sorted(done.stdout.splitlines()) if several else done.stdout.splitlines()
    told = sorted(_steady(line, several) for line in done.stderr.splitlines())
    lines = [f"$ kcat {shown}", *printed, *(f"! {line}" for line in told), f"= {done.returncode}"]
    return "\n".join(_plain(line, bootstrap) for line in lines) + "\n"


def _steady(line: str, several: bool) -> str:
    line = re.sub(r"^%\d\|[\d.]+\|", "", line)
    # kcat appends this text to the line of the partition whose end it reaches last, which may be any partition.
    return line.removesuffix(": exiting") if several else line


def _plain(line: str, bootstrap: str) -> str:
    host, port = bootstrap.rsplit(":", 1)
    line = line.replace(f"{host}:{port}", "HOST:PORT")
    line = re.sub(r'"ts":\d+', '"ts":NOW', line)
    line = re.sub(r"memberid [\w.-]+", "memberid MEMBER", line)
    return re.sub(r"rdkafka#(\w+)-\d+", r"rdkafka#\1-N", line)


if __name__ == "__main__":
    from tests.differential.runner import warm_up
    from tests.support.kafka_oracle import kafka

    with kafka({"auto.create.topics.enable": "false"}) as oracle:
        # Otherwise kcat may print that it retries while a coordinator is loaded.
        warm_up(oracle.host, oracle.port)
        RECORDED.write_text(session(f"{oracle.host}:{oracle.port}"))
