"""Fault injection: one rule language and one engine for all interfaces."""

from lab.faults.active_rule import ActiveRule
from lab.faults.declaration import Action, Match, When
from lab.faults.engine import Faults
from lab.faults.rules import ACTIONS, Rule, rule_of, rule_to_json
from lab.faults.text import parse_rule, rule_to_text
from lab.faults.values import FaultError

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
    "rule_of",
    "rule_to_json",
    "rule_to_text",
]
