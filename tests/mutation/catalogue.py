"""Faults that would cost privacy, as changes of this project's source, and the tests that see them.

``test_catalogue`` applies every one of them to a copy of the sources and runs its killers there.
Each is one of the ways in which private learning has gone wrong in public, or nearly: what it
models is named. A fault that this design cannot have in one place is written as the nearest change
that has the same effect.
"""

from __future__ import annotations

from mutant_files import FILES
from mutant_kinds import CORE, PACKAGE, Edit, Mutant
from mutant_parties import PARTIES
from mutant_shards import SHARDS

__all__ = ["CATALOGUE", "Edit", "Mutant"]

NOISE_SCALES = (
    Mutant(
        "sigma/2",
        "half the noise that the statement promises is drawn",
        (
            Edit(
                PACKAGE + "mechanisms/noise.py",
                "release_on_grid(flat, self.scale, self.grid, source, n_threads)",
                "release_on_grid(flat, 0.5 * self.scale, self.grid, source, n_threads)",
            ),
        ),
        (
            "tests/unit/test_output_mechanism.py::test_gaussian_noise_has_the_stated_deviation",
            "tests/unit/test_released_attributes.py::test_with_zero_rows_the_release_is_the_noise",
        ),
    ),
    Mutant(
        "sigma/sqrt2",
        "the noise is calibrated to the square root of the variance twice, or to half of it",
        (
            Edit(
                PACKAGE + "mechanisms/objective.py",
                "source.gaussian_on_grid(size, self.scale, self.grid, n_threads)",
                "source.gaussian_on_grid(size, self.scale * 0.5**0.5, self.grid, n_threads)",
            ),
        ),
        (
            "tests/unit/test_objective_mechanism.py::test_both_gaussian_noises_have_the_stated_deviation",
        ),
    ),
    Mutant(
        "Delta without the factor 2",
        "dp-accounting #378: noise for a record more, a promise for a record exchanged",
        (
            Edit(
                PACKAGE + "mechanisms/noise.py",
                'RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}',
                'RELATION_FACTOR = {"add_remove": 1, "replace_one": 1}',
            ),
        ),
        (
            "tests/property/test_output_sensitivity.py::test_constructed_neighbours_reach_the_sensitivity",
            "tests/unit/test_gradient_mechanism.py::test_replacing_a_record_doubles_the_noise",
            "tests/unit/test_output_mechanism.py::test_scale_from_first_principles",
        ),
    ),
    Mutant(
        "beta instead of beta/2",
        "Gamma noise in the objective at the rate for a record more, where one is exchanged",
        (
            Edit(
                PACKAGE + "mechanisms/objective.py",
                "return largest_rate(self.loss, self.epsilon, self.curvature_ratio, self.factor)",
                "return largest_rate(self.loss, self.epsilon, self.curvature_ratio, 1)",
            ),
        ),
        ("tests/unit/test_objective_mechanism.py::test_statement_verifies",),
    ),
    Mutant(
        "sqrt(T) forgotten",
        "T noisy sums with the noise of one",
        (
            Edit(
                PACKAGE + "mechanisms/gradient.py",
                "return mul_up(sqrt_up(float(self.n_steps)), self.factor * contribution)",
                "return mul_up(sqrt_up(1.0), self.factor * contribution)",
            ),
        ),
        ("tests/unit/test_gradient_mechanism.py::test_full_batches_are_one_gaussian_mechanism",),
    ),
    Mutant(
        "budget not split over classes",
        "K one-against-the-rest models with epsilon each, or the sensitivity of one of them",
        (
            Edit(
                PACKAGE + "losses.py",
                "return sqrt_up(2.0 if self.joint else float(self.n_scores))",
                "return sqrt_up(2.0 if self.joint else 1.0)",
            ),
        ),
        (
            "tests/unit/test_output_losses.py::test_the_sensitivity_is_that_of_the_loss",
            "tests/unit/test_output_losses.py::test_constructed_neighbours_reach_the_sensitivity",
        ),
    ),
)

