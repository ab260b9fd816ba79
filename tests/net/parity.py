#!/usr/bin/env python3
"""The same steps as PyTorch: flim_bench step against peer/torch_parity.py on the same weights and cells.

Usage: parity.py --bench build/release/flim_bench [--device cpu|cuda] [--precision fp32] [--preset base] [--batch 16]
                 [--steps 5] [--only cells|voltage|simulated] [--fp64 cells,voltage,simulated] [--seeds 1,2,3]
Needs torch, h5py and ../shared (peer, data) beside the checkout (or FLIM_SHARED=FOLDER); ends with 77 and a reason where one is
missing.

fp32: for each data set it makes weights, runs flim_bench and PyTorch in fp32 and (on CUDA all steps, on the CPU step 0 of the sets
in --fp64) in fp64, and holds the differences to BOUNDS.  A running mean contains the bias in front of its BatchNorm, so what
Adam can move that bias is allowed to it first.  Biases that feed a BatchNorm have no gradient in exact arithmetic, and Adam's first
steps follow the sign of an element's gradient however small it is: both kinds are held to what Adam can move them,
2 * steps * lr, and the figure with all elements is printed beside.  Where fp64 ran all steps, the weights are held to it, over
all elements: to the bound or to PyTorch's own fp32 distance.

tf32, bf16, fp16 (CUDA): the distance of step 0's gradients to PyTorch's fp32 ones, over the distance of PyTorch's own in that
precision, for each tensor.  What separates them is mostly which activations near 0 change sides, which is a draw: with several
--seeds each distance is the root mean square over them.
"""
import argparse
import contextlib
import io
import json
import os
import runpy
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("FLIM_SHARED") or os.path.join(HERE, "..", "..", "shared")
PARITY = os.path.join(SHARED, "peer", "torch_parity.py")
FP64 = os.path.join(HERE, "torch_fp64.py")
WIDTH = {"tiny": 8, "small": 16, "base": 32, "large": 64}
LR = 1e-4
# An element's update agrees to 2e-2 only where its gradient does.  PyTorch's fp32 gradients are wrong by 4e-4 of a tensor's root
# mean square an element or more, so smaller elements than this share of it are judged apart.
RESOLVED = 2e-2
# loss of step 0; any loss; gradients of step 0 for every tensor; weights' difference over their movement; statistics; and the
# most our gradients may stand from fp64 (PyTorch's own fp32 on an H100: 1.5e-3)
BOUNDS = dict(loss0=1e-5, loss=2e-3, grad=3e-3, weight=4e-2, weight64=2e-2, statistic=2e-3, grad64=1.5e-3)
# Widths of no preset: PyTorch then takes other kernels, whose rounding differs more.  3.9e-3 at 12 and 3.2e-3 at 20 channels were
# measured, largest in the stem, whose gradient is a sum over all voxels; test_gradients holds such widths to double precision.
WIDTH_GRAD = 6e-3
# PyTorch's own fp32 stands beyond some of them from fp64.  Which of two fp32 programs is nearer is a draw, so where that is known
# we may stand this much further than PyTorch.
LUCK = 1.25
# of our distance over PyTorch's in the same precision: median and worst over the tensors
RATIO_MEDIAN, RATIO_WORST = 1.2, 2.0


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


try:
    import numpy as np
    import torch  # noqa: F401
except ImportError as e:
    skip("no Python module %s in %s (Debian: python3-torch, python3-h5py)" % (e.name, sys.executable))


def run(*command):
    print("+", " ".join(str(c) for c in command), flush=True)
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print(done.stdout)
        sys.exit("%s ended with %d" % (command[0], done.returncode))
    return done.stdout


def run_torch(*arguments):
    """peer/torch_parity.py in this process: importing torch takes longer than its steps on a card."""
    arguments = [str(a) for a in arguments]
    print("+ torch_parity.py", " ".join(arguments), flush=True)
    before, out = (sys.argv, list(sys.path)), io.StringIO()
    sys.argv = [PARITY] + arguments
    sys.path.insert(0, os.path.dirname(PARITY))
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(PARITY, run_name="__main__")
    except SystemExit as e:  # --make-weights ends so
        if e.code:
            raise
    finally:
        sys.argv, sys.path[:] = before
    return out.getvalue()


