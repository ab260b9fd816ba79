"""A data file's cells for PyTorch, to the bits of train_cv's own loader."""

import numpy as np

from ._extras import need

torch = need("torch", "torch")
h5py = need("h5py", "torch")


def signal(counts):
    """float32(log1p(counts)) / 10, the logarithm in double precision: counts of any shape, float32 of the same."""
    return np.log1p(counts.astype(np.float32).astype(np.float64)).astype(np.float32) / np.float32(10)


class CellDataset(torch.utils.data.Dataset):
    """Cell i is (x, label): x (2,T,H,W) float32 with log1p(counts)/10 and the mask, label an int, -1 in a file without /label.

    The file is opened by each worker of a DataLoader for itself.
    """

    def __init__(self, path, mask_counts=False):
        self.path, self.mask_counts, self._file = path, mask_counts, None
        with h5py.File(path, "r") as file:
            if "counts" not in file or file["counts"].ndim != 4:
                raise ValueError(f"{path}: no dataset /counts of four axes (N,T,H,W): this is no data file of flimcv")
            packed = {"scale_factor", "add_offset", "_FillValue", "missing_value", "valid_range", "valid_min", "valid_max"}
            found = packed.intersection(file["counts"].attrs)
            if found or not isinstance(file.get("label", file["counts"]), h5py.Dataset):
                raise ValueError(
                    f"{path}: packed numbers or categories ({', '.join(sorted(found)) or '/label'}): rewrite it with flim_repack"
                )
            self.shape = tuple(file["counts"].shape[1:])
            self.labels = file["label"][()].reshape(-1).astype(np.int64) if "label" in file else None
            self.groups = self._texts(file, "group")
            self.names = self._texts(file, "name")
            names = file.attrs.get("class_names")
            self.class_names = None if names is None else [n.decode() if isinstance(n, bytes) else str(n) for n in names]
            self._length = file["counts"].shape[0]

    @staticmethod
    def _texts(file, name):
        if name not in file or not isinstance(file[name], h5py.Dataset):
            return None
        return [v.decode() if isinstance(v, bytes) else str(v) for v in file[name][()].reshape(-1)]

    def __len__(self):
        return self._length

    def __getstate__(self):  # an open file is of one process
        return {**self.__dict__, "_file": None}

    def __getitem__(self, i):
        i = int(i)
        if not -self._length <= i < self._length:
            raise IndexError(f"cell {i} of {self._length}")
        i %= self._length
        if self._file is None:
            self._file = h5py.File(self.path, "r")
        counts = self._file["counts"][i]  # (T,H,W)
        mask = self._file["mask"][i] != 0 if "mask" in self._file else (counts != 0).any(axis=0)  # (H,W)
        if self.mask_counts:
            counts = counts * mask.astype(counts.dtype)
        x = np.empty((2, *self.shape), np.float32)
        x[0] = signal(counts)
        x[1] = mask
        return torch.from_numpy(x), -1 if self.labels is None else int(self.labels[i])


def dataset(path, mask_counts=False):
    """The cells of a data file (axes N,T,H,W) as a torch Dataset.

    mask_counts: as train_cv --mask-counts, zero the counts outside the mask.  .labels, .groups, .names and .class_names are the
    file's columns, or None.  Axes in another order and packed numbers: rewrite the file with flim_repack.
    """
    return CellDataset(path, mask_counts)
