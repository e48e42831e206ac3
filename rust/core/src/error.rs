//! The one error type of the core.

use std::fmt;
use std::ops::RangeInclusive;

/// Errors of the core. No variant carries a value read from the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An argument outside its documented range.
    InvalidArgument {
        /// Name of the argument as the Python user knows it.
        name: &'static str,
        /// Value received and values accepted.
        message: String,
    },
    /// The caller asked to stop (Ctrl-C).
    Interrupted,
    /// The operating system gave no entropy. Never replaced by a weaker seed.
    Entropy(String),
    /// A file of the core's own could not be read or written.
    File(String),
    /// The system gave no memory for a working array of this many bytes.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}

/// Result with the core's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An [`Error::InvalidArgument`] for `name`.
    pub fn invalid(name: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidArgument {
            name,
            message: message.into(),
        }
    }

    /// An [`Error::File`], without the name of the file.
    pub fn file(error: &std::io::Error) -> Self {
        Self::File(error.kind().to_string())
    }
}

/// Refuses the argument `name` unless `right`; `message` says what came and what is accepted.
///
/// # Errors
/// [`Error::InvalidArgument`].
#[inline]
pub(crate) fn require(right: bool, name: &'static str, message: impl fmt::Display) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(Error::invalid(name, message.to_string()))
}

/// Refuses the public number `name` outside its range.
///
/// # Errors
/// [`Error::InvalidArgument`].
pub fn in_range(name: &'static str, value: f64, accepted: RangeInclusive<f64>) -> Result<()> {
    let (least, most) = (accepted.start(), accepted.end());
    let message = format_args!("got {value:e}, expected {least:e} to {most:e}");
    require(accepted.contains(&value), name, message)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { name, message } => write!(f, "{name}: {message}"),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Entropy(why) => {
                write!(
                    f,
                    "the operating system's entropy source failed ({why}); no noise was drawn"
                )
            }
            Self::File(why) => write!(f, "a file of records: {why}"),
            Self::OutOfMemory { bytes } => {
                write!(f, "could not allocate a working array of {bytes} bytes")
            }
        }
    }
}

impl std::error::Error for Error {}