DRAWS = (
    Mutant(
        "per-coordinate Laplace",
        "a Laplace variable for each coordinate, where the norm should be a Gamma variable",
        (
            Edit(
                CORE + "noise/gamma_ball.rs",
                "        while {\n            fill_normal(stream, block, 1.0);\n"
                "            block.iter().all(|z| *z == 0.0)\n        } {}\n    })?;\n",
                "        for z in block.iter_mut() {\n"
                "            let u: f64 = stream.random();\n"
                "            let sign = if stream.random() { 1.0 } else { -1.0 };\n"
                "            *z = -sign * (1.0 - u).ln() / beta;\n        }\n    })?;\n"
                "    if size > 1 {\n"
                "        return Ok(vector);\n    }\n",
            ),
        ),
        (
            "tests/statistical/test_noise_gamma_ball.py::test_gamma_ball_direction_is_uniform",
            "tests/statistical/test_noise_gamma_ball.py::test_gamma_ball_radius_has_its_law",
        ),
    ),
    Mutant(
        "noise reused over classes",
        "one draw of noise for the weights of every class",
        (
            Edit(
                PACKAGE + "mechanisms/noise.py",
                "return release_on_grid(flat, self.scale, self.grid, source, n_threads)",
                "one = np.zeros(self.shape[1])\n"
                "            one = release_on_grid(one, self.scale, self.grid, source, n_threads)\n"
                "            return nearest_on_grid(flat, self.grid) + np.resize(one, flat.size)",
            ),
        ),
        (
            "tests/statistical/test_noise_of_classes.py::"
            "test_the_noise_of_one_class_says_nothing_about_that_of_another",
        ),
    ),
    Mutant(
        "noise reused over steps",
        "a generator made anew from one key in every step (jax #3646)",
        (
            Edit(
                CORE + "descent/streams.rs",
                "    fn grid_noise(&self, step: u32, noise: &mut [i64]) {\n",
                "    fn grid_noise(&self, _step: u32, noise: &mut [i64]) {\n"
                "        let step = 0;\n",
            ),
        ),
        (
            "tests/statistical/test_descent_noise.py::test_steps_of_one_run_are_independent",
            "tests/unit/test_gradient_noise.py::test_the_noise_of_a_step_is_not_that_of_the_one_before",
        ),
    ),
    Mutant(
        "seeded RNG",
        "a generator with a fixed seed where the caller gave none",
        (
            Edit(
                PACKAGE + "estimators/fit.py",
                "source = _core.NoiseSource(estimator.random_state)",
                "source = _core.NoiseSource(estimator.random_state or 0)",
            ),
        ),
        ("tests/unit/test_output_estimator.py::test_noise_is_fresh_at_every_fit",),
    ),
)

