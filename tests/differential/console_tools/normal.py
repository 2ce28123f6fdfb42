"""Normalises the output of tools for comparison.

Ids become symbols by order of appearance. Times and addresses are replaced. Runs of spaces become one space, as the width of
columns depends on ids. Lines about other stories' resources are dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Kafka's ``Uuid`` in base64: ids of topics, clusters, directories and members.
BASE64_ID: Final = re.compile(r"(?<![\w-])[A-Za-z0-9_-]{22}(?![\w-])")
# 64 bytes in base64: the HMAC of a delegation token.
HMAC: Final = re.compile(r"(?<![\w+/])[A-Za-z0-9+/]{86}==")
# Names of Kafka's classes and fields consist of letters only. One id in ten thousand looks like such a name.
CLASS_NAME: Final = re.compile(r"[a-z]*(?:[A-Z][a-z]+)+")
CASE_CHANGES_MAX: Final = 7
"""Maximum changes between upper and lower case in a class name. A name of letters with more changes is a base64
id."""
REPLACED: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,:]\d+)?Z?"), "(time)"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d\b"), "(minute)"),
    (re.compile(r"(?<![\w.])1[6-9]\d{11}(?!\w)"), "(ms)"),
    (re.compile(r"(?<=[\w$;])@[0-9a-f]{5,8}\b"), "@(hash)"),
    (re.compile(r"(?<=-consumer-)\d+\b|(?<=adminclient-)\d+\b|(?<=\bproducer-)\d+\b"), "(number)"),
    # A client's message about a timeout depends on what it was doing at that time.
    (
        re.compile(r"(?<=TimeoutException: ).*|Call\(callName=.*|Timed out waiting for a node assignment.*"),
        "(text)",
    ),
    (re.compile(r" +"), " "),
)
# Stack frames of the client's code do not depend on the broker.
FRAME: Final = re.compile(r"\s+at [\w.$/@]+.*\(.*\)$|\s+\.\.\. \d+ (more|common frames omitted)$")
CLIENT_LOG: Final = re.compile(r"\[[^]]*network-thread[^]]*\] (WARN|ERROR) ")
# The first and last line of a tool's usage text, which comes from the tool alone.
USAGE_BEGINS: Final = re.compile(r"Option +Description|usage: ")
USAGE_ENDS: Final = re.compile(r"[\w-]+: error: ")
# kafka-topics prints settings in the order of the response, which in Kafka is arbitrary.
TOPIC_CONFIGS: Final = re.compile(r"(\tConfigs: )(.*)")
NAME: Final = re.compile(r"[a-zA-Z0-9]+(?:-[a-z0-9]+)+--(?=[a-z0-9])")


@dataclass(frozen=True)
class Shown:
    """Options for the comparison of a command's output."""

    sorted: bool = False
    """Whether to sort the lines, as the tool prints them in no fixed order."""
    hidden: tuple[str, ...] = ()
    """Patterns of text that differs between runs. "(hidden)" replaces the match, or its first group if there is one."""
    dropped: tuple[str, ...] = ()
    """Patterns of output lines that are not compared."""
    only: str | None = None
    """Pattern of the lines to compare; None for all."""
    symbols: tuple[str, ...] = ()
    """Names of table columns whose values are ids."""
    hidden_columns: tuple[str, ...] = ()


PLAIN: Final = Shown()


