"""What all tests share."""

import importlib.util

import numpy
import pytest
import windrow


def pytest_configure(config):
    config.addinivalue_line("markers", "torch: needs PyTorch, and is skipped without it")


def pytest_collection_modifyitems(items):
    if importlib.util.find_spec("torch") is None:
        skip = pytest.mark.skip(reason="PyTorch is not installed")
        for item in items:
            if "torch" in item.keywords:
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    """The line by which continuous integration counts, as cargo's tests have it."""
    stats = {outcome: len(terminalreporter.stats.get(outcome, [])) for outcome in ("passed", "failed", "error", "skipped")}
    failed = stats["failed"] + stats["error"]
    verdict = "FAILED" if failed else "ok"
    terminalreporter.write_line(
        f"test result: {verdict}. {stats['passed']} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    )
    reasons = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped: {count} tests of Python: {reason}")


def devices():
    """The CPU, and the first GPU if there is one."""
    return ["cpu"] + (["cuda:0"] if windrow.Device.cuda_count() else [])


@pytest.fixture(params=devices())
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def _on_the_cpu():
    windrow.default_device("cpu")


@pytest.fixture
def planned():
    """On GPUs, too, `windrow.torch` plans the first product of a pattern."""
    import windrow.torch as wt

    wt.cache.unplanned = False
    yield
    wt.cache.unplanned = True


@pytest.fixture
def empty_cache():
    """The plans that `windrow.torch` keeps are none before and after, whatever the test tells the cache."""
    import windrow.torch as wt

    wt.cache.clear()
    yield
    wt.cache.clear()
    wt.cache.size, wt.cache.unplanned = 64, True


def random(rows, cols, density, seed=1, dtype=numpy.float32):
    """A random matrix of scipy's whose products are exact in any order: small whole numbers."""
    import scipy.sparse

    rng = numpy.random.default_rng(seed)
    matrix = scipy.sparse.random(rows, cols, density, format="csr", random_state=seed, dtype=numpy.float64)
    matrix.data = rng.integers(1, 4, matrix.nnz).astype(dtype)
    return matrix.astype(dtype)


def whole(shape, seed=2, dtype=numpy.float32):
    """Small whole numbers."""
    return numpy.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)
