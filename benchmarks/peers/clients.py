"""Clients with librdkafka and in Java: each call runs a process, and returns the fields that `load.load` returns."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.peers.load import TIMEOUT_S, LoadFailed
from benchmarks.process import cpu_seconds, machine_cpu_seconds, resident_mib
from benchmarks.targets import ROOT, Running

TOOL_JVM: Final = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
PRODUCED: Final = re.compile(r"^(\d+) records sent, [\d.]+ records/sec \(([\d.]+) MB/sec\)", re.MULTILINE)
MIB: Final = 1 << 20


def librdkafka(measure: str, broker: Running, topic: str, **told: Any) -> dict[str, Any]:
    flags = [text for name, value in told.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "benchmarks.peers.librdkafka", measure]
    command += ["--address", broker.bootstrap, "--pid", str(broker.pid), "--topic", topic, *flags]
    return last_line(run(command), broker)


def librdkafka_share(broker: Running, topic: str, group: str, records: int) -> dict[str, Any]:
    return librdkafka("share", broker, topic, group=group, records=records)


def java_share(broker: Running, topic: str, group: str, records: int) -> dict[str, Any]:
    return java_program("ShareConsume", broker, topic, group, str(records))


def java_transactions(
    broker: Running, topic: str, producers: int, warm_s: float, measured_s: float
) -> dict[str, Any]:
    times = [str(int(warm_s * 1000)), str(int(measured_s * 1000))]
    return java_program("Transactions", broker, topic, str(producers), *times)


def java_program(name: str, broker: Running, *arguments: str) -> dict[str, Any]:
    """Run a program of `benchmarks/load/java`."""
    from tests.support.java import java, kafka_classpath
    from tests.support.javaprog import compiled

    classpath = compiled(ROOT / "benchmarks" / "load" / "java", kafka_classpath())
    command = [java(), *TOOL_JVM, "-cp", classpath, name, broker.bootstrap, *arguments, str(broker.pid)]
    return last_line(run(command), broker)


def java_produce(broker: Running, topic: str, records: int, size_bytes: int) -> dict[str, Any]:
    """Run Apache Kafka's producer perf tool. The time is the one that the tool reports; the CPU time is that of the tool's
    whole process.
    """
    arguments = ["--topic", topic, "--num-records", str(records), "--record-size", str(size_bytes)]
    arguments += ["--throughput", "-1", "--bootstrap-server", broker.bootstrap]
    said, used = tool(broker, "ProducerPerformance", arguments)
    reports = PRODUCED.findall(said)
    if not reports or int(reports[-1][0]) != records:
        raise LoadFailed(f"unexpected output of ProducerPerformance: {said.strip()[-1000:]}")
    wall_s = records * size_bytes / MIB / float(reports[-1][1])
    return used | {"operations": records, "bytes": records * size_bytes, "wall_s": wall_s}


def java_consume(broker: Running, topic: str, records: int) -> dict[str, Any]:
    """Run Apache Kafka's consumer perf tool. The rate is the fetch rate that the tool reports, without the time in which the
    group forms.
    """
    arguments = ["--topic", topic, "--num-records", str(records), "--bootstrap-server", broker.bootstrap]
    said, used = tool(broker, "ConsumerPerformance", arguments)
    lines = [line.split(", ") for line in said.splitlines() if line.count(", ") == 9]
    if len(lines) != 2 or int(lines[1][4]) < records:
        raise LoadFailed(f"unexpected output of ConsumerPerformance: {said.strip()[-1000:]}")
    named = dict(zip(lines[0], lines[1], strict=True))
    moved = float(named["data.consumed.in.MB"]) * MIB
    wall_s = float(named["fetch.time.ms"]) / 1000
    return used | {"operations": records, "bytes": moved, "wall_s": wall_s}


def tool(broker: Running, name: str, arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    from tests.support.java import java, kafka_classpath

    command = [java(), *TOOL_JVM, "-cp", kafka_classpath(), f"org.apache.kafka.tools.{name}", *arguments]
    before = _used(broker.pid)
    said = run(command)
    wall_s, broker_s, children_s, machine_s = (
        after - begun for after, begun in zip(_used(broker.pid), before, strict=True)
    )
    others = max(machine_s - broker_s - children_s, 0) / wall_s
    return said, {"broker_cpu_s": broker_s, "other_cpu": others, "memory_mib": resident_mib(broker.pid)}


def _used(pid: int) -> tuple[float, float, float, float]:
    """(time in seconds, CPU seconds of the broker, of our ended child processes, of the whole machine)."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), cpu_seconds(pid), children.ru_utime + children.ru_stime, machine_cpu_seconds()


def run(command: Sequence[str]) -> str:
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    if ran.returncode:
        raise LoadFailed(f"{command[-1]}: {(ran.stderr or ran.stdout).strip()[-2000:]}")
    return ran.stdout


def last_line(said: str, broker: Running) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(said.splitlines()[-1])
    return outcome | {"memory_mib": resident_mib(broker.pid)}
