"""The plans of one pattern of a matrix, and which values they hold."""

import threading
import weakref

import torch

from windrow import errors
from windrow._windrow import raw
from windrow.torch._device import NAMES, capture_stream, capturing, current_stream, operand, stream_of, version_of
from windrow.torch._indices import Indices, product_key


# Entries of all heads up to which they are rows of one pattern: with more, a launch for each head is no matter.
HEADS_TOGETHER = 1 << 22


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
            and self.version == tensor._version
        )


class Product:
    """A plan of a product and what it holds."""

    __slots__ = ("plan", "sums", "lock", "values", "runs", "full", "graphed", "ready")

    def __init__(self, plan, values, full, precision):
        self.plan, self.values, self.full = plan, values, full
        self.sums = torch.float64 if precision == "f64" else torch.float32
        # Runs that have been made, whether a graph holds it, and for each width that it ran with whether a capture
        # finds all made that it needs.
        self.lock, self.runs, self.graphed, self.ready = threading.Lock(), 0, False, {}


class Pattern(Indices):
    """All plans of one version of a pattern."""

    def __init__(self, rowptr, col, cols, cache):
        super().__init__(rowptr, col, cols)
        self.cache = cache
        self.lock = threading.RLock()
        self.plans = {}
        self.graphed = []
        self.matrix = self.transpose = self.order = self.made = self.copies = None
        self.pinned = self.attended = 0
        # By product, the widths that it had without a plan.
        self.unplanned = {}
        self.by_heads = {}
        # Those in which the copies are known to be in use.
        self.streams = set()

    @classmethod
    def of_copies(cls, rowptr, col, cols, cache):
        """Of index tensors that nobody else keeps."""
        made = cls(rowptr, col, cols, cache)
        made.copies = (rowptr, col)
        return made

    def of_heads(self, heads, rowptr, col):
        """The pattern of all heads at once, for `(n, heads, features)` as `(n·heads, features)`; None for a large one.

        Row `h·m + i` has the entries of row `i`, column `j` as `j·heads + h`: values `(heads, nnz)` are in its order.
        """
        if heads < 2 or self.nnz == 0 or self.nnz * heads > HEADS_TOGETHER:
            return None
        cols = self.shape[1] * heads
        if self.nnz * heads >= torch.iinfo(rowptr.dtype).max or cols >= torch.iinfo(col.dtype).max:
            return None
        found = self.by_heads.get(heads)
        if found is None:
            with self.lock:
                found = self.by_heads.get(heads)
                if found is None:
                    found = self.by_heads[heads] = self._of_heads(heads, rowptr, col, cols)
        if not self.on_cpu and current_stream(self.device.index) not in found.streams:
            found.streams.add(current_stream(self.device.index))
            for index in found.copies:
                index.record_stream(torch.cuda.current_stream(self.device))
        return found

    def _of_heads(self, heads, rowptr, col, cols):
        self._refuse_capture("the pattern of several heads")
        stream = stream_of(self.device)
        self.checked(stream)
        head = torch.arange(heads, device=self.device)
        ends = (rowptr[1:] + head.to(rowptr.dtype)[:, None] * self.nnz).flatten()
        columns = (col * heads + head.to(col.dtype)[:, None]).flatten()
        made = Pattern.of_copies(torch.cat([rowptr[:1], ends]), columns, cols, self.cache)
        made.storages = self.storages  # it lives as long as this one
        made.checked(stream)  # which waits: then other streams may read it, too
        made.streams.add(stream)
        return made

    # What follows is made under the pattern's lock, while the caller holds the index tensors.

    def checked(self, stream):
        """The pattern as a matrix that was checked. It is used while the index tensors live and are what they were."""
        with self.lock:
            if self.matrix is None:
                self._refuse_capture("the check of a pattern")
                self.matrix = self.matrix_of(None).checked(stream)
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
        key = product_key(transpose, values, precision, width)
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
                matrix = self.matrix or self.matrix_of(None)
                options["values_from_device"] = values is not None
            else:
                matrix, held = self.matrix_of(values), Values(values)
                options["values_from_device"] = full and on_gpu
            made = Product(raw.Spmm(matrix, stream, **options), held, full, precision)
            ran = self.unplanned if found is None else found.ready
            made.ready = dict.fromkeys(ran.get(key, ()) if found is None else ran, False)
            self.plans[key] = made
            return made

    def _is_due(self, found):
        """Whether a plan for few products has made as many as a better one pays for."""
        return found.runs >= self.cache.full_after or torch.are_deterministic_algorithms_enabled()

    def multiply(self, transpose, values, b, c, stream, learned=False):
        """C <- A·B or Aᵀ·B, for matrices whose rows are consecutive, as `operand` gives them, and consecutive values.

        Values that are `learned` are put into the plan each time: optimisers, and torch.autograd.gradcheck, may write
        them through `.data`, which no version tells.
        """
        precision, width = b[3], b[1][1]
        product = self.plans.get(product_key(transpose, values, precision, width))
        if product is None or not product.full:
            product = self.product(transpose, values, precision, width, stream)
            product.runs += 1
        if stream is not None:
            if torch._C._cuda_isCurrentStreamCapturing():
                return self._multiply_in_graph(product, transpose, values, b, c, stream)
            if product.graphed and values is not None:
                # Each launch of the graph puts its values into that plan.
                product = self._instead_of(product, transpose, values, b, stream)
            ready = product.ready.setdefault(width)
            if ready is None:
                product.ready[width] = False  # the next run with this width is reason enough
            elif not ready:
                self._make_ready(product, values, transpose, b, stream)
        if values is None:
            product.plan.run(stream, b, c)
            return
        with product.lock:
            if learned or product.values is None or not product.values.are(values):
                product.values = None
                self._put(product, transpose, values, stream)
                product.values = None if learned else Values(values)
            product.plan.run(stream, b, c)

    def _instead_of(self, product, transpose, values, b, stream):
        with self.lock:
            for key, known in list(self.plans.items()):
                if known is product:
                    del self.plans[key]
            made = self.product(transpose, values, b[3], b[1][1], stream)
            made.ready = dict.fromkeys(product.ready, False)
            return made

    def _put(self, product, transpose, values, stream):
        if values.dtype is not product.sums:
            values = values.detach().to(product.sums)
        if transpose:
            values = self.in_transpose(values.detach(), stream)
        product.plan.replace_values(stream, values.data_ptr(), self.nnz)

    def _make_ready(self, product, values, transpose, b, stream):
        """What a capture would need, in this stream and in the one that torch.cuda.graph takes unless told."""
        width, staged = b[1][1], b[3] == "bf16"
        for one in (stream, *capture_stream(self.device)):
            product.plan.prepare(one, width, staged)
        if values is not None:
            with product.lock:
                product.values = None
                self._put(product, transpose, values, stream)
                product.values = Values(values)
        product.ready[width] = True

    def make_ready_on(self, stream):
        for of_heads in list(self.by_heads.values()):
            of_heads.make_ready_on(stream)
        with self.lock:
            for key, product in self.plans.items():
                if key == "softmax":
                    continue
                if key[0] in ("attention", "aggregate"):
                    product.prepare(stream)
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
                product.plan.run(stream, b, c)
            else:
                with product.lock:
                    product.values = None
                    self._put(product, transpose, values, stream)
                    product.plan.run(stream, b, c)
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
                    plan = raw.Sddmm(matrix, stream, precision=precision, inner=inner)
                    found = self.plans[key] = Product(plan, None, True, precision)
        if stream is not None and not capturing(self.device):
            ready = found.ready.setdefault(inner)
            if ready is None:
                found.ready[inner] = False
            elif not ready:
                for one in (stream, *capture_stream(self.device)):
                    found.plan.prepare(one, inner, NAMES[to.dtype])
                found.ready[inner] = True
        found.plan.run(stream, operand(x), operand(y), (to.data_ptr(), self.nnz, NAMES[to.dtype]))

    def attention_pays(self):
        """Whether layers have attended to the pattern so often that a plan for that pays; counts, but in a capture."""
        if not capturing(self.device):
            self.attended += 1
        return self.attended > self.cache.full_after

    def attention(self, stream, kind, gradients):
        """The plan of attention `(heads, columns, value_columns, precision, biased, negative_slope, gatv2)`.

        The slope is that of additive scores or, if told, of those of GATv2, and None of products.
        """
        names = "heads", "columns", "value_columns", "precision", "biased", "negative_slope", "gatv2"
        options = dict(zip(names, kind))
        return self._learning(raw.GraphAttention, "attention", options, gradients, stream)

    def aggregate(self, stream, kind, gradients):
        """The plan of a reduction `(reduce, message, columns, precision)`."""
        options = dict(zip(("reduce", "message", "columns", "precision"), kind))
        return self._learning(raw.Aggregate, "aggregate", options, gradients, stream)

    def _learning(self, make, name, options, gradients, stream):
        """A plan that has gradients if they are wanted; one that has them serves without, too."""
        key = (name, *options.values())
        found = self.plans.get((*key, True)) or self.plans.get((*key, gradients))
        if found is None:
            with self.lock:
                found = self.plans.get((*key, True)) or self.plans.get((*key, gradients))
                if found is None:
                    self._refuse_capture("a plan")
                    found = make(self.checked(stream), stream, **options, gradients=gradients)
                    for one in (stream, *capture_stream(self.device)) if stream is not None else ():
                        found.prepare(one)
                    self.plans[(*key, gradients)] = found
        return found

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
