"""Processes, threads, memory, and what an import costs."""

import concurrent.futures
import gc
import multiprocessing
import os
import subprocess
import sys

import numpy
import pytest
import windrow
from conftest import random, whole

# Enough to see a leak of a few hundred bytes a plan; WINDROW_TEST_PLANS=10000 is the whole test.
PLANS = int(os.environ.get("WINDROW_TEST_PLANS", "600"))


def product(seed):
    """A product that is large enough for several threads, and its sum."""
    matrix = random(2000, 2000, 0.02, seed)
    return float((windrow.Csr(matrix) @ whole((2000, 64))).sum())


def in_grandchild(seed):
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool:
        return pool.apply(product, (seed,))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers(method):
    expected = [product(seed) for seed in range(3)]
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(product, range(3), timeout=120)) == expected


def test_a_worker_that_forks():
    expected = product(1)
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        process = pool.submit(os.getpid).result(60)
        assert process != os.getpid()
        assert pool.submit(product, 1).result(60) == expected
    child = os.fork()
    if child == 0:
        os._exit(0 if in_grandchild(1) == expected and product(1) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_plan_goes_to_a_worker():
    plan = windrow.Spmm(random(50, 40, 0.1), "cpu", width=8)
    b = whole((40, 8))
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert numpy.array_equal(pool.submit(plan.mm, b).result(60), plan.mm(b))


def test_cuda_does_not_survive_a_fork():
    if windrow.Device.cuda_count() == 0:
        pytest.skip("there is no GPU")
    plan = windrow.Spmm(random(50, 40, 0.1), "cuda:0")
    b = whole((40, 8))
    plan.mm(b)
    child = os.fork()
    if child == 0:
        try:
            plan.mm(b)
        except windrow.errors.DeviceError as error:
            del plan
            os._exit(0 if 'set_start_method("spawn")' in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert numpy.array_equal(plan.mm(b), windrow.Csr(random(50, 40, 0.1)) @ b)


def test_threads_share_a_plan(device):
    matrix = random(500, 400, 0.05)
    plan = windrow.Spmm(matrix, device, width=16)

    def run(seed):
        b = whole((400, 16), seed)
        return numpy.array_equal(plan.mm(b), matrix @ b)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(64)))


def read_and_change():
    matrix, b = random(100, 100, 0.05), whole((100, 8))
    plan = windrow.Spmm(matrix, "cpu", width=8)
    work = [
        lambda: plan.replace_values(matrix.data),
        lambda: plan.report.rows,
        lambda: plan.shape[0],
        lambda: len(plan.mm(b)),
        lambda: len(repr(plan)),
    ]
    with concurrent.futures.ThreadPoolExecutor(len(work)) as pool:
        runs = [pool.submit(work[turn % len(work)]) for turn in range(400)]
        assert {run.result() for run in runs} == {None, 100, len(repr(plan))}
    assert numpy.array_equal(plan.mm(b), matrix @ b)


def test_threads_read_a_plan_while_others_change_it():
    """In a process of its own: threads that wait for each other would hold this one's lock, too."""
    code = "import test_process; test_process.read_and_change()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=os.path.dirname(__file__))


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="only Linux tells what memory is used")
def test_memory_is_flat():
    matrix, b = random(100, 100, 0.05), whole((100, 8))

    def once():
        a = windrow.Csr(matrix)
        a @ b
        b.T @ a.T
        plan = windrow.Spmm(a, "cpu", width=8)
        plan.mm(windrow.Array(b, "cpu")), plan.report.rows, a.data.sum()
        windrow.Sddmm(a, "cpu", inner=8).run(b, b)
        numpy.from_dlpack(windrow.Array(b, "cpu")).sum()
        try:
            plan.mm(b[:3])
        except windrow.Error:
            pass

    for _ in range(PLANS // 4):
        once()
    before = resident()
    for _ in range(PLANS):
        once()
    grown = resident() - before
    assert grown < 100 * PLANS + (1 << 20), f"{grown} bytes more after {PLANS} plans"


def test_an_import_brings_nothing_heavy():
    code = "import sys, windrow; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"numpy", "scipy", "torch", "json", "multiprocessing"} & set(modules)
