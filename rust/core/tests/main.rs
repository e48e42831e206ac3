//! All tests of the core's public interface: a part of the crate's own test program (src/lib.rs),
//! because compiling and linking one for each file takes minutes. As a program of its own it is only
//! checked, so that nothing here names what the binding cannot; the folder `parts` may.

mod accounting_gaussian;
mod accounting_joint_bound;
mod accounting_subsampled;
mod descent;
mod descent_shards;
mod hostile_inputs;
mod images;
mod linalg;
mod memory;
mod noise_gamma_ball;
mod noise_poisson_batch;
mod noise_streams;
mod records;
mod rows_moments;
mod runtime_float_mode;
mod runtime_tasks;
#[path = "solver_ellipsoids/main.rs"]
mod solver_ellipsoids;
mod solver_projected_sgd;
mod solver_smooth_progress;
mod tables;

/// The next number from 0 to 1 of a plain congruence.
pub(crate) fn number(state: &mut u64) -> f64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as f64 / f64::from(1_u32 << 31)
}

/// A file that is named nowhere would not be compiled, and its tests would silently not run.
#[test]
fn every_file_is_named_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    for (folder, list) in [
        (folder.to_owned(), include_str!("main.rs")),
        (format!("{folder}/parts"), include_str!("parts/mod.rs")),
    ] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let module = name.trim_end_matches(".rs");
            let named = list.contains(&format!("mod {module};"));
            assert!(
                named || ["main", "mod", "parts"].contains(&module),
                "{name}"
            );
        }
    }
}
