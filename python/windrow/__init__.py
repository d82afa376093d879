"""Sparse matrix products on NVIDIA GPUs and on the CPU."""

from windrow import errors
from windrow._windrow import Csr, Device
from windrow.errors import Error

__all__ = ["Csr", "Device", "Error", "errors"]
