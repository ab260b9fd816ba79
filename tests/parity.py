#!/usr/bin/env python3
"""The same steps as PyTorch: flim_bench step against peer/torch_parity.py on the same weights and cells.

Usage: parity.py --bench build/release/flim_bench [--device cpu|cuda] [--precision fp32] [--preset base] [--batch 16]
                 [--steps 5] [--only cells|voltage|simulated] [--fp64 cells,voltage,simulated]
Needs torch, h5py and ../shared (peer, data) beside the checkout (or FLIM_SHARED=FOLDER); ends with 77 and a reason where one is
missing.  For each data set it makes weights, runs flim_bench and PyTorch in fp32 and (step 0 of the sets in --fp64) in fp64, and
holds the differences to BOUNDS.  A running mean contains the bias in front of its BatchNorm, so what Adam can move that bias
is allowed to it first.  Biases that feed a BatchNorm have no gradient in exact arithmetic, and Adam's first steps follow
the sign of an element's gradient however small it is: both kinds are held to what Adam can move them, 2 * steps * lr, and the
figure with all elements is printed beside.
"""
import argparse
import json
import os
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
# most our gradients may stand from fp64 (PyTorch's own fp32 stands 1.4e-3 from it)
BOUNDS = {
    "fp32": dict(loss0=1e-5, loss=2e-3, grad=3e-3, weight=4e-2, statistic=2e-3, grad64=1.4e-3),
    "tf32": dict(loss0=1.4e-3, loss=2e-2, grad=8.1e-2, weight=2e-1, statistic=2e-2, grad64=8.1e-2),
    "bf16": dict(loss0=5.9e-3, loss=5e-2, grad=2.8e-1, weight=5e-1, statistic=5e-2, grad64=2.8e-1),
    "fp16": dict(loss0=5.9e-3, loss=5e-2, grad=8.1e-2, weight=2e-1, statistic=5e-2, grad64=8.1e-2),
}


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
    """Two classes, as flim_simulate makes them."""
    tool = os.path.join(os.path.dirname(os.path.abspath(bench)), "flim_simulate")
    run(tool, "--out", path, "--cells", 60, "--seed", 42)


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

    def __call__(self, what, value, bound):
        ok = value <= bound
        self.failed += not ok
        print("  %-58s %.3e  bound %.1e  %s" % (what, value, bound, "ok" if ok else "FAILED"), flush=True)


def worst(pairs):
    """(name, value) with the largest value."""
    return max(pairs, key=lambda p: p[1])


