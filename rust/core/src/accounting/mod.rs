//! Calibration and accounting of the Gaussian mechanism.
