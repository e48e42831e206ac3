"""Write the specification of the study: what every party must agree on before it takes part.

    python make_spec.py FILE [STUDY [EPSILON]]

Prints the digest. Every party gets the file by another way than the SuperLink, reads it, and
compares the digest over the telephone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hospitals import columns

from dpsvm_fast.federated import FederatedSpec


def specification(study: str = "study 1", epsilon: float = 4.0) -> FederatedSpec:
    """Three hospitals; one may drop out, and one may help the server against the others.

    A study that has to be repeated needs another name: no hospital answers the same one twice.
    """
    return FederatedSpec.dp_helmet(
        study=study,
        n_users=3,
        max_dropout=1 / 3,
        honest_fraction=2 / 3,
        epsilon=epsilon,
        delta=1e-5,
        n_features=len(columns.COLUMNS),
        classes=columns.CLASSES,
        data_norm=1.0,
        # Public bounds on a hospital's number of records.
        min_records=100,
        max_records=200,
        local="exact",
        loss="huber",
        # Chosen before anybody looked at data, as all of this.
        regularization=0.03,
    )


def main(arguments: list[str]) -> None:
    """Write the file and show its digest."""
    spec = specification(*arguments[1:2], *map(float, arguments[2:3]))
    Path(arguments[0]).write_text(spec.to_json(), encoding="utf-8")
    print(f"digest: {spec.digest()}")


if __name__ == "__main__":
    main(sys.argv[1:])
