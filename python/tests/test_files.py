"""Matrices in files, and orders of rows."""

import os
import signal
import threading
import time

import numpy
import pytest
import scipy.sparse
import windrow
from conftest import random


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "a.npz"])
def test_files(name, tmp_path):
    matrix = random(30, 20, 0.1)
    windrow.write(tmp_path / name, windrow.Csr(matrix))
    assert windrow.read(tmp_path / name) == windrow.Csr(matrix)
    assert windrow.read(str(tmp_path / name), "f64") == windrow.Csr(matrix, dtype="f64")


def test_limits(tmp_path):
    windrow.write(tmp_path / "a.mtx", random(30, 20, 0.1))
    with pytest.raises(windrow.errors.OutOfMemoryError, match="30 rows are more than the limit of 29; .*larger max_rows"):
        windrow.read(tmp_path / "a.mtx", max_rows=29)
    assert windrow.read(tmp_path / "a.mtx", max_rows=30).shape == (30, 20)


def test_scipy_reads_what_is_written_and_the_other_way_round(tmp_path):
    matrix = random(30, 20, 0.1)
    windrow.write(tmp_path / "a.npz", matrix)
    assert (scipy.sparse.load_npz(tmp_path / "a.npz") != matrix).nnz == 0
    scipy.sparse.save_npz(tmp_path / "b.npz", matrix)
    assert windrow.read(tmp_path / "b.npz") == windrow.Csr(matrix)


@pytest.mark.parametrize("method", ["similarity", "minhash", "rcm", "community", "degree", "identity"])
def test_orders(method):
    matrix = random(200, 200, 0.02)
    told = []
    found = windrow.reorder(matrix, method, progress=lambda *step: told.append(step))
    assert sorted(found.order) == list(range(200))
    assert found.quality["before"]["column_vectors"] > 0 and found.stages
    assert told and all(0 <= done <= total for _, done, total in told)


def test_options_of_orders():
    a = random(64, 64, 0.1)
    assert len(windrow.reorder(a, alpha=0.5).order) == 64
    with pytest.raises(windrow.errors.OptionError, match="unknown field `beta`"):
        windrow.reorder(a, beta=1)


def large():
    rng = numpy.random.default_rng(1)
    rows, nnz = 120_000, 1_500_000
    entries = rng.integers(0, rows, (2, nnz))
    return windrow.Csr((numpy.ones(nnz, "f4"), entries), (rows, rows))


def test_a_callback_ends_the_work():
    class Enough(Exception):
        pass

    def stop(stage, done, total):
        raise Enough(stage)

    a, started = large(), time.perf_counter()
    with pytest.raises(Enough):
        windrow.reorder(a, progress=stop)
    assert time.perf_counter() - started < 5


def test_control_c_ends_the_work_and_other_threads_go_on():
    a, counted = large(), []
    stop = threading.Event()

    def count():
        while not stop.wait(0.01):
            counted.append(time.perf_counter())

    def interrupt():
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threads = [threading.Thread(target=count), threading.Thread(target=interrupt)]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            windrow.reorder(a)
            time.sleep(5)  # so that the signal is not another test's
            pytest.fail("the order was found before anybody wanted its end")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(counted) > 3
