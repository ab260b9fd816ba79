#!/usr/bin/env python3
"""Writes tests/cv/split_reference.txt: tables of groups by class, and how evenly scikit-learn's splitters deal them.

    python3 tests/cv/make_split_reference.py [FILE]

A case is
    case GROUPS CLASSES FOLDS
    count ...             GROUPS x CLASSES cells
    stratified_group GAPS SPREAD    best of StratifiedGroupKFold without shuffling and with 10 seeds: GAPS first
    group SD                        GroupKFold: standard deviation of the fold sizes / cells
GAPS: (class, fold) pairs without a cell.  SPREAD: mean over classes of the standard deviation over folds of the share of the
class's cells, the measure that StratifiedGroupKFold itself lowers.
"""
import sys
import warnings
from pathlib import Path

try:
    import numpy as np
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(77)

warnings.filterwarnings("ignore")
KEPT = Path(__file__).parent / "split_reference.txt"


def tables():
    rng = np.random.default_rng(77)
    for number in range(500):
        classes, folds = int(rng.integers(2, 5)), int(rng.integers(2, 7))
        groups = folds + int(rng.integers(0, [4, 12, 40][number % 3]))
        kind = number % 5
        size = np.ceil(rng.pareto(1.2, groups) * 5 + 1) if kind == 1 else rng.integers(1, 40, groups)
        if kind == 2:  # one class a group
            count = np.zeros((groups, classes), int)
            count[np.arange(groups), rng.integers(0, classes, groups)] = size
        elif kind == 3:  # a rare class
            count = rng.poisson(np.r_[np.full(classes - 1, 10.0), 0.6], (groups, classes))
        else:
            count = np.stack([rng.multinomial(min(int(s), 200), rng.dirichlet(np.full(classes, 0.7))) for s in size])
        count = count[count.sum(1) > 0]
        count = count[:, count.sum(0) > 0]
        if len(count) >= folds and count.shape[1] >= 2:
            yield count, folds


def main():
    lines = ["# scikit-learn reference for tests/cv/test_split_balance.c; written by tests/cv/make_split_reference.py"]
    for count, folds in tables():
        groups, classes = count.shape
        y = np.concatenate([np.repeat(np.arange(classes), row) for row in count])
        g = np.repeat(np.arange(groups), count.sum(1))
        best = None
        for seed in [None] + list(range(10)):
            splitter = StratifiedGroupKFold(folds, shuffle=seed is not None, random_state=seed)
            try:
                parts = [np.bincount(y[test], minlength=classes) for _, test in splitter.split(y, y, g)]
            except ValueError:  # folds > cells of every class
                continue
            share = np.array(parts) / count.sum(0)
            result = (int((share == 0).sum()), float(share.std(0).mean()))
            best = result if best is None or result < best else best
        sizes = [len(test) for _, test in GroupKFold(folds).split(y, y, g)]
        lines.append(f"case {groups} {classes} {folds}")
        lines.append("count " + " ".join(map(str, count.ravel())))
        lines.append("stratified_group %d %.17g" % best if best else "stratified_group -1 0")
        lines.append(f"group {np.std(sizes) / len(y):.17g}")
    Path(sys.argv[1] if len(sys.argv) > 1 else KEPT).write_text("\n".join(lines) + "\n")


main()
