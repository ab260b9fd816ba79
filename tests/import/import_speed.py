#!/usr/bin/env python3
"""The speed of flim_import beside Python's readers, on the same files in one run.

Usage: import_speed.py BUILD_DIR [--rounds N] [--only TEXT]

Needs sdtfile, ptufile, tifffile, imagecodecs, scipy, numpy and h5py (PyPI), and build's program read_speed
(cmake --build BUILD_DIR --target read_speed).  Two comparisons, milliseconds, the best of N rounds; in each round both
sides run one after the other, in alternating order.  Wall time, and processor time of all threads, which is to be looked at on a
machine with other work:

  read    a file to its photon counts in memory and their sum.  Python: the array as its reader gives it (no transposition, no
          conversion), then array.sum().  flimcv: read_speed, the code that flim_import reads with.  Files are warm.
  import  files to an HDF5 file of the same content: counts (N,T,Y,X) of uint16, a cell per chunk, shuffle + gzip, groups, names,
          SHA-256 of each file.  Python: the same reader, a transposition where it is needed, hashlib, h5py with gzip level 4; its
          flimcv: all that the program flim_import does.  On both sides the process is there before the clock starts.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np
import ptufile
import scipy.io
import sdtfile
import tifffile

HERE = os.path.dirname(os.path.abspath(__file__))
RAW = os.path.join(os.environ.get("FLIM_SHARED", os.path.join(HERE, "../../../shared")), "data/raw")
CELLS = 256


def make_ptu(path, frames, side, photons_of_line, rng):
    """TimeHarp records of `frames` pictures: a line of 8 sync pulses per pixel, then half as long a way back."""
    length = 8 * side
    lines = frames * side
    begin = np.arange(lines, dtype=np.int64) * (length * 3 // 2) + 100
    begin += np.repeat(np.arange(frames), side) * 1000
    at = np.sort(rng.integers(0, length, (lines, photons_of_line)), axis=1) + begin[:, None]
    dtime = (rng.exponential(40, at.shape).astype(np.int64) + 20) % 130
    frame_marker = np.where(np.arange(lines) % side == 0, begin - 50, -1)
    times = np.concatenate([begin, (begin + length), at.ravel(), frame_marker[frame_marker >= 0]])
    rank = np.concatenate([np.zeros(lines), np.full(lines, 2), np.ones(at.size), np.zeros(frames)])
    word = np.concatenate([np.full(lines, 1 << 31 | 1 << 25), np.full(lines, 1 << 31 | 2 << 25), dtime.ravel() << 10,
                           np.full(frames, 1 << 31 | 4 << 25)]).astype(np.uint64)
    order = np.lexsort((rank, times))
    times, word = times[order], word[order]
    periods = np.diff(times // 1024, prepend=0)
    before = np.flatnonzero(periods)
    word |= (times % 1024).astype(np.uint64)
    word = np.insert(word, before, (0xFE000000 | periods[before]).astype(np.uint64)).astype("<u4")
    tags = []

    def tag(name, kind, value):
        tags.append(name.encode().ljust(32, b"\0") + np.int32(-1).tobytes() + np.uint32(kind).tobytes()
                    + (np.float64(value) if kind == 0x20000008 else np.int64(value)).tobytes())

    whole, real = 0x10000008, 0x20000008
    for name, kind, value in (("Measurement_Mode", whole, 3), ("Measurement_SubMode", whole, 3),
                              ("TTResultFormat_TTTRRecType", whole, 0x00010305), ("TTResultFormat_BitsPerRecord", whole, 32),
                              ("ImgHdr_Dimensions", whole, 3),
                              ("ImgHdr_PixX", whole, side), ("ImgHdr_PixY", whole, side), ("ImgHdr_LineStart", whole, 1),
                              ("ImgHdr_LineStop", whole, 2), ("ImgHdr_Frame", whole, 3), ("ImgHdr_BiDirect", whole, 0),
                              ("ImgHdr_SinCorrection", whole, 0), ("ImgHdr_TimePerPixel", real, 8 * 12.5e-6),
                              ("MeasDesc_Resolution", real, 96e-12), ("MeasDesc_GlobalResolution", real, 12.5e-9),
                              ("TTResult_SyncRate", whole, 80000000), ("TTResult_NumberOfRecords", whole, word.size),
                              ("Header_End", 0xFFFF0008, 0)):
        tag(name, kind, value)
    with open(path, "wb") as f:
        f.write(b"PQTTTR\0\0" + b"1.0.00\0\0" + b"".join(tags) + word.tobytes())


def make_files(folder):
    """The files that are not public: the T cells of a public .sdt in other formats, and a .ptu of 5 million photons."""
    def path(name):
        return os.path.join(folder, name)

    yxt = np.array(sdtfile.SdtFile(os.path.join(RAW, "Tcells-002.sdt")).data[0])
    tyx = np.ascontiguousarray(yxt.transpose(2, 0, 1))
    np.save(path("yxt.npy"), yxt)
    np.save(path("tyx.npy"), tyx)
    np.savez_compressed(path("yxt.npz"), yxt)
    tifffile.imwrite(path("plain.tif"), tyx, photometric="minisblack")
    tifffile.imwrite(path("deflate.tif"), tyx, photometric="minisblack", compression="zlib")
    tifffile.imwrite(path("lzw.tif"), tyx, photometric="minisblack", compression="lzw", predictor=True)
    scipy.io.savemat(path("v5.mat"), {"c": yxt}, do_compression=True)
    with h5py.File(path("other.h5"), "w") as f:
        f.create_dataset("decays", data=yxt, chunks=(16, 256, 256), compression="gzip", compression_opts=4)
    make_ptu(path("made.ptu"), 20, 256, 1000, np.random.default_rng(1))
    os.mkdir(path("cells"))
    for i in range(CELLS):
        y, x = i % 11 * 21, i // 11 % 11 * 21
        np.save(path(f"cells/cell_{i:04}.npy"), yxt[y:y + 21, x:x + 21])


def read_ptu(path):
    with ptufile.PtuFile(path) as f:
        return f.decode_image(frame=-1, channel=0, keepdims=False)


def read_h5(path):
    with h5py.File(path) as f:
        return f["decays"][...]


YXT, TYX = "YXT", "TYX"
READERS = {".sdt": (lambda p: sdtfile.SdtFile(p).data[0], YXT), ".ptu": (read_ptu, YXT), ".tif": (tifffile.imread, TYX),
           ".npz": (lambda p: np.load(p)["arr_0"], YXT), ".mat": (lambda p: scipy.io.loadmat(p)["c"], YXT), ".h5": (read_h5, YXT),
           ".npy": (np.load, YXT)}


def reader_of(path):
    read, axes = READERS[os.path.splitext(path)[1]]
    return read, TYX if os.path.basename(path) == "tyx.npy" else axes


def python_import(paths, out):
    for i, path in enumerate(paths):
        read, axes = reader_of(path)
        counts = np.asarray(read(path)).squeeze()
        if axes == YXT:
            counts = counts.transpose(2, 0, 1)
        if i == 0:
            f = h5py.File(out, "w")
            cells = f.create_dataset("counts", (len(paths),) + counts.shape, np.uint16, chunks=(1,) + counts.shape,
                                     compression="gzip", compression_opts=4, shuffle=True)
            hashes = []
        cells[i] = counts
        with open(path, "rb") as stream:
            hashes.append(hashlib.sha256(stream.read()).hexdigest())
    f["group"] = [os.path.basename(os.path.dirname(p)) for p in paths]
    f["name"] = [os.path.splitext(os.path.basename(p))[0] for p in paths]
    f["import/sha256"] = hashes
    f.close()


def timed(call):
    """((wall ms, processor ms), result)"""
    began, used = time.perf_counter(), time.process_time()
    result = call()
    return (1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - used)), result


def best_of_pairs(rounds, ours, theirs):
    """[(wall, processor) of ours, of theirs]: the best of each."""
    best = [(float("inf"),) * 2] * 2
    for i in range(rounds):
        for side in ((0, 1) if i % 2 else (1, 0)):
            best[side] = tuple(map(min, best[side], (ours, theirs)[side]()))
    return best


def show(table, what, name, ours, theirs, remark=""):
    table[what][name] = {"Python": theirs, "flimcv": ours}
    print(f"{what:7}{name:23}" + "".join(f"{b:9.2f}{a:9.2f}{b / a:7.1f}" for a, b in zip(ours, theirs)) + remark, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="files whose name has this text")
    options = parser.parse_args()
    table = {"read": {}, "import": {}}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        make_files(folder)
        public = [os.path.join(RAW, n) for n in ("Tcells-002.sdt", "bigger_beads_2.1ns.sdt", "flimflam_c1.sdt", "pyflim_example.ptu")]
        made = [os.path.join(folder, n) for n in ("made.ptu", "plain.tif", "deflate.tif", "lzw.tif", "yxt.npy", "tyx.npy", "yxt.npz",
                                                  "v5.mat", "other.h5")]
        cells = sorted(os.path.join(folder, "cells", n) for n in os.listdir(os.path.join(folder, "cells")))
        child = subprocess.Popen([os.path.join(options.build, "tests/read_speed")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)

        def ask(*words):
            child.stdin.write("\t".join(words) + "\n")
            child.stdin.flush()
            wall, used, photons = child.stdout.readline().split()
            return (float(wall), float(used)), int(photons)

        print(f"{'':30}" + f"{'Python':>9}{'flimcv':>9}{'ratio':>7}" * 2 + "  (wall, then processor time)")
        for path in [p for p in public + made if options.only in p]:
            read, axes = reader_of(path)
            sums = [0, 0]

            def ours():
                ms, sums[0] = ask("read", axes, path)
                return ms

            def theirs():
                ms, sums[1] = timed(lambda: int(np.asarray(read(path)).sum(dtype=np.uint64)))
                return ms

            a, b = best_of_pairs(options.rounds, ours, theirs)
            show(table, "read", os.path.basename(path), a, b, "" if sums[0] == sums[1] else f"  sums {sums[1]} and {sums[0]}")
        for paths in [[p] for p in public + made if options.only in p] + ([cells] if options.only in "cells" else []):
            out = os.path.join(folder, "out.h5")

            def fresh(call):
                if os.path.exists(out):
                    os.unlink(out)
                return call()[0]

            a, b = best_of_pairs(options.rounds, lambda: fresh(lambda: ask("import", reader_of(paths[0])[1], out, *paths)),
                                 lambda: fresh(lambda: timed(lambda: python_import(paths, out))))
            show(table, "import", os.path.basename(paths[0]) if len(paths) == 1 else f"{len(paths)} cells (.npy)", a, b)
        child.stdin.close()
        child.wait()
    json.dump(table, open("import_speed.json", "w"), indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
