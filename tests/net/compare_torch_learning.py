#!/usr/bin/env python3
"""What is learned, against PyTorch: train_cv and PyTorch on the same folds with the same settings, many seeds.

Usage: compare_torch_learning.py --train-cv build/release/train_cv --runs DIR [--seeds 1,2,3 | 1-10] [--device cpu|cuda]
                                 [--only ours,torch,...] [--data F.h5] [--jobs N]
                                 [--limit S] [--json OUT] [-- FLAG...]

For each seed train_cv makes a run in DIR/seed_S (one that is there already is taken as it is) by the protocol of docs/performance.md,
"Learning on real cells", and flags behind `--`, which win over it.  Then peer/torch_peer.py's network is trained on the folds of
that run (train, val and test of its splits.json) with the settings that train_cv resolved from the flags.
Arms:
  ours        train_cv
  torch       PyTorch, its own random numbers; initial weights as docs/network.md has them
  torch-init  the same with PyTorch's default initial weights
  torch-plain PyTorch's defaults instead: default initial weights, weight decay 0.01, constant learning rate, no label smoothing
              and no clipping
  same        PyTorch with flimcv's random numbers: the same initial weights, order of cells and dropout masks.  Its epochs must
              be those of train_cv up to rounding, which training amplifies; how far the losses are apart is printed epoch by
              epoch.  For --sampler natural.
The others: AdamW (0.9, 0.999, 1e-8, decay on all parameters), a constant learning rate or CosineAnnealingLR down to 1e-6,
clipping by the global norm, label smoothing, a running average of the weights (--ema), BatchNorm's statistics made again before an
evaluation (--recalibrate-bn), and the augmentations symmetry, drift_fill and thin with random numbers of their own (the arm `same`: none).  All: the last partial batch trains, too; the first epoch with the smallest inner validation loss (unweighted,
unsmoothed) is chosen, --patience; test accuracy of that epoch (two classes: at the threshold with the best balanced accuracy
on the validation set).  fp32 or, for --precision tf32, PyTorch's TF32.

Prints a line a seed and arm and, over the seeds, mean, sd, and the paired differences between ours and the others with their
standard errors.  PyTorch's side is a function of the seed, on CUDA as far as cuDNN's deterministic algorithms make it.  After --limit
seconds no further seed is begun.  Needs torch, h5py and ../shared (or FLIM_SHARED=FOLDER).  Not a test: it takes minutes.
"""
import argparse
import csv
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("FLIM_SHARED") or os.path.join(HERE, "..", "..", "shared")
WIDTH = {"tiny": 8, "small": 16, "base": 32, "large": 64, "xlarge": 128}
PROTOCOL = "--folds 4 --cv stratified-group --preset tiny --epochs 24 --lr 1e-3 --batch 16 --sampler natural".split()
ARMS = ["ours", "torch", "torch-init", "torch-plain", "same"]
sys.path.insert(0, os.path.join(SHARED, "peer"))
try:
    import h5py
    import numpy as np
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from torch_peer import FlimNet
except ImportError as e:
    print("skipped: no Python module %s for %s (or FLIM_SHARED is not set)" % (e.name, sys.executable))
    sys.exit(77)


# ---- flimcv's random numbers: Philox4x32-10, laid out as include/flim/random.h says

INIT, SAMPLER, DROPOUT = 1, 3, 4  # purposes


def philox(seed, index, cell, epoch, purpose, fold):
    """Words (n,4) as uint64 of the blocks `index` of `cell`; index or cell may be arrays."""
    low, new = np.uint64(0xFFFFFFFF), lambda v: np.asarray(v, np.uint64)
    c = [x.ravel().copy() for x in np.broadcast_arrays(new(index), new(cell), new(epoch), new(purpose << 24 | fold & 0xFFFF))]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]), b & low, a >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]), a & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1)


