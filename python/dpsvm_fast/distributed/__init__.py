"""One owner, rows larger than memory or than a machine.

:class:`Partitions` says where the rows are; :func:`fit` trains an estimator on them, here or on a
Dask cluster, and releases what ``estimator.fit`` on all rows would release.
"""

from dpsvm_fast.distributed._fit import fit
from dpsvm_fast.distributed.errors import ClusterError, PartitionError
from dpsvm_fast.distributed.partitions import Partitions

__all__ = ["ClusterError", "PartitionError", "Partitions", "fit"]
