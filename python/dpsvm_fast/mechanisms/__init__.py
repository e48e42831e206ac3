"""Mechanisms: each has its privacy event and noise before it runs on data."""
