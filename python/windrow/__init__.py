"""Sparse matrix products on NVIDIA GPUs and on the CPU."""

import os

from windrow import errors
from windrow._windrow import (
    Array,
    Csr,
    Device,
    Mttkrp,
    NmSpmm,
    NmWeights,
    OutOfCoreSpmm,
    RowSoftmax,
    Sddmm,
    Spmm,
    Tensor,
    Ttm,
    after_fork_in_child,
    default_device,
    read,
    reorder,
    write,
)
from windrow.errors import Error

if hasattr(os, "register_at_fork"):
    # Threads stay in the parent, and so does whatever the driver knows.
    os.register_at_fork(after_in_child=after_fork_in_child)

del os, after_fork_in_child

__all__ = [
    "Array",
    "Csr",
    "Device",
    "Error",
    "Mttkrp",
    "NmSpmm",
    "NmWeights",
    "OutOfCoreSpmm",
    "RowSoftmax",
    "Sddmm",
    "Spmm",
    "Tensor",
    "Ttm",
    "default_device",
    "errors",
    "read",
    "reorder",
    "write",
]
