"""The page about accuracy shows what is stored, and the search chooses as it says."""

from __future__ import annotations

import pytest
from benches.papers import defaults_search as search
from benches.tables import Row


def test_tables_of_the_page_are_those_of_the_stored_results() -> None:
    text = search.PAGE.read_text(encoding="utf-8")
    assert search.filled(text) == text
    # Negative control.
    with pytest.raises(ValueError, match="unpack"):
        search.filled(text.replace("<!-- rules -->", ""))


def test_a_family_has_no_say_in_what_is_chosen_for_it() -> None:
    def row(name: str, family: str, rule: str, accuracy: float) -> Row:
        at = {f"accuracy_{epsilon:g}": str(accuracy) for epsilon in search.EPSILONS}
        return {"data": name, "family": family, "n": "9", "d": "2", "K": "2", "rule": rule} | at

    best = {"first": "twice", "second": "thrice", "third": "thrice"}
    rows = [
        row(name, name, rule, 0.5 + 0.3 * (rule == wanted) + 0.1 * (rule == "twice"))
        for name, wanted in best.items()
        for rule in search.RULES
    ]
    table = {found["data"]: found for found in search.analyse(rows)}
    assert table["first"]["chosen by the others"] == "thrice"
    assert float(table["first"]["its gain"]) == 0.0
    assert float(table["first"]["its largest regret"]) == pytest.approx(0.4)
