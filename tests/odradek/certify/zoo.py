"""Run the jobs in examples/certify and check the results, for the tests of all languages."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from odradek.certify import settings
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier, tried_again
from odradek.certify.outcome import Again
from odradek.certify.plans.plan import from_json
from odradek.certify.report.text import summary
from tests.support.deadlines import LONG_TEST_S

ROOT: Final = Path(__file__).parents[3]
ZOO: Final = ROOT / "examples" / "certify"
BEYOND: Final = ZOO / "beyond"
"""Jobs with an end that is not Kafka."""
_PROGRAMS: Final = sorted(
    each
    for each in ZOO.rglob("*.*")
    if each.suffix in (".py", ".go", ".java", ".js")
    and not {"checks", "node_modules"} & set(each.relative_to(ZOO).parts)
)
JOBS: Final = [each for each in _PROGRAMS if BEYOND not in each.parents]
JOBS_BEYOND: Final = [each for each in _PROGRAMS if BEYOND in each.parents]
RECORDS: Final = 60
EMPTY_EVERY: Final = 9
"""In an input with empty values, one of so many records has an empty value."""
BUDGET_S: Final = 120.0
AGAIN_MAX: Final = 5
"""Maximum attempts to reproduce a failure that depends on a race, as many as the certifier itself makes."""
PATIENT_S: Final = LONG_TEST_S / 2
"""Time limit, in seconds, for finding the failure of a wrong job. The certification ends at its first failure."""


LETTERS: Final = "dlq.copier"
SETTINGS: Final = {LETTERS: ":errors.deadletterqueue.group.enable=true"}
"""Settings of topics."""


def shared(*configs: str, **more: Any) -> dict[str, Any]:
    """Options for a job that is a member of the share group "copier", with more settings of the group."""
    known = ("share.auto.offset.reset=earliest", "share.isolation.level=read_committed", *configs)
    return {"group-config": [f"copier:{each}" for each in known], "patience": "2s", **more}


@dataclass(frozen=True)
class Wrong:
    """A wrong job, and the expected findings."""

    name: str
    kinds: frozenset[str]
    """Kinds of findings; at least one of them is required."""
    diagnosis: str
    """Name of the cause, empty if the trace does not show it."""
    outputs: tuple[str, ...] = ("out",)
    instances: int = 1
    restart: str | None = None
    until: str | None = None
    partitions: int = 2
    compare: str = "rows"
    has_empty: bool = False
    """Whether the input has empty values."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """More options of the command."""
    is_seldom: bool = False
    """Whether the failure depends on a race between two instances."""

    @property
    def is_failure(self) -> bool:
        return self.kinds != {"unfinished"}


def python(name: str) -> list[str]:
    """Command of a Python job, such as ``right/copier``."""
    return [sys.executable, str(ZOO / f"{name}.py")]


def input_lines(has_empty: bool = False) -> list[str]:
    """The input as lines of NDJSON."""
    values = ["" if has_empty and number % EMPTY_EVERY == 0 else f"v{number}" for number in range(RECORDS)]
    return [f'{{"key": "k{number % 7}", "value": "{value}"}}\n' for number, value in enumerate(values)]


def certified(
    command: Sequence[str],
    directory: Path,
    outputs: tuple[str, ...] = ("out",),
    check: str | None = None,
    expect: str | None = None,
    instances: int = 1,
    restart: str | None = None,
    until: str | None = None,
    nodes: int = 1,
    partitions: int = 2,
    upstream: str | None = None,
    compare: str = "rows",
    has_empty: bool = False,
    options: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Certifier:
    (directory / "in.ndjson").write_text("".join(input_lines(has_empty)))
    said = {
        "job": [*command, "{bootstrap}", "{instance}", "{data}"],
        "jobs": instances,
        "restart": restart,
        "until": until,
        "compare": compare,
        "nodes": nodes,
        "upstream": upstream,
        "topic": [f"{each}:{partitions}{SETTINGS.get(each, '')}" for each in ("in", *outputs)],
        "seed-records": ["in=in.ndjson"],
        "output": list(outputs),
        "check": check,
        "expect": expect,
        **options,
    }
    return Certifier(settings.workload(said, directory), **{"budget_s": BUDGET_S, **more})


def find(
    job: Wrong, command: Sequence[str], directory: Path, upstream: str | None = None, seed: int = 1
) -> Certificate:
    """Check that the job's failure is found with its cause, by a single fault, and can be reproduced most of the time."""
    certifier = certified(
        command,
        directory,
        job.outputs,
        instances=job.instances,
        restart=job.restart,
        until=job.until,
        upstream=upstream,
        partitions=job.partitions,
        compare=job.compare,
        has_empty=job.has_empty,
        options=job.options,
        failures_max=1,
        seed=seed,
        budget_s=PATIENT_S if job.is_failure else BUDGET_S,
    )
    certificate = certifier.run()
    (failure,) = [*certificate.failures, *certificate.unfinished][:1]
    assert job.kinds & set(failure.kinds), summary(certificate)
    assert failure.came_back > 1 or job.is_seldom or not job.is_failure, summary(certificate)
    assert len(failure.plan) == 1, summary(certificate)
    assert not job.diagnosis or job.diagnosis in {
        each.name for each in (*failure.diagnosis, *certificate.lints)
    }, summary(certificate)
    again = from_json(failure.plan.as_json())
    tries = ((run, findings) for run, findings, _ in certifier.again(again, AGAIN_MAX))
    assert job.is_seldom or tried_again(tries) is Again.CAME_BACK
    return certificate
