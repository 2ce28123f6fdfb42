"""Certify a job in a test; the fixture ``odradek_certify`` calls this function.

certify("python job.py {bootstrap}", records={"in": ["a", "b"]}, output="out", directory=tmp_path, budget="30s")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from odradek.certify import reports, settings
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier
from odradek.certify.jobs.call import command
from odradek.certify.outcome import Verdict
from odradek.certify.report.text import summary
from odradek.certify.services.specs import is_service
from odradek.errors import OdradekError

BUDGET: Final = "60s"
REPORT: Final = "certificate"
Job = str | Sequence[str] | Callable[..., object]
Record = str | Mapping[str, Any]


class NotExactlyOnce(AssertionError):
    """The error for a verdict that the test does not accept. Its message is the summary that ``odradek certify`` prints."""

    def __init__(self, certificate: Certificate, directory: Path) -> None:
        super().__init__(f"{summary(certificate)}\nmatrix and timelines: {directory}/certificate.html")
        self.certificate = certificate


def certify(
    job: Job,
    records: Mapping[str, Iterable[Record]],
    output: str | Sequence[str],
    *,
    directory: Path,
    **said: Any,
) -> Certificate:
    """Certify a job, and write the reports to ``directory``/certificate.

    ``job`` is a command, or a function at the top level of its module with some of the parameters ``bootstrap``,
    ``instance``, ``run`` and ``data``; each instance is a process that calls it. ``records`` maps each input topic to its
    records: values, or mappings with ``value``, ``key``, ``partition``. The other arguments are the options of
    ``odradek certify`` with ``_`` for ``-``: ``until="exit"``, ``topic=["in:4", "out:4"]`` (default: one partition each),
    ``budget="5m"`` (default: one minute), ``failures=1``. For most jobs one minute is not enough for a complete certificate:
    ``accept="incomplete"`` accepts one without a failure.

    Raises `NotExactlyOnce` for a verdict other than "exactly once" that is not accepted, ``ValueError`` for an unknown
    option, and `OdradekError` for a job that cannot be judged.
    """
    outputs = [output] if isinstance(output, str) else list(output)
    options = {
        "topic": [f"{name}:1" for name in dict.fromkeys([*records, *outputs]) if not is_service(name)],
        **_known({name.replace("_", "-"): value for name, value in said.items()}),
        "job": command(job) if callable(job) else job,
        "seed-records": [f"{name}={_written(directory, name, each)}" for name, each in records.items()],
        "output": outputs,
    }
    accepted = settings.accepted(options)
    certificate = Certifier.of(options, directory, BUDGET).run()
    report = directory / str(options.get("report") or REPORT)
    reports.write(certificate, report, options)
    if certificate.verdict is Verdict.NOT_JUDGED:
        raise OdradekError(certificate.not_judged)
    if certificate.verdict not in (Verdict.CLEAN, *accepted):
        raise NotExactlyOnce(certificate, report)
    return certificate


def _known(said: dict[str, Any]) -> dict[str, Any]:
    unknown = [name for name in said if name not in settings.NAMES]
    if unknown:
        raise ValueError(f"unknown option: {unknown[0]} (known: {', '.join(settings.NAMES)})")
    return said


def _written(directory: Path, topic: str, records: Iterable[Record]) -> Path:
    """Write the records to a file, where ``odradek certify again`` finds them."""
    path = directory / f"{topic}.ndjson"
    lines = (json.dumps(each if isinstance(each, Mapping) else {"value": each}) + "\n" for each in records)
    path.write_text("".join(lines), encoding="utf-8")
    return path
