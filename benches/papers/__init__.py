"""Accuracy against published figures, pre-processing under privacy included."""
