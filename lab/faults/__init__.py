"""Fault injection: one language of rules and one engine for all interfaces."""

from lab.faults.active_rule import ActiveRule
from lab.faults.engine import Faults
from lab.faults.json_form import rule_from_json, rule_to_json
from lab.faults.rules import ACTIONS, Action, FaultError, Match, Rule, When
from lab.faults.text import parse_rule, rule_to_text

__all__ = [
    "ACTIONS",
    "Action",
    "ActiveRule",
    "FaultError",
    "Faults",
    "Match",
    "Rule",
    "When",
    "parse_rule",
    "rule_from_json",
    "rule_to_json",
    "rule_to_text",
]