CONTRIBUTIONS = (
    Mutant(
        "no clipping",
        "the clip norm is ignored (Opacus #664)",
        (
            Edit(
                CORE + "descent/clipping.rs",
                "if length * (1.0 + MARGIN) <= self.bound {",
                "if length.is_finite() {",
            ),
            Edit(
                CORE + "descent/gradients.rs",
                "factor[i] = if length <= bound {",
                "factor[i] = if length.is_finite() {",
            ),
        ),
        (
            "tests/unit/test_descent_published_bugs.py::test_the_clip_norm_is_the_one_that_was_asked_for",
            "tests/property/test_clipped_sums.py::test_one_contribution_is_no_longer_than_the_clip",
        ),
    ),
    Mutant(
        "clip after mean",
        "the sum over a batch is clipped and not each record's share of it (Opacus micro-batches)",
        (
            Edit(
                CORE + "descent/clipping.rs",
                "if length * (1.0 + MARGIN) <= self.bound {",
                "if length.is_finite() {",
            ),
            Edit(
                CORE + "descent/gradients.rs",
                "factor[i] = if length <= bound {",
                "factor[i] = if length.is_finite() {",
            ),
            Edit(
                CORE + "descent/run.rs",
                "                .noisy(&self.workers[0].sum, noise, &mut self.noisy);\n",
                "                .noisy(&self.workers[0].sum, super::released::Noise::None, "
                "&mut self.noisy);\n"
                "            let norm = self.noisy.iter().map(|g| g * g).sum::<f64>().sqrt();\n"
                "            let factor = (settings.clip.bound / norm).min(1.0);\n"
                "            for (at, g) in self.noisy.iter_mut().enumerate() {\n"
                "                *g = *g * factor + match noise {\n"
                "                    super::released::Noise::Grid(grid, steps) => "
                "steps[at] as f64 * grid,\n"
                "                    super::released::Noise::Float(values) => values[at],\n"
                "                    super::released::Noise::None => 0.0,\n"
                "                };\n            }\n",
            ),
        ),
        ("tests/unit/test_descent_published_bugs.py::test_every_record_is_clipped_by_itself",),
    ),
    Mutant(
        "divide by actual batch",
        "Opacus #571: the noisy sum is divided by the number of records in the batch",
        (
            Edit(
                CORE + "descent/run.rs",
                "            settings.take_step(self.state, &mut self.noisy);\n",
                "            let members = self.batch.records(self.job.records).max(1);\n"
                "            let of_batch = Settings { divisor: members as f64, ..*settings };\n"
                "            of_batch.take_step(self.state, &mut self.noisy);\n",
            ),
        ),
        (
            "tests/unit/test_descent_published_bugs.py::"
            "test_the_contributions_are_divided_by_the_declared_number_and_by_nothing_else",
        ),
    ),
    Mutant(
        "fixed batch",
        "batches of one size, accounted for as Poisson samples (Opacus #80)",
        (
            Edit(
                CORE + "descent/streams.rs",
                "        batch.clear();\n"
                "        poisson_batch(&mut self.batches.stream(step), &self.rate, n, batch);\n",
                "        batch.clear();\n        let mut stream = self.batches.stream(step);\n"
                "        let size = (self.rate.value() * n as f64).round().max(1.0) as usize;\n"
                "        let mut all: Vec<u32> = (0..n as u32).collect();\n"
                "        for at in 0..size.min(n) {\n"
                "            let other = at + (stream.next_u64() % (n - at) as u64) as usize;\n"
                "            all.swap(at, other);\n        }\n"
                "        batch.extend(&all[..size.min(n)]);\n        batch.sort_unstable();\n",
            ),
        ),
        (
            "tests/statistical/test_descent_sampling.py::test_batches_are_poisson_samples",
            "tests/unit/test_descent_published_bugs.py::"
            "test_shuffled_passes_are_not_what_is_accounted_as_poisson_sampling",
        ),
    ),
    Mutant(
        "bounds taken from data",
        "the bound of the rows is the norm of the longest one (diffprivlib without data_norm)",
        (
            Edit(
                PACKAGE + "estimators/fit.py",
                "    plan = estimator.plan(facts)\n",
                "    rows.read()\n"
                "    longest = max(1e-9, float(abs(rows.X).max()))\n"
                "    estimator.data_norm = longest * (facts.n_features or 1) ** 0.5\n"
                "    plan = estimator.plan(facts)\n",
            ),
        ),
        ("tests/unit/test_released_attributes.py::test_statement_does_not_depend_on_the_data",),
    ),
)

