"""A job that pays orders at an HTTP service, under faults at its POST."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from odradek.certify import settings
from odradek.certify.certificate import Certificate
from odradek.certify.observer import Quiet
from odradek.certify.plans.faults import BY_NAME
from odradek.certify.plans.moments import Moment
from odradek.certify.plans.plan import single
from odradek.certify.reference import refer
from odradek.certify.runs.run import Stage
from odradek.certify.workload import PATIENCE_S
from tests.odradek.certify.beyond import FORGET, PAYMENTS, payments

pytestmark = pytest.mark.more
SECOND = Moment(PAYMENTS, (), 2, "")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("order", {"kill-before": (), "kill-after": (), "lose-answer": ()}),
        ("attempt", {"kill-before": (), "kill-after": ("duplicated",), "lose-answer": ("duplicated",)}),
    ],
)
def test_a_payment_is_made_twice_only_if_each_attempt_has_a_new_key(
    key: str, expected: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    orders = [json.dumps({"value": json.dumps({"order": f"o{n}", "amount": n})}) for n in range(6)]
    (tmp_path / "orders.ndjson").write_text("\n".join(orders))
    found = {}
    with payments() as url:
        options = {
            "job": [sys.executable, str(Path(__file__).with_name("pay.py")), key],
            "topic": "orders:1",
            "seed-records": "orders=orders.ndjson",
            "stage": f"http={url}",
            "stage-reset": f"http={FORGET}",
            "output": PAYMENTS,
        }
        workload = settings.workload(options, tmp_path)
        with Stage(workload) as stage:
            judge = refer(stage, Certificate(workload, 1, "full"), Quiet())
            for fault in expected:
                plan = single(SECOND, BY_NAME[fault])
                run = stage.run(plan, judge.deadline_s, PATIENCE_S, judge.is_right, settle_s=judge.settled_s)
                assert run.is_effective, run.without_effect
                found[fault] = tuple(each.kind.value for each in judge(run.outputs))
    assert found == expected
