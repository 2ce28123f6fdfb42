"""Render the templates of the reports, with all text escaped."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def rendered(template: str, values: dict[str, Any]) -> str:
    """Render the template ``templates/<name>`` with these values. A missing value is an error."""
    environment = Environment(
        loader=PackageLoader("odradek.certify.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values)