def uniform(high, low):
    """[0,1), 53 bits."""
    return ((high << np.uint64(32) | low) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def our_normals(seed, tensor, fold, count):
    w = philox(seed, np.arange(count), tensor, 0, INIT, fold)
    return np.sqrt(-2 * np.log(1 - uniform(w[:, 0], w[:, 1]))) * np.cos(2 * math.pi * uniform(w[:, 2], w[:, 3]))


def our_order(seed, fold, epoch, part):
    """Fisher-Yates from the end."""
    order = list(part)
    w = philox(seed, np.arange(2 * len(order) + 16), 0, epoch, SAMPLER, fold).reshape(-1)
    values = iter([int(h) << 32 | int(l) for h, l in zip(w[0::2], w[1::2])])
    for i in range(len(order), 1, -1):
        value = next(values)
        while value < 2**64 % i:
            value = next(values)
        j = value % i
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def our_keep(seed, fold, epoch, cells, unit, channels, p):
    """(cells, channels): 1 / (1 - p) where kept, else 0."""
    blocks = channels // 4
    w = philox(seed, np.tile(unit << 16 | np.arange(blocks), len(cells)), np.repeat(cells, blocks), epoch, DROPOUT, fold)
    return (w.reshape(len(cells), channels) >= int(p * 2**32)).astype(np.float32) / np.float32(1 - p)


class OurDropout(nn.Module):
    """Stands for all four dropouts of the network, in the order in which a forward pass meets them."""
    UNITS = (3, 6, 9, 10)  # res1.conv2, res2.conv2, res3.conv2, head

    def __init__(self, width, device):
        super().__init__()
        self.channels, self.device, self.masks = (width, 2 * width, 4 * width, 2 * width), device, []

    def draw(self, seed, fold, epoch, cells, p, block_p):
        self.masks = [torch.from_numpy(our_keep(seed, fold, epoch, cells, u, c, q)).to(self.device) if q > 0 else None
                      for u, c, q in zip(self.UNITS, self.channels, (block_p, block_p, block_p, p))]

    def forward(self, x):
        mask = self.masks.pop(0) if self.training else None
        return x if mask is None else x * mask.reshape(mask.shape + (1,) * (x.dim() - 2))


# ---- augmentation, on counts and mask of one cell: (T,H,W), (H,W)

def draw(generator, low=0.0, high=1.0):
    return low + (high - low) * torch.rand((), generator=generator).item()


def symmetry(counts, mask, low, high, generator):
    s = int(low) + int(torch.randint(int(high - low) + 1, (), generator=generator))
    axes = [d for bit, d in ((2, -2), (1, -1)) if s & bit]
    counts, mask = (v.transpose(-1, -2) if s & 4 else v for v in (counts, mask))
    return counts.flip(axes), mask.flip(axes)


def shifted(counts, bins):
    """By whole bins; the bins that get free take counts of the pixel's last T/16 bins."""
    out, size = counts.roll(bins, 0), abs(bins)
    if size:
        tail = max(1, len(counts) // 16)
        at = torch.randint(len(counts) - tail, len(counts), (size,) + counts.shape[1:], device=counts.device)
        (out[:size] if bins > 0 else out[-size:]).copy_(counts.gather(0, at))
    return out


def drift_fill(counts, mask, low, high, generator):
    shift = draw(generator, low, high)
    whole = math.floor(shift)
    further = torch.binomial(counts, torch.full_like(counts, shift - whole))
    return shifted(counts - further, whole) + shifted(further, whole + 1), mask


def thin(counts, mask, low, high, generator):
    keep = low * (high / low) ** draw(generator)
    return torch.binomial(counts, torch.full_like(counts, keep)), mask


STEPS = {"symmetry": symmetry, "drift_fill": drift_fill, "thin": thin}


def augment(steps, x, generator):
    """(N,2,T,H,W), prepared -> the same, each cell changed on its own: steps are (name, probability, low, high)."""
    if not steps:
        return x
    out = []
    for cell in x:
        counts, mask = torch.expm1(cell[0] * 10).round(), cell[1, 0]
        for name, probability, low, high in steps:
            if draw(generator) < probability:
                counts, mask = STEPS[name](counts, mask, low, high, generator)
        out.append(torch.stack([torch.log1p(counts) / 10, mask.expand_as(counts)]))
    return torch.stack(out)


# ---- PyTorch's side

def initialise(net, arm, seed, fold):
    """docs/network.md: Kaiming normal (fan out, slope 0.01), head.fc2 with sd 0.01, biases 0."""
    if arm in ("torch-init", "torch-plain"):
        return
    names = [k for k in net.state_dict() if "num_batches" not in k]
    modules = dict(net.named_modules())
    for name, m in modules.items():
        if isinstance(m, (nn.Conv3d, nn.Linear)):
            gain = math.sqrt(2 / (1 + 0.01**2))
            sd = 0.01 if name == "head.fc2" else gain / math.sqrt(m.weight.shape[0] * m.weight[0, 0].numel())
            with torch.no_grad():
                if arm == "same":
                    z = our_normals(seed, names.index(name + ".weight"), fold, m.weight.numel())
                    m.weight.copy_(torch.from_numpy((sd * z).astype(np.float32)).reshape(m.weight.shape))
                else:
                    m.weight.normal_(0, sd)
                m.bias.zero_()


def loss_of(z, y, smoothing):
    if z.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(z[:, 0], y.float() * (1 - smoothing) + smoothing / 2)
    return F.cross_entropy(z, y, label_smoothing=smoothing)


def predict(net, x, part, batch):
    net.eval()
    with torch.no_grad():
        return torch.cat([net(x[part[i:i + batch]]).float() for i in range(0, len(part), batch)])


RECALIBRATION_CELLS = 512  # docs/network.md


def recalibrate(net, x, order, batch):
    """BatchNorm's running statistics: means over whole batches of the first cells in `order`, without dropout."""
    n = min(len(order), RECALIBRATION_CELLS)
    n = n // batch * batch if n > batch else n
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    momenta = [m.momentum for m in norms]
    net.train()
    for m in net.modules():
        if isinstance(m, (nn.modules.dropout._DropoutNd, OurDropout)):
            m.eval()
    for m in norms:
        m.reset_running_stats()
        m.momentum = None  # the mean over all batches since
    net.head.bn.train(n > 1)
    with torch.no_grad():
        for i in range(0, n, batch):
            net(x[order[i:i + batch]])
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum


class Average:
    """A running average of weights and statistics, begun with the first update: decay min(D, n / (9 + n)) after update n."""

    def __init__(self, net, decay):
        self.net, self.decay, self.updates = net, decay, 0
        self.value = {n: t.clone() for n, t in net.state_dict().items()}

    def update(self):
        self.updates += 1
        share = 1 - min(self.decay, self.updates / (9 + self.updates))
        for name, now in self.net.state_dict().items():
            if now.is_floating_point():
                self.value[name].lerp_(now, share)
            else:
                self.value[name].copy_(now)


def best_threshold(z, y):
    """Two classes: midway between neighbouring scores, best balanced accuracy, ties to the one nearest 0.5."""
    p, y = torch.sigmoid(z[:, 0].double()).cpu().numpy(), y.cpu().numpy()
    if len(set(y.tolist())) < 2:
        return 0.5
    scores = np.concatenate([[0.0], np.unique(p), [1.0]])
    middles = (scores[1:] + scores[:-1]) / 2
    value = [(np.mean(p[y == 1] > t) + np.mean(p[y == 0] <= t)).round(12) for t in middles]
    return min((-v, abs(t - 0.5), t) for v, t in zip(value, middles))[2]


def accuracy(z, y, threshold):
    if z.shape[1] == 1:
        return (((torch.sigmoid(z[:, 0].double()) > threshold) == (y == 1)).double().mean()).item()
    return (z.argmax(1) == y).double().mean().item()


def order_of(arm, s, seed, fold, epoch, part, y, generator):
    if arm == "same":
        return our_order(seed, fold, epoch, part)
    if s["sampler"] == "natural":
        return [part[i] for i in torch.randperm(len(part), generator=generator).tolist()]
    label = y[part].cpu()
    weight = 1 / torch.bincount(label).clamp(min=1).double()[label]
    return [part[i] for i in torch.multinomial(weight, len(part), replacement=True, generator=generator).tolist()]


def train_fold(arm, s, x, y, classes, fold, seed, k):
    """One fold: {accuracy, log_loss, best_epoch, history: [{train_loss, val_loss}]}."""
    device, width = x.device, WIDTH[s["preset"]]
    if arm == "torch-plain":
        s = dict(s, weight_decay=0.01, label_smoothing=0.0, clip=0.0)
    torch.manual_seed(1000003 * seed + k)
    generator = torch.Generator().manual_seed(1000003 * seed + k)
    net = FlimNet(p=s["dropout"], block_p=s["block_dropout"], out=1 if classes == 2 else classes, width=width)
    initialise(net, arm, seed, k)
    net = net.to(device)
    ours = OurDropout(width, device) if arm == "same" else None
    if ours:
        net.drop = net.head.drop = ours
    opt = torch.optim.AdamW(net.parameters(), lr=s["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=s["weight_decay"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=s["epochs"], eta_min=min(1e-6, s["lr"]))
    fixed = our_order(seed, k, 0xFFFFFFFF, fold["train"])  # of no epoch: docs/network.md, Recalibration
    val, test = (torch.tensor(fold[part], device=device) for part in ("val", "test"))
    average = Average(net, s["ema"]) if s["ema"] > 0 else None
    best, history = None, []
    for epoch in range(s["epochs"]):
        order = order_of(arm, s, seed, k, epoch, fold["train"], y, generator)
        total = torch.zeros((), device=device)
        net.train()
        for i in range(0, len(order), s["batch"]):
            cells = order[i:i + s["batch"]]
            net.head.bn.train(len(cells) > 1)  # one cell has no variance: train_cv takes the running statistics
            if ours:
                ours.draw(seed, k, epoch, cells, s["dropout"], s["block_dropout"])
            index = torch.tensor(cells, device=device)
            loss = loss_of(net(augment(s["augment"], x[index], generator)), y[index], s["label_smoothing"])
            opt.zero_grad()
            loss.backward()
            if s["clip"] > 0:
                nn.utils.clip_grad_norm_(net.parameters(), s["clip"])
            opt.step()
            if average:
                average.update()
            total += loss.detach() * len(cells)
        if arm != "torch-plain" and s["schedule"] == "cosine":
            schedule.step()
        kept = {n: t.clone() for n, t in net.state_dict().items()}  # training goes on with its own weights and statistics
        if average:
            net.load_state_dict(average.value)
        if s["recalibrate_bn"]:
            recalibrate(net, x, fixed, s["batch"])
        row = {"train_loss": total.item() / len(order), "val_loss": math.nan}
        if len(val):
            z = predict(net, x, val, s["batch"])
            row["val_loss"] = loss_of(z, y[val], 0.0).item()
        history.append(row)
        if best is None or not len(val) or row["val_loss"] < best[0]:
            best = row["val_loss"], epoch, {n: t.clone() for n, t in net.state_dict().items()}
        if len(val) and 0 < s["patience"] <= epoch - best[1]:
            break
        net.load_state_dict(kept)
    net.load_state_dict(best[2])
    threshold = best_threshold(predict(net, x, val, s["batch"]), y[val]) if classes == 2 and len(val) else 0.5
    z = predict(net, x, test, s["batch"])
    return {"accuracy": accuracy(z, y[test], threshold), "log_loss": loss_of(z, y[test], 0.0).item(), "best_epoch": best[1] + 1,
            "history": history}


def load_cells(path, device):
    """(N,2,T,H,W): log1p(counts)/10 and the mask; labels; number of classes."""
    with h5py.File(path, "r") as f:
        counts = f["counts"][:].astype(np.float32)
        mask = f["mask"][:] > 0 if "mask" in f else counts.sum(1) > 0
        label = f["label"][:].astype(np.int64)
        classes = max(len(f.attrs.get("class_names", ())), int(label.max()) + 1)
    x = torch.empty((len(counts), 2) + counts.shape[1:])
    x[:, 0] = torch.from_numpy(np.log1p(counts) / np.float32(10))
    x[:, 1] = torch.from_numpy(mask[:, None].astype(np.float32))
    return x.to(device), torch.from_numpy(label).to(device), classes


# ---- train_cv's side

def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    if done.returncode != 0:
        sys.exit("%s\nended with %d:\n%s" % (" ".join(str(c) for c in command), done.returncode, done.stdout))
    return done.stdout


def settings_of(a, flags):
    """What train_cv resolves the flags to; sys.exit where PyTorch's side does not know a setting."""
    text = run(a.train_cv, *flags, "--print-config")
    raw = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line and not line.startswith(("#", " ")))
    known = {"axes": "NTYX", "mask_counts": "false", "accumulate": "1", "lr_scale": "none", "init_weights": '""',
             "monitor": "val_loss", "threshold_for": "balanced_accuracy", "warmup_epochs": "0", "class_weights": "none",
             "focal_gamma": "0", "mixup": "none", "tta": "false"}
    for key, value in known.items():
        if raw[key] != value:
            sys.exit("%s: %s: PyTorch's side only knows %s" % (key, raw[key], value))
    s = {k: int(raw[k]) for k in ("epochs", "batch", "patience")}
    s.update({k: float(raw[k]) for k in ("lr", "weight_decay", "clip", "label_smoothing", "dropout", "block_dropout", "ema")})
    s.update({k: raw[k] for k in ("preset", "sampler", "precision", "fold", "schedule")})
    s["recalibrate_bn"] = raw["recalibrate_bn"] == "true"
    if s["schedule"] not in ("cosine", "constant"):
        sys.exit("PyTorch's side knows --schedule cosine and constant")
    if s["sampler"] not in ("natural", "balanced") or s["precision"] not in ("auto", "fp32", "tf32"):
        sys.exit("PyTorch's side knows --sampler natural and balanced, --precision fp32 and tf32")
    return s


def ours(folder, k):
    """As train_fold's result, from a run folder."""
    fold = json.load(open(os.path.join(folder, "fold_%d" % k, "summary.json")))
    with open(os.path.join(folder, "fold_%d" % k, "history.csv")) as f:
        history = [{c: float(row[c] or "nan") for c in ("train_loss", "val_loss")} for row in csv.DictReader(f)]
    return {"accuracy": fold["metrics"]["accuracy"], "log_loss": fold["metrics"]["log_loss"], "best_epoch": fold["best_epoch"],
            "history": history}


def run_of(a, flags, seed, arms):
    """The run folder of a seed.  Where ours is not asked for, one epoch gives the folds."""
    folder = os.path.join(a.runs, "seed_%d" % seed)
    if "ours" not in arms and not os.path.exists(os.path.join(folder, "summary.json")):
        folder = os.path.join(a.runs, "folds_%d" % seed)
        flags = flags + ["--epochs", "1"]
    if not os.path.exists(os.path.join(folder, "summary.json")):
        run(a.train_cv, *flags, "--seed", seed, "--device", a.device, "--quiet", "--out", folder)
    return folder


def steps_of(folder):
    """The augmentation that a run came to, from its log: [(name, probability, low, high)]."""
    said = "Augmentation of training cells: "
    with open(os.path.join(folder, "train.log")) as f:
        items = [item for line in f if said in line for item in line.split(said)[1].split()]
    steps = [(item.split(":")[0],) + tuple(float(v) for v in item.split(":")[1:]) for item in items]
    if any(step[0] not in STEPS for step in steps):
        sys.exit("augment %s: PyTorch's side only knows %s" % (" ".join(items), ", ".join(STEPS)))
    return steps


# ---- seeds, arms and folds

worker = {}  # of this process: cells, labels, classes


def prepare(a, s):
    """A process of PyTorch's side: the whole data on its device."""
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = s["precision"] != "fp32"
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    worker["x"], worker["y"], worker["classes"] = load_cells(a.data, a.device)


def work(arm, s, fold, seed, k):
    return train_fold(arm, s, worker["x"], worker["y"], worker["classes"], fold, seed, k)


def finish(a, results, arms, wait):
    """Seeds whose folds are all done (wait: all seeds), in order: futures become results, which are printed and written."""
    for seed, of in results.items():
        if "shown" in of:
            continue
        if not wait and not all(f.done() for arm in arms for f in of[arm] if isinstance(f, Future)):
            return
        for arm in arms:
            of[arm] = [f.result() if isinstance(f, Future) else f for f in of[arm]]
            m = summary(of[arm])
            print("seed %-3d %-10s " % (seed, arm) + ", ".join("%s %.3f" % (what, m[c]) for c, what in COLUMNS) + "; folds "
                  + " ".join("%.3f" % f["accuracy"] for f in of[arm]), flush=True)
        of["shown"] = True
        if a.json:
            json.dump({k: v for k, v in results.items() if "shown" in v}, open(a.json, "w"))


def collect(a, s, flags, arms):
    """{seed: {arm: [result of a fold]}}.  train_cv's runs are made one after the other, while PyTorch's processes train on the
    folds of those before."""
    begun, results, pending = time.time(), {}, []
    with ProcessPoolExecutor(a.jobs, multiprocessing.get_context("spawn"), prepare, (a, s)) as pool:
        for seed in a.seeds:
            while sum(not f.done() for f in pending) > 2 * a.jobs:
                time.sleep(0.05)
            if time.time() - begun > a.limit:
                print("no time left for seed %d and later" % seed)
                break
            folder = run_of(a, flags, seed, arms)
            folds = json.load(open(os.path.join(folder, "splits.json")))["folds"]
            wanted = range(len(folds)) if s["fold"] == "all" else [int(s["fold"])]
            s["augment"] = steps_of(folder)
            if s["augment"] and "same" in arms:
                sys.exit("the arm `same` knows --augment none only")
            results[seed] = {}
            for arm in arms:
                if arm == "ours":
                    results[seed][arm] = [ours(folder, k) for k in wanted]
                else:
                    results[seed][arm] = [pool.submit(work, arm, s, folds[k], seed, k) for k in wanted]
                    pending += results[seed][arm]
            finish(a, results, arms, wait=False)
        finish(a, results, arms, wait=True)
    return results


# ---- the report

def mean(values):
    return sum(values) / len(values)


def summary(folds):
    """Means over the folds of one seed."""
    last = [f["history"][-1] for f in folds]
    return {"accuracy": mean([f["accuracy"] for f in folds]), "log_loss": mean([f["log_loss"] for f in folds]),
            "best_epoch": mean([f["best_epoch"] for f in folds]), "train_loss": mean([r["train_loss"] for r in last]),
            "val_loss": mean([min(r["val_loss"] for r in f["history"]) for f in folds])}


COLUMNS = [("accuracy", "test accuracy"), ("log_loss", "test log loss"), ("train_loss", "last train loss"),
           ("val_loss", "best val loss"), ("best_epoch", "best epoch")]


def spread(values):
    sd = statistics.stdev(values) if len(values) > 1 else math.nan
    return mean(values), sd, sd / math.sqrt(len(values))


def report(results, arms):
    seeds = sorted(results)
    means = {arm: [summary(results[s][arm]) for s in seeds] for arm in arms}
    print("== %d seeds: mean +- sd over the seeds of the folds' mean" % len(seeds))
    for arm in arms:
        print("  %-10s " % arm + ", ".join("%s %.3f +- %.3f" % ((what,) + spread([m[c] for m in means[arm]])[:2])
                                           for c, what in COLUMNS))
        values = [m["accuracy"] for m in means[arm]]
        print("  %-10s accuracy min %.3f, max %.3f" % ("", min(values), max(values)))
    for arm in arms:
        if arm == "ours" or "ours" not in arms:
            continue
        print("== ours - %s, paired by seed: mean +- standard error (mean / standard error)" % arm)
        for c, what in COLUMNS:
            d, _, se = spread([p[c] - q[c] for p, q in zip(means["ours"], means[arm])])
            print("  %-16s %+.4f +- %.4f (%+.1f)" % (what, d, se, d / se if se else math.nan))
        if arm == "same":
            folds = [(p["history"], q["history"]) for s in seeds for p, q in zip(results[s]["ours"], results[s][arm])]
            for epoch in (1, 2, 4, 8, 16, 24):
                pairs = [(p[epoch - 1], q[epoch - 1]) for p, q in folds if min(len(p), len(q)) >= epoch]
                if pairs:
                    print("  epoch %-2d of %d folds, largest differences: " % (epoch, len(pairs)) + ", ".join(
                        "%s %.1e" % (c, max(abs(p[c] - q[c]) for p, q in pairs)) for c in ("train_loss", "val_loss")))


def check_same(results, bound):
    """Number of folds in which train_cv and PyTorch with its random numbers have parted."""
    parted = 0
    for seed in results:
        for k, (p, q) in enumerate(zip(results[seed]["ours"], results[seed]["same"])):
            apart = [abs(r[c] - t[c]) for r, t in zip(p["history"], q["history"]) for c in ("train_loss", "val_loss")]
            apart.append(abs(p["log_loss"] - q["log_loss"]))
            if not max(apart) <= bound or p["best_epoch"] != q["best_epoch"] or len(p["history"]) != len(q["history"]):
                parted += 1
                print("seed %d fold %d: losses are up to %.1e apart; epochs %d and %d, chosen %d and %d" % (
                    seed, k, max(apart), len(p["history"]), len(q["history"]), p["best_epoch"], q["best_epoch"]))
    return parted


def seeds_of(text):
    first, _, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if last else [int(t) for t in text.split(",")]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    ap.add_argument("--train-cv", required=True)
    ap.add_argument("--runs", required=True, help="where the run folders go, and stay")
    ap.add_argument("--data", default=os.path.join(SHARED, "data", "real_flim_cells.h5"))
    ap.add_argument("--seeds", default="1,2,3", type=seeds_of)
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--only", default="ours,torch", help="arms, of " + ", ".join(ARMS))
    ap.add_argument("--threads", type=int, default=0, help="of PyTorch on the CPU; default: its own choice")
    ap.add_argument("--jobs", type=int, default=1, help="processes of PyTorch at a time, a fold each; changes no result")
    ap.add_argument("--limit", type=float, default=math.inf, help="seconds after which no seed is begun")
    ap.add_argument("--bound", type=float, help="fail where a loss of the arm `same` is further from ours, or an epoch chosen differs")
    ap.add_argument("--json", help="all results, a file")
    ap.add_argument("flags", nargs="*", help="after --: flags of train_cv")
    a = ap.parse_args()
    arms = [arm for arm in ARMS if arm in a.only.split(",")]
    if not arms or set(a.only.split(",")) - set(ARMS):
        ap.error("--only: of " + ", ".join(ARMS))
    flags = ["--data", a.data] + PROTOCOL + a.flags
    s = settings_of(a, flags)
    if a.bound and not {"ours", "same"} <= set(arms):
        ap.error("--bound is for --only ours,same")
    if "same" in arms and s["sampler"] != "natural":
        sys.exit("the arm `same` knows --sampler natural only")
    os.makedirs(a.runs, exist_ok=True)
    print("seeds %s; %s" % (",".join(str(seed) for seed in a.seeds), " ".join(flags)), flush=True)
    begun = time.time()
    results = collect(a, s, flags, arms)
    print("PyTorch %s, %s, %.0f s" % (torch.__version__, a.device, time.time() - begun))
    report(results, arms)
    if a.bound and check_same(results, a.bound):
        sys.exit("train_cv and PyTorch with the same random numbers parted; bound %g" % a.bound)


if __name__ == "__main__":
    main()
