"""The code and tables in docs/spark/testing.md are correct."""

import re
from pathlib import Path

import pytest

from odradek.spark.sink.points import POINTS
from odradek.spark.testing import driver, streams
from odradek.spark.testing import kafka as kafka_module

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "spark" / "testing.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.spark
def test_the_first_test_on_the_page_passes(spark, kafka):
    [test] = [block for block in BLOCKS if "def test_" in block]
    names: dict = {}
    exec(test, names)
    names["test_a_batch_sees_what_is_committed"](spark, kafka)


def test_imports_on_the_page_exist():
    for module, name in re.findall(r"from odradek\.spark\.testing\.(\w+) import (.+)", "".join(BLOCKS)):
        for each in name.split(", "):
            assert hasattr({"streams": streams, "driver": driver, "kafka": kafka_module}[module], each), each
    for each in re.findall(r"`kafka\.(\w+)", PAGE):
        assert each == "bootstrap_servers" or hasattr(kafka_module.Kafka, each), each


def test_steps_on_the_page_are_in_order():
    told = re.findall(r"^\| `([\w.-]+)` \|", PAGE, re.MULTILINE)
    told = [each for each in told if not each.startswith("kafka.")]
    assert told == [step for step in POINTS if step in told]
    assert len(told) == 5
