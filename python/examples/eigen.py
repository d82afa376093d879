#!/usr/bin/env python3
"""The smallest eigenvalues of a graph's Laplacian with scipy's solvers, and windrow's product in their loops.

    python python/examples/eigen.py [matrix file]

A solver asks for products with one vector or with a block of them; a plan makes them, in memory that is there already.
Without a file the graph is a grid.
"""

import sys
import time

import numpy
import scipy.sparse
import windrow
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

BLOCK = 8


def grid(side):
    """Each node of a square grid beside its four neighbours."""
    line = scipy.sparse.diags([1.0, 1.0], [-1, 1], shape=(side, side))
    identity = scipy.sparse.identity(side)
    return scipy.sparse.kron(identity, line) + scipy.sparse.kron(line, identity)


def laplacian(graph):
    """Of the graph without directions and without weights."""
    graph = scipy.sparse.csr_array(graph)
    both = ((graph + graph.T) != 0).astype(numpy.float64)
    both.setdiag(0)
    both.eliminate_zeros()
    return scipy.sparse.csr_array(scipy.sparse.csgraph.laplacian(both))


def main():
    graph = windrow.read(sys.argv[1], "f64").to_scipy() if len(sys.argv) > 1 else grid(60)
    matrix = laplacian(graph)
    nodes = matrix.shape[0]
    plan = windrow.Spmm(windrow.Csr(matrix), width=BLOCK, precision="f64")
    print(plan)
    operator = LinearOperator(matrix.shape, matvec=plan.mm, matmat=plan.mm, dtype=numpy.float64)

    # Lanczos, a vector at a time.
    started = time.perf_counter()
    largest = eigsh(operator, k=4, which="LM", return_eigenvectors=False)
    print(f"eigsh:  the largest are {numpy.round(largest, 6)}, after {time.perf_counter() - started:.2f} s")

    # A block at a time: what sparse times dense is for.
    start = numpy.random.default_rng(1).standard_normal((nodes, BLOCK))
    scale = scipy.sparse.diags(1 / numpy.maximum(matrix.diagonal(), 1))
    started = time.perf_counter()
    smallest, vectors = lobpcg(operator, start, M=scale, tol=1e-5, maxiter=400, largest=False)
    print(f"lobpcg: the smallest are {numpy.round(smallest[:4], 6)}, after {time.perf_counter() - started:.2f} s")

    residual = numpy.abs(matrix @ vectors - vectors * smallest).max()
    print(f"the worst residual of scipy's own product is {residual:.1e}")
    assert residual < 1e-3 and abs(smallest[0]) < 1e-6


if __name__ == "__main__":
    main()