OBJECTIVES = (
    Mutant(
        "Lambda scaled by n",
        "diffprivlib #97: an objective of means is handed to a solver of sums",
        (
            Edit(
                PACKAGE + "mechanisms/objective.py",
                "            regularization=self.regularization,\n            linear",
                "            regularization=self.regularization / X.shape[0],\n            linear",
            ),
        ),
        (
            "tests/unit/test_objective_estimator.py::"
            "test_the_released_weights_are_stationary_but_for_the_noise_on_them",
        ),
    ),
    Mutant(
        "missing b/n",
        "the random term divided by n in an objective that is a sum (diffprivlib #71)",
        (
            Edit(
                PACKAGE + "mechanisms/objective.py",
                "linear=self.draw_linear(source, n_threads=n_threads),",
                "linear=self.draw_linear(source, n_threads=n_threads) / X.shape[0],",
            ),
        ),
        (
            "tests/unit/test_objective_estimator.py::"
            "test_the_released_weights_are_stationary_but_for_the_noise_on_them",
        ),
    ),
    Mutant(
        "solver stopped at 1e-2",
        "an approximate minimum with the guarantee of the exact one",
        (
            Edit(
                PACKAGE + "mechanisms/objective.py",
                "            gradient_tol=self.gradient_tol,\n            max_iter",
                "            gradient_tol=max(self.gradient_tol, 1e-2 * X.shape[0]),\n"
                "            max_iter",
            ),
        ),
        (
            "tests/unit/test_objective_estimator.py::"
            "test_the_released_weights_are_stationary_but_for_the_noise_on_them",
        ),
    ),
    Mutant(
        "intercept unregularised",
        "a thousandth of the penalty for the constant feature, as if it were a large one: with "
        "none at all the objective has no minimum",
        (
            Edit(
                CORE + "solver/smooth/newton_cg.rs",
                "            *g += self.rows.share * (problem.lambda * w + b);\n        }\n",
                "            *g += self.rows.share * (problem.lambda * w + b);\n        }\n"
                "        for score in 0..problem.loss.scores {\n"
                "            let at = problem.design.position(score, problem.columns - 1);\n"
                "            let less = 0.999 * self.rows.share * problem.lambda;\n"
                "            gradient[at] -= less * weights[at];\n"
                "        }\n",
            ),
            Edit(
                CORE + "solver/smooth/newton_cg.rs",
                "            *out = *out * up + rows.share * problem.lambda * x;\n        }\n",
                "            *out = *out * up + rows.share * problem.lambda * x;\n        }\n"
                "        for score in 0..problem.loss.scores {\n"
                "            let at = problem.design.position(score, problem.columns - 1);\n"
                "            out[at] -= 0.999 * rows.share * problem.lambda * v[at];\n"
                "        }\n",
            ),
        ),
        (
            "tests/unit/test_objective_estimator.py::"
            "test_the_released_weights_are_stationary_but_for_the_noise_on_them",
        ),
    ),
)

RELEASES = (
    Mutant(
        "class counts released",
        "an attribute that holds the numbers of records of the classes, without noise",
        (
            Edit(
                PACKAGE + "estimators/inputs.py",
                '            self.published["classes_"] = self.classes\n',
                '            self.published["classes_"] = self.classes\n'
                '            self.published["class_count_"] = np.bincount(self.codes)\n',
            ),
        ),
        ("tests/unit/test_released_attributes.py::test_only_listed_attributes_are_set",),
    ),
    Mutant(
        "tuning charged as one run",
        "the best of a random number of runs accounted for as if there had been one",
        (
            Edit(
                PACKAGE + "accounting/totals.py",
                "        simple = _without_curve(curved)\n",
                "        simple = _without_curve(curved)\n"
                "        if isinstance(curved, RandomStoppingEvent):\n"
                "            simple = choices(of_events(curved.base))[0]\n",
            ),
        ),
        ("tests/unit/test_private_search.py::test_random_stopping_costs_more_than_one_run",),
    ),
    Mutant(
        "RDP with wrong order",
        "a zCDP event taken for one whose divergences grow half as fast with the order",
        (
            Edit(
                PACKAGE + "accounting/composition.py",
                "            rho=fraction_up(totals.rho),\n",
                "            rho=fraction_up(totals.rho / 2),\n",
            ),
        ),
        ("tests/unit/test_mixed_composition.py::test_zcdp_alone",),
    ),
)

CATALOGUE: tuple[Mutant, ...] = (
    *NOISE_SCALES,
    *DRAWS,
    *CONTRIBUTIONS,
    *OBJECTIVES,
    *RELEASES,
    *PARTIES,
    *SHARDS,
    *FILES,
)
