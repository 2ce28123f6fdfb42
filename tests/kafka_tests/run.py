"""Runs Apache Kafka's own integration tests, and those of Spark's connector, against Odradek or Kafka itself.

    python -m tests.kafka_tests.run                                  # all sets; a later run continues
    python -m tests.kafka_tests.run --set transactions --again
    python -m tests.kafka_tests.run --against kafka --set groups     # the same tests with Kafka's own brokers
    python -m tests.kafka_tests.run --against both                   # tests that fail with Odradek run with Kafka, too
    python -m tests.kafka_tests.run kafka.server.HeartbeatRequestTest kafka.api.TransactionsTest.testBasicTransactions

A run of sets appends each result to ``.cache/kafka-tests``, and starts again if the checkout has another commit.
The exit code is 1 if a test has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.kafka_tests.control import serving
from tests.kafka_tests.spark import jvm as spark
from tests.support.deadlines import HANG_S, Stopwatch
from tests.support.forked import fork_brokers
from tests.support.java import SHORT_LIVED, java
from tests.support.javaprog import compiled
from tests.support.jvm import framework_jars

FOLDER: Final = Path(__file__).parent
KEPT: Final = FOLDER.parents[1] / ".cache" / "kafka-tests"
SETS: Final[dict[str, list[str]]] = json.loads((FOLDER / "sets.json").read_text())
_EXPECTED: Final[dict[str, dict[str, str]]] = json.loads((FOLDER / "expected.json").read_text())
SKIPS: Final = _EXPECTED["skipped"]
"""Why tests are not run with Odradek, by class and method, or by class, a space and a part of the display name."""
DIFFERENCES: Final = _EXPECTED["failed"]
"""Why a test fails with Odradek, by class and method."""
AGAINST: Final = ("odradek", "kafka", "both")
FAILED_TOO: Final = "failed with Kafka too"
VERDICTS: Final = ("passed", "failed", "differs", FAILED_TOO, "skipped")
REASON_CHARACTERS_MAX: Final = 2000


@dataclass(frozen=True)
class Result:
    test: str
    verdict: str
    reason: str = ""
    seconds: float = 0.0
    display: str = ""


def run(tests: Sequence[str], against: str = "odradek") -> Iterator[tuple[str, list[Result]]]:
    """Run tests, each a class or ``class.method``, and yield each class with its results.

    With ``both``, a class has a JVM of its own, which ends before tests that have failed in it run with Kafka's brokers.
    """
    left = sorted(dict.fromkeys(class_of(each) for each in tests), key=_is_of_spark)
    while left:
        alike = [each for each in left if _is_of_spark(each) == _is_of_spark(left[0])]
        for done, results in _one_jvm(alike[:1] if against == "both" else alike, tests, against):
            left.remove(done)
            if against != "kafka":
                with_kafka = _with_kafka(done, results) if against == "both" else []
                results = [*judged(results, with_kafka, whole=done in tests)]
            yield done, results or [Result(done, "failed", "no test of this class has run")]


def _with_kafka(name: str, results: Sequence[Result]) -> list[Result]:
    """The results of a class's failed tests with Kafka's own brokers."""
    failed = [each.test for each in results if each.verdict == "failed" and each.test != name]
    return [each for _, found in _one_jvm([name], failed, "kafka") for each in found] if failed else []


def class_of(test: str) -> str:
    """The class of a test, which is a class or ``class.method``. The names of Spark's tests are sentences."""
    found = re.match(r"[^A-Z]*[\w$]*", test)
    assert found is not None
    return found[0]


def _is_of_spark(test: str) -> bool:
    return test.startswith("org.apache.spark.")


def judged(results: Sequence[Result], with_kafka: Sequence[Result] = (), *, whole: bool) -> Iterator[Result]:
    """Yield the results of a class: a known failure as ``differs``, and as ``failed`` if the test passes.

    A failure that is in ``with_kafka``, too, is ``failed with Kafka too``, with both reasons. ``whole`` is False if only
    some methods of the class were run.
    """
    failed = {each.test for each in results if each.verdict == "failed"}
    too = {(each.test, each.display): each.reason for each in with_kafka if each.verdict == "failed"}
    for each in results:
        reason = DIFFERENCES.get(each.test)
        if each.verdict == "failed" and (with_kafkas := too.get((each.test, each.display))) is not None:
            reasons = f"{reason or each.reason}\nwith Kafka: {with_kafkas}"
            yield replace(each, verdict=FAILED_TOO, reason=reasons)
        elif each.verdict == "failed" and reason is not None:
            yield replace(each, verdict="differs", reason=reason)
        elif whole and reason is not None and each.test not in failed:
            yield replace(each, verdict="failed", reason="passes now: remove it from expected.json")
        else:
            yield each


def _one_jvm(
    classes: Sequence[str], tests: Sequence[str], against: str
) -> Iterator[tuple[str, list[Result]]]:
    """Run the tests of these classes in one JVM. If a test hangs, it is killed, and the rest of the class does not run."""
    choice = [f"+{each}" for each in tests]
    with tempfile.TemporaryDirectory(prefix="kafka-tests-") as folder, ExitStack() as stack:
        command = [java(), *SHORT_LIVED, f"-Djava.io.tmpdir={folder}"]
        if against != "kafka":
            command.append(f"-Dodradek.control.port={stack.enter_context(serving())}")
            choice += [f"-{test}\t{reason}" for test, reason in SKIPS.items()]
        options = spark.command(against, Path(folder)) if _is_of_spark(classes[0]) else _kafkas(against)
        command += [*options, *classes]
        log = stack.enter_context(tempfile.TemporaryFile("w+"))
        process = stack.enter_context(
            subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        )
        stack.callback(process.kill)
        assert process.stdin is not None
        process.stdin.write("\n".join(choice) + "\n\n")
        process.stdin.flush()  # and stays open: the JVM ends with this process
        left = list(classes)
        for name, results in _classes(_events(process)):
            if name:
                left.remove(name)
            elif left:
                log.seek(0)
                ended = f"the JVM hung or ended:\n{log.read()[-REASON_CHARACTERS_MAX:]}"
                name, results = left[0], [*results, Result(left[0], "failed", ended)]
            else:
                return
            yield name, results


