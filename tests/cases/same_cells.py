"""The same 48 cells in every way in which people's programs store them: same_cells.py FOLDER writes one file per way.

A file's name says what is compared with plain.h5: all_WAY.h5 holds the same counts, masks, labels, groups and names (ORDER in
all_axes_ORDER.h5 is its --axes); group_WAY.h5 holds the same groups under other names.
"""
import os
import sys

import h5py
import numpy as np

N, T, H, W = 48, 12, 7, 6
rng = np.random.default_rng(11)
label = np.arange(N) % 2
number = np.arange(N) // 2 % 6 + 1 # of the donor
donor = np.array([f"D{i}" for i in number], dtype=object)
name = np.array([f"c{i}" for i in range(N)], dtype=object)
lit = rng.poisson(9 * np.exp(-np.arange(T)[:, None, None] / (2 + label[:, None, None, None])), (N, T, H, W))
counts = np.ascontiguousarray(np.minimum(lit, 120), dtype="u2")
y, x = np.mgrid[:H, :W]
mask = np.repeat(((y - 3) ** 2 + (x - 3) ** 2 <= 8)[None], N, 0).astype("u1")
TEXT = h5py.string_dtype()


def put(file, key, value, **options):
    if value.dtype == object:
        return file.create_dataset(key, data=value, dtype=TEXT, **options)
    return file.create_dataset(key, data=np.ascontiguousarray(value), **options)


def write(path, options={}, attributes={}, leave_out=(), libver=None, **columns):
    columns = {"counts": counts, "mask": mask, "label": label, "group": donor, "name": name, **columns}
    with h5py.File(path, "w", libver=libver) as file:
        for key, value in columns.items():
            if key not in leave_out:
                put(file, key, value, **options.get(key, {}))
        file.attrs.update(attributes)


def add(path):
    return h5py.File(path, "r+")


def numbers():
    for kind in ("u1", "u4", "u8", "i1", "i2", "i4", "i8", ">u2", ">i4", ">u8", "f2", "f4", "f8", ">f2", ">f4", ">f8"):
        write(f"all_counts_{kind.replace('>', 'big_')}.h5", counts=counts.astype(kind))
    for kind in ("i1", "u1", "i8", ">i4", "f4", "f8", "bool"):
        write(f"all_label_{kind.replace('>', 'big_')}.h5", label=label.astype(kind))
    for kind, values in {"bool": mask.astype(bool), "255": 255 * mask, "f4": mask.astype("f4"), "big": mask.astype(">i2")}.items():
        write(f"all_mask_{kind}.h5", mask=values)
    write("all_packed.h5", counts=4 * counts + 8)
    with add("all_packed.h5") as file:
        file["counts"].attrs.update({"scale_factor": 0.25, "add_offset": -2.0})
    write("all_filled.h5")
    with add("all_filled.h5") as file:
        file["counts"].attrs["_FillValue"] = np.uint16(65535)
        file["group"].attrs["_FillValue"] = ""


def layouts():
    one, gzip = {"chunks": (1, T, H, W)}, {"compression": "gzip"}
    ways = {"one": one, "gzip": {**one, **gzip}, "best": {**one, **gzip, "shuffle": True}, "checked": {**one, **gzip, "fletcher32": True},
            "offset": {**one, "scaleoffset": 0}, "all": {"chunks": (N, T, H, W), **gzip},
            "cut": {"chunks": (7, 5, 4, 4), **gzip}, "grows": {"maxshape": (None, T, H, W), "chunks": (5, T, H, W)}}
    for way, options in ways.items():
        write(f"all_layout_{way}.h5", options={"counts": options})
    write("all_latest.h5", libver="latest", options={"counts": {**one, **gzip}})
    masks = {"chunks": (5, 3, 6), **gzip}
    write("all_columns_packed.h5", options={"mask": masks, "label": {"chunks": (9,), **gzip}, "group": {"chunks": (9,), **gzip}, "name": {"chunks": (9,), **gzip}})
    write("all_axes_XYTN.h5", counts=counts.T, mask=mask.T)
    write("all_axes_NYXT.h5", counts=counts.transpose(0, 2, 3, 1))
    write("all_axes_TYXN.h5", counts=counts.transpose(1, 2, 3, 0), mask=mask.transpose(1, 2, 0))


