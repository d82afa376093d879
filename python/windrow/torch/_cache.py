"""Plans of patterns that PyTorch's tensors hold: made when needed, kept while their tensors live.

A pattern is known by the storages, places and `_version`s of its two index tensors. The storages are held by weak
references: when one dies, its plans go, and memory that comes back at the same address is another storage. What
PyTorch does not see, writes through `.data`, numpy or DLPack, the cache does not see either: `cache.clear()` after them.
"""

import os
import threading
import weakref
from collections import OrderedDict, deque

import torch

from windrow import Device, errors
from windrow._windrow import raw

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}
INDICES = {torch.int32: "i32", torch.int64: "i64"}

_devices = {}


def device_of(device):
    """The library's device of a torch.device."""
    found = _devices.get(device)
    if found is None:
        if device.type == "cpu":
            found = Device("cpu")
        elif device.type == "cuda":
            found = Device(f"cuda:{device.index or 0}")
        else:
            raise errors.DeviceError(f"tensors are on {device}; windrow computes on CUDA devices and on the CPU")
        _devices[device] = found
    return found


def stream_of(device):
    """The handle of PyTorch's current stream on a device; there is none on the CPU."""
    if device.type == "cpu":
        return None
    return torch._C._cuda_getCurrentRawStream(device.index)


def capturing(device):
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _capture_stream(device):
    """The stream that torch.cuda.graph takes unless told, if it is of this device."""
    stream = torch.cuda.graph.default_capture_stream
    if stream is None:
        stream = torch.cuda.graph.default_capture_stream = torch.cuda.Stream()
    return (stream.cuda_stream,) if stream.device == device else ()


def version_of(tensor):
    """The count of writes to a tensor; None where PyTorch keeps none."""
    return None if tensor.is_inference() else tensor._version


def operand(matrix):
    return (matrix.data_ptr(), matrix.shape, matrix.stride(), NAMES[matrix.dtype])


class Values:
    """Which values a plan holds: those of a tensor as it was at some version."""

    __slots__ = ("storage", "at", "version", "dtype")

    def __init__(self, tensor):
        self.storage = weakref.ref(tensor.untyped_storage())
        self.at, self.version, self.dtype = tensor.data_ptr(), version_of(tensor), tensor.dtype

    def are(self, tensor):
        return (
            self.version is not None
            and self.at == tensor.data_ptr()
            and self.storage() is tensor.untyped_storage()
            and self.dtype == tensor.dtype
            and self.version == version_of(tensor)
        )


class Product:
    """A plan of a product and what it holds."""

    __slots__ = ("plan", "lock", "values", "runs", "full", "graphed", "ready")

    def __init__(self, plan, values, full):
        self.plan, self.values, self.full = plan, values, full
        # Runs that have been made, whether a graph holds it, and for each width that it ran with whether a capture
        # finds all made that it needs.
        self.lock, self.runs, self.graphed, self.ready = threading.Lock(), 0, False, {}


