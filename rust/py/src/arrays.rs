//! The only file that reaches numpy memory.
