#!/usr/bin/env python3
"""Multiplies torch.sparse_csr tensors by dense ones with windrow, in PyTorch's own memory and streams.

    cargo build --release -p windrow-examples --example torch_memory
    python examples/torch_memory.py target/release/examples/libtorch_memory.so

It checks each product against torch.sparse.mm, that a run copies nothing, allocates nothing, waits for nothing and
starts the product's kernels alone, and that these come in the order of PyTorch's stream: the current one, another one,
and one that is captured into a graph. Prints what it saw. Exit code 0 if all of it was so, 1 if not, 77 without PyTorch
or without a GPU.
"""

import ctypes
import json
import os
import sys
import tempfile
import warnings

SKIPPED = 77
WIDTH = 64
ROWS, COLS, PER_ROW, LONG_ROW = 20_000, 15_000, 16, 280
SLEEP_CYCLES = 400_000_000  # some tenths of a second, in which the host queues a run many times over


class Csr(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("nnz", ctypes.c_int64),
        ("crow_indices", ctypes.c_uint64),
        ("col_indices", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("index_bits", ctypes.c_int32),
        ("value_bits", ctypes.c_int32),
    ]


class Dense(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_int64), ("cols", ctypes.c_int64), ("data", ctypes.c_uint64)]


class Library:
    """The functions of torch_memory.rs."""

    def __init__(self, path):
        pointer, library = ctypes.c_void_p, ctypes.CDLL(path)
        self.plan_function, self.run_function = library.torch_memory_plan, library.torch_memory_run
        self.free_function, self.error_function = library.torch_memory_free, library.torch_memory_error
        self.plan_function.argtypes = [ctypes.c_int, pointer, ctypes.POINTER(Csr), ctypes.c_int64]
        self.plan_function.restype = pointer
        dense = ctypes.POINTER(Dense)
        self.run_function.argtypes = [pointer, pointer, ctypes.c_float, dense, ctypes.c_float, dense]
        self.run_function.restype = ctypes.c_int
        self.free_function.argtypes, self.free_function.restype = [pointer], None
        self.error_function.argtypes, self.error_function.restype = [], ctypes.c_char_p

    def error(self):
        return self.error_function().decode()


class Plan:
    """A product with a sparse tensor, whose memory it reads once, on the current stream."""

    def __init__(self, library, a, width):
        self.library, self.handle = library, None
        crow, col, values = a.crow_indices(), a.col_indices(), a.values()
        assert crow.is_contiguous() and col.is_contiguous() and values.is_contiguous()
        assert crow.dtype == col.dtype
        matrix = Csr(
            *a.shape,
            values.numel(),
            crow.data_ptr(),
            col.data_ptr(),
            values.data_ptr(),
            8 * crow.element_size(),
            8 * values.element_size(),
        )
        gpu = a.device.index or 0
        self.handle = library.plan_function(gpu, current_stream(), ctypes.byref(matrix), width)
        if not self.handle:
            raise RuntimeError(library.error())

    def run(self, b, c, alpha=1.0, beta=0.0):
        """C <- alpha A B + beta C, on the current stream."""
        b, c = (Dense(*t.shape, t.data_ptr()) for t in (b, c))
        arguments = alpha, ctypes.byref(b), beta, ctypes.byref(c)
        if self.library.run_function(self.handle, current_stream(), *arguments) != 0:
            raise RuntimeError(self.library.error())

    def free(self):
        self.library.free_function(self.handle)
        self.handle = None


def current_stream():
    return torch.cuda.current_stream().cuda_stream


def check(what, holds, seen=""):
    """Prints what was seen; ends the program if it is not what it should be."""
    print(f"{'ok' if holds else 'WRONG':6} {what}{': ' if seen else ''}{seen}", flush=True)
    if not holds:
        sys.exit(1)


def pattern():
    """Offsets and columns of a random matrix with a long row and with empty ones."""
    rows = torch.randint(ROWS - 100, (ROWS * PER_ROW,), device="cuda")
    rows[:LONG_ROW] = 7
    columns = torch.randint(COLS, (ROWS * PER_ROW,), device="cuda")
    ones = torch.ones(rows.numel(), device="cuda")
    a = torch.sparse_coo_tensor(torch.stack([rows, columns]), ones, (ROWS, COLS)).coalesce().to_sparse_csr()
    return a.crow_indices(), a.col_indices()


