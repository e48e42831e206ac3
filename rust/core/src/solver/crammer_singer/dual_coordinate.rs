//! Crammer-Singer SVM by dual coordinate descent, with a certificate.
//!
//! The problem is written out in [`crate::solver::crammer_singer::problem`]. Three stages:
//! 1. *rough*: coordinate descent in single precision over all rows, shrinking by slack, with longer steps
//!    ([`crate::solver::crammer_singer::leap`]); a look whether zero is the minimiser ([`crate::solver::crammer_singer::end_game::zero`]);
//! 2. *certificate*: weights rebuilt from the dual in double precision, rigorous gap, open rows;
//! 3. *end game* on the open rows, in Gram space ([`crate::solver::crammer_singer::end_game::face`]) when they are few; when they are
//!    many, or that is slow, by proximal points ([`crate::solver::crammer_singer::end_game::proximal`]) where the weights have few
//!    entries and by coordinate descent in double precision where they have many; then back to 2.
//!
//! Ends with certified `||W - W*||_F <= radius`. Should the end game stall, a Frank-Wolfe step a
//! round gives a rate that holds for every data set ([`crate::solver::crammer_singer::frank_wolfe`]).

use crate::error::Result;
use crate::layout::class_major::ClassMajor;
use crate::layout::lines::{Lines, SHORT};
use crate::layout::weights::WeightLayout;
use crate::rows::view::Rows;
use crate::runtime::interrupt::Interrupt;
use crate::runtime::memory::{collected, copied, filled, mapped, with_capacity, zeros};
use crate::simd::{Real, dispatch};
use crate::solver::crammer_singer::certificate::{Certificate, certify};
use crate::solver::crammer_singer::end_game::crossover;
use crate::solver::crammer_singer::end_game::face::Face;
use crate::solver::crammer_singer::end_game::proximal::{self, Products, Proximal};
use crate::solver::crammer_singer::end_game::zero;
use crate::solver::crammer_singer::epoch::Epoch;
use crate::solver::crammer_singer::frank_wolfe;
use crate::solver::crammer_singer::gram::{GROUP, GramSet};
use crate::solver::crammer_singer::leap::Leap;
use crate::solver::crammer_singer::problem::{CrammerSingerSettings, Problem};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Result of [`solve`]. Everything but `weights` is for tests and benchmarks: it depends on
/// the data without noise.
#[derive(Debug, Clone)]
pub struct CrammerSingerSolution {
    /// `n_classes` rows of weights, intercept last, in the user's units; `None` when the passes
    /// allowed ran out before the radius was certified.
    pub weights: Option<Vec<f64>>,
    /// Certified bound on the distance to the minimiser, in the user's units.
    pub radius: f64,
    /// Certified bound on the duality gap, in the solver's units.
    pub gap: f64,
    /// Passes made.
    pub passes: u64,
    /// Certificates evaluated.
    pub rounds: u64,
}

/// Minimises the Crammer-Singer objective to a certified distance. Beside the labels are the weights
/// of the rows, from 0 to 1 each, or nothing for 1.
///
/// # Errors
/// Arguments out of range, values that are not finite, no memory, interrupt.
pub fn solve(
    rows: Rows<'_>,
    labels: (&[i64], &[f64]),
    settings: &CrammerSingerSettings,
    interrupt: &dyn Interrupt,
) -> Result<CrammerSingerSolution> {
    let problem = Problem::new(rows, labels, settings, interrupt)?;
    let (k, d) = (problem.classes, problem.columns);
    // Short rows are better spread over the classes than over their entries.
    let short = d <= SHORT && k >= MANY;
    if problem.store.is_dense() && !short {
        let group = ClassMajor::new(GROUP, d);
        let layouts = (ClassMajor::new(k, d), group);
        return DualAscent::new(&problem, layouts, settings, interrupt)?.run();
    }
    let layouts = (Lines::new(k, d), Lines::new(GROUP, d));
    DualAscent::new(&problem, layouts, settings, interrupt)?.run()
}

/// Classes from which short rows go with lines.
const MANY: usize = 8;
/// Largest number of rounds of the rough stage.
const ROUGH_ROUNDS: usize = 150;
/// Epochs over the rows not at a vertex after each epoch over all active ones.
const RESTS: usize = 2;
/// A row at its vertex is dropped when it leads by this many square roots of the gap. Measured on
/// USPS, C = .005: 1 costs 17 visits a row, .3 12, .1 10; none ever cost more than one more round.
const SLACK: f64 = 0.1;
/// Largest working set in Gram space, for small and for large X: its matrix takes 8 bytes a pair
/// (20 and 32 MB), and at most as much again goes into Newton steps.
const FACE_ROWS: [usize; 2] = [1600, 2000];
/// Entries from which X counts as large.
const LARGE_ENTRIES: usize = 1 << 22;

