#!/usr/bin/env python3
"""Speed of a training step on the CPU against PyTorch: interleaved, best of three.

Usage: compare_torch_cpu.py --bench build/release/flim_bench [--presets base,tiny] [--batch 16] [--steps 3] [--rounds 3]
                            [--threads 2] [--data F.h5] [--classes 3]
Both sides take the same weights and cells (real_flim_cells.h5 unless --data says otherwise) and time forward, loss, backward and
AdamW without reading, after one step of warm-up.  A round is ours, then PyTorch's; the figure of a side is the smallest median of
its rounds.  Goals: at most 1.0 of PyTorch's time, better 0.8 at base and 0.65 at tiny.  Not a test: timings
need a quiet machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("FLIM_SHARED") or os.path.join(HERE, "..", "..", "shared")
PEER = os.path.join(SHARED, "peer")
WIDTH = {"tiny": 8, "small": 16, "base": 32, "large": 64}
GOAL = {"tiny": 0.65, "base": 0.8}
sys.path.insert(0, PEER)


def torch_worker(a):
    """Prints the median ms of a PyTorch step as JSON; runs in a process of its own."""
    import h5py
    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch_parity import load_file
    from torch_peer import FlimNet

    torch.set_num_threads(a.threads)
    net = FlimNet(p=0.0, out=1 if a.classes == 2 else a.classes, width=WIDTH[a.presets])
    net.load_state_dict(load_file(a.weights), strict=False)
    net.train()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=1e-3)
    f = h5py.File(a.data, "r")
    n, times = f["counts"].shape[0], []
    for s in range(1 + a.steps):
        idx = [((max(s - 1, 0) * a.batch + i) * 37) % n for i in range(a.batch)]
        c = np.stack([f["counts"][i] for i in idx]).astype(np.float32)
        m = np.stack([f["mask"][i] for i in idx]) > 0 if "mask" in f else c.sum(1) > 0
        x = torch.tensor(np.stack([np.log1p(c) / 10, np.broadcast_to(m[:, None], c.shape)], 1).astype(np.float32))
        y = torch.tensor(np.array([f["label"][i] for i in idx]).astype(np.int64))
        start = time.perf_counter()
        opt.zero_grad()
        z = net(x)
        loss = F.binary_cross_entropy_with_logits(z[:, 0], y.float()) if a.classes == 2 else F.cross_entropy(z, y)
        loss.backward()
        opt.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps(statistics.median(times[1:])))


def run(env, *command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    if done.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(str(c) for c in command), done.stdout))
    return done.stdout


def compare(a, preset, folder, env):
    weights, report = os.path.join(folder, "weights"), os.path.join(folder, "report")
    cells = ["--data", a.data, "--batch", a.batch, "--steps", a.steps]
    run(env, sys.executable, os.path.join(PEER, "torch_parity.py"), "--make-weights", weights, "--classes", a.classes,
        "--width", WIDTH[preset])
    ours, theirs = [], []
    for r in range(a.rounds):
        run(env, a.bench, "step", "--device", "cpu", "--precision", "fp32", *cells, "--weights-in", weights, "--no-dropout",
            "--warmup", 1, "--json", report)
        ours.append(json.load(open(report))["ms"]["median"])
        out = run(env, sys.executable, os.path.abspath(__file__), "--torch-worker", "--bench", a.bench, *cells, "--presets",
                  preset, "--classes", a.classes, "--threads", a.threads, "--weights", weights)
        theirs.append(json.loads(out.strip().split("\n")[-1]))
        print("%s round %d: flim_bench %.1f ms, PyTorch %.1f ms, ratio %.3f" % (preset, r, ours[-1], theirs[-1],
                                                                            ours[-1] / theirs[-1]), flush=True)
    ratio = min(ours) / min(theirs)
    goal = GOAL.get(preset, 1.0)
    print("%s, batch %d, %d threads: flim_bench %.1f ms (%.4f s a cell), PyTorch %.1f ms (%.4f s a cell), ratio %.3f: %s" % (
        preset, a.batch, a.threads, min(ours), min(ours) / 1e3 / a.batch, min(theirs), min(theirs) / 1e3 / a.batch, ratio,
        "reaches the goal of %.2f" % goal if ratio <= goal else "below 1.0, the goal is %.2f" % goal if ratio <= 1 else
        "SLOWER than PyTorch"), flush=True)
    return ratio


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bench", required=True)
    ap.add_argument("--presets", default="base,tiny")
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=3)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--data", default=os.path.join(SHARED, "data", "real_flim_cells.h5"))
    ap.add_argument("--classes", type=int, default=3)
    ap.add_argument("--weights", help=argparse.SUPPRESS)
    ap.add_argument("--torch-worker", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.torch_worker:
        return torch_worker(a)
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    with tempfile.TemporaryDirectory() as folder:
        ratios = [compare(a, preset, folder, env) for preset in a.presets.split(",")]
    sys.exit(1 if max(ratios) > 1 else 0)


if __name__ == "__main__":
    main()
