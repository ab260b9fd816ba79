#!/usr/bin/env python3
"""Training over several cards in PyTorch: DistributedDataParallel of the network of train_cv, timed on 1 and on N cards.

Usage: compare_torch_ddp.py [--cards 2] [--batch 64] [--steps 20] [--presets base,large] [--modes tf32,tf32_cl,bf16,bf16_cl]
                            [--limit S] [--device cuda|cpu] [--out FILE.json]

The network is FlimNet of peer/torch_peer.py (FLIM_SHARED, default ../shared); loss, clipping and AdamW (fused) are that file's.
--batch cells per card and step.  Each mode is timed in the same processes on all cards by DDP (nccl; gradients as views of its
buckets) and on card 0 alone without DDP, while the others wait.  Steps run in a row, nobody waits for one; inputs lie on the
card.  Modes: tf32 and bf16 (autocast), _cl: channels_last_3d.  Prints a line per preset and mode, then for each preset and
precision the best of its modes: "best base tf32: 740.1 cells/s on 1 card (tf32), 1450.2 on 2 (tf32), 1.96 x".  Modes that
would begin after --limit seconds are left out.  --device cpu (gloo) is for trying the script.
"""
import argparse
import json
import os
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.environ.get("FLIM_SHARED") or os.path.join(HERE, "..", "..", "shared")
WIDTH = {"nano": 4, "tiny": 8, "small": 16, "base": 32, "large": 64, "xlarge": 128}
WARMUP = 4
sys.path.insert(0, os.path.join(SHARED, "peer"))
try:
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.nn.parallel import DistributedDataParallel
    from torch_peer import FlimNet
    from torch_peer import batches as peer_batches
except ImportError as e:
    print("skipped: no Python module %s for %s (or FLIM_SHARED is not set)" % (e.name, sys.executable))
    sys.exit(77)


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_step(a, device, preset, mode, ranks):
    """Of this process: alone if ranks is 1, else together with the others."""
    precision, channels_last = mode.split("_")[0], mode.endswith("_cl")
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    net = FlimNet(width=WIDTH[preset]).to(device)
    if channels_last:
        net = net.to(memory_format=torch.channels_last_3d)
    run = net
    if ranks > 1:
        run = DistributedDataParallel(net, device_ids=[device.index] if device.type == "cuda" else None,
                                      broadcast_buffers=False, gradient_as_bucket_view=True)
    more = {"fused": True} if device.type == "cuda" else {}
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=1e-3, **more)
    data = peer_batches(2, a.batch, device, channels_last)

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            logit = run(x)
        F.binary_cross_entropy_with_logits(logit.float(), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 35.0)
        optimizer.step()

    for i in range(WARMUP):
        step(*data[i % 2])
    synchronize(device)
    if ranks > 1:
        dist.barrier()
    begun = time.perf_counter()
    for i in range(a.steps):
        step(*data[i % 2])
    synchronize(device)
    return (time.perf_counter() - begun) / a.steps


def measure(a, rank, device, preset, mode):
    """ms per step on all cards, and on card 0 alone; None where it did not work."""
    ms = {}
    for ranks in (a.cards, 1):
        if rank < ranks:
            try:
                ms[ranks] = 1e3 * seconds_per_step(a, device, preset, mode, ranks)
            except RuntimeError as e:  # a mode that cannot run is a result, too; the other ranks get it likewise
                print("%s %s on %d: %s" % (preset, mode, ranks, str(e).splitlines()[0][:150]), flush=True)
                ms[ranks] = None
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if a.cards > 1:
            dist.barrier()
    return ms


def go_on(a, begun, rank):
    """Rank 0 decides for all."""
    word = torch.tensor([int(not a.limit or time.time() - begun < a.limit)])
    if a.cards > 1:
        word = word.to(a.device if a.device == "cpu" else "cuda:%d" % rank)
        dist.broadcast(word, 0)
    return bool(word.item())


def tell_best(a, rows):
    for preset in a.presets:
        for precision in ("fp32", "tf32", "bf16"):
            of = [r for r in rows if r["preset"] == preset and r["mode"].split("_")[0] == precision]
            best = {n: min((r for r in of if r["ms"].get(n)), key=lambda r: r["ms"][n], default=None) for n in (1, a.cards)}
            if all(best.values()):
                rate = {n: 1e3 * n * a.batch / best[n]["ms"][n] for n in best}
                print("best %s %s: %.1f cells/s on 1 card (%s), %.1f on %d (%s), %.2f x" % (
                    preset, precision, rate[1], best[1]["mode"], rate[a.cards], a.cards, best[a.cards]["mode"],
                    rate[a.cards] / rate[1]), flush=True)


def work(rank, a, begun):
    device = torch.device("cuda", rank) if a.device == "cuda" else torch.device("cpu")
    if a.device == "cuda":
        torch.cuda.set_device(device)
    if a.cards > 1:
        dist.init_process_group("nccl" if a.device == "cuda" else "gloo", rank=rank, world_size=a.cards)
    if rank == 0:
        print("torch %s, %s, %d x %s, batch %d per card" % (
            torch.__version__, "NCCL %s" % (torch.cuda.nccl.version(),) if a.device == "cuda" else "gloo", a.cards,
            torch.cuda.get_device_name(0) if a.device == "cuda" else "cpu", a.batch), flush=True)
    rows = []
    for preset in a.presets:
        for mode in a.modes:
            if not go_on(a, begun, rank):
                continue
            ms = measure(a, rank, device, preset, mode)
            rows.append({"preset": preset, "mode": mode, "ms": ms})
            if rank == 0:
                print("%s %s: %s" % (preset, mode, ", ".join(
                    "%s ms on %d" % ("%.3f" % v if v else "-", n) for n, v in sorted(ms.items()))), flush=True)
    if rank == 0:
        tell_best(a, rows)
        if a.out:
            with open(a.out, "w") as f:
                json.dump({"torch": torch.__version__, "batch": a.batch, "cards": a.cards, "rows": rows}, f, indent=1)
    if a.cards > 1:
        dist.destroy_process_group()


def main():
    begun = time.time()
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cards", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--presets", default="base,large")
    p.add_argument("--modes", default="tf32,tf32_cl,bf16,bf16_cl")
    p.add_argument("--limit", type=float, default=0)
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--out", default="")
    a = p.parse_args()
    a.presets, a.modes = a.presets.split(","), a.modes.split(",")
    if a.device == "cuda" and torch.cuda.device_count() < a.cards:
        print("skipped: %d cards here, %d are wanted" % (torch.cuda.device_count(), a.cards))
        sys.exit(77)
    if a.device == "cpu":
        torch.set_num_threads(1)
    with socket.socket() as s:  # a port that is free
        s.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]))
    if a.cards == 1:
        work(0, a, begun)
    else:
        torch.multiprocessing.spawn(work, (a, begun), nprocs=a.cards)


if __name__ == "__main__":
    main()