/// Gap at which the rough stage ends, in units of C times the rows that are not at their best vertex
/// times the norm of the weights: rounding in single precision left 1e-8 to 7e-8 on 15 sets.
const NARROW: f64 = 2e-8;
/// Working sets this small are never shrunk further first.
const TINY: usize = 64;
/// Rounds over which dropped rows are counted.
const LOOK_BACK: usize = 4;
/// Multiplications of a visit that one row less in the end game is worth. With 2,000, and six rounds
/// above, 20 fits took 1.05 times as long in the mean (0.79 to 1.26 times); with 80 no less than now.
const ROW_VALUE: usize = 250;
/// Newton rounds on one working set before the next certificate.
const FACE_ROUNDS: usize = 40;
/// Rounds in double precision between two certificates when the working set is large.
const WIDE_ROUNDS: usize = 15;
/// Steps to a bound on one working set, where proximal points are an alternative.
const PIVOTS: usize = 30;
/// Passes, times the share of the rows that are not at their best vertex, after which the rough stage
/// leaves the rest to proximal points: measured on 20 sets, it ends below 3 or stays above 6.
const ENDLESS: f64 = 6.0;
/// Share of the gap that an end game may leave behind to be tried again, where proximal points are cheap,
/// and where they are not.
const SLOW: [f64; 2] = [0.1, 0.7];
/// Times the gap aimed at from which proximal points, which rounding disturbs there, leave the rest to
/// others: coordinate descent takes a few passes for it, points took hundreds where many rows tie.
const CLOSE: f64 = 100.0;
/// Passes after which rows do not only go to their own best points, but further together; and the most
/// duals that are kept for that.
const LEAPS_FROM: u64 = 18;
const LEAP_NUMBERS: usize = 1 << 24;
/// Factors of the next such step's length: largest, and beside the best share of one that was too long;
/// and the least length.
const LONGER: f64 = 2.0;
const SPARE: f64 = 1.5;
const SHORTEST: f64 = 0.5;
/// Rounds after which every second one is a Frank-Wolfe step.
const PATIENCE: u64 = 60;

/// How the rough stage ended.
#[derive(PartialEq)]
enum End {
    /// As near the minimiser as single precision allows.
    Near,
    /// Given up.
    Endless,
    Other,
}

struct DualAscent<'p, 'd, L, G> {
    problem: &'p Problem<'d>,
    layout: L,
    group: G,
    dual: Vec<f64>,
    /// The end game's working set.
    set: GramSet,
    /// Most rows in it.
    largest: usize,
    order: ChaCha8Rng,
    /// Gap at which the radius is certified.
    target: f64,
    /// Most passes.
    limit: u64,
    passes: u64,
    rounds: u64,
    /// Multiplications of the rough stage.
    work: usize,
    /// Length of the next common step, in units of the way of a few epochs.
    leap: f64,
    interrupt: &'p dyn Interrupt,
}

impl<'p, 'd, L: WeightLayout, G: WeightLayout> DualAscent<'p, 'd, L, G> {
    fn new(
        problem: &'p Problem<'d>,
        (layout, group): (L, G),
        settings: &CrammerSingerSettings,
        interrupt: &'p dyn Interrupt,
    ) -> Result<Self> {
        let largest = FACE_ROWS[usize::from(problem.len() * problem.columns >= LARGE_ENTRIES)];
        // Another stream than the one that ordered the rows.
        let mut order = ChaCha8Rng::seed_from_u64(settings.seed);
        order.set_stream(1);
        Ok(Self {
            problem,
            layout,
            group,
            dual: problem.start()?,
            set: GramSet::new(largest),
            largest,
            order,
            target: problem.radius * problem.radius,
            limit: settings.max_passes.unwrap_or(u64::MAX),
            passes: 0,
            rounds: 0,
            work: 0,
            leap: 1.0,
            interrupt,
        })
    }

