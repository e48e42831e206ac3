//! How many classes a panel holds, for the number of classes there are.

/// For solvers that look at one row after the other: all classes in one panel, up to 32.
pub(crate) fn panel_for_updates(classes: usize) -> usize {
    match classes {
        0..=4 => 4,
        5..=8 => 8,
        9..=16 => 16,
        _ => 32,
    }
}

/// `body` with the constant `P` as wide as the `panel`, which is one of the widths listed.
macro_rules! with_panel {
    ($panel:expr, [$($width:literal),* | $last:literal], $P:ident => $body:expr) => {
        match $panel {
            $($width => {
                const $P: usize = $width;
                $body
            })*
            _ => {
                const $P: usize = $last;
                $body
            }
        }
    };
}
pub(crate) use with_panel;