def other_files():
    os.makedirs("below", exist_ok=True)
    write("below/half_0.h5", counts=counts[:20], mask=mask[:20], leave_out=("label", "group", "name"))
    write("below/half_1.h5", counts=counts[20:], mask=mask[20:], leave_out=("label", "group", "name"), options={"counts": {"chunks": (1, T, H, W), "compression": "gzip"}})
    with h5py.File("all_view.h5", "w", libver="latest") as file:
        for key, value in {"counts": counts, "mask": mask}.items():
            layout = h5py.VirtualLayout(value.shape, value.dtype)
            for half, cells in enumerate((slice(0, 20), slice(20, N))):
                part = value[cells]
                layout[cells] = h5py.VirtualSource(f"below/half_{half}.h5", key, part.shape)
            file.create_virtual_dataset(key, layout)
        for key, value in {"label": label, "group": donor, "name": name}.items():
            put(file, key, value)
    for half in (0, 1):
        write(f"below/turn_{half}.h5", counts=counts[half::2], leave_out=("mask", "label", "group", "name"), options={"counts": {"chunks": (8, T, H, W), "compression": "gzip"}})
    write("all_view_in_turns.h5", leave_out=("counts",), libver="latest")
    with h5py.File("all_view_in_turns.h5", "r+", libver="latest") as file: # a mapping for every cell
        layout = h5py.VirtualLayout(counts.shape, counts.dtype)
        for i in range(N):
            layout[i] = h5py.VirtualSource(f"below/turn_{i % 2}.h5", "counts", (N // 2, T, H, W))[i // 2]
        file.create_virtual_dataset("counts", layout)
    write("all_link.h5", leave_out=("counts", "mask"))
    with add("all_link.h5") as file:
        file["counts"] = h5py.ExternalLink("plain.h5", "/counts")
        file["real"] = mask
        file["mask"] = h5py.SoftLink("/real")
    write("all_external.h5", leave_out=("counts",))
    counts.astype("<u2").tofile("below/counts.raw")
    with add("all_external.h5") as file:
        file.create_dataset("counts", counts.shape, "<u2", external=[("below/counts.raw", 0, counts.nbytes)])


def columns():
    write("all_rows.h5", label=label[None].astype("f8")) # MATLAB's (1,N)
    write("all_upright.h5", label=label[:, None])
    write("all_bits.h5", leave_out=("label",))
    with add("all_bits.h5") as file: # PyTables' and Julia's Bool
        bits = h5py.h5t.STD_B8LE
        column = h5py.h5d.create(file.id, b"label", bits, h5py.h5s.create_simple((N,)))
        column.write(h5py.h5s.ALL, h5py.h5s.ALL, label.astype("u1"), mtype=bits)
    encoded = [d.encode() for d in donor]
    for way, kind in {"fixed": np.dtype("S8"), "utf_8": h5py.string_dtype("utf-8", 9), "ascii": h5py.string_dtype("ascii")}.items():
        write(f"all_text_{way}.h5", leave_out=("group",))
        with add(f"all_text_{way}.h5") as file:
            file.create_dataset("group", data=np.array(encoded, dtype=kind) if kind.kind == "S" else encoded, dtype=kind)
    write("all_matlab.h5", leave_out=("group", "name"))
    with add("all_matlab.h5") as file: # cellstr: references to character codes; a char array
        cells = file.create_dataset("group", (1, N), dtype=h5py.ref_dtype)
        for i in range(N):
            cells[0, i] = file.create_dataset(f"#refs#/{i}", data=np.array([[ord(c)] for c in donor[i]], "u2")).ref
        cells.attrs["MATLAB_class"] = np.bytes_("cell")
        letters = file.create_dataset("name", data=np.array([[ord(c) for c in n.ljust(3)] for n in name], "u2").T)
        letters.attrs["MATLAB_class"] = np.bytes_("char")
    for way, codes, names, first in (("anndata", "codes", "categories", 1), ("factor", "values", "levels", 0)):
        write(f"all_{way}.h5", leave_out=("group",))
        with add(f"all_{way}.h5") as file:
            column = file.create_group("group")
            column[codes] = (number - first).astype("i4")
            put(column, names, np.array([f"D{i}" for i in range(1, 7)], dtype=object))
    write("all_enum.h5", leave_out=("label", "group"))
    with add("all_enum.h5") as file:
        file.create_dataset("group", data=number.astype("i1"), dtype=h5py.enum_dtype({f"D{i}": i for i in range(1, 7)}, basetype="i1"))
        file["label"] = label
    for way, values in {"numbers": number.astype("i8"), "big": number.astype(">i2"), "long": np.array(["x" * 290 + d for d in donor], dtype=object),
                        "umlauts": np.array(["Ü" + d for d in donor], dtype=object), "latin_1": np.array([f"\xdc{d}".encode("latin-1") for d in donor])}.items():
        write(f"group_{way}.h5", group=values)


os.chdir(sys.argv[1])
write("plain.h5")
numbers()
layouts()
other_files()
columns()