    fn run(mut self) -> Result<CrammerSingerSolution> {
        let (problem, layout, interrupt) = (self.problem, self.layout, self.interrupt);
        let (mut gap, end) = self.rough()?;
        let (possible, cheap) = (proximal::is_possible(problem), proximal::is_cheap(problem));
        // A few passes in double precision do what rounding left over, however many rows are inside.
        let near = end == End::Near;
        let overfull = !near && crossover::is_overfull(problem, &self.dual);
        let mut by_points = end == End::Endless || overfull;
        let mut last = f64::INFINITY;
        loop {
            let margin = SLACK * gap.sqrt();
            let certificate = certify(problem, layout, &self.dual, margin, interrupt)?;
            self.passes += 1;
            self.rounds += 1;
            let certified = certificate.radius <= problem.radius;
            if certified || self.passes >= self.limit {
                return self.finish(&certificate, certified);
            }
            gap = certificate.gap;
            let inside = certificate.open.iter().filter(|row| row.1 < 0.0).count();
            let few = inside <= self.largest * 9 / 10;
            // Change the method after slow progress.
            let slow = gap > SLOW[usize::from(!cheap)] * last;
            let change = slow || (by_points && gap <= CLOSE * self.target);
            let many = cheap && last.is_infinite() && !few && !near;
            by_points = possible && ((by_points || many) != change);
            last = gap;
            if self.rounds > PATIENCE && self.rounds % 2 == 1 {
                frank_wolfe::step(problem, layout, &certificate, &mut self.dual, interrupt)?;
            } else if by_points {
                let (weights, most) = (certificate.weights, self.limit - self.passes);
                let start = (gap, inside);
                let mut points = Proximal::new(problem, layout, weights, start, most)?;
                let left = points.ascend(&mut self.dual, gap, 0.25 * self.target, interrupt)?;
                self.passes += most - left;
            } else if few {
                self.narrow(&certificate)?;
            } else {
                self.wide(certificate)?;
            }
        }
    }

    /// Stage 1. Returns the last estimate of the gap.
    fn rough(&mut self) -> Result<(f64, End)> {
        let mut weights = zeros::<f32>(self.layout.stored())?;
        let mut active = collected(0..self.problem.len() as u32)?;
        let mut gap = f64::INFINITY;
        let mut rounds = Vec::with_capacity(ROUGH_ROUNDS);
        for _ in 0..ROUGH_ROUNDS {
            let (inside, latest);
            (gap, latest, inside) = self.round(&mut weights, &mut active, gap)?;
            rounds.push(active.len());
            let square: f64 = weights.iter().map(|w| f64::from(*w).powi(2)).sum();
            let narrow = NARROW * self.problem.cost * inside as f64 * square.sqrt();
            if gap <= self.target || latest <= narrow {
                return Ok((gap, End::Near));
            }
            if self.passes >= self.limit || self.settled(&rounds) {
                break;
            }
            let endless = self.endless(inside);
            let zero = (endless || rounds.len() == 1) && self.zero((latest, square))?;
            if zero {
                break;
            }
            if endless {
                return Ok((gap, End::Endless));
            }
        }
        Ok((gap, End::Other))
    }

    /// Moves the duals to weights of zero, where that is the minimiser, from a gap and the weights'
    /// squared norm. Returns whether it seems so.
    fn zero(&mut self, start: (f64, f64)) -> Result<bool> {
        let problem = self.problem;
        if !proximal::is_cheap(problem) {
            return Ok(false);
        }
        // At weights of length l every row's gap is at most sqrt(2) C l.
        let longest = 0.1 * self.target / (problem.cost * problem.len() as f64);
        let (layout, dual) = (self.layout, &mut self.dual);
        zero::reach(problem, layout, dual, start, longest, self.interrupt)
    }

    /// One epoch over the active rows, then a few over those that are not at their best vertex:
    /// most of the others would only be found where they were. Returns estimates of the gap
    /// before and of the latest, and how many rows are not at their best vertex.
    fn round<T: Real>(
        &mut self,
        weights: &mut [T],
        active: &mut Vec<u32>,
        gap: f64,
    ) -> Result<(f64, f64, usize)> {
        let mut resting = with_capacity(active.len())?;
        let (mut seen, mut latest) = (gap, gap);
        let classes = self.problem.classes;
        let leaps = self.passes >= LEAPS_FROM;
        let (mut rows, mut last) = (Vec::new(), Vec::new());
        for epoch in 0..=RESTS {
            if self.passes >= self.limit {
                break;
            }
            // The rows already lie in random order when the first epoch comes.
            if self.passes > 0 {
                active.shuffle(&mut self.order);
            }
            self.work += active.len() * self.problem.touched;
            latest = dispatch(Epoch {
                problem: self.problem,
                layout: self.layout,
                weights,
                dual: &mut self.dual,
                active,
                resting: &mut resting,
                slack: SLACK * seen.sqrt(),
                interrupt: self.interrupt,
            })?;
            self.passes += 1;
            if epoch == 0 {
                seen = latest;
                if leaps && active.len().saturating_mul(classes) <= LEAP_NUMBERS {
                    rows = copied(active)?;
                    last = with_capacity(rows.len() * classes)?;
                    for i in &rows {
                        last.extend_from_slice(&self.dual[*i as usize * classes..][..classes]);
                    }
                }
            }
        }
        if !rows.is_empty() {
            let best = dispatch(Leap {
                problem: self.problem,
                layout: self.layout,
                weights,
                dual: &mut self.dual,
                rows: &rows,
                last: &last,
                most: self.leap,
                interrupt: self.interrupt,
            })?;
            let factor = if best > 1.0 {
                best.min(LONGER)
            } else {
                SPARE * best
            };
            self.leap = (factor * self.leap).max(SHORTEST);
        }
        let inside = active.len();
        active.append(&mut resting);
        Ok((seen, latest, inside))
    }

