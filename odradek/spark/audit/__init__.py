"""Audit of partition directories: check that the content of the files is exactly-once (docs/spark/audit.md).

from odradek.spark import session
from odradek.spark.audit import audit

report = audit(session(), "data", "report")
print(report.verdict)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.spark.audit.report import Finding, Report
    from odradek.spark.audit.run import audit

__all__ = ["Finding", "Report", "audit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'odradek.spark.audit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"odradek.spark.audit.{'run' if name == 'audit' else 'report'}"), name)
