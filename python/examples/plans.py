#!/usr/bin/env python3
"""A plan and what it can be told: options, reports, results in place, new values, orders of rows.

    python python/examples/plans.py
"""

import numpy
import scipy.sparse
import windrow

matrix = scipy.sparse.random(2000, 1500, 0.01, format="csr", random_state=1, dtype=numpy.float32)
b = numpy.random.default_rng(2).standard_normal((1500, 64)).astype("f4")

# The short way: the matrix keeps the plan.
a = windrow.Csr(matrix)
assert numpy.allclose(a @ b, matrix @ b, atol=1e-4)

# A plan with options. They are the library's; one that there is not is an error that lists them.
plan = windrow.Spmm(a, width=64, precision="f32")
print(plan.report)
print("device memory:", plan.report.device_bytes, "bytes")

# Results in place: C <- 2 A B + C.
c = numpy.ones((2000, 64), "f4")
plan.mm(b, c, alpha=2, beta=1)
assert numpy.allclose(c, 2 * (matrix @ b) + 1, atol=1e-4)

# The same pattern with other values.
plan.replace_values(matrix.data * 3)
assert numpy.allclose(plan @ b, 3 * (matrix @ b), atol=1e-3)

# Rows that share columns side by side. Ctrl-C would end the search.
found = windrow.reorder(a, progress=lambda stage, done, total: None)
print("entries of a column vector:", {when: round(of["entries_per_vector"], 2) for when, of in found.quality.items()})
ordered = windrow.Spmm(a, width=64, order=found.order)
assert numpy.allclose(ordered @ b, matrix @ b, atol=1e-4)

# On a GPU operands may stay there: an Array is uploaded once, and what is made of it is one again.
on_device = windrow.Array(b)
print("on", on_device.device, "a product is", plan.mm(on_device))
