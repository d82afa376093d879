"""Plans of patterns that PyTorch's tensors hold: made when needed, kept while their tensors live.

A pattern is known by the storages, places and `_version`s of its two index tensors. The storages are held by weak
references: when one dies, its plans go, and memory that comes back at the same address is another storage. What
PyTorch does not see, writes through `.data`, numpy or DLPack, the cache does not see either: `cache.clear()` after them.
"""

import os
import threading
import weakref
from collections import OrderedDict, deque
from types import TracebackType
from typing import Optional, Union

import torch

from windrow import errors
from windrow.torch._csr import Matrix, parts
from windrow.torch._device import INDICES, device_of
from windrow.torch._indices import Unplanned
from windrow.torch._pattern import Pattern


class Cache:
    """The plans of this process, the most recently used at the end.

    `size` patterns are kept, 64 unless set; those that are pinned or in CUDA graphs beside them. A pattern that is new
    gets a plan for `few_runs` products, after `full_after` of them the plan for many. On a GPU its first product is
    made without a plan and without a wait, if `unplanned` is true and torch.use_deterministic_algorithms is not on:
    all of it is NaN if offsets or columns are wrong, which the plan, or `windrow.torch.check`, says as an exception.
    """

    few_runs: int
    full_after: int
    unplanned: bool
    hits: int
    misses: int

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.patterns = OrderedDict()
        self.of_storage = {}
        self.graphed = {}
        self.dead = deque()
        self._size = 64
        self.met = OrderedDict()
        self.few_runs, self.full_after, self.unplanned = 8, 16, True
        self.hits = self.misses = 0

    @property
    def size(self) -> int:
        """How many patterns are kept."""
        return self._size

    @size.setter
    def size(self, size: int) -> None:
        if size < 0:
            raise errors.OptionError(f"the cache cannot keep {size} patterns; 0 keeps none")
        with self.lock:
            self._size = size
            self._shrink()

    def __len__(self) -> int:
        self._bury()
        return len(self.patterns)

    def __repr__(self) -> str:
        return f"<plans of {len(self)} patterns, at most {self.size}; {self.hits} hits, {self.misses} misses>"

    def clear(self) -> None:
        """Drops all plans but those of CUDA graphs, pinned ones too."""
        with self.lock:
            self.patterns.clear()
            self.of_storage.clear()
            self.met.clear()

    def pattern(self, rowptr: torch.Tensor, col: torch.Tensor, cols: int) -> Pattern:
        """The pattern of these index tensors, which are contiguous."""
        key = (rowptr.data_ptr(), col.data_ptr(), cols)
        return self._known(key, rowptr, col) or self._new(key, rowptr, col, cols)

    def to_multiply(self, rowptr: torch.Tensor, col: torch.Tensor, cols: int) -> Union[Pattern, Unplanned]:
        """As `pattern`, for a product; of one that was not met before, what is multiplied without a plan."""
        key = (rowptr.data_ptr(), col.data_ptr(), cols)
        found = self._known(key, rowptr, col)
        if found is not None:
            return found
        if not self._may_go_unplanned(rowptr):
            return self._new(key, rowptr, col, cols)
        met = self.met.get(key)
        if met is not None and met.is_of(rowptr, col):
            return self._new(key, rowptr, col, cols)
        check_indices(rowptr, col)
        made = Unplanned(rowptr, col, cols)
        self.misses += 1
        if None not in made.versions:
            with self.lock:
                self.met[key] = made
                while len(self.met) > self._size:
                    self.met.popitem(last=False)
        return made

    def _may_go_unplanned(self, rowptr):
        return (
            rowptr.is_cuda
            and self.unplanned
            and not torch.are_deterministic_algorithms_enabled()
            and not torch.cuda.is_current_stream_capturing()
        )

    def _known(self, key, rowptr, col):
        found = self.patterns.get(key)
        if found is None or not found.is_of(rowptr, col):
            return None
        self.hits += 1
        try:
            self.patterns.move_to_end(key)
        except KeyError:  # another thread dropped it
            pass
        return found

    def _new(self, key, rowptr, col, cols):
        check_indices(rowptr, col)
        made = Pattern(rowptr, col, cols, self)
        met = self.met.get(key)
        if met is not None and met.is_of(rowptr, col):
            made.unplanned = met.widths
        else:
            self.misses += 1
        if None in made.versions:
            return made
        self._bury()
        with self.lock:
            found = self.patterns.get(key)
            if found is not None and found.is_of(rowptr, col):
                return found
            self.met.pop(key, None)
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

    def forked(self) -> None:
        """In a child: plans of devices and locks that others held are the parent's."""
        _parents.append((self.patterns, self.of_storage, self.graphed))
        size, few, after, unplanned = self._size, self.few_runs, self.full_after, self.unplanned
        self.__init__()
        self._size, self.few_runs, self.full_after, self.unplanned = size, few, after, unplanned


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

    def __init__(self, a: Matrix, num_cols: Optional[int] = None) -> None:
        rowptr, col, _, cols = parts(a)
        cols = num_cols if num_cols is not None else cols
        if cols is None:
            raise errors.ShapeError("the matrix does not say how many columns it has; give num_cols")
        self._pattern = cache.pattern(rowptr, col, cols)
        self._pattern.pinned += 1

    def close(self) -> None:
        """Lets the plans go like others."""
        if self._pattern is not None:
            self._pattern.pinned -= 1
            self._pattern = None
            with cache.lock:
                cache._shrink()

    def __enter__(self) -> "pin":
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()
