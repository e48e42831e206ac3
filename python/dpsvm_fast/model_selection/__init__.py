"""Search over parameters under one budget."""

from dpsvm_fast.model_selection._declared import DeclaredTrainer
from dpsvm_fast.model_selection._default import ConstantClassifier
from dpsvm_fast.model_selection._search import PrivateGridSearch

__all__ = ["ConstantClassifier", "DeclaredTrainer", "PrivateGridSearch"]
