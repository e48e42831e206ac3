"""Search over parameters under one budget."""

from dpsvm_fast.model_selection.search import ConstantClassifier, DeclaredTrainer, PrivateGridSearch

__all__ = ["ConstantClassifier", "DeclaredTrainer", "PrivateGridSearch"]
