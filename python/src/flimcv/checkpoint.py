"""The tensors of a file of torch.save, read without running anything that it names.

Such a file holds a pickle, which can name any function and have it called.  Here no name leads to anything but the few below that
put a tensor together, as this module's own; all else becomes an _Inert, which does nothing.  torch.load is not used: its
weights_only does not read plain numbers in torch 1.13, which also ignores a pickle_module.  Both forms are read: zip archives (torch 1.6
and later) and the sequence of pickles before them.
"""

import collections
import io
import pickle
import zipfile

import numpy as np

_MAGIC = 0x1950A86A20F9469CFC6C  # of the older form
_TYPES = {
    "Float": "<f4", "Double": "<f8", "Half": "<f2", "BFloat16": "bf16", "Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "i1",
    "Byte": "u1", "Bool": "?",
}  # fmt: skip


def _is_count(value):
    return type(value) is int and value >= 0


class Tensor:
    """A view of a storage, whose bytes may come later: sizes and strides in elements."""

    def __init__(self, storage, offset, size, stride):
        self.storage, self.offset, self.size, self.stride = storage, offset, tuple(size), tuple(stride)
        numbers = (offset, *self.size, *self.stride)
        if not isinstance(storage, _Storage) or len(self.size) != len(self.stride) or not all(map(_is_count, numbers)):
            raise ValueError(f"a tensor of size {size} and strides {stride} from {offset} on")

    def array(self):
        """Its values as a float32 array of shape `size`."""
        values = self.storage.values()
        last = self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride))
        if 0 in self.size:
            return np.zeros(self.size, np.float32)
        if last >= len(values) or np.prod(self.size, dtype=object) > len(values):
            raise ValueError(f"a tensor of {self.size} is more than, or reaches past, the {len(values)} values that are there for it")
        strides = [s * values.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.size, strides).astype(np.float32)


class _Storage:
    def __init__(self, kind, count):
        self.kind, self.count, self.raw = kind, count, b""

    def itemsize(self):
        return 2 if self.kind == "bf16" else np.dtype(self.kind).itemsize

    def values(self):
        if len(self.raw) != self.count * self.itemsize():
            raise ValueError(f"{len(self.raw)} bytes for {self.count} values of {self.itemsize()} bytes")
        if self.kind == "bf16":  # the upper half of a float32
            return (np.frombuffer(self.raw, "<u2").astype("<u4") << 16).view("<f4")
        return np.frombuffer(self.raw, self.kind)


class _Inert:
    """What stands for everything that is no tensor: may be made, called, filled and given a state, all without effect."""

    def __new__(cls, *_, **__):
        return object.__new__(cls)

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return self

    def __setstate__(self, _):
        pass

    def __setitem__(self, _, __):
        pass

    def append(self, _):
        pass

    def extend(self, _):
        pass


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, storages):
        super().__init__(file, encoding="utf-8")
        self.storages = storages  # {key: _Storage}, filled as tensors name them

    def find_class(self, module, name):
        if module.startswith("torch") and name.endswith("Storage"):
            return _TYPES.get(name[: -len("Storage")], _Inert)
        return {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, size, stride, *_: Tensor(storage, offset, size, stride),
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
            ("torch", "Size"): tuple,
        }.get((module, name), _Inert)

    def persistent_load(self, identity):
        what, kind, key, _, count = identity[:5]
        if what != "storage" or kind not in _TYPES.values() or not _is_count(count):
            raise ValueError(f"a storage that is not read: {what} of {count} {kind}")
        if len(identity) > 5 and identity[5] is not None:
            raise ValueError("a storage that is a view of another, which only old files have: save it again with a newer torch")
        return self.storages.setdefault(key, _Storage(kind, count))


def _read_zip(path, storages):
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        root = next((name[: -len("data.pkl")] for name in names if name.endswith("data.pkl")), None)
        if root is None or root + "constants.pkl" in names:
            raise ValueError("it is an archive, but not of torch.save" if root is None else "it is TorchScript, which is a program")
        if root + "byteorder" in names and archive.read(root + "byteorder") != b"little":
            raise ValueError("its numbers are big endian")
        content = _Unpickler(io.BytesIO(archive.read(root + "data.pkl")), storages).load()
        for key, storage in storages.items():
            storage.raw = archive.read(f"{root}data/{key}")
    return content


def _read_sequence(path, storages):
    with open(path, "rb") as file:
        if _Unpickler(file, storages).load() != _MAGIC:
            raise ValueError("its first bytes are not those of torch.save")
        for _ in range(2):  # version of the form, the machine's sizes
            _Unpickler(file, storages).load()
        content = _Unpickler(file, storages).load()
        for key in _Unpickler(file, storages).load():
            storage = storages[key]
            count = int.from_bytes(file.read(8), "little")
            if count != storage.count:
                raise ValueError(f"{count} values where {storage.count} were announced")
            storage.raw = file.read(count * storage.itemsize())
    return content


def read(path):
    """What a file of torch.save holds: containers, numbers, texts, Tensors, and an _Inert for whatever else.  ValueError, OSError."""
    storages = {}
    try:
        return _read_zip(path, storages) if zipfile.is_zipfile(path) else _read_sequence(path, storages)
    except OSError:
        raise
    except Exception as error:  # bytes that are no pickle end in whatever the reader trips over
        raise ValueError(f"{path}: no file of torch.save, or a damaged one ({type(error).__name__}: {error})") from error
