"""The two index tensors of a pattern, and products of a pattern that was not met before."""

import weakref

from windrow._windrow import raw
from windrow.torch._device import INDICES, NAMES, device_of, version_of


def product_key(transpose, values, precision, width):
    """What products have in common that one plan serves."""
    return (transpose, values is not None, precision, width <= 4)


class Indices:
    """Which index tensors make a pattern: their storages, places, types and versions. It keeps none of them alive."""

    def __init__(self, rowptr, col, cols):
        self.device = rowptr.device
        self.at = (rowptr.data_ptr(), col.data_ptr())
        self.types = (INDICES[rowptr.dtype], INDICES[col.dtype])
        self.index_types = (rowptr.dtype, col.dtype)
        self.on_cpu = self.device.type == "cpu"
        self.rows, self.nnz = rowptr.numel() - 1, col.numel()
        self.shape, self.index_shapes = (self.rows, cols), (rowptr.shape, col.shape)
        self.storages = (weakref.ref(rowptr.untyped_storage()), weakref.ref(col.untyped_storage()))
        self.versions = (version_of(rowptr), version_of(col))
        self.library = device_of(self.device)

    def is_of(self, rowptr, col):
        """Whether it is the pattern of these tensors, which begin where its own did."""
        try:
            return (
                self.storages[0]() is rowptr.untyped_storage()
                and self.storages[1]() is col.untyped_storage()
                and self.versions == (rowptr._version, col._version)
                and self.index_shapes == (rowptr.shape, col.shape)
                and self.index_types == (rowptr.dtype, col.dtype)
            )
        except RuntimeError:  # tensors of inference mode have no version
            return False

    def lives(self):
        return self.storages[0]() is not None and self.storages[1]() is not None

    def matrix_of(self, values):
        """The matrix, unchecked. It is used while the caller holds the tensors."""
        offset_type, column_type = self.types
        at, dtype = (None, "f32") if values is None else (values.data_ptr(), NAMES[values.dtype])
        return raw.DeviceCsr(
            self.library,
            self.shape,
            self.nnz,
            *self.at,
            at,
            offset_type=offset_type,
            column_type=column_type,
            dtype=dtype,
        )


class Unplanned(Indices):
    """A pattern on a GPU that was not met before. It is multiplied as it is, and checked on the way."""

    def __init__(self, rowptr, col, cols):
        super().__init__(rowptr, col, cols)
        self.widths = {}

    def checked(self, stream):
        return self.matrix_of(None).checked(stream)

    def multiply(self, transpose, values, b, c, stream, learned=False):
        """C <- A·B, as `Pattern.multiply`; NaN if the pattern is wrong."""
        self.matrix_of(values).run_once(stream, b, c)
        self.widths.setdefault(product_key(transpose, values, b[3], b[1][1]), set()).add(b[1][1])
