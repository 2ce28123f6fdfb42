"""The suite to copy, examples/spark: in this session what is quick of it."""

import importlib
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark"
# As pytest does it where the suite is run by itself.
sys.path.append(str(EXAMPLE))
_suite = importlib.import_module("test_invoices")

pytestmark = pytest.mark.spark

test_tax_is_added_and_rounded = _suite.test_tax_is_added_and_rounded
test_an_order_that_was_aborted_has_no_invoice = _suite.test_an_order_that_was_aborted_has_no_invoice


def test_every_file_is_listed():
    listed = (EXAMPLE / "README.md").read_text("utf-8")
    for path in EXAMPLE.iterdir():
        assert f"[{path.name}]({path.name})" in listed or path.name in ("README.md", "__pycache__"), path.name