def whole(least, most, shape, dtype):
    """Whole numbers so small that every sum is exact in f16, and equal results are equal bits."""
    return torch.randint(least, most + 1, shape, device="cuda").to(dtype)


def sparse(crow, col, values):
    return torch.sparse_csr_tensor(crow, col, values, size=(ROWS, COLS))


def reference(a, b):
    wide = sparse(a.crow_indices(), a.col_indices(), a.values().float())
    return torch.sparse.mm(wide, b.float()).to(b.dtype)


def traced(what):
    """The activities of the GPU while `what` was called, by kind, as the profiler saw them."""
    from torch.profiler import ProfilerActivity, profile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            what()
            torch.cuda.synchronize()  # so that all of it is in the trace
        profiler.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    kinds = {"kernel": [], "gpu_memcpy": [], "gpu_memset": [], "cuda_runtime": []}
    for event in events:
        if event.get("cat") in kinds:
            kinds[event["cat"]].append(event)
    return kinds


def bytes_of(copies, direction):
    return sum(int(copy["args"].get("bytes", 0)) for copy in copies if direction in copy["name"])


def check_products(library, crow, col):
    """Both types of indices and of values, with factors, and nothing written beside C."""
    for index in (torch.int32, torch.int64):
        for dtype in (torch.float32, torch.float16):
            a = sparse(crow.to(index), col.to(index), whole(-3, 3, (col.numel(),), dtype))
            b = whole(-2, 2, (COLS, WIDTH), dtype)
            flat = torch.full((ROWS * WIDTH + 64,), float("nan"), device="cuda", dtype=dtype)
            c = flat[: ROWS * WIDTH].view(ROWS, WIDTH)
            plan = Plan(library, a, WIDTH)
            plan.run(b, c)
            wanted = reference(a, b)
            check(f"{index} and {dtype}: the product of torch.sparse.mm", torch.equal(c, wanted))
            plan.run(b, c, alpha=-1.0, beta=1.0)
            check("    alpha = -1, beta = 1 take it away again", bool((c == 0).all()))
            check("    nothing is written behind C", bool(flat[ROWS * WIDTH :].isnan().all()))
            plan.free()


def check_making(library, a):
    """How little of a matrix comes to the host."""
    made = []
    seen = traced(lambda: made.append(Plan(library, a, WIDTH)))
    parts = (a.crow_indices(), a.col_indices(), a.values())
    matrix = sum(part.numel() * part.element_size() for part in parts)
    down, up = (bytes_of(seen["gpu_memcpy"], direction) for direction in ("DtoH", "HtoD"))
    check(
        "a plan is made where the matrix is",
        down + up < matrix // 10,
        f"{matrix} bytes of matrix, {down} to the host, {up} back, {len(seen['kernel'])} kernels",
    )
    made[0].free()


def check_run(plan, b, c):
    """What a run starts, copies and allocates."""
    runs = 10
    seen = traced(lambda: [plan.run(b, c) for _ in range(runs)])
    names = sorted({kernel["name"] for kernel in seen["kernel"]})
    count = len(seen["kernel"])
    check("the profiler sees kernels", count > 0)
    check(
        f"{runs} runs start the product's kernels alone",
        all(name.startswith("spmm_") for name in names) and count % runs == 0,
        f"{count // runs} a run of {', '.join(names)}",
    )
    check("    and copy nothing", not seen["gpu_memcpy"], f"{len(seen['gpu_memcpy'])} copies")
    check("    and set nothing", not seen["gpu_memset"], f"{len(seen['gpu_memset'])} memsets")
    called = sorted({call["name"] for call in seen["cuda_runtime"]})
    waits = [call for call in seen["cuda_runtime"] if "Synchronize" in call["name"]]
    # The one above, and those of the profiler's own end.
    print(f"       the runtime was called for {', '.join(called) or 'nothing'} ({len(waits)} waits, this script's)")
    free, taken = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    for _ in range(100):
        plan.run(b, c)
    torch.cuda.synchronize()
    check(
        "    and allocate nothing",
        (torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()) == (free, taken),
        f"{free} bytes are free as before",
    )


