"""What a data file has beside the counts, read as the programs read it, or refused by name (docs/file-format.md).

The programs read more forms than are read here (packed numbers, categories, MATLAB's texts): flim_repack writes them plainly.
"""

import numpy as np

from ._extras import need

h5py = need("h5py", "torch")

_PACKED = ("scale_factor", "add_offset", "_FillValue", "missing_value", "valid_range", "valid_min", "valid_max", "_Unsigned")


class Columns:
    """The arrays of an open data file.  Each error is a ValueError that names the file, the array and what was found."""

    def __init__(self, file, path):
        self.file, self.path = file, path

    def error(self, name, text):
        return ValueError(f"{self.path}: /{name}: {text}")

    def _array(self, name):
        """The dataset, or None; with its own type, which HDF5 has more of than NumPy."""
        if not self.file.id.links.exists(name.encode()):
            return None
        try:
            array = self.file[name]
        except (KeyError, OSError) as error:
            raise self.error(name, f"cannot be opened ({error}): is it a link that leads nowhere?") from error
        if not isinstance(array, h5py.Dataset):
            raise self.error(name, "found no dataset, maybe a group of categories: rewrite the file with flim_repack")
        if array.is_virtual or array.external:
            raise self.error(name, "its values are in other files: flim_repack looks for them and writes one file")
        try:
            return array, array.dtype
        except TypeError as error:
            raise self.error(name, f"its type is not read here ({error}): rewrite the file with flim_repack") from error

    def numbers(self, name, expected):
        """The dataset of plain numbers, or None where the file has none."""
        found = self._array(name)
        if found is None:
            return None
        array, kind = found
        if kind.kind not in "uifb" or kind.itemsize > 8:
            what = kind if h5py.check_string_dtype(kind) is None else "texts"
            raise self.error(name, f"found {what} {array.shape}, expected {expected}: flim_repack writes plainly what the programs read")
        self._refuse(name, array, [a for a in _PACKED if a in array.attrs], "packed numbers")
        return array

    def _refuse(self, name, array, attributes, what):
        if attributes:
            raise self.error(name, f"{what} (attribute {', '.join(attributes)}): rewrite the file with flim_repack")

    def _refuse_categories(self, name, array):
        self._refuse(name, array, [a for a in ("categories",) if a in array.attrs], "categories")
        if h5py.check_enum_dtype(array.dtype) is not None and array.dtype.kind != "b":
            raise self.error(name, "found an enumeration, expected plain values: rewrite the file with flim_repack")
        if array.attrs.get("MATLAB_class") in (b"char", "char"):
            raise self.error(name, "found MATLAB's characters, expected plain values: rewrite the file with flim_repack")

    def _one_per_cell(self, name, array, n):
        """Its values: of (n), or of MATLAB's (1,n) and (n,1)."""
        if array.ndim < 1 or array.size != n or max(array.shape) != n:
            raise self.error(name, f"found shape {array.shape}, expected one value for each of the {n} cells of /counts")
        return array[()].reshape(-1)

    def _integers(self, name, array, n):
        values = self._one_per_cell(name, array, n)
        with np.errstate(invalid="ignore"):
            if values.dtype.kind == "f":
                wrong = ~((np.abs(values) <= 2.0**53) & (values == np.floor(values)))
            else:
                wrong = values > np.iinfo(np.int64).max if values.dtype == np.uint64 else np.zeros(n, bool)
        if wrong.any():
            cell = int(wrong.argmax())
            raise self.error(name, f"cell {cell}: found {values[cell]}, expected a whole number")
        return values.astype(np.int64)

    def labels(self, n, class_names):
        """(n) class numbers, or None: 0..K-1, each of them there unless class_names says how many there are."""
        array = self.numbers("label", "integers 0..K-1")
        if array is None:
            return None
        self._refuse_categories("label", array)
        values = self._integers("label", array, n)
        classes = len(class_names) if class_names is not None else len(np.unique(values))
        wrong = (values < 0) | (values >= classes)
        if wrong.any():
            cell = int(wrong.argmax())
            why = "as class_names has as many names" if class_names is not None else "each at least once, or an attribute class_names"
            raise self.error("label", f"cell {cell}: found {values[cell]}, expected 0..{classes - 1}, {why}")
        return values

    def texts(self, name, n, names_of_numbers=None):
        """(n) texts, or None; whole numbers as texts, or by their names if all have one."""
        found = self._array(name)
        if found is None:
            return None
        array, kind = found
        if h5py.check_string_dtype(kind) is None:
            array = self.numbers(name, "texts or integers")
            self._refuse_categories(name, array)
            values = self._integers(name, array, n)
            names = names_of_numbers or []
            if len(set(names)) == len(names) and values.min() >= 0 and values.max() < len(names):
                return [names[v] for v in values]
            return [str(v) for v in values]
        self._refuse_categories(name, array)
        texts = [self._text(v, f"/{name}: cell {i}") for i, v in enumerate(self._one_per_cell(name, array, n))]
        for attribute in ("_FillValue", "missing_value"):
            fill = np.atleast_1d(array.attrs.get(attribute, ""))
            fill = self._text(fill[0], f"/{name}: attribute {attribute}") if fill.size == 1 and fill.dtype.kind in "OSU" else ""
            if fill and fill in texts:
                raise self.error(name, f"cell {texts.index(fill)}: found '{fill}', which marks a missing value (attribute {attribute})")
        return texts

    def attribute_texts(self, name):
        """The texts of an attribute of the file, or None."""
        if name not in self.file.attrs:
            return None
        values = np.atleast_1d(self.file.attrs[name]).reshape(-1)
        if values.size == 0 or not all(isinstance(v, (str, bytes)) for v in values):
            raise ValueError(f"{self.path}: attribute {name}: found {values}, expected a list of texts")
        return [self._text(v, f"attribute {name}") for v in values]

    def class_names(self):
        names = self.attribute_texts("class_names")
        for name in names or ():
            if names.count(name) > 1:
                raise ValueError(f"{self.path}: attribute class_names: two classes are '{name}', expected a name of its own for each")
        return names

    def _text(self, value, where):
        """HDF5's text ends at its first zero byte."""
        try:
            value = value.encode() if isinstance(value, str) else bytes(value)
            return value.split(b"\0")[0].decode()
        except UnicodeError as error:
            raise ValueError(f"{self.path}: {where}: found {value!r}, expected UTF-8: rewrite the file with flim_repack") from error

    def counts(self, axes):
        """/counts, once its axes can be those of (N,T,H,W); `axes` says that they are, where they look otherwise."""
        array = self.numbers("counts", "photon counts (N,T,H,W)")
        if array is None or array.ndim != 4:
            found = "there is none" if array is None else f"found shape {array.shape}"
            raise self.error("counts", f"{found}, expected four axes (N,T,H,W): this is no data file of flimcv")
        a, b, c, d = array.shape
        looks = "XYTN" if a == b and c >= 2 * b and c != d else "NYXT or TYXN" if b == c and d >= 2 * c else None
        if looks and axes is None:
            raise self.error(
                "counts",
                f"found shape {array.shape}, expected (N,T,H,W), but this looks like {looks}: rewrite the file with flim_repack --axes, "
                'or give axes="NTHW" if it is right as it is',
            )
        if a < 1 or b < 8 or c < 3 or d < 3:
            raise self.error(
                "counts",
                f"found shape {array.shape}, expected (N,T,H,W) with N >= 1, T >= 8, H and W >= 3: flim_repack --axes rewrites "
                "another order",
            )
        return array

    def mask(self, shape):
        """/mask, or None."""
        array = self.numbers("mask", f"numbers {shape}, not 0 inside the cell")
        if array is not None and array.shape != shape:
            raise self.error("mask", f"found shape {array.shape}, expected {shape}: one mask for each cell of /counts")
        return array