class Pattern:
    """All plans of one version of a pattern."""

    def __init__(self, rowptr, col, cols, cache):
        self.device = rowptr.device
        self.at = (rowptr.data_ptr(), col.data_ptr())
        self.types = (INDICES[rowptr.dtype], INDICES[col.dtype])
        self.index_types = (rowptr.dtype, col.dtype)
        self.shape, self.nnz = (rowptr.numel() - 1, cols), col.numel()
        self.storages = (weakref.ref(rowptr.untyped_storage()), weakref.ref(col.untyped_storage()))
        self.versions = (version_of(rowptr), version_of(col))
        self.library = device_of(self.device)
        self.cache = cache
        self.lock = threading.RLock()
        self.plans = {}
        self.graphed = []
        self.matrix = self.transpose = self.order = self.made = self.copies = None
        self.pinned = 0

    @classmethod
    def of_copies(cls, rowptr, col, cols, cache):
        """Of index tensors that nobody else keeps."""
        made = cls(rowptr, col, cols, cache)
        made.copies = (rowptr, col)
        return made

    def is_of(self, rowptr, col):
        return (
            self.storages[0]() is rowptr.untyped_storage()
            and self.storages[1]() is col.untyped_storage()
            and self.versions == (version_of(rowptr), version_of(col))
            and self.shape[0] == rowptr.numel() - 1
            and self.nnz == col.numel()
            and self.index_types == (rowptr.dtype, col.dtype)
        )

    def lives(self):
        return self.storages[0]() is not None and self.storages[1]() is not None

    # What follows is made under the pattern's lock, while the caller holds the index tensors.

    def _of_values(self, values):
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

    def checked(self, stream):
        """The pattern as a matrix that was checked. It is used while the index tensors live and are what they were."""
        with self.lock:
            if self.matrix is None:
                self._refuse_capture("the check of a pattern")
                self.matrix = self._of_values(None).checked(stream)
            return self.matrix

    def transposed(self, stream):
        """The transpose of the pattern, and which entry each of its entries is, as a tensor."""
        with self.lock:
            if self.transpose is None:
                self._refuse_capture("a transposition")
                transpose = self.checked(stream).transposed(stream)
                order = torch.arange(self.nnz, dtype=torch.int32, device=self.device)
                to = torch.empty_like(order)
                # Bits are brought, whatever they mean.
                transpose.bring_values(stream, order.data_ptr(), to.data_ptr(), self.nnz, "f32")
                if self.device.type == "cuda":
                    self.made = (stream, torch.cuda.Event())
                    self.made[1].record()
                self.order, self.transpose = to, transpose
            return self.transpose

    def in_transpose(self, values, stream):
        """Values in the order of the transpose."""
        self.transposed(stream)
        if self.made is not None and self.made[0] != stream and not capturing(self.device):
            current = torch.cuda.current_stream(self.device)
            current.wait_event(self.made[1])
            self.order.record_stream(current)
        return values.index_select(0, self.order)

    def _refuse_capture(self, what):
        if capturing(self.device):
            raise errors.DeviceError(
                f"{what} cannot be part of a CUDA graph: run the same step twice before the capture, with the same "
                "index tensors, or call windrow.torch.prepare_capture()"
            )

    def product(self, transpose, values, precision, width, stream):
        """The plan for a product, with the values in it if there are any."""
        narrow = width <= 4
        key = (transpose, values is not None, precision, narrow)
        found = self.plans.get(key)
        on_gpu = stream is not None
        if found is not None and (found.full or not self._is_due(found)):
            return found
        if found is not None and capturing(self.device):
            return found
        with self.lock:
            found = self.plans.get(key)
            if found is not None and (found.full or not self._is_due(found)):
                return found
            self._refuse_capture("a plan")
            full = not on_gpu or found is not None or torch.are_deterministic_algorithms_enabled()
            options = {"precision": precision, "width": width}
            if not full:
                options["expected_runs"] = self.cache.few_runs
            held = None
            if transpose:
                matrix = self.transposed(stream)
                options["values_from_device"] = values is not None
            elif values is None or self.matrix is not None:
                # Of what was checked a plan is made without waiting; values are put into it before its first run.
                matrix = self.matrix or self._of_values(None)
                options["values_from_device"] = values is not None
            else:
                matrix, held = self._of_values(values), Values(values)
                options["values_from_device"] = full and on_gpu
            made = Product(raw.Spmm(matrix, stream, **options), held, full)
            if found is not None:
                made.ready = dict.fromkeys(found.ready, False)
            self.plans[key] = made
            return made

    def _is_due(self, found):
        """Whether a plan for few products has made as many as a better one pays for."""
        return found.runs >= self.cache.full_after or torch.are_deterministic_algorithms_enabled()

    def multiply(self, transpose, values, b, c, stream, learned=False):
        """C <- A·B or Aᵀ·B, for matrices whose rows are consecutive.

        Values that are `learned` are put into the plan each time: optimisers, and torch.autograd.gradcheck, may write
        them through `.data`, which no version tells.
        """
        product = self.product(transpose, values, NAMES[b.dtype], b.shape[1], stream)
        product.runs += 1
        if stream is not None:
            if torch._C._cuda_isCurrentStreamCapturing():
                return self._multiply_in_graph(product, transpose, values, b, c, stream)
            if product.graphed and values is not None:
                # Each launch of the graph puts its values into that plan.
                product = self._instead_of(product, transpose, values, b, stream)
            ready = product.ready.setdefault(b.shape[1])
            if ready is None:
                product.ready[b.shape[1]] = False  # the next run with this width is reason enough
            elif not ready:
                self._make_ready(product, values, transpose, b, stream)
        if values is None:
            product.plan.run(stream, operand(b), operand(c))
            return
        with product.lock:
            if learned or product.values is None or not product.values.are(values):
                product.values = None
                self._put(product, transpose, values, stream)
                product.values = None if learned else Values(values)
            product.plan.run(stream, operand(b), operand(c))

    def _instead_of(self, product, transpose, values, b, stream):
        with self.lock:
            for key, known in list(self.plans.items()):
                if known is product:
                    del self.plans[key]
            made = self.product(transpose, values, NAMES[b.dtype], b.shape[1], stream)
            made.ready = dict.fromkeys(product.ready, False)
            return made

    def _put(self, product, transpose, values, stream):
        values = values.detach()
        wanted = torch.float64 if product.plan.precision == "f64" else torch.float32
        values = values.to(wanted)
        if transpose:
            values = self.in_transpose(values, stream)
        product.plan.replace_values(stream, values.data_ptr(), self.nnz)

    def _make_ready(self, product, values, transpose, b, stream):
        """What a capture would need, in this stream and in the one that torch.cuda.graph takes unless told."""
        width, staged = b.shape[1], b.dtype == torch.bfloat16
        for one in (stream, *_capture_stream(self.device)):
            product.plan.prepare(one, width, staged)
        if values is not None:
            with product.lock:
                product.values = None
                self._put(product, transpose, values, stream)
                product.values = Values(values)
        product.ready[width] = True

    def make_ready_on(self, stream):
        with self.lock:
            for key, product in self.plans.items():
                if key == "softmax":
                    continue
                for width in product.ready:
                    if key[0] == "sddmm":
                        product.plan.prepare(stream, width, "f64" if key[1] == "f64" else "f32")
                    else:
                        product.plan.prepare(stream, width, key[2] == "bf16")

    def _multiply_in_graph(self, product, transpose, values, b, c, stream):
        """In a graph the values are put in their places by each launch, and the plan is the graph's from then on."""
        try:
            if values is None:
                product.plan.run(stream, operand(b), operand(c))
            else:
                with product.lock:
                    product.values = None
                    self._put(product, transpose, values, stream)
                    product.plan.run(stream, operand(b), operand(c))
        except errors.DeviceError as error:
            raise errors.DeviceError(
                f"{error} (run the same step twice before the capture, on one stream, or call "
                "windrow.torch.prepare_capture(stream) with the stream that will be captured)"
            ) from error
        if not product.graphed:
            product.graphed = True
            self.graphed.append(product)
            with self.cache.lock:
                self.cache.graphed[id(self)] = self

    def sample(self, x, y, to, stream):
        """to <- X·Yᵀ at the entries, for matrices whose rows are consecutive."""
        precision, inner = NAMES[x.dtype], x.shape[1]
        key = ("sddmm", precision, inner <= 8)
        found = self.plans.get(key)
        if found is None:
            with self.lock:
                found = self.plans.get(key)
                if found is None:
                    matrix = self.checked(stream)
                    self._refuse_capture("a plan")
                    found = self.plans[key] = Product(raw.Sddmm(matrix, stream, precision=precision, inner=inner), None, True)
        if stream is not None and not capturing(self.device):
            ready = found.ready.setdefault(inner)
            if ready is None:
                found.ready[inner] = False
            elif not ready:
                for one in (stream, *_capture_stream(self.device)):
                    found.plan.prepare(one, inner, NAMES[to.dtype])
                found.ready[inner] = True
        found.plan.run(stream, operand(x), operand(y), (to.data_ptr(), self.nnz, NAMES[to.dtype]))

    def softmax(self, stream):
        found = self.plans.get("softmax")
        if found is None:
            with self.lock:
                found = self.plans.get("softmax")
                if found is None:
                    matrix = self.checked(stream)
                    self._refuse_capture("a plan")
                    found = self.plans["softmax"] = raw.RowSoftmax(matrix, stream)
        return found


