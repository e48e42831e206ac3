//! Row views. 