def load(path):
    """Tensors of a .safetensors file as float64 arrays."""
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    out = {}
    for k, d in json.loads(raw[8:8 + n]).items():
        if k != "__metadata__":
            a, b = d["data_offsets"]
            out[k] = np.frombuffer(raw[8 + n + a:8 + n + b], "<f4").astype(np.float64).reshape(d["shape"])
    return out


def simulate(bench, path):
    """Two classes, told apart by their decays."""
    tool = os.path.join(os.path.dirname(os.path.abspath(bench)), "flim_simulate")
    run(tool, "--out", path, "--cells", 240, "--seed", 42)


def distance(a, b):
    return np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)


def beyond_bias(a, b, steps):
    """The distance left when each element may differ by what a bias that moves 2 * lr a step adds to a running mean."""
    allowed = 2 * LR * sum(s * 0.1 * 0.9**(steps - 1 - s) for s in range(steps))
    return np.linalg.norm(np.maximum(np.abs(a - b) - allowed, 0)) / max(np.linalg.norm(b), 1e-30)


def feeds_batchnorm(name):
    return name.endswith(("conv.bias", "conv1.bias", "conv2.bias", "fc1.bias"))


class Checks:
    def __init__(self):
        self.failed = 0
        self.notes = []

    def __call__(self, what, value, bound):
        ok = value <= bound
        self.failed += not ok
        print("  %-58s %.3e  bound %.1e  %s" % (what, value, bound, "ok" if ok else "FAILED"), flush=True)


def worst(pairs):
    """(name, value) with the largest value."""
    return max(pairs, key=lambda p: p[1])


def cells_of(data, a, start):
    return ["--data", data, "--weights-in", start, "--batch", a.batch]


def ours(data, a, start, steps, at):
    for name in ("end", "grads"):  # weights replace nothing
        if os.path.exists(at(name)):
            os.remove(at(name))
    return run(a.bench, "step", "--device", a.device, "--precision", a.precision, *cells_of(data, a, start), "--steps", steps,
               "--warmup", 0, "--no-dropout", "--no-parts", "--weights-out", at("end"), "--grads-out", at("grads"), "--losses",
               at("losses"))


def weight_names(tensors):
    return [k for k in tensors if not feeds_batchnorm(k) and "running" not in k]


def moved_apart(a, b, start, where=lambda k: ...):
    """(name, how much of b's movement from start differs in a) of the worst weight tensor; where(k) picks elements."""
    share = lambda k, i: np.linalg.norm((a[k] - b[k])[i]) / max(np.linalg.norm((b[k] - start[k])[i]), 1e-30)
    return worst([(k, share(k, where(k))) for k in weight_names(b)])


