"""Private search over parameters, under one budget."""

from dpsvm_fast.model_selection.search import DeclaredTrainer, PrivateGridSearch
from dpsvm_fast.model_selection.strategies import ConstantClassifier

__all__ = ["ConstantClassifier", "DeclaredTrainer", "PrivateGridSearch"]
