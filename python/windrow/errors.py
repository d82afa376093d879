"""What windrow raises. Every class derives from `Error` and from the built-in exception that says the same."""


class Error(Exception):
    """All that windrow raises by itself."""


class ShapeError(Error, ValueError):
    """Sizes, strides or lengths that do not fit together."""


class DtypeError(Error, TypeError):
    """An array or object of a type that is not taken."""


class FormatError(Error, ValueError):
    """Arrays that are no valid sparse matrix, tensor, order or weights."""


class OptionError(Error, ValueError):
    """An option that there is not, or a choice that does not work with the others."""


class OutOfMemoryError(Error, MemoryError):
    """Memory of the host or of a device that is not there, or a plan beyond the limit it was given."""


class DeviceError(Error, RuntimeError):
    """A device that is not there or cannot do this, or memory and streams of another one."""


class FileError(Error, OSError):
    """A file that cannot be opened, read or written."""


class ParseError(FileError, ValueError):
    """A file whose contents are not what its format demands."""


class InternalError(Error, RuntimeError):
    """A mistake of windrow's. Please report it with its text."""
