"""Things that belong to tensors as they are."""

import os
import threading
import weakref
from collections import OrderedDict

import torch

from windrow.torch._device import capturing, stream_of, version_of

_of_processes = weakref.WeakSet()


class Made:
    """What was made of tensors in the order of one stream, for use in any."""

    __slots__ = ("thing", "tensors", "streams", "event")

    def __init__(self, device, make):
        # What is kept may be used with gradients, and is whatever mode is on now.
        with torch.inference_mode(False), torch.no_grad():
            self.thing = make()
        self.tensors = self.streams = self.event = None
        if device.type == "cuda":
            self.tensors, self.streams = tuple(_tensors_of(self.thing)), {stream_of(device)}
            with torch.cuda.device(device):
                self.event = torch.cuda.Event()
                self.event.record()

    def get(self, device):
        """The thing, after which comes what is queued in the current stream from now on."""
        if self.streams is None or (stream := stream_of(device)) in self.streams:
            return self.thing
        # In a graph everything was made long before: its steps were run.
        if not capturing(device):
            current = torch.cuda.current_stream(device)
            current.wait_event(self.event)
            for tensor in self.tensors:
                tensor.record_stream(current)
            self.streams.add(stream)
        return self.thing


def _tensors_of(thing):
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, (tuple, list)):
        for part in thing:
            yield from _tensors_of(part)
    elif hasattr(thing, "tensors"):
        yield from _tensors_of(thing.tensors())


class ByTensor:
    """Things that belong to tensors as they are: found by storage, place and version, gone with the storage.

    Those asked for with `as_is=False` belong to them whatever is written to them.
    """

    def __init__(self, size=64):
        self.size, self.lock, self.things = size, threading.RLock(), OrderedDict()
        _of_processes.add(self)

    def get(self, tensor, key, make, as_is=True):
        version = version_of(tensor)
        if version is None:
            return make()
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, version if as_is else None, key)
        found = self.things.get(key)
        if found is not None and found[0]() is tensor.untyped_storage():
            with self.lock:
                if key in self.things:
                    self.things.move_to_end(key)
            return found[1].get(tensor.device)
        if capturing(tensor.device):
            return make()  # a part of the graph, which is there when that has run
        made = Made(tensor.device, make)
        with self.lock:
            things = weakref.ref(self)

            def died(ref):
                alive = things()
                known = None if alive is None else alive.things.get(key)
                if known is not None and known[0] is ref:
                    alive.things.pop(key, None)

            self.things[key] = (weakref.ref(tensor.untyped_storage(), died), made)
            while len(self.things) > self.size:
                self.things.popitem(last=False)
        return made.thing

    def forget(self, thing):
        """Drops what was made."""
        with self.lock:
            for key in [key for key, (_, made) in self.things.items() if made.thing is thing]:
                del self.things[key]


def _forked():
    for kept in list(_of_processes):
        kept.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
