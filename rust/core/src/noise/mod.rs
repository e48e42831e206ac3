//! Random streams and samplers.