class Cache:
    """The plans of this process, the most recently used at the end.

    `size` patterns are kept, 64 unless set; those that are pinned or in CUDA graphs beside them. A pattern that is new
    gets a plan for `few_runs` products, after `full_after` of them the plan for many.
    """

    def __init__(self):
        self.lock = threading.RLock()
        self.patterns = OrderedDict()
        self.of_storage = {}
        self.graphed = {}
        self.dead = deque()
        self._size = 64
        self.few_runs, self.full_after = 8, 16
        self.hits = self.misses = 0

    @property
    def size(self):
        """How many patterns are kept."""
        return self._size

    @size.setter
    def size(self, size):
        if size < 0:
            raise errors.OptionError(f"the cache cannot keep {size} patterns; 0 keeps none")
        with self.lock:
            self._size = size
            self._shrink()

    def __len__(self):
        self._bury()
        return len(self.patterns)

    def __repr__(self):
        return f"<plans of {len(self)} patterns, at most {self.size}; {self.hits} hits, {self.misses} misses>"

    def clear(self):
        """Drops all plans but those of CUDA graphs, pinned ones too."""
        with self.lock:
            self.patterns.clear()
            self.of_storage.clear()

    def pattern(self, rowptr, col, cols):
        """The pattern of these index tensors, which are contiguous."""
        key = (rowptr.data_ptr(), col.data_ptr(), cols)
        found = self.patterns.get(key)
        if found is not None and found.is_of(rowptr, col):
            self.hits += 1
            try:
                self.patterns.move_to_end(key)
            except KeyError:  # another thread dropped it
                pass
            return found
        return self._new(key, rowptr, col, cols)

    def _new(self, key, rowptr, col, cols):
        check_indices(rowptr, col)
        made = Pattern(rowptr, col, cols, self)
        self.misses += 1
        if None in made.versions:
            return made
        self._bury()
        with self.lock:
            found = self.patterns.get(key)
            if found is not None and found.is_of(rowptr, col):
                return found
            self.patterns[key] = made
            self.patterns.move_to_end(key)
            for index in (rowptr, col):
                self._watch(index.untyped_storage(), key)
            self._shrink()
        return made

    def _watch(self, storage, key):
        watched = id(storage)
        known = self.of_storage.get(watched)
        if known is not None and known[0]() is not storage:
            self._forget(known[1])
            known = None
        if known is None:
            known = (weakref.ref(storage, lambda ref: self._died(watched, ref)), set())
            self.of_storage[watched] = known
        known[1].add(key)

    def _died(self, watched, ref):
        # Garbage is collected anywhere, with locks held and while a graph is captured.
        self.dead.append((watched, ref))
        quiet = not torch.cuda.is_initialized() or not torch.cuda.is_current_stream_capturing()
        if quiet and self.lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self.lock.release()

    def _bury(self):
        if not self.dead:
            return
        with self.lock:
            while self.dead:
                watched, ref = self.dead.popleft()
                known = self.of_storage.get(watched)
                if known is not None and known[0] is ref:
                    del self.of_storage[watched]
                    self._forget(known[1])
            for key, pattern in list(self.graphed.items()):
                if not pattern.lives():
                    del self.graphed[key]

    def _forget(self, keys):
        for key in keys:
            found = self.patterns.get(key)
            if found is not None and not found.lives():
                del self.patterns[key]

    def _shrink(self):
        spare = len(self.patterns) - self._size
        if spare <= 0:
            return
        for key, pattern in list(self.patterns.items()):
            if spare <= 0:
                break
            if not pattern.pinned:
                del self.patterns[key]
                spare -= 1

    def forked(self):
        """In a child: plans of devices and locks that others held are the parent's."""
        _parents.append((self.patterns, self.of_storage, self.graphed))
        size, few, after = self._size, self.few_runs, self.full_after
        self.__init__()
        self._size, self.few_runs, self.full_after = size, few, after


