#!/usr/bin/env python3
"""Compares ways of training (arms) over several seeds: a table for docs/learning.md.

  tools/compare_arms.py --seeds 8 --jobs 4 --out runs/arms \\
      --arm 'default=' --arm 'no dropout=--dropout 0' -- --data data/flim.h5 --preset tiny --epochs 24

Every arm is train_cv with the flags after --, then the arm's own, then --seed 1, 2, ...; a run that is complete is not made
again.  Per arm: mean and standard deviation over the seeds of what summary.json has as the folds' mean.  Then the paired
differences to the first arm (same seed, hence same folds) with a 95 % interval of Student's t: one seed says nothing.
Needs nothing but Python 3.
"""
import argparse
import concurrent.futures
import json
import math
import os
import shlex
import subprocess
import sys


def t_quantile(df):
    """The 97.5 % quantile of Student's t: bisection on its distribution function, integrated by Simpson's rule."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def above_zero(x, n=2000):
        f = [(1 + (x * i / n) ** 2 / df) ** (-(df + 1) / 2) for i in range(n + 1)]
        return scale * x / n / 3 * (f[0] + f[-1] + 4 * sum(f[1:-1:2]) + 2 * sum(f[2:-1:2]))

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above_zero(middle) < 0.475 else (low, middle)
    return low


def mean_sd(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def train(program, folder, flags):
    """A complete run's summary, made now if it is not there; None, with its last words shown, if it failed."""
    summary = os.path.join(folder, "summary.json")
    if not os.path.exists(summary):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        again = ["--resume"] if os.path.exists(os.path.join(folder, "config.yaml")) else flags
        done = subprocess.run([program, *again, "--out", folder, "--quiet"], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{folder}: exit {done.returncode}: {done.stderr.strip()[-600:]}", file=sys.stderr)
            return None
    with open(summary, encoding="utf-8") as file:
        return json.load(file)


def row(name, cells):
    print("| " + " | ".join([name, *cells]) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", required=True, metavar="NAME=FLAGS")
    parser.add_argument("--seeds", type=int, default=8, help="seeds 1 to N (default 8)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--out", required=True, help="folder for the runs: OUT/ARM/seed_S")
    parser.add_argument("--metrics", default="accuracy,balanced_accuracy,roc_auc,log_loss")
    parser.add_argument("--train-cv", default="build/release/train_cv", help="the program")
    parser.add_argument("flags", nargs="*", help="flags of train_cv that all arms share, after --")
    options = parser.parse_args()
    arms = []
    for text in options.arm:
        name, equals, flags = text.partition("=")
        if not equals or "/" in name:
            parser.error(f"--arm {text!r}: expected NAME=FLAGS")
        arms.append((name, shlex.split(flags)))
    metrics = options.metrics.split(",")
    seeds = range(1, options.seeds + 1)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {(name, seed): pool.submit(train, options.train_cv,
                                          os.path.join(options.out, name.replace(" ", "_"), f"seed_{seed}"),
                                          [*options.flags, *flags, "--seed", str(seed)])
                for name, flags in arms for seed in seeds}
    scores = {key: run.result() for key, run in runs.items()}
    failed = sum(1 for score in scores.values() if score is None)

    row("arm", [m.replace("_", " ") for m in metrics])
    row("---", ["---"] * len(metrics))
    for name, _ in arms:
        cells = []
        for m in metrics:
            mean, sd = mean_sd([scores[name, s]["mean"][m] for s in seeds if scores[name, s]] or [math.nan])
            cells.append(f"{mean:.3f} ± {sd:.3f}")
        row(name, cells)
    print(f"\nDifference to '{arms[0][0]}', paired by seed, 95 % interval:\n")
    row("arm", [m.replace("_", " ") for m in metrics])
    row("---", ["---"] * len(metrics))
    for name, _ in arms[1:]:
        cells = []
        for m in metrics:
            pairs = [scores[name, s]["mean"][m] - scores[arms[0][0], s]["mean"][m] for s in seeds
                     if scores[name, s] and scores[arms[0][0], s]]
            mean, sd = mean_sd(pairs or [math.nan])
            half = t_quantile(len(pairs) - 1) * sd / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
            cells.append(f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f})")
        row(name, cells)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
