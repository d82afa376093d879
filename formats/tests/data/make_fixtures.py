"""Makes the .npz files in this folder: python3 make_fixtures.py (NumPy and SciPy needed)."""

import numpy as np
import scipy.sparse as sp

# The matrix that all SciPy fixtures hold, 4 x 5, with an empty row and an explicit zero:
#     [ .  1.5  .   .  -2  ]
#     [ .   .   .   .   .  ]
#     [ 3   .   0   .   .  ]
#     [ .  0.25 .   7   1  ]
ROWS = np.array([0, 0, 2, 2, 3, 3, 3], dtype=np.int32)
COLS = np.array([1, 4, 0, 2, 1, 3, 4], dtype=np.int32)
VALUES = np.array([1.5, -2.0, 3.0, 0.0, 0.25, 7.0, 1.0])


def matrix(dtype):
    return sp.coo_matrix((VALUES.astype(dtype), (ROWS, COLS)), shape=(4, 5))


# Every class, compressed and not.
for storage in ["csr", "csc", "coo"]:
    a = matrix(np.float64).asformat(storage)
    sp.save_npz(f"{storage}.npz", a, compressed=False)
    sp.save_npz(f"{storage}_compressed.npz", a, compressed=True)

# Every value type; integers cut the fractions off, bool makes every value but zero true.
for dtype in ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", ">f8", ">i4"]:
    name = dtype.replace(">", "be_").replace("?", "bool")
    values = np.abs(VALUES) if dtype[0] == "u" else VALUES
    a = matrix(np.float64).tocsr()
    np.savez(f"csr_{name}.npz", indices=a.indices, indptr=a.indptr, format=b"csr", shape=a.shape,
             data=values.astype(dtype))

# What else SciPy reads or wrote: sparse arrays, 64-bit indices, the format as unicode, COO by `coords`,
# unsorted rows with duplicates, room behind the last entry.
sp.save_npz("csr_array.npz", sp.csr_array(matrix(np.float32)))
a = matrix(np.float64).tocsr()
np.savez("csr_i8_indices.npz", indices=a.indices.astype("i8"), indptr=a.indptr.astype("i8"), format=b"csr",
         shape=a.shape, data=a.data)
np.savez("csr_unicode_format.npz", indices=a.indices, indptr=a.indptr, format="csr", shape=a.shape, data=a.data)
np.savez("coo_coords.npz", coords=np.stack([ROWS, COLS]), format=b"coo", shape=(4, 5), data=VALUES)
np.savez("csr_unsorted_duplicates.npz", indices=np.array([4, 1, 1, 2, 0, 4, 3, 1], dtype="i4"),
         indptr=np.array([0, 3, 3, 5, 8], dtype="i4"), format=b"csr", shape=(4, 5),
         data=np.array([-2.0, 1.0, 0.5, 0.0, 3.0, 1.0, 7.0, 0.25]))
np.savez("csr_room_behind.npz", indices=np.append(a.indices, [0, 0]).astype("i4"), indptr=a.indptr,
         format=b"csr", shape=a.shape, data=np.append(a.data, [9.0, 9.0]))
sp.save_npz("csr_empty.npz", sp.csr_matrix((3, 0)))

# What is refused.
sp.save_npz("bsr.npz", sp.bsr_matrix(np.ones((4, 4)), blocksize=(2, 2)))
sp.save_npz("dia.npz", sp.dia_matrix(np.eye(3)))
sp.save_npz("csr_complex.npz", sp.csr_matrix(np.array([[1j]])))
np.savez("objects.npz", src_li=np.array([None, "x"], dtype=object), dst_li=[0, 1], num_nodes=2)
np.savez("other_arrays.npz", weights=np.ones(3), bias=np.zeros(1))

# Graphs as TC-GNN keeps them: a list of edges and the number of nodes, the last one without an edge.
edges = dict(src_li=np.array([0, 0, 1, 3, 3]), dst_li=np.array([1, 2, 0, 0, 0]))
np.savez("tc_gnn.npz", num_nodes=5, **edges)
np.savez_compressed("tc_gnn_compressed.npz", num_nodes=np.array([5], dtype="i4"),
                    **{name: ids.astype("i4") for name, ids in edges.items()})