def compare(name, data, classes, a, folder, checks):
    """fp32 against PyTorch's fp32 and fp64."""
    at = lambda f: os.path.join(folder, name + "-" + f)
    shape = ["--classes", classes, "--width", a.width or WIDTH[a.preset]]
    print("== %s: %d classes, preset %s, %s on %s" % (name, classes, a.preset, a.precision, a.device))
    run_torch("--make-weights", at("start"), *shape)
    table = ours(data, a, at("start"), a.steps, at)
    print("  " + "\n  ".join(table.strip().split("\n")))
    cells = cells_of(data, a, at("start"))
    out = run_torch(*cells, *shape, "--device", a.device, "--steps", a.steps, "--save-weights", at("torch-end"), "--save-grads",
                    at("torch-grads"))
    losses32 = [float(line.split()[-1]) for line in out.split("\n") if line.startswith("step ")]
    whole64 = a.device != "cpu"
    fp64 = whole64 or name in a.fp64.split(",")
    save64 = ["--precision", "fp64", "--save-grads", at("torch-grads64"), "--save-weights", at("torch-end64")]
    if whole64:
        out = run_torch(*cells, *shape, "--device", a.device, "--steps", a.steps, *save64)
        losses64 = [float(line.split()[-1]) for line in out.split("\n") if line.startswith("step ")]
    elif fp64:
        run(sys.executable, FP64, os.path.dirname(PARITY), *cells, *shape, "--steps", 1, *save64)

    losses = json.load(open(at("losses")))
    checks("loss of step 0", abs(losses[0] - losses32[0]), BOUNDS["loss0"])
    furthest = lambda x, y: max(abs(p - q) for p, q in zip(x, y))
    if whole64:
        own = furthest(losses32, losses64)
        print("  (PyTorch's own fp32 losses from fp64: %.3e)" % own)
        checks("loss of all steps from fp64", furthest(losses, losses64), max(BOUNDS["loss"], LUCK * own))
        print("  (from PyTorch fp32: %.3e)" % furthest(losses, losses32))
    else:
        checks("loss of all steps", furthest(losses, losses32), BOUNDS["loss"])
    if len(losses) != a.steps:
        checks("number of losses missing", abs(len(losses) - a.steps), 0)

    grads, theirs = load(at("grads")), load(at("torch-grads"))
    if set(grads) != set(theirs):
        checks("gradient tensors that differ in name: %s" % sorted(set(grads) ^ set(theirs)), 1, 0)
    real = [k for k in theirs if not feeds_batchnorm(k)]
    k, d = worst([(k, distance(grads[k], theirs[k])) for k in real])
    checks("gradient from PyTorch fp32, worst " + k, d, WIDTH_GRAD if a.width else BOUNDS["grad"])
    if fp64:
        exact = load(at("torch-grads64"))
        k, d = worst([(k, distance(grads[k], exact[k])) for k in real])
        own = worst([(k, distance(theirs[k], exact[k])) for k in real])
        print("  (PyTorch's own fp32 gradient from fp64: worst %s %.3e)" % own)
        checks("gradient from PyTorch fp64, worst " + k, d, max(BOUNDS["grad64"], LUCK * own[1]))

    start, end, want = load(at("start")), load(at("end")), load(at("torch-end"))
    if set(end) != set(want):
        checks("weight tensors that differ in name: %s" % sorted(set(end) ^ set(want)), 1, 0)
    names = weight_names(want)
    sure = {k: np.abs(theirs[k]) > RESOLVED * np.sqrt(np.mean(theirs[k]**2)) for k in names}
    k, d = moved_apart(end, want, start, lambda k: sure[k])
    checks("weights after the steps, of their movement, worst " + k, d, BOUNDS["weight"])
    k, d = moved_apart(end, want, start)
    left = sum(int((~sure[k]).sum()) for k in names)
    print("  (with the %d of %d elements whose gradient is lost in rounding: worst %s %.3e)" % (
        left, sum(end[k].size for k in names), k, d))
    if whole64:
        end64 = load(at("torch-end64"))
        k, own = moved_apart(want, end64, start)
        print("  (PyTorch's own fp32 weights from fp64, all elements: worst %s %.3e)" % (k, own))
        k, d = moved_apart(end, end64, start)
        checks("weights from fp64, all elements, worst " + k, d, max(BOUNDS["weight64"], LUCK * own))
    k, d = worst([(k, np.abs((end[k] - want[k])[~sure[k]]).max(initial=0)) for k in names])
    checks("the elements lost in rounding, worst " + k, d, 1.01 * 2 * a.steps * LR)
    k, d = worst([(k, distance(end[k], want[k])) for k in want if "running" in k])
    print("  (running statistics with the biases' own movement: worst %s %.3e)" % (k, d))
    k, d = worst([(k, beyond_bias(end[k], want[k], a.steps if "mean" in k else 0)) for k in want if "running" in k])
    checks("running statistics, worst " + k, d, BOUNDS["statistic"])
    k, d = worst([(k, np.abs(end[k] - want[k]).max()) for k in want if feeds_batchnorm(k)])
    checks("biases before a BatchNorm, worst " + k, d, 1.01 * 2 * a.steps * LR)


