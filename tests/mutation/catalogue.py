"""Faults that would cost privacy, as changes of this project's source, and the tests that see them.

``test_catalogue`` applies every one of them to a copy of the sources and runs its killers there.
Each is one of the ways in which private learning has gone wrong in public, or nearly: what it
models is named. A fault that this design cannot have in one place is written as the nearest change
that has the same effect.

A change names no file, so files can move; spaces and line breaks are not compared. Where the same
words stand in several files, ``near`` names a class or function of the right one. Killers are names
of tests, behind their module's name where two modules have a test of that name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CATALOGUE", "Edit", "Mutant"]


@dataclass(frozen=True)
class Edit:
    """One replacement; ``old`` occurs once in the sources, or in the files that define ``near``."""

    old: str
    new: str
    near: str = ""


@dataclass(frozen=True)
class Mutant:
    """A fault with the named tests, each of which fails on it by a check of its own.

    ``slow`` ones run with the nightly tests only; so do those of the compiled module.
    """

    name: str
    models: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]
    slow: bool = False


CATALOGUE = (
    Mutant(
        "sigma/2",
        "half the noise that the statement promises is drawn",
        (
            Edit(
                "release_on_grid(flat, self.scale, self.grid, source, n_threads)",
                "release_on_grid(flat, 0.5 * self.scale, self.grid, source, n_threads)",
            ),
        ),
        (
            "test_gaussian_noise_has_the_stated_deviation",
            "test_released_attributes::test_with_zero_rows_the_release_is_the_noise",
        ),
    ),
    Mutant(
        "sigma/sqrt2",
        "the noise is calibrated to the square root of the variance twice, or to half of it",
        (
            Edit(
                "source.gaussian_on_grid(size, self.scale, self.grid, n_threads)",
                "source.gaussian_on_grid(size, self.scale * 0.5**0.5, self.grid, n_threads)",
            ),
        ),
        ("test_both_gaussian_noises_have_the_stated_deviation",),
    ),
    Mutant(
        "Delta without the factor 2",
        "dp-accounting #378: noise for a record more, a promise for a record exchanged",
        (
            Edit(
                'RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}',
                'RELATION_FACTOR = {"add_remove": 1, "replace_one": 1}',
                near="check_range",
            ),
        ),
        (
            "test_output_sensitivity::test_constructed_neighbours_reach_the_sensitivity",
            "test_replacing_a_record_doubles_the_noise",
            "test_scale_from_first_principles",
        ),
    ),
    Mutant(
        "beta instead of beta/2",
        "Gamma noise in the objective at the rate for a record more, where one is exchanged",
        (
            Edit(
                "return largest_rate(self.loss, self.epsilon, self.curvature_ratio, self.factor)",
                "return largest_rate(self.loss, self.epsilon, self.curvature_ratio, 1)",
            ),
        ),
        ("test_statement_verifies",),
    ),
    Mutant(
        "sqrt(T) forgotten",
        "T noisy sums with the noise of one",
        (
            Edit(
                "return mul_up(sqrt_up(float(self.n_steps)), self.factor * contribution)",
                "return mul_up(sqrt_up(1.0), self.factor * contribution)",
            ),
        ),
        ("test_full_batches_are_one_gaussian_mechanism",),
    ),
    Mutant(
        "budget not split over classes",
        "K one-against-the-rest models with epsilon each, or the sensitivity of one of them",
        (
            Edit(
                "return sqrt_up(2.0 if self.joint else float(self.n_scores))",
                "return sqrt_up(2.0 if self.joint else 1.0)",
            ),
        ),
        (
            "test_the_sensitivity_is_that_of_the_loss",
            "test_output_losses::test_constructed_neighbours_reach_the_sensitivity",
        ),
    ),
    Mutant(
        "per-coordinate Laplace",
        "a Laplace variable for each coordinate, where the norm should be a Gamma variable",
        (
            Edit(
                "        while {\n"
                "            fill_normal(stream, block, 1.0);\n"
                "            block.iter().all(|z| *z == 0.0)\n"
                "        } {}\n"
                "    })?;\n",
                "        for z in block.iter_mut() {\n"
                "            let u: f64 = stream.random();\n"
                "            let sign = if stream.random() { 1.0 } else { -1.0 };\n"
                "            *z = -sign * (1.0 - u).ln() / beta;\n"
                "        }\n"
                "    })?;\n"
                "    if size > 1 {\n"
                "        return Ok(vector);\n"
                "    }\n",
            ),
        ),
        (
            "test_gamma_ball_direction_is_uniform",
            "test_gamma_ball_radius_has_its_law",
        ),
    ),
    Mutant(
        "noise reused over classes",
        "one draw of noise for the weights of every class",
        (
            Edit(
                "return release_on_grid(flat, self.scale, self.grid, source, n_threads)",
                "one = np.zeros(self.shape[1])\n"
                "            one = release_on_grid(one, self.scale, self.grid, "
                "source, n_threads)\n"
                "            return nearest_on_grid(flat, self.grid) + "
                "np.resize(one, flat.size)",
            ),
        ),
        ("test_the_noise_of_one_class_says_nothing_about_that_of_another",),
    ),
    Mutant(
        "noise reused over steps",
        "a generator made anew from one key in every step (jax #3646)",
        (
            Edit(
                "    fn grid_noise(&self, step: u32, noise: &mut [i64]) {\n",
                "    fn grid_noise(&self, _step: u32, noise: &mut [i64]) {\n"
                "        let step = 0;\n",
            ),
        ),
        (
            "test_steps_of_one_run_are_independent",
            "test_the_noise_of_a_step_is_not_that_of_the_one_before",
        ),
    ),
    Mutant(
        "seeded RNG",
        "a generator with a fixed seed where the caller gave none",
        (
            Edit(
                "source = _core.NoiseSource(estimator.random_state)",
                "source = _core.NoiseSource(estimator.random_state or 0)",
            ),
        ),
        ("test_noise_is_fresh_at_every_fit",),
    ),
    Mutant(
        "no clipping",
        "the clip norm is ignored (Opacus #664)",
        (
            Edit(
                "if length * (1.0 + MARGIN) <= self.bound {",
                "if length.is_finite() {",
            ),
            Edit(
                "factor[i] = if length <= bound {",
                "factor[i] = if length.is_finite() {",
            ),
        ),
        (
            "test_the_clip_norm_is_the_one_that_was_asked_for",
            "test_one_contribution_is_no_longer_than_the_clip",
        ),
    ),
    Mutant(
        "clip after mean",
        "the sum over a batch is clipped and not each record's share of it (Opacus micro-batches)",
        (
            Edit(
                "if length * (1.0 + MARGIN) <= self.bound {",
                "if length.is_finite() {",
            ),
            Edit(
                "factor[i] = if length <= bound {",
                "factor[i] = if length.is_finite() {",
            ),
            Edit(
                "                .noisy(&self.workers[0].sum, noise, &mut self.noisy);\n",
                "                .noisy(&self.workers[0].sum, "
                "super::released::Noise::None, &mut self.noisy);\n"
                "            let norm = self.noisy.iter().map(|g| g * g).sum::<f64>().sqrt();\n"
                "            let factor = (settings.clip.bound / norm).min(1.0);\n"
                "            for (at, g) in self.noisy.iter_mut().enumerate() {\n"
                "                *g = *g * factor + match noise {\n"
                "                    super::released::Noise::Grid(grid, steps) "
                "=> steps[at] as f64 * grid,\n"
                "                    super::released::Noise::Float(values) => values[at],\n"
                "                    super::released::Noise::None => 0.0,\n"
                "                };\n"
                "            }\n",
            ),
        ),
        ("test_every_record_is_clipped_by_itself",),
    ),
    Mutant(
        "divide by actual batch",
        "Opacus #571: the noisy sum is divided by the number of records in the batch",
        (
            Edit(
                "            settings.take_step(self.state, &mut self.noisy);\n",
                "            let members = self.batch.records(self.job.records).max(1);\n"
                "            let of_batch = Settings { divisor: members as f64, "
                "..*settings };\n"
                "            of_batch.take_step(self.state, &mut self.noisy);\n",
            ),
        ),
        ("test_the_contributions_are_divided_by_the_declared_number_and_by_nothing_else",),
    ),
    Mutant(
        "fixed batch",
        "batches of one size, accounted for as Poisson samples (Opacus #80)",
        (
            Edit(
                "        poisson_batch(&mut self.task.stream(step), &self.rate, n, batch);\n",
                "        batch.clear();\n"
                "        let mut stream = self.task.stream(step);\n"
                "        let size = (self.rate.value() * n as f64).round().max(1.0) as usize;\n"
                "        let mut all: Vec<u32> = (0..n as u32).collect();\n"
                "        for at in 0..size.min(n) {\n"
                "            let other = at + (stream.next_u64() % (n - at) as u64) as usize;\n"
                "            all.swap(at, other);\n"
                "        }\n"
                "        batch.extend(&all[..size.min(n)]);\n"
                "        batch.sort_unstable();\n",
            ),
        ),
        (
            "test_batches_are_poisson_samples",
            "test_shuffled_passes_are_not_what_is_accounted_as_poisson_sampling",
        ),
    ),
    Mutant(
        "bounds taken from data",
        "the bound of the rows is the norm of the longest one (diffprivlib without data_norm)",
        (
            Edit(
                "    plan = estimator.plan(estimator.owned(facts))\n",
                "    rows.read()\n"
                "    longest = max(1e-9, float(abs(rows.X).max()))\n"
                "    estimator.data_norm = longest * (facts.n_features or 1) ** 0.5\n"
                "    plan = estimator.plan(estimator.owned(facts))\n",
            ),
        ),
        ("test_statement_does_not_depend_on_the_data",),
    ),
    Mutant(
        "Lambda scaled by n",
        "diffprivlib #97: an objective of means is handed to a solver of sums",
        (
            Edit(
                "regularization=regularization or self.regularization,",
                "regularization=(regularization or self.regularization) / X.shape[0],",
                near="ObjectivePerturbation",
            ),
        ),
        ("test_the_released_weights_are_stationary_but_for_the_noise_on_them",),
    ),
    Mutant(
        "missing b/n",
        "the random term divided by n in an objective that is a sum (diffprivlib #71)",
        (
            Edit(
                "linear=self.draw_linear(source, n_threads=n_threads),",
                "linear=self.draw_linear(source, n_threads=n_threads) / X.shape[0],",
                near="ObjectivePerturbation",
            ),
        ),
        ("test_the_released_weights_are_stationary_but_for_the_noise_on_them",),
    ),
    Mutant(
        "solver stopped at 1e-2",
        "an approximate minimum with the guarantee of the exact one",
        (
            Edit(
                "            gradient_tol=self.gradient_tol,\n            max_iter",
                "            gradient_tol=max(self.gradient_tol, 1e-2 * X.shape[0]),\n"
                "            max_iter",
            ),
        ),
        ("test_the_released_weights_are_stationary_but_for_the_noise_on_them",),
    ),
    Mutant(
        "intercept unregularised",
        "a thousandth of the penalty for the constant feature, as if it were a "
        "large one: with none at all the objective has no minimum",
        (
            Edit(
                "            *g += rows.share * (problem.lambda * w + b);\n        }\n",
                "            *g += rows.share * (problem.lambda * w + b);\n"
                "        }\n"
                "        for score in 0..problem.loss.scores {\n"
                "            let place = self.passes.place(problem.columns - 1);\n"
                "            let at = self.passes.position(score, place);\n"
                "            gradient[at] -= 0.999 * rows.share * problem.lambda * weights[at];\n"
                "        }\n",
            ),
            Edit(
                "            *out = *out * up + pass.rows.share * pass.problem.lambda * x;\n"
                "        }\n",
                "            *out = *out * up + pass.rows.share * pass.problem.lambda * x;\n"
                "        }\n"
                "        for score in 0..pass.problem.loss.scores {\n"
                "            let last = pass.problem.columns - 1;\n"
                "            let at = self.sweep.design.position(score, last);\n"
                "            image[at] -= 0.999 * pass.rows.share * pass.problem.lambda * v[at];\n"
                "        }\n",
            ),
        ),
        ("test_the_released_weights_are_stationary_but_for_the_noise_on_them",),
    ),
    Mutant(
        "class counts released",
        "an attribute that holds the numbers of records of the classes, without noise",
        (
            Edit(
                '            self.published["classes_"] = self.classes\n',
                '            self.published["classes_"] = self.classes\n'
                '            self.published["class_count_"] = np.bincount(self.codes)\n',
                near="ArrayRows",
            ),
        ),
        ("test_only_listed_attributes_are_set",),
    ),
    Mutant(
        "tuning charged as one run",
        "the best of a random number of runs accounted for as if there had been one",
        (
            Edit(
                "        simple = _without_curve(curved)\n",
                "        simple = _without_curve(curved)\n"
                "        if isinstance(curved, RandomStoppingEvent):\n"
                "            simple = choices(of_events(curved.base))[0]\n",
            ),
        ),
        ("test_random_stopping_costs_more_than_one_run",),
    ),
    Mutant(
        "RDP with wrong order",
        "a zCDP event taken for one whose divergences grow half as fast with the order",
        (
            Edit(
                "            rho=fraction_up(totals.rho),\n",
                "            rho=fraction_up(totals.rho / 2),\n",
            ),
        ),
        ("test_zcdp_alone",),
    ),
    Mutant(
        "noise of all honest parties",
        "DP-Helmet as published: each party's share of the noise as if nobody could drop out",
        (
            Edit(
                "        return self.survivors_needed - self.colluders\n",
                "        return self.n_users - self.colluders\n",
            ),
        ),
        (
            "test_honest_survivors_in_the_worst_case",
            "test_the_noise_of_the_honest_is_what_the_statement_says",
        ),
    ),
    Mutant(
        "a group rounds once",
        "the rounding of one party for records that lie with several",
        (
            Edit(
                'return min(self.spec.group_size, self.spec.n_users) if self.spec.unit == "person" '
                "else 1",
                "return 1",
            ),
        ),
        ("test_a_group_rounds_in_every_party_it_touches",),
    ),
    Mutant(
        "a person priced as one row",
        "Gaussian noise for one row, promised to a person with several",
        (Edit("(Fraction(event.mu) * size) ** 2", "(Fraction(event.mu)) ** 2"),),
        ("test_a_gaussian_release_costs_m_times_its_parameter",),
    ),
    Mutant(
        "zCDP of a group by the number",
        "m rho in the place of m^2 rho",
        (Edit("Fraction(event.rho) * size**2", "Fraction(event.rho) * size"),),
        ("test_other_events_cost_what_is_known_of_groups",),
    ),
    Mutant(
        "a group joins once",
        "whether anybody of a group is in a sample, not how many are",
        (
            Edit(
                "centres = np.arange(logs.size) / z\n",
                "centres = np.minimum(np.arange(logs.size), 1) / z\n",
            ),
        ),
        ("test_one_sampled_step_is_that_of_its_mixtures",),
    ),
    Mutant(
        "curvature of one of several rows",
        "several rows of a person in an objective, priced with the curvature of one",
        (
            Edit(
                "whole = mul_up(_largest_jacobian(event), float(size))",
                "whole = 1.0 * _largest_jacobian(event)",
            ),
        ),
        ("test_records_together_cost_their_jacobians_and_the_mean_of_their_losses",),
    ),
    Mutant(
        "several rows that meet the noise as one",
        "the law of one longer row for rows in many directions",
        (Edit("deltas = -np.expm1(-excess) + rest", "deltas = g + rest"),),
        ("test_records_together_cost_their_jacobians_and_the_mean_of_their_losses",),
    ),
    Mutant(
        "deltas of a path added up",
        "group privacy without the factors e^epsilon of the steps after",
        (Edit("(g[line] + slopes[line] * delta)", "(g[line] + delta)"),),
        ("test_the_path_of_a_gaussian_curve_is_nearly_the_gaussian_one",),
    ),
    Mutant(
        "all rows of a person counted",
        "an evaluation with the noise for one row, to which a person adds every row it has",
        (
            Edit(
                "found = (before + 1) * LOSS_UNITS // m - before * LOSS_UNITS // m",
                "found = np.full(m.size, LOSS_UNITS)",
            ),
        ),
        (
            "test_metrics::test_neighbours_move_the_sum_by_at_most_the_sensitivity",
            "test_shares_of_a_person_add_up_to_one",
        ),
    ),
    Mutant(
        "persons in two partitions",
        "each partition shortens what it sums of a person, so that a person counts twice",
        (Edit("if (digests[1:] == digests[:-1]).any():", "if digests.size < 0:"),),
        ("test_a_person_in_two_partitions_is_refused_and_nothing_is_spent",),
    ),
    Mutant(
        "an id by its type",
        "partitions that read 7 and 7.0 take one person for two",
        (
            Edit(
                "text = one if isinstance(one, (str, bytes)) else str(int(one))",
                "text = one if isinstance(one, (str, bytes)) else repr(one)",
            ),
        ),
        ("test_one_id_is_one_person_whatever_its_type",),
    ),
    Mutant(
        "an id by its neighbours in a list",
        "NumPy reads a list of ids, and one person's makes two others one",
        (Edit('ids = usual if exact or "float" in kinds else ids', "ids = usual"),),
        ("test_two_persons_are_two_whoever_else_is_there",),
    ),
    Mutant(
        "ids of several kinds",
        "a number becomes the text of another person's id beside a text, and NaN an id",
        (
            Edit(
                "ids = np.asarray(groups, dtype=object if isinstance(groups, Sequence) else None)",
                "ids = np.asarray(groups)",
            ),
        ),
        ("test_bad_groups_are_refused_and_nothing_is_spent",),
    ),
    Mutant(
        "files cut between rows",
        "a table on the disk whose parts begin anywhere, also within a person",
        (
            Edit(
                "return (digests % n_parts).astype(np.int64)",
                "return np.arange(digests.size) % n_parts",
            ),
        ),
        ("test_a_person_is_in_one_part_of_a_file",),
    ),
    Mutant(
        "rows into a budget of persons",
        "a ledger that takes every unit",
        (Edit("        if unit not in (None, self.unit):\n", "        if not self.unit:\n"),),
        ("test_a_ledger_holds_one_unit",),
    ),
    Mutant(
        "a window charged to its first week",
        "a spend on the rows of several periods that the others do not see",
        (
            Edit(
                "{name: known[name] for name in charged or known}",
                "{name: known[name] for name in charged[:1] or known}",
            ),
        ),
        (
            "test_a_window_is_charged_to_each_of_its_periods",
            "test_no_opponent_who_interleaves_periods_exceeds_the_budget",
        ),
    ),
    Mutant(
        "rows that come back are new",
        "a statement that forgets what earlier calls have told of the same rows",
        (
            Edit(
                "not set(own) & set(before.periods)",
                "set(own) | set(before.periods)",
            ),
        ),
        ("test_rows_that_come_back_are_summed_up",),
    ),
    Mutant(
        "the diagonal of the factor",
        "noise of running sums for the release of a row's own period, not for those after it too",
        (
            Edit(
                "sum((Fraction(weight) ** 2 for weight in factor), Fraction(0))",
                "sum((Fraction(weight) ** 2 for weight in factor[:1]), Fraction(0))",
            ),
        ),
        (
            "test_a_row_moves_all_releases_by_no_more_than_its_column",
            "test_all_running_sums_together_cost_the_budget",
            "test_a_scaler_of_every_week_costs_one_budget",
        ),
    ),
    Mutant(
        "nobody pays for all rows",
        "a spend without periods that no period sees when the ledger is opened again",
        (
            Edit(
                "for name in record.periods or known:",
                "for name in record.periods:",
            ),
        ),
        ("test_snapshots_keep_periods",),
    ),
    Mutant(
        "model scaled to the sphere",
        "DP-Helmet, Algorithms 1 and 3: R f/|f|, which is no projection",
        (
            Edit(
                "factors = radius / np.maximum(norms, radius)",
                "factors = radius / np.maximum(norms, 1e-300)",
            ),
        ),
        ("test_neighbours_stay_within_the_plan",),
        slow=True,
    ),
    Mutant(
        "second moments with sensitivity 1",
        "FedDPDR, Lemma 4.1: the bound of a record that is added, for one that is exchanged",
        (
            Edit(
                "distance=mul_up(mul_up(sqrt_up(2.0), clip_norm), float(moved)),",
                "distance=mul_up(clip_norm, float(moved)),",
            ),
        ),
        ("test_second_moments_stay_within_the_plan_and_reach_it",),
    ),
    Mutant(
        "parties with one stream of noise",
        "all parties of a simulation draw from the same seed: the noise of the sum is U times one",
        (
            Edit(
                "return [_core.NoiseSource(root.public_seed()) for _ in range(n)]",
                "return [_core.NoiseSource(seed) for _ in range(n)]",
            ),
        ),
        ("test_no_two_vectors_share_noise",),
    ),
    Mutant(
        "a vector in two sums",
        "what a party wrote down about its answers is not looked at: two sums differ by its vector",
        (
            Edit(
                "not journal.claim(_key(terms)):",
                "journal.claim(_key(terms)) is None:",
            ),
        ),
        ("test_interleaved_runs_do_not_get_the_vector_twice",),
    ),
    Mutant(
        "both secrets of a party",
        "shares of the seed and of the key of one party are given out together: its vector is open",
        (
            Edit(
                "if set(active) & set(gone) or {*active",
                "if {*active",
            ),
        ),
        ("test_wrong_lists_of_who_is_left_are_refused",),
    ),
    Mutant(
        "a sum of too few",
        "a party helps to open a sum with fewer honest noises than promised",
        (
            Edit(
                "if len(active) < terms.min_survivors:",
                "if len(active) < 1:",
            ),
        ),
        ("test_wrong_lists_of_who_is_left_are_refused",),
    ),
    Mutant(
        "masks from a folded key",
        "flwr #7522: masks from 32 bits of the key, which can be searched in seconds",
        (
            Edit(
                "return bytes(kdf.derive(key))",
                "return bytes(kdf.derive(key[:4]))",
            ),
        ),
        ("test_every_bit_of_the_key_changes_the_stream",),
        slow=True,
    ),
    Mutant(
        "one batch for all partitions",
        "every partition draws its batch from the same stream: the sampling is of whole columns",
        (
            Edit(
                "self.weights, self.key, partition, self.step, n_threads)",
                "self.weights, self.key, 0, self.step, n_threads)",
            ),
        ),
        ("test_batches_of_partitions_steps_and_fits_are_independent",),
    ),
    Mutant(
        "shards share batches",
        "every shard draws the same places: records of different shards join together",
        (
            Edit(
                "            task: key.task(shard),\n",
                "            task: key.task(shard & 0),\n",
            ),
        ),
        (
            "test_batches_of_two_shards_meet_by_chance_alone",
            "test_tasks_that_run_again_give_the_same_numbers",
        ),
    ),
    Mutant(
        "noise of a step again",
        "a driver that forgets which step it took adds the same noise to the next sum",
        (
            Edit(
                "        *next = step + 1;\n",
                "        *next = step.max(0);\n",
            ),
        ),
        ("test_no_noise_is_used_twice",),
    ),
    Mutant(
        "mapped with the others",
        "a row's last bits depend on how many rows there are: a record more moves all of them",
        (
            Edit(
                "_core.row_products(own, matrix, n_threads)",
                "own @ matrix",
            ),
        ),
        ("test_scores_of_a_row_are_its_own",),
    ),
    Mutant(
        "tables without a joint bound",
        "each table of an evaluation is private by itself: a record is in all of them",
        (
            Edit(
                "math.floor(WEIGHT_UNITS * WEIGHTS[name] / norm)",
                "math.floor(WEIGHT_UNITS * WEIGHTS[name])",
            ),
        ),
        ("test_weights_have_a_norm_of_nearly_one",),
    ),
    Mutant(
        "an exchange counted as one row",
        "a row that is exchanged leaves one cell and enters another",
        (
            Edit(
                'factor = 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0)\n        mu =',
                "factor = 1.0\n        mu =",
            ),
        ),
        (
            "test_neighbours_move_the_sum_by_at_most_the_sensitivity",
            "test_every_certificate_holds_and_every_text_and_json_is_written",
        ),
    ),
    Mutant(
        "seeds charged to a strict ledger",
        "a release that nobody's budget covers takes the budget all the same",
        (
            Edit(
                "if ledger is not None and ledger.strict:\n        raise InvalidParameterError(\n"
                '            f"{parameter}',
                "if ledger is None and ledger:\n        raise InvalidParameterError(\n"
                '            f"{parameter}',
            ),
        ),
        ("test_a_strict_ledger_refuses_before_anything_is_charged",),
    ),
    Mutant(
        "rows of federated persons counted each",
        "a person of many rows moves a party's model by as much as all of them",
        (
            Edit(
                "n, factors = found.n_persons, found.shares(n)",
                "n, factors = found.n_persons, np.ones(n)",
            ),
        ),
        ("test_whole_persons_move_a_sum_as_a_row_may",),
    ),
    Mutant(
        "number of rows in place of federated persons",
        "the weight of a party, which is released, depends on how many rows a person has",
        (Edit("n, factors = found.n_persons, found.shares(n)", "n, factors = n, found.shares(n)"),),
        ("test_persons_are_needed_exactly_where_they_are_protected",),
    ),
    Mutant(
        "rare losses cut off",
        "a check that leaves out large losses of few samples finds any tiny delta confirmed",
        (
            Edit(
                "            return min(1.0, delta + rest)\n",
                "            return 0.0 if delta < 1e-12 else delta\n",
            ),
        ),
        (
            "test_delta_falls_with_epsilon_where_samples_are_rare",
            "test_rare_samples_are_not_passed_over",
        ),
    ),
    Mutant(
        "the certificate of another trainer",
        "a model is loaded with a promise about a release of another kind",
        (
            Edit(
                "if chosen is not None and stated in SINGLE_RELEASES",
                "if False and stated in SINGLE_RELEASES",
            ),
        ),
        ("test_a_pipeline_has_the_certificate_of_its_own_trainer",),
    ),
    Mutant(
        "unchecked signature",
        "a signed file that nobody checked passes for a checked one",
        (
            Edit(
                "return NOT_CHECKED if SIGNATURE in document else UNSIGNED",
                "return CHECKED",
            ),
        ),
        ("test_with_a_key_every_forgery_is_noticed",),
    ),
    Mutant(
        "clip of rows alone",
        "rows are clipped one by one, and a person of many contributes their whole sum",
        (
            Edit(
                "let factor = shortening(squares(person), person.len(), bound) / unit;",
                "let factor = 1.0 / unit;",
            ),
            Edit(
                "let factor = shortening(square, len, (bound - lost).max(0.0));",
                "let factor = 1.0;",
            ),
            Edit(
                "let factor = shortening(square.max(0.0) + error, 0, clip.bound - lost);",
                "let factor: f64 = 1.0;",
            ),
        ),
        (
            "test_rows_that_agree_reach_the_bound_and_no_more",
            "test_a_person_moves_the_clipped_sum_by_no_more_than_a_row_may",
        ),
    ),
    Mutant(
        "the sum of a person for its mean",
        "a person of many rows contributes them all to the centre",
        (
            Edit(
                "let scale = 1.0 / ROW_GRID / f64::max(total, 1.0);",
                "let scale = 1.0 / ROW_GRID;",
            ),
            Edit(
                "let shorter = if square > LONGEST * LONGEST {",
                "let shorter = if square < 0.0 {",
            ),
        ),
        ("test_a_person_moves_the_sum_of_rows_by_no_more_than_one",),
    ),
    Mutant(
        "weights of a person added up",
        "persons count by the sum of their weights, however large",
        (
            Edit(
                "own = np.minimum(np.add.reduceat(share, starts), 1.0)",
                "own = np.add.reduceat(share, starts)",
            ),
        ),
        ("test_a_person_counts_once_whatever_its_weights",),
    ),
    Mutant(
        "weights after the bound",
        "weights are scaled by the largest that there is, not by the public bound",
        (
            Edit(
                "share = np.minimum(share, max_weight)[kept] / max_weight",
                "share = share[kept] / share.max()",
            ),
        ),
        ("test_weights_are_clipped_to_the_largest",),
    ),
    Mutant(
        "weights after the clip",
        "what a row adds is shortened first and weighed then, by more than 1",
        (
            Edit(
                "*c = T::near(c.wide() * f64::from(*weight));",
                "*c = T::near(c.wide() / f64::from(*weight));",
            ),
        ),
        (
            "test_a_person_of_one_row_moves_it_by_no_more_whatever_it_weighs",
            "test_weights_come_before_the_clip_of_the_person",
        ),
    ),
    Mutant(
        "batches draw rows",
        "rows are drawn and clipped one by one, whoever owns them",
        (
            Edit(
                "records.own(found.persons, found.weights)",
                "records.own(NO_ROWS, found.weights)",
            ),
        ),
        ("test_threads_names_and_places_of_persons_change_nothing",),
    ),
    Mutant(
        "persons in every batch",
        "persons of several rows are in all batches, and amplified like those who are in some",
        (
            Edit(
                "fill(n, &mut self.order);",
                "fill(singles, &mut self.order);"
                "self.order.extend((singles..singles + records.several()).map(|p| p as u32));",
            ),
        ),
        ("test_batches_draw_persons",),
    ),
    Mutant(
        "a person exchanged as one added",
        "the noise of the training covers one person added where one is exchanged",
        (
            Edit(
                "factor = float(RELATION_FACTOR[self.adjacency])",
                "factor = 1.0",
                near="DescentRule",
            ),
        ),
        ("test_persons::test_statements_name_persons_and_hold",),
    ),
    Mutant(
        "curvature of a person as of one row",
        "the determinant of one row in place of the trace, for rows in many directions",
        (Edit("if self.averaged:", "if self.averaged and K < 0:"),),
        ("test_curvature_of_many_directions_needs_the_trace",),
    ),
    Mutant(
        "the law of one row for a mean of several",
        "a person's gradient is taken to meet the noise in one direction",
        (
            Edit(
                "return add_up(loss.jacobian(kappa), mul_up(reach, reach))",
                "return loss.jacobian(kappa)",
            ),
        ),
        ("test_persons::test_statements_name_persons_and_hold",),
    ),
    Mutant(
        "a person in the objective exchanged as one added",
        "the price of several rows is that of one person added where one is exchanged",
        (
            Edit(
                "reach = div_up(RELATION_FACTOR[adjacency] * loss.lipschitz, multiplier)",
                "reach = div_up(loss.lipschitz, multiplier)",
            ),
        ),
        ("test_persons::test_statements_name_persons_and_hold",),
    ),
    Mutant(
        "noise in the objective for rows",
        "plans for persons take the noise of rows",
        (Edit('averaged=unit == "person")', "averaged=False)"),),
        ("test_noise_for_persons_keeps_the_claim_and_wastes_little",),
    ),
    Mutant(
        "batches of rows for batches of persons",
        "projected SGD takes rows by themselves, and is calibrated to the number of persons",
        (Edit("persons=rows.persons,", "", near="OutputPerturbation"),),
        ("test_projected_sgd_takes_persons",),
    ),
    Mutant(
        "anchors of whole rows",
        "a person adds all of its rows to the cells of anchors",
        (
            Edit(
                "added = np.trunc(added * weights[block, None]).astype(np.int64)",
                "added = added * (weights[block, None] > 0.0)",
            ),
        ),
        ("test_a_person_moves_the_cells_of_anchors_by_no_more_than_a_row_may",),
    ),
    Mutant(
        "classes of a person exchanged as of one added",
        "noisy numbers of classes cover one person added where one is exchanged",
        (
            Edit(
                '"relation_factor": 1.0 if self.adjacency == "add_remove" else sqrt_up(2.0),',
                '"relation_factor": 1.0,',
            ),
        ),
        ("test_balanced_weights_are_paid_for",),
    ),
    Mutant(
        "losses of a person added up",
        "a person of many rows moves the minimiser, and the numbers of classes, by all of them",
        (
            Edit(
                "found[persons[0] :] /= np.repeat(np.maximum(sums, 1.0), sizes)",
                "found[persons[0] :] /= 1.0",
            ),
        ),
        (
            "test_losses_of_a_person_weigh_one_at_most",
            "test_a_person_moves_a_minimiser_by_no_more_than_a_row_may",
            "test_a_person_moves_numbers_of_classes_by_one_at_most",
        ),
    ),
    Mutant(
        "factors that the solvers do not see",
        "minimisers are those of rows of weight 1, whose sensitivity is larger",
        (
            Edit(
                "self.0.loss.gradient_row(label, scores, state);\nself.0.weigh(row, scores);",
                "self.0.loss.gradient_row(label, scores, state);",
            ),
            Edit("self.costs.get(row).copied().unwrap_or(self.cost)", "self.cost"),
        ),
        ("test_a_weight_of_three_quarters_is_three_rows_of_a_quarter",),
    ),
    Mutant(
        "a score of rows for persons",
        "the choice among candidates counts the errors of all rows of a person",
        (
            Edit(
                "starts = np.arange(n) if groups is None",
                "starts = np.arange(n) if n",
            ),
        ),
        (
            "test_a_person_moves_a_score_by_its_sensitivity_at_most",
            "test_a_person_who_is_wrong_everywhere_counts_once",
        ),
    ),
    Mutant(
        "rows of a person in several parts",
        "a search puts rows into parts, so that a person pays for one part and is in more",
        (
            Edit(
                "members = np.flatnonzero(chosen[self._groups])",
                "members = np.flatnonzero(chosen)",
            ),
        ),
        ("test_a_search_keeps_the_rows_of_a_person_in_one_part",),
    ),
    Mutant(
        "last iterates of clipped sums",
        "a person counts with its clipped sum, of whose rounding nothing is known",
        (Edit("averaged=not self.keeps_state", "averaged=False"),),
        ("test_last_iterates_are_of_means_over_persons",),
    ),
    Mutant(
        "persons of any size in a last iterate",
        "all rows of a person take part, whose rounding is paid for up to 1024",
        (Edit("single[self.persons[0] :][late] = 0.0", "single[self.persons[0] :][late] *= 1.0"),),
        (
            "test_last_iterates_are_of_means_over_persons",
            "test_factors_of_a_person_add_up_to_one_at_most",
        ),
    ),
    Mutant(
        "factors of a last iterate rounded to nearest",
        "factors of a person may add up to more than one",
        (Edit("where=single > found)", "where=single < 0.0)"),),
        ("test_factors_of_a_person_add_up_to_one_at_most",),
    ),
    Mutant(
        "weights counted for persons",
        "more persons than the curvature of a last iterate allows for",
        (Edit("rows.n_persons > (self.n_records or 0)", "rows.n_rows > (self.n_records or 0)"),),
        ("test_the_bound_of_last_iterates_counts_persons_whatever_they_weigh",),
    ),
    Mutant(
        "rounding of a person as of one row",
        "each of the rows of a person is truncated, and one truncation is paid for",
        (
            Edit("at.rows as f64 * each_row", "at.records as f64 * each_row"),
            Edit("Arithmetic::Double) * at.row_norm;", "Arithmetic::Double);"),
        ),
        (
            "test_each_row_of_a_person_is_truncated",
            "test_a_long_constant_feature_is_within_the_bound",
        ),
    ),
    Mutant(
        "shares of a person rounded to nearest",
        "rows of equal weight may add up to more than one",
        (Edit("* (1.0 + (sizes + 4) * 2.0**-52)", ""),),
        ("test_losses_of_a_person_weigh_one_at_most",),
    ),
    Mutant(
        "class weights over the smallest",
        "a row of a rare class counts more than once",
        (Edit("np.asarray(factors / factors.max())", "np.asarray(factors / factors.min())"),),
        ("test_losses_of_a_person_weigh_one_at_most",),
    ),
    Mutant(
        "number of persons off the grid",
        "weights of persons are added up as they are, and noise is added on a grid",
        (Edit("np.sum(np.floor(own / WEIGHT_GRID)) * WEIGHT_GRID", "np.sum(own)"),),
        ("test_a_person_counts_once_whatever_its_weights",),
    ),
    Mutant(
        "columns of all rows of a person",
        "a person adds the sum of its rows to the mean of a column, not their average",
        (Edit("means = np.sign(total) * (np.abs(total) // size)", "means = total"),),
        ("test_persons_move_moments_of_columns_as_rows_do",),
    ),
    Mutant(
        "a fit of persons charged as of rows",
        "a ledger of rows takes releases about persons, and one of persons those about rows",
        (
            Edit(
                'how: Any = {"unit": facts.unit, "by_age": plan.by_age}',
                'how: Any = {"unit": "row", "by_age": plan.by_age}',
            ),
        ),
        ("test_the_bound_of_last_iterates_counts_persons_whatever_they_weigh",),
    ),
    Mutant(
        "a statement about rows for persons",
        "the statement of a fit of persons names rows",
        (Edit("occasion).of_unit(facts.unit)", 'occasion).of_unit("row")'),),
        ("test_projected_sgd_takes_persons",),
    ),
    Mutant(
        "calls about rows and persons",
        "training goes on over persons where it began over rows, under one statement",
        (
            Edit(
                "if before is not None and before.unit != facts.unit:",
                "if before is not None and before.unit is None:",
            ),
        ),
        ("test_further_calls_protect_the_same_unit",),
    ),
    Mutant(
        "one truncation for a person",
        "the plan of a last iterate pays for one row of a person, or for no truncation of it",
        (
            Edit("rows_a_record=ROWS_OF_PERSON if owned else 1,", "rows_a_record=1,"),
            Edit("truncated=not owned or facts.sparse or facts.in_parts", "truncated=not owned"),
        ),
        ("test_a_person_adds_no_more_to_an_unclipped_sum_than_a_row_may",),
    ),
    Mutant(
        "second moments of a person as they are",
        "outer products of all rows of a person are added up, and not shortened",
        (
            Edit(
                "let factor = unit * shortening(square, self.own.len(), LONGEST_GRAM / unit);",
                "let factor = unit * shortening(square, 0, 1.0).max(1.0);",
            ),
        ),
        ("test_a_person_moves_second_moments_by_no_more_than_one",),
    ),
    Mutant(
        "persons of any size in projected SGD",
        "all rows of a person are in a batch, whose rounding is paid for up to 1024",
        (Edit("&self.place[start..end.min(start + self.most)]", "&self.place[start..end]"),),
        ("test_projected_sgd_takes_persons",),
    ),
)
