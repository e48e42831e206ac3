"""Faults of training across parties and over partitions, and the tests that see them."""

from __future__ import annotations

from mutant_kinds import PACKAGE, Edit, Mutant

__all__ = ["PARTIES"]

FEDERATED = PACKAGE + "federated/"

PARTIES = (
    Mutant(
        "noise of all honest parties",
        "DP-Helmet as published: each party's share of the noise as if nobody could drop out",
        (
            Edit(
                FEDERATED + "secsum.py",
                "        return self.survivors_needed - self.colluders\n",
                "        return self.n_users - self.colluders\n",
            ),
        ),
        (
            "tests/unit/test_federated_bounds.py::test_honest_survivors_in_the_worst_case",
            "tests/statistical/test_federated_sums.py::"
            "test_the_noise_of_the_honest_is_what_the_statement_says",
        ),
    ),
    Mutant(
        "a group rounds once",
        "the rounding of one party for records that lie with several",
        (
            Edit(
                FEDERATED + "plans.py",
                'return min(self.group_size, self.n_users) if self.unit == "group" else 1',
                "return 1",
            ),
        ),
        ("tests/unit/test_federated_bounds.py::test_a_group_rounds_in_every_party_it_touches",),
    ),
    Mutant(
        "model scaled to the sphere",
        "DP-Helmet, Algorithms 1 and 3: R f/|f|, which is no projection",
        (
            Edit(
                FEDERATED + "plans.py",
                "factors = radius / np.maximum(norms, radius)",
                "factors = radius / np.maximum(norms, 1e-300)",
            ),
        ),
        ("tests/property/test_federated_sensitivity.py::test_neighbours_stay_within_the_plan",),
        slow=True,
    ),
    Mutant(
        "second moments with sensitivity 1",
        "FedDPDR, Lemma 4.1: the bound of a record that is added, for one that is exchanged",
        (
            Edit(
                FEDERATED + "plans.py",
                "distance=mul_up(mul_up(sqrt_up(2.0), clip_norm), float(moved)),",
                "distance=mul_up(clip_norm, float(moved)),",
            ),
        ),
        (
            "tests/property/test_federated_sensitivity.py::"
            "test_second_moments_stay_within_the_plan_and_reach_it",
        ),
    ),
    Mutant(
        "parties with one stream of noise",
        "all parties of a simulation draw from the same seed: the noise of the sum is U times one",
        (
            Edit(
                FEDERATED + "simulate.py",
                "return [_core.NoiseSource(root.public_seed()) for _ in range(n)]",
                "return [_core.NoiseSource(seed) for _ in range(n)]",
            ),
        ),
        ("tests/statistical/test_federated_sums.py::test_no_two_vectors_share_noise",),
    ),
    Mutant(
        "a vector in two sums",
        "what a party wrote down about its answers is not looked at: two sums differ by its vector",
        (
            Edit(
                FEDERATED + "party.py",
                "not journal.claim(_key(terms)):",
                "journal.claim(_key(terms)) is None:",
            ),
        ),
        (
            "tests/unit/test_federated_attacks.py::"
            "test_interleaved_runs_do_not_get_the_vector_twice",
        ),
    ),
    Mutant(
        "both secrets of a party",
        "shares of the seed and of the key of one party are given out together: its vector is open",
        (
            Edit(
                FEDERATED + "party.py",
                "if set(active) & set(gone) or {*active",
                "if {*active",
            ),
        ),
        ("tests/unit/test_secure_sum_party.py::test_wrong_lists_of_who_is_left_are_refused",),
    ),
    Mutant(
        "a sum of too few",
        "a party helps to open a sum with fewer honest noises than promised",
        (
            Edit(
                FEDERATED + "party.py",
                "if len(active) < terms.min_survivors:",
                "if len(active) < 1:",
            ),
        ),
        ("tests/unit/test_secure_sum_party.py::test_wrong_lists_of_who_is_left_are_refused",),
    ),
    Mutant(
        "masks from a folded key",
        "flwr #7522: masks from 32 bits of the key, which can be searched in seconds",
        (
            Edit(
                FEDERATED + "masks.py",
                "return bytes(kdf.derive(key))",
                "return bytes(kdf.derive(key[:4]))",
            ),
        ),
        ("tests/unit/test_secure_sum_masks.py::test_every_bit_of_the_key_changes_the_stream",),
        slow=True,
    ),
    Mutant(
        "one batch for all partitions",
        "every partition draws its batch from the same stream: the sampling is of whole columns",
        (
            Edit(
                PACKAGE + "data/executors.py",
                "self.weights, self.key, partition, self.step, n_threads)",
                "self.weights, self.key, 0, self.step, n_threads)",
            ),
        ),
        (
            "tests/unit/test_distributed_attacks.py::"
            "test_batches_of_partitions_steps_and_fits_are_independent",
        ),
    ),
)
