#!/usr/bin/env python3
"""Prediction beside PyTorch's: flim_bench predict and the peer's network in eval mode, one after the other on the same card.

Usage: compare_torch_predict.py --bench BUILD/flim_bench [--shared DIR] [--batch 256] [--preset base] [--precision tf32]

PyTorch computes under inference_mode on inputs that stay on the card (flim_bench copies each batch there), in each of its modes:
float32 with TF32, bfloat16, both also in channels_last_3d, and compiled with --compile.  Prints cells/s of each and the ratio to
PyTorch's best.
"""
import argparse
import json
import subprocess
import sys
import time


WIDTH = {"nano": 4, "tiny": 8, "small": 16, "base": 32, "large": 64, "xlarge": 128}


def torch_cells_per_s(args, mode):
    sys.path.insert(0, args.shared + "/peer")
    import torch
    from torch_peer import FlimNet

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    net = FlimNet(width=WIDTH[args.preset]).cuda().eval()
    x = (torch.rand(args.batch, 2, 256, 21, 21, device="cuda") < 0.05).float() * 0.0693
    if "channels" in mode:
        net, x = net.to(memory_format=torch.channels_last_3d), x.to(memory_format=torch.channels_last_3d)
    if "compiled" in mode:
        net = torch.compile(net)

    def calls(n):
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled="bf16" in mode):
            for _ in range(n):
                net(x)
        torch.cuda.synchronize()

    calls(5)
    rates = []
    for _ in range(5):
        start = time.perf_counter()
        calls(10)
        rates.append(10 * args.batch / (time.perf_counter() - start))
    return sorted(rates)[2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--preset", default="base", choices=WIDTH)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    out = subprocess.run([args.bench, "predict", "--device", "cuda", "--preset", args.preset, "--precision", args.precision, "--batch", str(args.batch), "--json", "-"],
                         check=True, capture_output=True, text=True).stdout
    ours = json.loads(out[out.index("{"):])
    print(f"flimcv {ours['precision']}: {ours['cells_per_s']:.0f} cells/s, {ours['ms']:.3f} ms, {ours['peak_bytes'] / 2**20:.0f} MiB", flush=True)
    best = 0
    for mode in ["tf32", "tf32 channels", "bf16", "bf16 channels"] + (["tf32 compiled", "bf16 channels compiled"] if args.compile else []):
        rate = torch_cells_per_s(args, mode)
        best = max(best, rate)
        print(f"PyTorch {mode}: {rate:.0f} cells/s", flush=True)
    print(f"ratio to PyTorch's best: {ours['cells_per_s'] / best:.2f}")


if __name__ == "__main__":
    main()