def _kafkas(against: str) -> list[str]:
    """Options, main class and first argument of a JVM that runs Kafka's tests."""
    jars = framework_jars("kafka-tests")
    classpath = f"{compiled(FOLDER / 'launcher', jars)}{os.pathsep}{FOLDER / 'launcher'}"
    options = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    if against != "kafka":
        options.append("-Dprepare=odradek.Cluster")
        classpath = compiled(FOLDER / "stand_ins", jars).replace(jars, classpath)
    return [*options, "-cp", classpath, "RunTests", str(int(HANG_S))]


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield the events that the JVM reports. Kills the JVM if it reports nothing for ``2 * HANG_S`` seconds."""
    assert process.stdout is not None
    hangs = _kill_later(process)
    try:
        for line in process.stdout:
            hangs.cancel()
            hangs = _kill_later(process)
            if line.startswith("{"):
                yield json.loads(line)
    finally:
        hangs.cancel()


def _kill_later(process: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(2 * HANG_S, process.kill)
    timer.daemon = True  # SystemExit may be raised at any line
    timer.start()
    return timer


def _classes(events: Iterable[dict[str, Any]]) -> Iterator[tuple[str, list[Result]]]:
    """Yield each class with its results, and last an empty name with the results of an unfinished class."""
    results: list[Result] = []
    running = ""
    for event in events:
        if event["event"] == "class":
            yield event["class"], results
            results = []
        elif event["event"] == "began":
            running = event["test"]
        else:
            results.append(_result(event))
            running = ""
    yield "", [*results, *([Result(running, "failed", "it did not end")] if running else [])]


def _result(event: dict[str, Any]) -> Result:
    return Result(
        event["test"], event["verdict"], event.get("reason", ""), event.get("ms", 0) / 1000, event["display"]
    )


# ---- the command


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=FOLDER, capture_output=True, text=True)
    return done.stdout.strip()


class Kept:
    """The results of one commit, so that a run continues where the last one has ended."""

    def __init__(self, against: str, *, again: bool) -> None:
        self._file = KEPT / f"{against}-{_revision()}.jsonl"
        KEPT.mkdir(parents=True, exist_ok=True)
        if again:
            self._file.unlink(missing_ok=True)
        self.of: dict[str, list[Result]] = {}
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                row = json.loads(line)
                self.of[row["class"]] = [Result(**each) for each in row["results"]]

    def add(self, name: str, results: list[Result]) -> None:
        self.of[name] = results
        with self._file.open("a") as file:
            file.write(json.dumps({"class": name, "results": [vars(each) for each in results]}) + "\n")


def _print(name: str, results: Sequence[Result]) -> None:
    counts = Counter(each.verdict for each in results)
    seconds = sum(each.seconds for each in results)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    print(f"{name}: {words}, {seconds:.0f} s", flush=True)


def _print_failures(results: Sequence[Result], *, skipped: bool) -> None:
    for each in results:
        if each.verdict in ("failed", FAILED_TOO) or (skipped and each.verdict == "skipped"):
            print(
                f"  {each.verdict}: {each.test} {each.display}\n    {each.reason.replace(chr(10), chr(10) + '    ')}"
            )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", help="a class, or class.method")
    parser.add_argument("--set", choices=SETS, action="append", help="this set (repeatable)")
    parser.add_argument("--against", choices=AGAINST, default="odradek")
    parser.add_argument("--again", action="store_true", help="forget the results of this commit")
    parser.add_argument("--minutes", type=float, help="minutes after which no further class begins")
    parser.add_argument("--reasons", action="store_true", help="print why tests were skipped")
    given = parser.parse_args(arguments)
    fork_brokers()
    if given.tests:
        return _run_named(given.tests, given.against, skipped=given.reasons)
    kept, watch = Kept(given.against, again=given.again), Stopwatch()
    for name in given.set or SETS:
        left = [each for each in SETS[name] if each not in kept.of]
        for done, results in run(left, given.against):
            kept.add(done, results)
            _print(done, results)
            _print_failures(results, skipped=given.reasons)
            if given.minutes and watch.has_run_s(given.minutes * 60):
                return 0
    everything = []
    for name in given.set or SETS:
        results = [result for each in SETS[name] for result in kept.of.get(each, ())]
        _print(f"== {name}", results)
        everything += results
    _print("== all", everything)
    return int(any(each.verdict == "failed" for each in everything))


def _run_named(tests: Sequence[str], against: str, *, skipped: bool) -> int:
    failed = False
    for name, results in run(tests, against):
        _print(name, results)
        _print_failures(results, skipped=skipped)
        failed |= any(each.verdict == "failed" for each in results)
    return int(failed)


def end_at_sigterm() -> None:
    """Let SIGTERM, which ``timeout`` sends, raise SystemExit, so that the JVM and the clusters of the tests end, too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


if __name__ == "__main__":
    end_at_sigterm()
    sys.exit(main(sys.argv[1:]))
