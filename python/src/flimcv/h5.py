"""Arrays as a data file (docs/file-format.md)."""

import os

import numpy as np

from ._extras import need

h5py = need("h5py", "h5")


def _counts_type(volumes):
    """The smallest type that holds every count; ValueError for what is no count.  Volumes are (T,H,W)."""
    shape, largest, whole = None, 0, True
    for i, volume in enumerate(volumes):
        volume = np.asarray(volume)
        if volume.ndim != 3:
            raise ValueError(f"volumes[{i}] has shape {volume.shape}, expected (T,H,W)")
        if volume.dtype.kind not in "uifb":
            raise ValueError(f"volumes[{i}] has type {volume.dtype}, expected integers or floats")
        if shape not in (None, volume.shape):
            raise ValueError(f"volumes[{i}] has shape {volume.shape}, those before it {shape}: all cells must have the same")
        if volume.size and (not np.isfinite(volume).all() or volume.min() < 0):
            raise ValueError(f"volumes[{i}] holds negative, infinite or missing numbers, which are no photon counts")
        shape = volume.shape
        largest = max(largest, volume.max() if volume.size else 0)
        whole = whole and (volume.dtype.kind != "f" or not (volume % 1).any())
    if shape is None:
        raise ValueError("there are no volumes")
    if not whole:
        return shape, np.dtype(np.float32)
    for kind in (np.uint8, np.uint16, np.uint32):
        if largest <= np.iinfo(kind).max:
            return shape, np.dtype(kind)
    raise ValueError(f"a count of {largest} is beyond 32 bits")


def _column(what, values, n):
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{what}: shape {values.shape}, expected one value per cell: ({n},)")
    return values


def _class_numbers(labels, class_names):
    """Labels as numbers with the names of the classes (or None); names get their numbers in the order of class_names, else sorted."""
    if labels.dtype.kind in "OSU":
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in labels]
        names = list(class_names) if class_names is not None else sorted(set(texts))
        unknown = set(texts) - set(names)
        if unknown:
            raise ValueError(f"labels: '{sorted(unknown)[0]}' is none of class_names {names}")
        return np.array([names.index(t) for t in texts], np.int64), names
    if (labels % 1).any() or labels.min() < 0:
        raise ValueError("labels: must be class numbers 0, 1, ... or class names")
    numbers = labels.astype(np.int64)
    if class_names is not None and numbers.max() >= len(class_names):
        raise ValueError(f"labels: class {numbers.max()}, but class_names has {len(class_names)} names")
    return numbers, None if class_names is None else list(class_names)


def _appear(temporary, path):
    """Gives the file its name, but never over one that came meanwhile, as a link is made; some file systems have no links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        os.rename(temporary, path)


def to_h5(volumes, labels=None, groups=None, *, path, masks=None, names=None, class_names=None, time_range_ns=None):
    """Writes cells as a data file for train_cv; `path` must not be there yet, and appears whole or not at all.

    volumes: N photon-count volumes (T,H,W), an array (N,T,H,W) or a list; stored as the smallest integers that hold them.
    labels: N class numbers 0..K-1, or N class names.  groups: whom each cell comes from (donor, dish): no group is in two parts of
    a fold.  masks: (N,H,W), non-zero inside the cell; without them a pixel with a photon is inside.  names: N texts.
    time_range_ns: from the first bin's begin to the last one's end.  Returns path.  ValueError, FileExistsError.
    """
    n = len(volumes)
    shape, kind = _counts_type(volumes)
    columns, attributes = {}, {}
    if labels is not None:
        columns["label"], attributes["class_names"] = _class_numbers(_column("labels", labels, n), class_names)
    for column, values in (("group", groups), ("name", names)):
        if values is not None:
            values = _column(column + "s", values, n)
            texts = [v.decode() if isinstance(v, bytes) else str(v) for v in values]
            columns[column] = np.array(texts, dtype=h5py.string_dtype())
    if masks is not None:
        masks = np.asarray(masks)
        if masks.shape != (n, *shape[1:]):
            raise ValueError(f"masks: shape {masks.shape}, expected {(n, *shape[1:])}")
        columns["mask"] = (masks != 0).astype(np.uint8)
    attributes["time_range_ns"] = time_range_ns
    path = os.fspath(path)
    if os.path.lexists(path):
        raise FileExistsError(f"{path} is there already: remove it, or choose another name")
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with h5py.File(temporary, "x") as file:
            counts = file.create_dataset("counts", (n, *shape), kind, chunks=(1, *shape), shuffle=True, compression=4)
            for i, volume in enumerate(volumes):
                counts[i] = volume
            for column, values in columns.items():
                file[column] = values
            for name, value in attributes.items():
                if value is not None:
                    file.attrs[name] = value
        _appear(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    return path
