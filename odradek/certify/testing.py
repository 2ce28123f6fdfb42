"""A test that certifies a job: what the fixture ``odradek_certify`` calls.

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
from odradek.errors import OdradekError

BUDGET: Final = "60s"
REPORT: Final = "certificate"
Job = str | Sequence[str] | Callable[..., object]
Record = str | Mapping[str, Any]


class NotExactlyOnce(AssertionError):
    """The verdict is not "exactly once", nor one that the test accepts; the text is that of ``odradek certify``.

    Carries the certificate.
    """

    def __init__(self, certificate: Certificate, directory: Path) -> None:
        super().__init__(
            f"{summary(certificate)}\n{directory}/certificate.html has the matrix and the timelines"
        )
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

    ``job`` is a command, or a function at the top of its module that takes some of ``bootstrap``, ``instance``, ``run``
    and ``data`` by name; each instance is a process that calls it. ``records``: of each input topic its records, each a
    value or a mapping with ``value``, ``key``, ``partition``. All else is as on the command line of ``odradek certify``,
    with ``_`` for ``-``: ``until="exit"``, ``topic=["in:4", "out:4"]`` (by default one partition each), ``budget="5m"``
    (by default a minute), ``failures=1``. A minute is not enough for a whole certificate of most jobs:
    ``accept="incomplete"`` takes one without a failure all the same.

    Raises `NotExactlyOnce` for any other verdict than "exactly once" that is not accepted, ``ValueError`` for what is no
    option, and `OdradekError` for a job that cannot be judged.
    """
    outputs = [output] if isinstance(output, str) else list(output)
    options = {
        "topic": [f"{name}:1" for name in dict.fromkeys([*records, *outputs])],
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
        raise ValueError(f"there is no option {unknown[0]}; there is {', '.join(settings.NAMES)}")
    return said


def _written(directory: Path, topic: str, records: Iterable[Record]) -> Path:
    """The records as a file, with which ``odradek certify again`` finds them."""
    path = directory / f"{topic}.ndjson"
    lines = (json.dumps(each if isinstance(each, Mapping) else {"value": each}) + "\n" for each in records)
    path.write_text("".join(lines), encoding="utf-8")
    return path
