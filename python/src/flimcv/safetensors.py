"""Weight files (.safetensors): eight bytes with the length of a JSON header, the header, the tensors' bytes."""

import json
import os
import tempfile

import numpy as np

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


def _array(raw, name, entry, data):
    begin, end = entry["data_offsets"]
    kind, shape = entry["dtype"], entry["shape"]
    if kind == "BF16":  # the upper half of a float32
        values = np.frombuffer(raw[data + begin : data + end], "<u2").astype("<u4") << 16
        return values.view("<f4").reshape(shape)
    if kind not in _TYPES:
        raise ValueError(f"tensor '{name}' is of type {kind}; F32, F64, F16 and BF16 are read")
    return np.frombuffer(raw[data + begin : data + end], _TYPES[kind]).astype(np.float32).reshape(shape)


def read(path):
    """({name: float32 array}, {metadata key: text}) of a file; ValueError says what is wrong with it."""
    with open(path, "rb") as file:
        raw = memoryview(file.read())
    try:
        if len(raw) < 8:
            raise ValueError(f"{len(raw)} bytes are no .safetensors file")
        data = 8 + int.from_bytes(raw[:8], "little")
        if data > len(raw):
            raise ValueError("the header reaches past the end: this is no .safetensors file, or it is cut off")
        header = json.loads(bytes(raw[8:data]).decode("utf-8"))
        metadata = header.pop("__metadata__", {})
        return {name: _array(raw, name, entry, data) for name, entry in header.items()}, metadata
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def write(path, tensors, metadata):
    """Writes {name: array} as float32; the file appears whole or not at all."""
    header, at = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        size = 4 * int(np.prod(array.shape, dtype=np.int64))
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for array in tensors.values():
                file.write(np.ascontiguousarray(array, dtype="<f4").tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask
