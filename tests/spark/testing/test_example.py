"""The fast tests of the suite to copy, examples/spark, in this pytest session."""

import importlib
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "spark"
# pytest adds this path when it runs the suite by itself.
sys.path.append(str(EXAMPLE))
_suite = importlib.import_module("test_invoices")

pytestmark = pytest.mark.spark

test_tax_is_added_and_rounded = _suite.test_tax_is_added_and_rounded
test_an_order_that_was_aborted_has_no_invoice = _suite.test_an_order_that_was_aborted_has_no_invoice


def test_every_file_is_listed():
    listed = (EXAMPLE / "README.md").read_text("utf-8")
    for path in EXAMPLE.iterdir():
        assert f"[{path.name}]({path.name})" in listed or path.name in ("README.md", "__pycache__"), path.name