def check_order(plan, a, where):
    """B is written on the stream right before the run, behind work that takes long, and C read right behind it."""
    old, new = (whole(-2, 2, (COLS, WIDTH), torch.float32) for _ in range(2))
    b, c, behind = old.clone(), torch.empty(ROWS, WIDTH, device="cuda"), torch.empty(ROWS, WIDTH, device="cuda")
    # What is made and loaded once: the first launch of a kernel may wait for the whole device.
    b.copy_(new)
    plan.run(b, c)
    torch.mul(c, 2, out=behind)
    b.copy_(old)
    torch.cuda.current_stream().synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(SLEEP_CYCLES)
    b.copy_(new)
    for _ in range(20):
        plan.run(b, c)
    torch.mul(c, 2, out=behind)
    done.record()
    check(f"{where}: runs are queued while the stream is busy", not done.query())
    done.synchronize()
    check(f"{where}: they come after what was queued before", torch.equal(c, reference(a, new)))
    check(f"{where}: what is queued behind them comes after", torch.equal(behind, 2 * reference(a, new)))


def check_graph(plan, a, stream):
    """A step with a product in it, captured, and launched with other numbers."""
    source, b = whole(-1, 1, (COLS, WIDTH), torch.float32), torch.empty(COLS, WIDTH, device="cuda")
    c, doubled = (torch.empty(ROWS, WIDTH, device="cuda") for _ in range(2))

    def step():
        torch.add(source, 1, out=b)
        plan.run(b, c)
        torch.mul(c, 2, out=doubled)

    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    for number in range(1, 4):
        source.copy_(whole(-1, 1, (COLS, WIDTH), torch.float32))
        doubled.fill_(float("nan"))
        graph.replay()
        right = torch.equal(doubled, 2 * reference(a, source + 1))
        check(f"launch {number} of a graph has the product of its numbers", right)
    seen = traced(graph.replay)
    names = [kernel["name"] for kernel in seen["kernel"]]
    print(f"       a launch starts {len(names)} kernels, {sum(name.startswith('spmm_') for name in names)} of them windrow's")


def check_errors(library, plan, a, b, c):
    """What is wrong is told, and nothing happens."""

    def told(what, call, *words):
        try:
            call()
        except RuntimeError as error:
            text = str(error)
            check(f"{what} is refused", all(word in text for word in words), text)
        else:
            check(f"{what} is refused", False)

    told("a tensor of the host", lambda: plan.run(b.cpu(), c), "memory")
    told("a B with too few rows", lambda: plan.run(b[1:], c), str(COLS))
    both = torch.zeros(COLS + ROWS, WIDTH, device="cuda")
    told("a C that begins in B", lambda: plan.run(both[:COLS], both[COLS - 1 : COLS - 1 + ROWS]), "C", "B")
    columns = a.col_indices().clone()
    columns[5] = COLS
    parts = a.crow_indices(), columns, a.values()
    with_fault = torch.sparse_csr_tensor(*parts, size=(ROWS, COLS), check_invariants=False)
    told("a column out of range", lambda: Plan(library, with_fault, WIDTH), str(COLS))
    plan.run(b, c)
    check("the next run is right", torch.equal(c, reference(a, b)))


def report_times(plan, a, b, c):
    def microseconds(call, runs=200):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()
        begin.record()
        for _ in range(runs):
            call()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end) / runs

    ours, theirs = microseconds(lambda: plan.run(b, c)), microseconds(lambda: torch.sparse.mm(a, b))
    print(f"       {a.values().numel()} entries by {WIDTH} columns: {ours:.1f} us, torch.sparse.mm {theirs:.1f} us")


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 1
    warnings.filterwarnings("ignore", message=".*[Ss]parse.*")
    library = Library(os.path.abspath(sys.argv[1]))
    print(f"       PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    crow, col = pattern()
    check_products(library, crow, col)

    a = sparse(crow, col, whole(-3, 3, (col.numel(),), torch.float32))
    b, c = whole(-2, 2, (COLS, WIDTH), torch.float32), torch.empty(ROWS, WIDTH, device="cuda")
    plan = Plan(library, a, WIDTH)
    plan.run(b, c)
    reference(a, b)
    traced(lambda: plan.run(b, c))  # the profiler's own start
    check_making(library, a)
    check_run(plan, b, c)
    check_order(plan, a, "current stream")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        check_order(plan, a, "side stream")
    check_graph(plan, a, side)
    check_errors(library, plan, a, b, c)
    report_times(plan, a, b, c)
    plan.free()
    print("all of it is so")
    return 0


try:
    import torch
except ImportError:
    print("skipped: no PyTorch (pip install torch)")
    sys.exit(SKIPPED)
if not torch.cuda.is_available():
    print("skipped: PyTorch has no GPU")
    sys.exit(SKIPPED)

if __name__ == "__main__":
    sys.exit(main())