_parents = []
cache = Cache()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=cache.forked)


def check_indices(rowptr, col):
    for name, index in (("rowptr", rowptr), ("col", col)):
        if index.dtype not in INDICES:
            raise errors.DtypeError(f"{name} holds {index.dtype}; give it as torch.int64 or torch.int32")
        if index.dim() != 1:
            raise errors.ShapeError(f"{name} has {index.dim()} dimensions but must have one")
    if rowptr.numel() == 0:
        raise errors.ShapeError("rowptr is empty; it has a number more than there are rows, 0 for no rows")
    if rowptr.device != col.device:
        raise errors.DeviceError(f"rowptr is on {rowptr.device} but col on {col.device}; move one of them")
    device_of(rowptr.device)


class pin:
    """Keeps the plans of a pattern whatever else is used, until `close`, the end of a `with`, or its tensors' end."""

    def __init__(self, a, num_cols=None):
        from windrow.torch._csr import parts

        rowptr, col, _, cols = parts(a)
        cols = num_cols if num_cols is not None else cols
        if cols is None:
            raise errors.ShapeError("the matrix does not say how many columns it has; give num_cols")
        self._pattern = cache.pattern(rowptr, col, cols)
        self._pattern.pinned += 1

    def close(self):
        if self._pattern is not None:
            self._pattern.pinned -= 1
            self._pattern = None
            with cache.lock:
                cache._shrink()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
