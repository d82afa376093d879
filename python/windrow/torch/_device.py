"""Devices, streams and tensors as the library knows them."""

import torch

from windrow import Device, errors

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
    return current_stream(device.index)


def _no_stream(_=None):
    raise errors.DeviceError("this PyTorch was built without CUDA")


current_device = getattr(torch._C, "_cuda_getDevice", _no_stream)
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _no_stream)


class _Here:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


_here = _Here()


def on_device(device):
    """Makes a device the current one, where that is another."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return _here
    return torch.cuda.device(device)


def capturing(device):
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def capture_stream(device):
    """The stream that torch.cuda.graph takes unless told, if it is of this device."""
    stream = torch.cuda.graph.default_capture_stream
    if stream is None:
        stream = torch.cuda.graph.default_capture_stream = torch.cuda.Stream()
    return (stream.cuda_stream,) if stream.device == device else ()


def version_of(tensor):
    """The count of writes to a tensor; None where PyTorch keeps none."""
    return None if tensor.is_inference() else tensor._version


def operand(matrix):
    """A matrix as the library takes it: address, shape, strides, type."""
    return (matrix.data_ptr(), matrix.shape, matrix.stride(), NAMES[matrix.dtype])


def rows_of(name, matrix):
    """A matrix whose rows are consecutive elements: itself, if they are."""
    if matrix.dtype not in NAMES:
        raise errors.DtypeError(f"{name} holds {matrix.dtype}; windrow computes in f32, f64, f16 and bf16")
    rows, cols = matrix.shape
    down, across = matrix.stride()
    if (across == 1 or cols == 1) and (down >= cols or rows == 1):
        return matrix
    return matrix.contiguous()


def same_device(pattern_device, **tensors):
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device != pattern_device:
            raise errors.DeviceError(
                f"{name} is on {tensor.device} but the matrix on {pattern_device}; move one of them with .to()"
            )


def _new_rows(like, rows, cols):
    return like.new_empty((rows, cols))


try:
    # What the code that torch.compile makes allocates with: torch.empty without its dispatcher, in half the time.
    from torch._C._dynamo.guards import _empty_strided_cpu, _empty_strided_cuda
except ImportError:
    empty_rows = _new_rows
else:

    def empty_rows(like, rows, cols):
        """An empty matrix of a tensor's type, on its device, which is the current one if it is a GPU."""
        make = _empty_strided_cpu if like.is_cpu else _empty_strided_cuda
        return make((rows, cols), (cols, 1), like.dtype)
