#!/usr/bin/env python3
"""The network that pretrain trains, in PyTorch: its loss and gradients beside flim_bench's, and its step times.

Usage: compare_torch_pretraining.py check FLIM_BENCH [--device cpu] [--preset nano] [--batch 6]
       compare_torch_pretraining.py time [--batch 64] [--steps 30] [--modes tf32_cl,bf16_cl_compile] [--out FILE.json]

check: one step of flim_bench step --pretrain on simulated-like counts in a file; hidden voxels are drawn here anew, by Philox4x32-10
from the rules in src/data/hide_math.h.  Ends with 1 where loss or a gradient differs by more than the bound.
time: batch cells are batch / 2 cells in two views; hidden voxels come ready, since drawing them is no part of the comparison.
"""
import argparse, json, os, statistics, struct, subprocess, sys, tempfile, time
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F

SHARE, TEMPERATURE, WEIGHT = 39322, 0.07, 0.1


# ---- hidden voxels -----------------------------------------------------------------------------------------------------------------

def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def hide(seed, epoch, cell, repeat, mask, bins):
    """(T,H,W) bool: which voxels of a cell are hidden."""
    h, w = mask.shape
    ys, xs = np.nonzero(mask)
    y0, y1, x0, x1 = ys.min(), ys.max() + 1, xs.min(), xs.max() + 1
    left = (int(mask.sum()) * bins * SHARE + 32768) // 65536
    hidden = np.zeros((bins, h, w), bool)

    def run(word, length, start, stop):
        at = start - length + 1 + (word * int(stop - start + length - 1) >> 32)
        return slice(max(at, start), min(at + length, stop))

    index = 0
    while left > 0:
        word = philox((index, cell, epoch, 9 << 24 | (repeat & 255) << 16), (seed & 0xFFFFFFFF, seed >> 32))
        longest = min(32, max(1, bins // 8))
        shortest = (longest + 1) // 2
        kind, length = word[0] >> 28, shortest + ((word[0] << 4 & 0xFFFFFFFF) * (longest - shortest + 1) >> 32)
        side = 3 if kind < 6 else 5
        box = np.zeros_like(hidden)
        box[slice(0, bins) if kind < 6 else run(word[1], length, 0, bins),
            slice(y0, y1) if 6 <= kind < 9 else run(word[2], side, y0, y1),
            slice(x0, x1) if 6 <= kind < 9 else run(word[3], side, x0, x1)] = True
        new = np.flatnonzero(box & mask[None].astype(bool) & ~hidden)[:left]
        hidden.reshape(-1)[new] = True
        left -= len(new)
        index += 1
    return hidden


# ---- the network -------------------------------------------------------------------------------------------------------------------

class ConvBN(nn.Module):
    def __init__(self, cin, cout, k, s, p, transposed=False):
        super().__init__()
        self.conv = (nn.ConvTranspose3d if transposed else nn.Conv3d)(cin, cout, k, s, p)
        self.bn = nn.BatchNorm3d(cout)


class Residual(nn.Module):
    def __init__(self, cin, cout, spatial):
        super().__init__()
        s = (1, spatial, spatial)
        self.conv1, self.bn1 = nn.Conv3d(cin, cout, 3, s, 1), nn.BatchNorm3d(cout)
        self.conv2, self.bn2 = nn.Conv3d(cout, cout, 3, 1, 1), nn.BatchNorm3d(cout)
        self.skip = nn.Identity() if cin == cout and spatial == 1 else ConvBN(cin, cout, 1, s, 0)

    def forward(self, x):
        y = F.leaky_relu(self.bn1(self.conv1(x)), 0.01)
        skip = self.skip.bn(self.skip.conv(x)) if isinstance(self.skip, ConvBN) else x
        return F.leaky_relu(self.bn2(self.conv2(y)) + skip, 0.01)


class Projector(nn.Module):
    def __init__(self, cin, hidden, out):
        super().__init__()
        self.fc1, self.bn, self.fc2 = nn.Linear(cin, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, out)

    def forward(self, x):
        return self.fc2(F.leaky_relu(self.bn(self.fc1(x)), 0.01))


class Decoder(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.up1 = ConvBN(4 * w, w, (2, 3, 3), 2, (0, 1, 1), transposed=True)
        self.up2 = ConvBN(w, w // 2, (2, 3, 3), 2, (0, 1, 1), transposed=True)
        self.out = nn.Module()
        self.out.conv = nn.ConvTranspose3d(w // 2, 1, (3, 1, 1), (2, 1, 1), (1, 0, 0))


class Pretraining(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.stem, self.down = ConvBN(3, w, (7, 1, 1), 1, (3, 0, 0)), ConvBN(w, w, (3, 1, 1), (2, 1, 1), (1, 0, 0))
        self.res1, self.res2, self.res3 = Residual(w, w, 1), Residual(w, 2 * w, 2), Residual(2 * w, 4 * w, 2)
        self.decoder, self.projector = Decoder(w), Projector(4 * w, 2 * w, 128)

    def forward(self, x):
        sizes = [tuple(x.shape[2:])]
        act = lambda u, y: F.leaky_relu(u.bn(u.conv(y)), 0.01)
        y = act(self.down, act(self.stem, x))
        sizes.append(tuple(y.shape[2:]))
        y = F.max_pool3d(self.res2(self.res1(y)), (2, 1, 1))
        sizes.append(tuple(y.shape[2:]))
        y = F.max_pool3d(self.res3(y), (2, 1, 1))
        z = self.projector(y.mean((2, 3, 4)))
        for unit, size in ((self.decoder.up1, sizes[2]), (self.decoder.up2, sizes[1])):
            y = F.leaky_relu(unit.bn(unit.conv(y, output_size=size)), 0.01)
        return self.decoder.out.conv(y, output_size=sizes[0])[:, 0], z


def loss_of(y, z, counts, hidden):
    """Mean over the cells: Poisson likelihood of the hidden counts, and NT-Xent of pairs 2i, 2i+1."""
    y, z = y.float(), z.float()
    above = (y - 12).clamp(min=0)
    each = torch.exp(y - above) * (1 + above) - counts * y
    masked = ((each * hidden).sum((1, 2, 3)) / hidden.sum((1, 2, 3))).mean()
    e = F.normalize(z, dim=1)
    s = (e @ e.T / TEMPERATURE).masked_fill(torch.eye(len(e), dtype=torch.bool, device=e.device), -1e30)
    partner = torch.arange(len(e), device=e.device) ^ 1
    return masked + WEIGHT * F.cross_entropy(s, partner)


# ---- check -------------------------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(np.frombuffer(data[8 + n + a["data_offsets"][0]:8 + n + a["data_offsets"][1]], np.float32).copy())
            .reshape(a["shape"]) for name, a in header.items()}


def check(a):
    import h5py
    bins, side = 37, 11
    rng = np.random.default_rng(5)
    yy, xx = np.mgrid[:side, :side]
    mask = ((yy - 5) ** 2 + (xx - 5) ** 2 < 18).astype(np.uint8)
    decay = np.exp(-np.arange(bins) / 12.0)[:, None, None] * mask
    counts = rng.poisson(decay * rng.uniform(0.2, 2, (16, 1, side, side))).astype(np.uint16)
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)
        with h5py.File(at("c.h5"), "w") as f:
            f["counts"], f["mask"] = counts, np.repeat(mask[None], 16, 0)
            f["label"] = np.arange(16) % 2
        call = [a.bench, "step", "--pretrain", "--data", at("c.h5"), "--device", a.device, "--precision", "fp32", "--preset", a.preset,
                "--batch", str(a.batch), "--steps", "1", "--warmup", "0", "--lr", "0", "--weight-decay", "0", "--no-dropout", "--no-parts",
                "--seed", "42", "--weights-out", at("w"), "--grads-out", at("g"), "--losses", at("l")]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        weights, grads, loss = read_safetensors(at("w")), read_safetensors(at("g")), json.load(open(at("l")))[0]
    net = Pretraining(weights["stem.conv.weight"].shape[0]).double()
    state = {k: v.double() for k, v in weights.items() if "running" not in k}
    missing = net.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys and all("running" in k or "tracked" in k for k in missing.missing_keys), missing
    cells = [i // 2 * 37 % 16 for i in range(a.batch)]
    n = torch.tensor(counts[cells].astype(np.float64))
    hidden = torch.tensor(np.stack([hide(42, 0, c, i % 2, mask, bins) for i, c in enumerate(cells)]))
    signal = (torch.log1p(n.float()) / 10).double().masked_fill(hidden, 0)
    x = torch.stack([signal, torch.tensor(mask).double().expand_as(signal), hidden.double()], 1)
    worst, failed, results = {}, 0, {}
    for dtype in (torch.float64, torch.float32):
        net = net.to(dtype)
        net.zero_grad()
        l = loss_of(*net(x.to(dtype)), n.to(dtype), hidden.to(dtype))
        l.backward()
        results[dtype] = (float(l.detach()), {k: p.grad.double() for k, p in net.named_parameters()})
    exact, own = results[torch.float64], results[torch.float32]
    size = np.sqrt(sum(float((g ** 2).sum()) for g in exact[1].values()))
    for name, g in exact[1].items():
        d, t = float((grads[name].double() - g).norm()), float((own[1][name] - g).norm())
        bound = max(1e-4 * float(g.norm()), 10 * t, 1e-6 * size)  # PyTorch's own error in fp32 is the measure of small ones
        worst[name] = (d / bound, d / max(float(g.norm()), 1e-30), t / max(float(g.norm()), 1e-30))
        failed += not d <= bound
    name = max(worst, key=lambda k: worst[k][0])
    print(f"loss {loss:.8f}, PyTorch fp64 {exact[0]:.8f}, fp32 {own[0]:.8f}; gradients of {len(worst)} tensors: nearest to its bound {name}, "
          f"off by {worst[name][1]:.2e} of its size (PyTorch's fp32: {worst[name][2]:.2e}); {failed} beyond")
    return 1 if failed or not abs(loss / exact[0] - 1) < 1e-5 else 0


# ---- time --------------------------------------------------------------------------------------------------------------------------

def time_mode(mode, batch, steps):
    precision, *options = mode.split("_")
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = True
    net = Pretraining(32).cuda()
    last = "cl" in options
    net = net.to(memory_format=torch.channels_last_3d) if last else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=1e-3, fused=True)
    dtype = {"bf16": torch.bfloat16}.get(precision)
    forward = torch.compile(net) if "compile" in options else net
    yy, xx = np.mgrid[:21, :21]
    mask = ((yy - 10) ** 2 + (xx - 10) ** 2 < 49).astype(np.uint8)
    t = torch.arange(256, device="cuda").float()
    decay = torch.exp(-(t - 40).clamp(min=0) / 40) * (t >= 40)
    data = []
    for k in range(2):
        n = torch.poisson(decay.view(1, 256, 1, 1) * torch.tensor(mask, device="cuda") * torch.rand(batch, 1, 21, 21, device="cuda"))
        hidden = torch.tensor(np.stack([hide(k, 0, i // 2, i % 2, mask, 256) for i in range(batch)]), device="cuda").float()
        x = torch.stack([torch.log1p(n) / 10 * (1 - hidden), torch.tensor(mask, device="cuda").float().expand_as(n), hidden], 1)
        data.append((x.contiguous(memory_format=torch.channels_last_3d) if last else x.contiguous(), n, hidden))

    def step(x, n, hidden):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            y, z = forward(x)
        loss_of(y, z, n, hidden).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    for i in range(6):
        step(*data[i % 2])
    torch.cuda.synchronize()
    times = []
    for i in range(steps):
        begun, ended = torch.cuda.Event(True), torch.cuda.Event(True)
        begun.record()
        step(*data[i % 2])
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended))
    return dict(mode=mode, batch=batch, ms=round(statistics.median(times), 3), min=round(min(times), 3), max=round(max(times), 3))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    c = sub.add_parser("check")
    c.add_argument("bench")
    c.add_argument("--device", default="cpu")
    c.add_argument("--preset", default="nano")
    c.add_argument("--batch", type=int, default=6)
    t = sub.add_parser("time")
    t.add_argument("--batch", type=int, default=64)
    t.add_argument("--steps", type=int, default=30)
    t.add_argument("--modes", default="tf32,tf32_cl,bf16_cl,tf32_compile,bf16_cl_compile")
    t.add_argument("--out", default="")
    a = p.parse_args()
    if a.what == "check":
        return check(a)
    print(torch.cuda.get_device_name(0), "torch", torch.__version__, "cudnn", torch.backends.cudnn.version(), flush=True)
    results = []
    for mode in a.modes.split(","):
        begun = time.time()
        try:
            results.append(time_mode(mode, a.batch, a.steps))
        except Exception as e:  # a mode that cannot run is a result, too
            results.append(dict(mode=mode, error=str(e)[:200]))
        results[-1]["seconds"] = round(time.time() - begun, 1)
        print(json.dumps(results[-1]), flush=True)
        torch.cuda.empty_cache()
    if a.out:
        json.dump(results, open(a.out, "w"), indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