def compare(name, data, classes, a, folder, checks):
    at = lambda f: os.path.join(folder, name + "-" + f)
    bounds = BOUNDS[a.precision]
    shape = ["--classes", classes, "--width", WIDTH[a.preset]]
    print("== %s: %d classes, preset %s, %s on %s" % (name, classes, a.preset, a.precision, a.device))
    run(sys.executable, PARITY, "--make-weights", at("start"), *shape)
    cells = ["--data", data, "--weights-in", at("start"), "--batch", a.batch]
    table = run(a.bench, "step", "--device", a.device, "--precision", a.precision, *cells, "--steps", a.steps, "--warmup", 0,
                "--no-dropout", "--weights-out", at("end"), "--grads-out", at("grads"), "--losses", at("losses"))
    print("  " + "\n  ".join(table.strip().split("\n")))
    out = run(sys.executable, PARITY, *cells, *shape, "--steps", a.steps, "--save-weights", at("torch-end"), "--save-grads",
              at("torch-grads"))
    losses32 = [float(line.split()[-1]) for line in out.split("\n") if line.startswith("step ")]
    fp64 = name in a.fp64.split(",")
    if fp64:
        run(sys.executable, FP64, os.path.dirname(PARITY), *cells, *shape, "--steps", 1, "--precision", "fp64", "--save-grads",
            at("torch-grads64"))

    losses = json.load(open(at("losses")))
    checks("loss of step 0", abs(losses[0] - losses32[0]), bounds["loss0"])
    checks("loss of all steps", max(abs(x - y) for x, y in zip(losses, losses32)), bounds["loss"])
    if len(losses) != a.steps:
        checks("number of losses missing", abs(len(losses) - a.steps), 0)

    ours, theirs = load(at("grads")), load(at("torch-grads"))
    if set(ours) != set(theirs):
        checks("gradient tensors that differ in name: %s" % sorted(set(ours) ^ set(theirs)), 1, 0)
    real = [k for k in theirs if not feeds_batchnorm(k)]
    k, d = worst([(k, distance(ours[k], theirs[k])) for k in real])
    checks("gradient from PyTorch fp32, worst " + k, d, bounds["grad"])
    if fp64:
        exact = load(at("torch-grads64"))
        k, d = worst([(k, distance(ours[k], exact[k])) for k in real])
        checks("gradient from PyTorch fp64, worst " + k, d, bounds["grad64"])
        k, d = worst([(k, distance(theirs[k], exact[k])) for k in real])
        print("  (PyTorch's own fp32 gradient from fp64: worst %s %.3e)" % (k, d))

    start, end, want = load(at("start")), load(at("end")), load(at("torch-end"))
    if set(end) != set(want):
        checks("weight tensors that differ in name: %s" % sorted(set(end) ^ set(want)), 1, 0)
    names = [k for k in want if not feeds_batchnorm(k) and "running" not in k]
    share = lambda k, at: np.linalg.norm((end[k] - want[k])[at]) / max(np.linalg.norm((want[k] - start[k])[at]), 1e-30)
    sure = {k: np.abs(theirs[k]) > RESOLVED * np.sqrt(np.mean(theirs[k]**2)) for k in names}
    k, d = worst([(k, share(k, sure[k])) for k in names])
    checks("weights after the steps, of their movement, worst " + k, d, bounds["weight"])
    k, d = worst([(k, share(k, ...)) for k in names])
    left = sum(int((~sure[k]).sum()) for k in names)
    print("  (with the %d of %d elements whose gradient is lost in rounding: worst %s %.3e)" % (
        left, sum(end[k].size for k in names), k, d))
    k, d = worst([(k, np.abs((end[k] - want[k])[~sure[k]]).max(initial=0)) for k in names])
    checks("the elements lost in rounding, worst " + k, d, 1.01 * 2 * a.steps * LR)
    k, d = worst([(k, distance(end[k], want[k])) for k in want if "running" in k])
    print("  (running statistics with the biases' own movement: worst %s %.3e)" % (k, d))
    k, d = worst([(k, beyond_bias(end[k], want[k], a.steps if "mean" in k else 0)) for k in want if "running" in k])
    checks("running statistics, worst " + k, d, bounds["statistic"])
    k, d = worst([(k, np.abs(end[k] - want[k]).max()) for k in want if feeds_batchnorm(k)])
    checks("biases before a BatchNorm, worst " + k, d, 1.01 * 2 * a.steps * LR)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bench", required=True)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--precision", default="fp32", choices=sorted(BOUNDS))
    ap.add_argument("--preset", default="base", choices=sorted(WIDTH))
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=5)
    ap.add_argument("--fp64", default="", help="data sets whose gradients are compared with fp64, too; slow")
    ap.add_argument("--only", choices=["cells", "voltage", "simulated"])
    a = ap.parse_args()
    sets = {"cells": (os.path.join(SHARED, "data", "real_flim_cells.h5"), 3),
            "voltage": (os.path.join(SHARED, "data", "real_flim_voltage.h5"), 5)}
    for path in [PARITY] + [p for p, _ in sets.values()]:
        if not os.path.exists(path):
            skip("no " + os.path.normpath(path))
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        simulated = os.path.join(folder, "simulated.h5")
        simulate(a.bench, simulated)
        sets["simulated"] = (simulated, 2)
        for name, (data, classes) in sets.items():
            if not a.only or a.only == name:
                compare(name, data, classes, a, folder, checks)
    if checks.failed:
        sys.exit("%d differences above their bounds" % checks.failed)
    print("all within their bounds")


if __name__ == "__main__":
    main()
