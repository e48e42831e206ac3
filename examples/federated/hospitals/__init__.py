"""Application that the SuperLink and every hospital run."""