def compare_ratios(name, data, classes, a, folder, checks):
    """Another precision: our gradients' distance to fp32 over PyTorch's, root mean square over the seeds."""
    at = lambda f: os.path.join(folder, name + "-" + f)
    shape = ["--classes", classes, "--width", a.width or WIDTH[a.preset]]
    seeds = [int(s) for s in a.seeds.split(",")]
    print("== %s: %d classes, preset %s, %s on %s, seeds %s" % (name, classes, a.preset, a.precision, a.device, a.seeds))
    square = {}
    for seed in seeds:
        run_torch("--make-weights", at("start"), *shape, "--seed", seed)
        cells = cells_of(data, a, at("start")) + shape + ["--device", a.device, "--steps", 1]
        run_torch(*cells, "--save-grads", at("torch-grads32"))
        run_torch(*cells, "--precision", a.precision, "--save-grads", at("torch-grads"))
        ours(data, a, at("start"), 1, at)
        exact, theirs, grads = load(at("torch-grads32")), load(at("torch-grads")), load(at("grads"))
        one = []
        for k in [k for k in exact if not feeds_batchnorm(k)]:
            d = np.array([distance(grads[k], exact[k]), distance(theirs[k], exact[k])])
            square[k] = square.get(k, 0) + d**2
            one.append((d[0] / d[1], k))
        print("  seed %d alone: median ratio %.2f, worst %.2f %s" % ((seed, statistics.median(r for r, _ in one)) + max(one)), flush=True)
    ratios = [(k, np.sqrt(s[0] / s[1])) for k, s in square.items()]
    k, d = worst([(k, np.sqrt(s[0] / len(seeds))) for k, s in square.items()])
    print("  (largest distance of ours: %s %.2e; of PyTorch's: %s %.2e)" % (
        (k, d) + worst([(k, np.sqrt(s[1] / len(seeds))) for k, s in square.items()])))
    median, (k, d) = statistics.median(r for _, r in ratios), worst(ratios)
    checks("distance to fp32 over PyTorch's, median", median, RATIO_MEDIAN)
    checks("distance to fp32 over PyTorch's, worst " + k, d, RATIO_WORST)
    checks.notes.append("%s, %s: median %.2f, worst %.2f (%s) of PyTorch's distance" % (name, a.precision, median, d, k))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bench", required=True)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--precision", default="fp32", choices=["fp32", "tf32", "bf16", "fp16"])
    ap.add_argument("--width", type=int, help="instead of the preset's; both programs' networks are of depth 1")
    ap.add_argument("--preset", default="base", choices=sorted(WIDTH))
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--fp64", default="", help="data sets whose gradients are compared with fp64, too; slow")
    ap.add_argument("--seeds", default="1", help="seeds of the weights, for precisions other than fp32")
    ap.add_argument("--keep", help="leave weights, gradients and losses in this folder")
    ap.add_argument("--only", choices=["cells", "voltage", "simulated"])
    a = ap.parse_args()
    sets = {"cells": (os.path.join(SHARED, "data", "real_flim_cells.h5"), 3),
            "voltage": (os.path.join(SHARED, "data", "real_flim_voltage.h5"), 5)}
    for path in [PARITY] + [p for p, _ in sets.values()]:
        if not os.path.exists(path):
            skip("no " + os.path.normpath(path))
    checks = Checks()
    with contextlib.ExitStack() as stack:
        folder = a.keep or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        simulated = os.path.join(folder, "simulated.h5")
        simulate(a.bench, simulated)
        sets["simulated"] = (simulated, 2)
        for name, (data, classes) in sets.items():
            if not a.only or a.only == name:
                (compare if a.precision == "fp32" else compare_ratios)(name, data, classes, a, folder, checks)
    if checks.failed:
        sys.exit("%d differences above their bounds" % checks.failed)
    print("; ".join(["all within their bounds"] + checks.notes))


if __name__ == "__main__":
    main()
