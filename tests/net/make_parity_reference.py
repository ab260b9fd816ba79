#!/usr/bin/env python3
"""Makes tests/net/parity_reference.txt: a few training steps of two small networks in PyTorch, fp64.

Usage: make_parity_reference.py [PEER_FOLDER] > tests/net/parity_reference.txt
PEER_FOLDER holds torch_peer.py (default ../shared/peer beside the checkout).  Weights and cells come from the formulas of
tests/reference/formula.c, so test_parity_reference.c needs neither Python nor data.  Every number is printed with 17 digits.
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "shared", "peer"))
from torch_peer import FlimNet  # noqa: E402

NETWORKS = [  # width, classes, T, H, W, batch, steps
    (8, 3, 16, 5, 5, 4, 3),
    (4, 2, 9, 5, 5, 3, 3),
]
# Exact in fp32.  Adam's epsilon is large, so that the update is a smooth function of the gradient: with 1e-8 its first steps are
# the sign of each element, and elements whose exact gradient is zero go where rounding sends them.
LEARNING_RATE, WEIGHT_DECAY, EPSILON = 2.0**-10, 2.0**-7, 2.0**-10


def uniform(tag, count):
    x = (np.arange(count, dtype=np.uint64) + (tag * 0x9E3779B1 & 0xFFFFFFFF)) & 0xFFFFFFFF
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return ((x ^ x >> 16) >> 16).astype(np.float64) / 65536


def formula_weights(net):
    names = [k for k in net.state_dict() if "num_batches" not in k]
    out = {}
    for k, name in enumerate(names):
        t = net.state_dict()[name]
        u = uniform(1000 + k, t.numel())
        if name.endswith("running_var") or (name.endswith("weight") and t.ndim == 1):
            v = 0.5 + u
        elif t.ndim == 1:
            v = (2 * u - 1) / 4
        else:
            bound = 1.0
            while bound * bound * (t.numel() // t.shape[0]) > 3:
                bound /= 2
            v = (2 * u - 1) * bound
        out[name] = torch.tensor(v.reshape(t.shape))
    return out


def formula_batch(first, n, classes, t, h, w):
    x = np.zeros((n, 2, t, h, w))
    for i in range(n):
        cell = first + i
        k = (uniform(2 * cell + 1, t * h * w) * 65536).astype(np.int64)
        x[i, 0] = np.where(k % 3 == 0, k // 3 % 32 / 64, 0).reshape(t, h, w)
        x[i, 1] = (uniform(2 * cell + 2, h * w) >= 0.25).reshape(1, h, w)
    return torch.tensor(x), torch.tensor([(first + i) % classes for i in range(n)])


def project(v):
    v = v.detach().double().reshape(-1).numpy()
    return float(v @ (2 * uniform(99, v.size) - 1))


def run(width, classes, t, h, w, batch, steps):
    net = FlimNet(p=0.0, out=1 if classes == 2 else classes, width=width).double().train()
    net.load_state_dict(formula_weights(net), strict=False)
    start = {k: v.clone() for k, v in net.state_dict().items()}
    opt = torch.optim.AdamW(net.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON)
    print("network", width, classes, t, h, w, batch, steps)
    print("optimizer %.17g %.17g %.17g" % (LEARNING_RATE, WEIGHT_DECAY, EPSILON))
    for s in range(steps):
        x, y = formula_batch(s * batch, batch, classes, t, h, w)
        opt.zero_grad()
        z = net(x)
        loss = F.binary_cross_entropy_with_logits(z[:, 0], y.double()) if classes == 2 else F.cross_entropy(z, y)
        loss.backward()
        print("loss %d %.17g" % (s, loss.item()))
        if s == 0:
            for k, v in net.named_parameters():
                print("gradient %s %.17g %.17g" % (k, v.grad.norm().item(), project(v.grad)))
        opt.step()
    for k, v in net.state_dict().items():
        if "num_batches" not in k:
            print("moved %s %.17g %.17g" % (k, (v - start[k]).norm().item(), project(v - start[k])))
    net.eval()
    x, _ = formula_batch(0, batch, classes, t, h, w)
    for i, row in enumerate(net(x)):
        for k, v in enumerate(row):
            print("logit %d %d %.17g" % (i, k, v.item()))


print("# Made by tests/net/make_parity_reference.py with PyTorch %s, fp64.  Columns:" % torch.__version__)
print("# network width classes T H W batch steps;  optimizer lr weight_decay epsilon;  loss step value;")
print("# gradient of step 0: name, norm, product with the fixed vector 2 u(99, i) - 1;  moved: after the last step, minus the start;")
print("# logit in evaluation mode after the last step: cell, output, value.")
for n in NETWORKS:
    run(*n)
