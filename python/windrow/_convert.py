"""Between windrow's matrices and those of other libraries, by what these look like: scipy is never imported to look."""

from windrow.errors import DtypeError, OptionError, ShapeError

_NUMPY = {"f32": "f4", "f64": "f8", "f16": "f2"}


def parts(source, shape, dtype):
    """`(kind, arrays, shape)` of a source of a matrix: "csr", "csc", "coo" or "dense"."""
    if hasattr(source, "tocsr") and hasattr(source, "format"):
        return _of_scipy(source, shape, dtype)
    if isinstance(source, tuple):
        return _of_tuple(source, shape, dtype)
    if "sparse" in str(getattr(source, "layout", "")):
        return _of_torch(source, shape, dtype)
    import numpy

    dense = numpy.asarray(source)
    if dense.ndim != 2 or dense.dtype == object:
        raise DtypeError(
            f"a {type(source).__name__} is no matrix; give one of scipy.sparse, (data, indices, indptr) and shape, or an "
            "array of two dimensions"
        )
    _check_shape(dense, shape)
    return "dense", [_values(dense, dtype)], dense.shape


def _of_scipy(source, shape, dtype):
    if getattr(source, "ndim", 2) != 2:
        raise ShapeError(f"a sparse array of {source.ndim} dimension is no matrix; use its reshape((1, -1))")
    _check_shape(source, shape)
    if source.format == "coo":
        row, col = source.coords if hasattr(source, "coords") else (source.row, source.col)
        return "coo", [_values(source.data, dtype), row, col], source.shape
    if source.format not in ("csr", "csc"):
        source = source.tocsr()
    return source.format, [_values(source.data, dtype), source.indices, source.indptr], source.shape


def _check_shape(source, shape):
    rows, cols = source.shape
    if shape is not None and tuple(shape) != (rows, cols):
        raise ShapeError(f"the matrix is {rows} × {cols}, shape says {tuple(shape)}; leave shape out")


def _of_torch(source, shape, dtype):
    """A sparse tensor of PyTorch's, without its gradient."""
    source = source.detach()
    if source.ndim != 2 or source.dense_dim() != 0:
        raise ShapeError(f"a sparse tensor of {source.ndim} dimensions is no matrix of numbers; give a part that is one")
    _check_shape(source, shape)
    layout = str(source.layout).removeprefix("torch.sparse_")
    if layout == "csc":
        return "csc", [_values(source.values(), dtype), source.row_indices(), source.ccol_indices()], tuple(source.shape)
    if layout not in ("csr", "coo"):
        raise DtypeError(f"a tensor of layout {source.layout} is not taken; use its to_dense().to_sparse_csr()")
    source = source.to_sparse_csr()
    return "csr", [_values(source.values(), dtype), source.col_indices(), source.crow_indices()], tuple(source.shape)


def _of_tuple(source, shape, dtype):
    if shape is None:
        raise OptionError("arrays do not tell the shape of their matrix; give shape=(rows, columns)")
    if len(source) == 3:
        data, indices, indptr = source
        return "csr", [_values(data, dtype), indices, indptr], shape
    if len(source) == 2 and len(source[1]) == 2:
        data, (row, column) = source
        return "coo", [_values(data, dtype), row, column], shape
    raise DtypeError("a tuple is (data, indices, indptr) or (data, (row, column)), as in scipy.sparse")


def _values(data, dtype):
    """The values in a type that windrow has; whole numbers only if a type is asked for."""
    if hasattr(data, "__dlpack_device__") and not hasattr(data, "__array_interface__"):
        return data
    if hasattr(data, "__cuda_array_interface__"):
        return data
    import numpy

    data = numpy.asarray(data)
    wide = data.dtype.kind == "f" and data.dtype.itemsize > 8
    if (data.dtype.kind in "iub" or wide) and dtype is not None:
        return data.astype(_NUMPY.get(dtype, "f4"))
    if data.dtype.kind == "c":
        raise DtypeError(f"values are {data.dtype}; windrow has no complex numbers: multiply by A.real and A.imag")
    if data.dtype.kind not in "iubfV":
        raise DtypeError(f"values are {data.dtype}, which are no numbers; convert them first")
    if (data.dtype.kind != "f" or wide) and data.dtype.name != "bfloat16":
        raise DtypeError(f'values are {data.dtype}; give dtype="f32" (or f64, f16, bf16) to have them converted')
    return data


def to_scipy(matrix):
    """A `scipy.sparse.csr_array` with arrays of its own."""
    import numpy
    from scipy.sparse import csr_array

    if matrix.dtype in ("f16", "bf16"):
        matrix = matrix.astype("f32")
    index = numpy.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else numpy.int64
    arrays = matrix.data.copy(), matrix.indices.astype(index), matrix.indptr.astype(index)
    result = csr_array(arrays, shape=matrix.shape)
    result.has_canonical_format = True
    return result


def remake_csr(data, indices, indptr, shape, dtype):
    """A matrix of its arrays, as they are pickled."""
    from windrow import Csr

    if dtype == "bf16":
        # The bits, which are the upper half of a float's.
        import numpy

        data = (data.astype(numpy.uint32) << 16).view(numpy.float32)
    return Csr((data, indices, indptr), shape, dtype)


def remake_plan(name, source, device, options):
    """A plan made anew, as it was made."""
    import windrow

    return getattr(windrow, name)(source, device, **options)
