#!/usr/bin/env python3
"""Speed of the loader against PyTorch's DataLoader on the same file: interleaved rounds, the median of each.

Usage: compare_torch_loader.py --bench build/release/flim_bench [--cells 1024] [--workers 8] [--batch 64] [--rounds 3]
                               [--threads-too] [--dir DIR]
The file is the one that peer/torch_e2e.py makes: counts (N,256,21,21) uint16, one cell a chunk, gzip 4 + shuffle.  Both sides
shuffle, use 8 workers, and put float32 log1p(counts)/10 and the mask into batch buffers; nothing consumes them; the page cache
is warm.  PyTorch's figure is its second epoch, with persistent workers and pinned memory where it has a GPU.  Processor
time covers the worker processes.  --threads-too prints 1, 2, 4 and 8 threads of ours, too.  Needs torch, h5py and ../shared
(or FLIM_SHARED=FOLDER).  Not a test: timings need a quiet machine.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("FLIM_SHARED") or os.path.join(HERE, "..", "..", "shared")


def torch_rate(a):
    """Cells a second of PyTorch's loader and processor time a cell; runs in a process of its own."""
    sys.path.insert(0, os.path.join(SHARED, "peer"))
    import torch_e2e

    rate, loader = torch_e2e.loader_rate(torch_e2e.H5(a.file, a.cells), a.batch, a.workers)
    del loader  # ends the workers, so that their time counts
    use = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps({"rate": rate, "cpu": sum(u.ru_utime + u.ru_stime for u in use) / (2 * a.cells)}))


def ours(a, workers, folder):
    out = os.path.join(folder, "ours.json")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    passes = 3
    subprocess.run([a.bench, "loader", "--data", a.file, "--workers", str(workers), "--batch", str(a.batch), "--passes", str(passes),
                    "--no-scaling", "--json", out], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.load(open(out))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result["cells_per_s"], result["raw_cells_per_s"], cpu / ((1 + 2 * passes) * a.cells), result["checksum"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bench", required=True)
    ap.add_argument("--cells", type=int, default=1024)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads-too", action="store_true")
    ap.add_argument("--dir", help="where the file goes (default: a folder that is removed at the end)")
    ap.add_argument("--file", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.file:
        return torch_rate(a)
    with tempfile.TemporaryDirectory(dir=a.dir) as folder:
        sys.path.insert(0, os.path.join(SHARED, "peer"))
        import torch_e2e

        a.file = os.path.join(folder, "cells.h5")
        torch_e2e.make(a.file, a.cells, None)
        rows = []
        for i in range(a.rounds):
            rate, raw, cpu, checksum = ours(a, a.workers, folder)
            out = subprocess.run([sys.executable, __file__] + sys.argv[1:] + ["--file", a.file], check=True, stdout=subprocess.PIPE, text=True)
            peer = json.loads(out.stdout.strip().split("\n")[-1])
            rows.append((rate, raw, peer["rate"]))
            print("round %d: flim_bench %.0f cells/s (%.0f as integers, checksum %s), PyTorch %.0f, ratio %.1f; processor time a cell "
                  "%.0f and %.0f us" % (i, rate, raw, checksum, peer["rate"], rate / peer["rate"], 1e6 * cpu, 1e6 * peer["cpu"]), flush=True)
        rate, raw, peer = (statistics.median(r[i] for r in rows) for i in range(3))
        print("%d processors, %d workers, %d cells: flim_bench %.0f cells/s (%.0f as integers), PyTorch %.0f cells/s, ratio %.1f" % (
            os.cpu_count(), a.workers, a.cells, rate, raw, peer, rate / peer))
        if a.threads_too:
            rates = [(n, ours(a, n, folder)[0]) for n in (1, 2, 4, 8)]
            print("; ".join("%d threads %.0f cells/s (%.1f)" % (n, r, r / rates[0][1]) for n, r in rates))


if __name__ == "__main__":
    main()
