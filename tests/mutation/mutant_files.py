"""Faults on the way from a file to a release and back, and the tests that see them."""

from __future__ import annotations

from mutant_kinds import PACKAGE, Edit, Mutant

__all__ = ["FILES"]

UNIT = "tests/unit/"

FILES = (
    Mutant(
        "mapped with the others",
        "a row's last bits depend on how many rows there are: a record more moves all of them",
        (
            Edit(
                PACKAGE + "data/executors.py",
                "released.apply(mapped)",
                "released.mapped(mapped)",
            ),
        ),
        (UNIT + "test_mapped_rows.py::test_training_rows_are_not_mapped_as_rows_to_predict",),
    ),
    Mutant(
        "rare losses cut off",
        "a check that leaves out large losses of few samples finds any tiny delta confirmed",
        (
            Edit(
                PACKAGE + "verification/sampled.py",
                "            return min(1.0, delta + rest)\n",
                "            return 0.0 if delta < 1e-12 else delta\n",
            ),
        ),
        (
            UNIT + "test_verify_hostile.py::test_delta_falls_with_epsilon_where_samples_are_rare",
            UNIT + "test_verify_hostile.py::test_rare_samples_are_not_passed_over",
        ),
    ),
    Mutant(
        "the certificate of another trainer",
        "a model is loaded with a promise about a release of another kind",
        (
            Edit(
                PACKAGE + "persist/classes.py",
                "    _check_trainer(where, facts, statement)\n",
                "",
            ),
        ),
        (
            UNIT
            + "test_saved_models_forged.py::test_a_pipeline_has_the_certificate_of_its_own_trainer",
        ),
    ),
    Mutant(
        "unchecked signature",
        "a signed file that nobody checked passes for a checked one",
        (
            Edit(
                PACKAGE + "persist/values.py",
                "return NOT_CHECKED if SIGNATURE in document else UNSIGNED",
                "return CHECKED",
            ),
        ),
        (UNIT + "test_saved_models_hostile.py::test_with_a_key_every_forgery_is_noticed",),
    ),
)
