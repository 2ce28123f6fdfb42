"""Each patch of the table matches the current code, and each mutant names existing tests."""

from __future__ import annotations

import pytest

from tests.mutants.planting import ROOT, patched
from tests.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_patch_finds_its_text_once(mutant: Mutant):
    for file, text in patched(mutant).items():
        assert text != (ROOT / file).read_text()
        compile(text, file, "exec")
    assert all((ROOT / tests.split("::")[0]).exists() for tests in mutant.tests)


def test_names_are_unique():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 40
