"""A data file's cells for PyTorch, to the bits of train_cv's own loader."""

import numpy as np

from ._extras import need
from .columns import Columns, h5py

torch = need("torch", "torch")

_MOST = 2147483647  # photons of a voxel, as for the programs


def signal(counts):
    """float32(log1p(counts)) / 10, the logarithm in double precision: counts of any shape, float32 of the same."""
    return np.log1p(counts.astype(np.float32).astype(np.float64)).astype(np.float32) / np.float32(10)


def _first(wrong):
    return tuple(int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))


class CellDataset(torch.utils.data.Dataset):
    """Cell i is (x, label): x (2,T,H,W) float32 with log1p(counts)/10 and the mask, label an int, -1 in a file without /label.

    The file is opened by each worker of a DataLoader for itself.
    """

    def __init__(self, path, mask_counts=False, axes=None):
        if axes not in (None, "NTHW", "NTYX"):
            raise ValueError(f"axes '{axes}': only NTHW is read here: flim_repack --axes rewrites a file of another order")
        self.path, self.mask_counts, self._file = path, mask_counts, None
        with h5py.File(path, "r") as file:
            columns = Columns(file, path)
            counts = columns.counts(axes)
            self._length, self.shape = counts.shape[0], tuple(counts.shape[1:])
            self._has_mask = columns.mask((self._length, *self.shape[1:])) is not None
            self.class_names = columns.class_names()
            self.labels = columns.labels(self._length, self.class_names)
            self.groups = columns.texts("group", self._length, columns.attribute_texts("group_names"))
            self.names = columns.texts("name", self._length)

    def __len__(self):
        return self._length

    def __getstate__(self):  # an open file is of one process
        return {**self.__dict__, "_file": None}

    def _counts(self, i):
        """(T,H,W) float32, each of them a count."""
        counts = self._file["counts"][i]
        if counts.dtype.kind not in "bu" or counts.dtype.itemsize > 2:
            kind = counts.dtype.type
            largest = (np.finfo if counts.dtype.kind == "f" else np.iinfo)(kind).max
            wrong = ~((counts >= 0) & (counts <= (kind(_MOST) if largest > _MOST else largest)))
            if wrong.any():
                t, y, x = _first(wrong)
                raise ValueError(
                    f"{self.path}: /counts: cell {i}, t {t}, y {y}, x {x}: found {counts[t, y, x]}, expected a photon count, "
                    f"0 to {_MOST}"
                )
        return counts.astype(np.float32) + np.float32(0)  # no -0

    def _mask(self, i):
        """(H,W) of bool."""
        mask = self._file["mask"][i]
        missing = mask != mask
        if missing.any():
            y, x = _first(missing)
            raise ValueError(f"{self.path}: /mask: cell {i}, y {y}, x {x}: found NaN, expected 0 (outside) or not (inside)")
        return mask != 0

    def __getitem__(self, i):
        i = int(i)
        if not -self._length <= i < self._length:
            raise IndexError(f"cell {i} of {self._length}")
        i %= self._length
        if self._file is None:
            self._file = h5py.File(self.path, "r")
        counts = self._counts(i)
        mask = self._mask(i) if self._has_mask else (counts != 0).any(axis=0)
        if self.mask_counts:
            counts *= mask
        x = np.empty((2, *self.shape), np.float32)
        x[0] = signal(counts)
        x[1] = mask
        return torch.from_numpy(x), -1 if self.labels is None else int(self.labels[i])


def dataset(path, mask_counts=False, axes=None):
    """The cells of a data file (axes N,T,H,W) as a torch Dataset.

    mask_counts: as train_cv --mask-counts, zero the counts outside the mask.  .labels, .groups, .names and .class_names are the
    file's columns, or None.  What is not read as the programs read it (axes in another order, packed numbers, categories, other
    files' values) is a ValueError; flim_repack rewrites such a file.  axes="NTHW": the order is that, even if it looks otherwise.
    """
    return CellDataset(path, mask_counts, axes)
