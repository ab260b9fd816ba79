#!/usr/bin/env python3
"""From folders of .npy files to a report: one folder per donor, one file per cell, the class in the file's name.

    python examples/from_npy.py isolated_cells_D* --class _in=quiescent --class _act=activated --out runs/first -- --epochs 20

A cell is an array (T,H,W), or (H,W,T) with --time-last.  What follows `--` goes to train_cv.  The programs have to be in PATH
(`pip install .` puts them there).  `flim_import` does the first step as well, for instrument files, too; this shows it in Python.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

import numpy as np

import flimcv


def load(folders, rules, time_last):
    """(volumes, labels, groups, names) of all files whose name holds one of the rules' texts."""
    volumes, labels, groups, names, skipped = [], [], [], [], 0
    for folder in map(pathlib.Path, folders):
        for file in sorted(folder.glob("*.npy")):
            label = [name for text, name in rules if text in file.name]
            if len(label) != 1:
                skipped += 1
                continue
            volume = np.squeeze(np.load(file, allow_pickle=False))
            volumes.append(np.moveaxis(volume, -1, 0) if time_last else volume)
            labels.append(label[0])
            groups.append(folder.name)
            names.append(f"{folder.name}/{file.stem}")
    print(f"{len(volumes)} cells of {len(set(groups))} donors; {skipped} files fit no class, or several")
    return volumes, labels, groups, names


def main():
    own, rest = (sys.argv[1:], [])
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="+", help="a donor's cells")
    parser.add_argument("--class", dest="rules", metavar="TEXT=NAME", action="append", required=True, help="repeatable")
    parser.add_argument("--time-last", action="store_true", help="arrays are (H,W,T)")
    parser.add_argument("--time-range-ns", type=float, help="from the first bin's begin to the last one's end")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="run folder")
    options = parser.parse_args(own)
    rules = [tuple(rule.split("=", 1)) for rule in options.rules]

    # 1. One data file.
    volumes, labels, groups, names = load(options.folder, rules, options.time_last)
    data = options.out.with_suffix(".h5")
    data.parent.mkdir(parents=True, exist_ok=True)
    flimcv.to_h5(
        volumes, labels, groups, path=data, names=names, class_names=[name for _, name in rules], time_range_ns=options.time_range_ns
    )

    # 2. Is anything odd in it?
    subprocess.run(["flim_info", data], check=True)

    # 3. Cross-validated training: whole donors are kept apart.
    subprocess.run(["train_cv", "--data", data, "--out", options.out, *rest], check=True)

    # 4. The report.
    report = ["--html", options.out / "report.html"] if shutil.which("gnuplot") else ["--md", options.out / "report.md"]
    subprocess.run(["fold_metrics", options.out, *report], check=True)
    print(f"The report: {report[1]}")


if __name__ == "__main__":
    main()