    /// Whether the rough stage leaves so many rows inside that proximal points are cheaper. They cost
    /// passes too, and building and factoring their system.
    fn endless(&self, inside: usize) -> bool {
        let pass = (self.problem.len() * self.problem.touched).max(1);
        let (k, d) = (self.problem.classes as f64, self.problem.columns as f64);
        let system = (k * d).powi(3) / (48.0 * pass as f64) + d / (37.0 * k);
        let spent = self.work as f64 / pass as f64 * inside as f64 / self.problem.len() as f64;
        proximal::is_possible(self.problem) && spent > ENDLESS * (1.0 + system)
    }

    /// Whether the end game is worth starting: its cost grows with the square of the working set, so the
    /// rough stage goes on while an epoch still drops enough rows to pay for itself. Every round left so
    /// many rows active.
    fn settled(&self, rounds: &[usize]) -> bool {
        let now = rounds[rounds.len() - 1];
        if rounds.len() <= LOOK_BACK {
            return now <= TINY;
        }
        let before = rounds[rounds.len() - 1 - LOOK_BACK];
        let worth = LOOK_BACK * self.problem.touched;
        now <= self.largest && (before - now) * ROW_VALUE <= worth
    }

    /// Stage 3 for few open rows.
    fn narrow(&mut self, certificate: &Certificate) -> Result<()> {
        let whole = self.choose(certificate)?;
        let scores = dispatch(Products {
            problem: self.problem,
            layout: self.layout,
            classes: self.problem.classes,
            weights: &certificate.weights,
            rows: &self.set.rows,
        })?;
        let mut face = Face::new(self.problem, &self.set, &scores, &self.dual)?;
        let rounds = FACE_ROUNDS.min((self.limit - self.passes) as usize);
        // A set that leaves open rows out is not worth solving to the end.
        let enough = if whole { 0.0 } else { 0.02 * certificate.gap };
        let pivots = if proximal::is_possible(self.problem) {
            PIVOTS
        } else {
            usize::MAX
        };
        let enough = enough.max(0.25 * self.target);
        face.descend(enough, rounds, pivots, self.interrupt)?;
        face.store(&mut self.dual);
        Ok(())
    }

    /// Grows the working set by the open rows; starts it afresh, with the most urgent ones, when
    /// it would become too large. Returns whether all open rows are in it.
    fn choose(&mut self, certificate: &Certificate) -> Result<bool> {
        let mut known = filled(self.problem.len(), false)?;
        for i in &self.set.rows {
            known[*i as usize] = true;
        }
        let mut new = mapped(&certificate.open, |row| row.0)?;
        new.retain(|i| !known[*i as usize]);
        let whole = self.set.rows.len() + new.len() <= self.largest;
        if !whole {
            let mut rows = copied(&certificate.open)?;
            rows.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
            rows.truncate(self.largest);
            new = mapped(&rows, |row| row.0)?;
            new.sort_unstable();
            self.set = GramSet::new(self.largest);
        }
        self.set
            .extend(self.problem, self.group, &new, self.interrupt)?;
        Ok(whole || certificate.open.len() <= self.largest)
    }

    /// Stage 3 for many open rows.
    fn wide(&mut self, certificate: Certificate) -> Result<()> {
        self.set = GramSet::new(self.largest);
        let mut active = mapped(&certificate.open, |row| row.0)?;
        let mut weights = certificate.weights;
        let mut gap = certificate.gap;
        for _ in 0..WIDE_ROUNDS {
            if self.passes >= self.limit || gap <= 0.25 * self.target || active.is_empty() {
                break;
            }
            (gap, ..) = self.round(&mut weights, &mut active, gap)?;
        }
        Ok(())
    }

    fn finish(&self, certificate: &Certificate, certified: bool) -> Result<CrammerSingerSolution> {
        let unscale = self.problem.unscale;
        let d = self.problem.columns;
        let weight = |at| certificate.weights[self.layout.position(at / d, at % d)] * unscale;
        let all = || collected((0..self.problem.classes * d).map(weight));
        let weights = certified.then(all).transpose()?;
        Ok(CrammerSingerSolution {
            weights,
            radius: certificate.radius * unscale,
            gap: certificate.gap,
            passes: self.passes,
            rounds: self.rounds,
        })
    }
}
