"""Fault injection: one language of rules and one engine for all interfaces."""

from broker.faults.active_rule import ActiveRule
from broker.faults.engine import Faults
from broker.faults.json_form import rule_from_json, rule_to_json
from broker.faults.rules import ACTIONS, Action, FaultError, Match, Rule, When
from broker.faults.text import parse_rule, rule_to_text

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
