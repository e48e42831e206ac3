"""What estimators, transformers and searches have in common once they are fitted, or no longer."""

from __future__ import annotations

__all__ = ["Released"]


class Released:
    """Fitted attributes end in ``_``; ``privacy_`` is among them once there is a release."""

    def _forget(self) -> None:
        """Removes every fitted attribute."""
        for name in [name for name in vars(self) if name.endswith("_") and name[0] != "_"]:
            # Another thread may be fitting, and forgetting, the same object.
            self.__dict__.pop(name, None)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether a release has been published."""
        return "privacy_" in vars(self)
