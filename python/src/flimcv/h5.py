"""Arrays as a data file (docs/file-format.md)."""

import numbers
import os

import numpy as np

from ._extras import need

h5py = need("h5py", "h5")

_MOST = 2147483647  # photons of a voxel that the programs take


def _counts_type(volumes):
    """The smallest type that holds every count; ValueError for what is no count.  Volumes are (T,H,W)."""
    shape, largest, whole = None, 0, True
    for i, original in enumerate(volumes):
        volume = np.asarray(original)
        if volume.ndim != 3:
            raise ValueError(f"volumes[{i}] has shape {volume.shape}, expected (T,H,W)")
        if volume.dtype.kind not in "uifb":
            raise ValueError(f"volumes[{i}] has type {volume.dtype}, expected integers or floats")
        if shape not in (None, volume.shape):
            raise ValueError(f"volumes[{i}] has shape {volume.shape}, those before it {shape}: all cells must have the same")
        if np.ma.is_masked(original) or (volume.size and (not np.isfinite(volume).all() or volume.min() < 0)):
            raise ValueError(f"volumes[{i}] holds negative, infinite or missing numbers, which are no photon counts")
        if volume.size and float(volume.max()) > _MOST:
            raise ValueError(f"volumes[{i}] holds a count of {volume.max()}, the programs take at most {_MOST}")
        shape = volume.shape
        largest = max(largest, volume.max() if volume.size else 0)
        whole = whole and (volume.dtype.kind != "f" or not (volume % 1).any())
    if shape is None:
        raise ValueError("there are no volumes")
    if not whole:
        return shape, np.dtype(np.float32)
    return shape, next(np.dtype(kind) for kind in (np.uint8, np.uint16, np.uint32) if largest <= np.iinfo(kind).max)


def _is_missing(value):
    """None, NaN, NaT, numpy's masked, pandas' NA: what is not there is not equal to itself either."""
    try:
        return value is None or value is np.ma.masked or bool(value != value)
    except TypeError:  # pandas' NA does not say
        return True
    except ValueError:  # an array
        return False


def _column(what, values, n):
    """(n) values, all of them there: looked at one by one before NumPy makes the text 'nan' of a NaN among texts."""
    for i, value in enumerate(values if hasattr(values, "__iter__") else ()):
        if _is_missing(value) or (what != "names" and isinstance(value, (str, bytes)) and not value):
            raise ValueError(f"{what}: cell {i} has none ({value!r}): give it one, or leave the cell out")
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{what}: shape {values.shape}, expected one value per cell: ({n},)")
    return values


def _texts(what, values):
    texts = []
    for i, value in enumerate(values):
        try:
            texts.append(value.decode() if isinstance(value, bytes) else str(value))
            texts[-1].encode()
        except UnicodeError:
            raise ValueError(f"{what}: cell {i}: {value!r} is no UTF-8") from None
        if "\0" in texts[-1]:
            raise ValueError(f"{what}: cell {i}: {value!r} holds a zero byte, which ends a text in HDF5")
    return texts


def _names_of_classes(class_names):
    names = [class_names] if isinstance(class_names, str) else list(class_names)
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name or name in names[:i]:
            raise ValueError(f"class_names: class {i} is {name!r}, expected a text of its own for each class")
    return names


def _class_numbers(labels, class_names):
    """Labels as numbers with the names of the classes (or None); names get their numbers in the order of class_names, else sorted."""
    names = None if class_names is None else _names_of_classes(class_names)
    if labels.dtype.kind == "O" and all(isinstance(v, (numbers.Real, np.bool_)) for v in labels):
        labels = np.array(labels.tolist())  # pandas' nullable integers
    if labels.dtype.kind in "OSU":
        texts = _texts("labels", labels)
        names = sorted(set(texts)) if names is None else names
        unknown = set(texts) - set(names)
        if unknown:
            raise ValueError(f"labels: '{sorted(unknown)[0]}' is none of class_names {names}")
        number = {name: k for k, name in enumerate(names)}
        return np.array([number[t] for t in texts], np.int64), names
    if labels.dtype.kind not in "uifb":
        raise ValueError(f"labels: must be class numbers 0, 1, ... or class names, not {labels.dtype}")
    with np.errstate(invalid="ignore"):  # inf % 1
        wrong = (labels % 1 != 0) | (labels < 0) | (labels > _MOST)
    if wrong.any():
        cell = int(wrong.argmax())
        raise ValueError(f"labels: must be class numbers 0, 1, ... or class names; cell {cell} has {labels[cell]}")
    values = labels.astype(np.int64)
    if names is not None and values.max() >= len(names):
        raise ValueError(f"labels: class {values.max()}, but class_names has {len(names)} names")
    return values, names


def _inside(masks, shape):
    """Masks as 0 and 1."""
    masks = np.ma.asarray(masks)
    if masks.shape != shape:
        raise ValueError(f"masks: shape {masks.shape}, expected {shape}")
    if masks.dtype.kind not in "uifb":
        raise ValueError(f"masks: type {masks.dtype}, expected bool, integers or floats")
    missing = np.ma.getmaskarray(masks) | (masks.data != masks.data)
    if missing.any():
        cell, y, x = (int(i) for i in np.unravel_index(missing.argmax(), shape))
        raise ValueError(f"masks[{cell}], y {y}, x {x}: is missing (NaN), expected 0 (outside) or not (inside)")
    return (masks.data != 0).astype(np.uint8)


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
    time_range_ns: from the first bin's begin to the last one's end.  Returns path.  ValueError (a missing value among them),
    FileExistsError.
    """
    n = len(volumes)
    shape, kind = _counts_type(volumes)
    columns, attributes = {}, {}
    if labels is not None:
        columns["label"], attributes["class_names"] = _class_numbers(_column("labels", labels, n), class_names)
    for column, values in (("group", groups), ("name", names)):
        if values is not None:
            texts = _texts(column + "s", _column(column + "s", values, n))
            columns[column] = np.array(texts, dtype=h5py.string_dtype())
    if masks is not None:
        columns["mask"] = _inside(masks, (n, *shape[1:]))
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
