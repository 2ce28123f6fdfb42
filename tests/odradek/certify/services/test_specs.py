"""The options for services besides Kafka."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.certify import settings
from odradek.certify.services.specs import Feed, ServiceOutput, StageSpec

JOB = {"job": "true {postgres.jdbc} {http.payments} {port}"}
STAGES = ["postgres=postgresql://app@127.0.0.1/app", "http.payments=http://127.0.0.1:8080"]


def test_stages_outputs_and_inputs_are_parsed(tmp_path: Path) -> None:
    rows = tmp_path / "rows.ndjson"
    rows.write_text("{}\n")
    outputs = ["postgres:SELECT id, amount FROM results", "http.payments:POST /v1", "files:out/*.csv", "out"]
    found = settings.workload(
        {**JOB, "stage": STAGES, "output": outputs, "input": ["postgres:outbox=rows.ndjson"]}, tmp_path
    )
    assert found.stages == (
        StageSpec("postgres", "postgresql://app@127.0.0.1/app"),
        StageSpec("http.payments", "http://127.0.0.1:8080"),
    )
    assert found.outputs == ("out",)
    assert found.service_outputs == (
        ServiceOutput("postgres", "SELECT id, amount FROM results"),
        ServiceOutput("http.payments", "POST /v1"),
        ServiceOutput("", "out/*.csv"),
    )
    assert found.feeds == (Feed("postgres", "outbox", rows),)


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cr3t")
    assert StageSpec.parse("postgres=postgresql://app:$SECRET@db/app").address.startswith(
        "postgresql://app:s3cr3t@"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stage": ["mysql=x"]}, "--stage 'mysql=x': expected postgres=DSN"),
        ({"stage": ["postgres="]}, "expected postgres=DSN"),
        ({"stage": ["tcp=h:1", "tcp=h:2"]}, "name the second one"),
        ({"stage-setup": ["postgres=x.sql"]}, "there is no file"),
        ({"stage-reset": ["http"]}, "--stage-reset 'http': expected NAME=COMMAND"),
        ({"stage-reset": ["http=true"]}, "--stage-reset http: no --stage has this name"),
        ({"stage": ["http=http://h"], "output": ["http:payments"]}, "expected http:METHOD /path"),
        ({"stage": ["tcp=h:1"], "output": ["tcp:x"]}, "the content of a TCP connection is not known"),
        ({"output": ["postgres:SELECT 1"]}, "where NAME is a --stage or files"),
        ({"input": ["postgres:t=x"]}, "where NAME is a --stage or files"),
        ({"input": ["postgres"]}, "expected postgres:TABLE=FILE"),
        ({"input": ["files:in=nowhere"]}, "there is no file"),
        ({"job": "true {postgres}"}, "unknown placeholder {postgres}"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        settings.workload({"job": "true", "output": ["out"], **options}, tmp_path)