class TextNormal:
    """The symbols of one story. An id has the same symbol in all of the story's output."""

    def __init__(self, prefix: str, ports: Mapping[int, str], paths: Mapping[Path, str]) -> None:
        self.prefix, self.ports, self.paths = prefix, ports, paths
        self._symbols: dict[tuple[str, str], str] = {}

    def symbol(self, kind: str, value: str) -> str:
        count = sum(1 for known, _ in self._symbols if known == kind)
        return self._symbols.setdefault((kind, value), f"({kind} {count + 1})")

    def label(self, text: str) -> str:
        return self._line(text)

    def lines(self, text: str, shown: Shown) -> list[str]:
        # Some of Kafka's formatters print no line ends between the objects of two records.
        lines: Iterable[str] = _without_usage(
            line.rstrip() for line in text.replace("}{", "}\n{").splitlines()
        )
        lines = [_by_name(line) for line in lines if line and not FRAME.match(line) and self._own(line)]
        lines = [line for line in lines if not any(re.search(pattern, line) for pattern in shown.dropped)]
        if shown.only is not None:
            lines = [line for line in lines if re.search(shown.only, line)]
        lines = [_hide(line, shown.hidden) for line in lines]
        if shown.symbols or shown.hidden_columns:
            lines = self._columns(lines, shown)
        elif shown.sorted:
            lines.sort(key=_without_ids)
        return list(_said_once(self._line(line) for line in lines))

    def _own(self, line: str) -> bool:
        """Whether a line contains no name of another story's resource, as in a list of all resources."""
        return all(self.prefix.startswith(name[:-1]) for name in NAME.findall(line))

    def _line(self, line: str) -> str:
        line = TOPIC_CONFIGS.sub(lambda match: match[1] + _sorted_configs(match[2]), line)
        for path, name in self.paths.items():
            line = line.replace(str(path), name)
        for port, name in self.ports.items():
            line = line.replace(f":{port}", f":({name})")
        line = line.replace(self.prefix, "~")
        line = HMAC.sub(lambda match: self.symbol("hmac", match.group()), line)
        line = UUID.sub(lambda match: self.symbol("id", match.group()), line)
        line = BASE64_ID.sub(self._base64, line)
        for pattern, replacement in REPLACED:
            line = pattern.sub(replacement, line)
        return line.rstrip()

    def _base64(self, match: re.Match[str]) -> str:
        text = match.group()
        changes = sum(a.isupper() != b.isupper() for a, b in pairwise(text))
        is_name = CLASS_NAME.fullmatch(text) and changes <= CASE_CHANGES_MAX
        has_both = text != text.lower() and text != text.upper()
        return self.symbol("id", text) if has_both and not is_name else text

    def _columns(self, lines: list[str], shown: Shown) -> list[str]:
        """Parse a table of a header line and values without spaces; the last value of a line may be missing."""
        headers: list[str] = []
        rows: list[tuple[str, list[tuple[str, str]]]] = []
        for line in lines:
            cells = line.split()
            if set(shown.symbols + shown.hidden_columns) & set(cells):
                headers = cells
                rows.append((line, [("", cell) for cell in cells]))
            elif cells and len(headers) - len(cells) in (0, 1):
                row = list(zip(headers, cells, strict=False))
                rows.append((" ".join("" if h in shown.symbols else c for h, c in row), row))
            else:
                rows.append((line, [("", line)]))
        if shown.sorted:
            rows.sort()
        return [" ".join(self._cell(*each, shown) for each in row) for _, row in rows]

    def _cell(self, header: str, value: str, shown: Shown) -> str:
        if header in shown.hidden_columns:
            return "(hidden)"
        return self.symbol(header, value) if header in shown.symbols and value != "-1" else value


def _said_once(lines: Iterable[str]) -> Iterator[str]:
    """Drop repeated messages of a client's network thread: their number depends on when the tool closes the
    client."""
    before = None
    for line in lines:
        if line != before or not CLIENT_LOG.match(line):
            yield line
        before = line


def _without_ids(line: str) -> str:
    return BASE64_ID.sub("", UUID.sub("", line))


def _without_usage(lines: Iterable[str]) -> Iterator[str]:
    is_usage = False
    for line in lines:
        if USAGE_BEGINS.match(line):
            is_usage = True
            yield "(usage)"
        is_usage = is_usage and not USAGE_ENDS.match(line)
        if not is_usage:
            yield line


def _by_name(line: str) -> str:
    """A line of kafka-verifiable-*: its fields sorted, since Jackson has them in the order of the JVM's reflection."""
    if not line.startswith('{"timestamp":'):
        return line
    return json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))


def _sorted_configs(text: str) -> str:
    return ",".join(sorted(re.split(r",(?=[a-z.]+=)", text)))


def _hide(line: str, patterns: Iterable[str]) -> str:
    for pattern in patterns:
        line = re.sub(pattern, _hidden, line)
    return line


def _hidden(match: re.Match[str]) -> str:
    if not match.re.groups:
        return "(hidden)"
    start, end = (at - match.start() for at in match.span(1))
    return match.group()[:start] + "(hidden)" + match.group()[end:]
