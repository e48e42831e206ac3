"""Private search over parameters within one budget."""

from dpsvm_fast.model_selection.search import DeclaredTrainer, PrivateGridSearch
from dpsvm_fast.model_selection.strategies import ConstantClassifier

__all__ = ["ConstantClassifier", "DeclaredTrainer", "PrivateGridSearch"]
