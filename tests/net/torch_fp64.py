#!/usr/bin/env python3
"""peer/torch_parity.py with a quicker fp64: same arguments, same output.

Usage: torch_fp64.py PEER_FOLDER ARGUMENTS_OF_torch_parity... (with --precision fp64)
On a CPU PyTorch's own fp64 conv3d takes many minutes for one step at preset base.  Here a convolution is a sum of matrix products,
one for each element of the kernel, forward and backward; it agrees with torch.nn.functional.conv3d to 1e-13 (--self-test).
"""
import os
import runpy
import sys

import torch
import torch.nn.functional as F


class Convolution(torch.autograd.Function):
    @staticmethod
    def windows(x, weight, stride, pad):
        """The padded input, channels last; the output's size; and for each kernel element its place and the inputs it sees."""
        padded = F.pad(x.permute(0, 2, 3, 4, 1), (0, 0, pad[2], pad[2], pad[1], pad[1], pad[0], pad[0]))
        kernel = weight.shape[2:]
        size = [(x.shape[2 + d] + 2 * pad[d] - kernel[d]) // stride[d] + 1 for d in range(3)]
        seen = lambda first, d: slice(first, first + stride[d] * (size[d] - 1) + 1, stride[d])
        return padded, size, [((slice(None), slice(None), t, i, j), (slice(None), seen(t, 0), seen(i, 1), seen(j, 2)))
                              for t in range(kernel[0]) for i in range(kernel[1]) for j in range(kernel[2])]

    @staticmethod
    def forward(ctx, x, weight, bias, stride, pad):
        ctx.save_for_backward(x, weight)
        ctx.geometry = stride, pad
        padded, size, windows = Convolution.windows(x, weight, stride, pad)
        y = bias.repeat(x.shape[0] * size[0] * size[1] * size[2], 1)
        for element, seen in windows:
            y.addmm_(padded[seen].reshape(-1, x.shape[1]), weight[element].t())
        return y.view(x.shape[0], *size, -1).permute(0, 4, 1, 2, 3)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        stride, pad = ctx.geometry
        padded, _, windows = Convolution.windows(x, weight, stride, pad)
        rows = dy.permute(0, 2, 3, 4, 1).reshape(-1, weight.shape[0])
        dweight, dpadded = torch.empty_like(weight), torch.zeros_like(padded)
        for element, seen in windows:
            dweight[element] = rows.t() @ padded[seen].reshape(-1, x.shape[1])
            dpadded[seen] += (rows @ weight[element]).view(padded[seen].shape)
        t, h, w = x.shape[2:]
        dx = dpadded[:, pad[0]:pad[0] + t, pad[1]:pad[1] + h, pad[2]:pad[2] + w].permute(0, 4, 1, 2, 3)
        return dx, dweight, rows.sum(0), None, None


def self_test():
    torch.manual_seed(0)
    for kernel, stride, pad in (((3, 3, 3), (1, 2, 2), (1, 1, 1)), ((7, 1, 1), (1, 1, 1), (3, 0, 0)),
                                ((1, 1, 1), (1, 2, 2), (0, 0, 0)), ((3, 1, 1), (2, 1, 1), (1, 0, 0))):
        x, w, b = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((2, 4, 9, 5, 5), (6, 4, *kernel), (6,))]
        want = F.conv3d(x, w, b, stride, pad)
        found = Convolution.apply(x, w, b, stride, pad)
        dy = torch.randn_like(want)
        for p, q in zip((want,) + torch.autograd.grad(want, (x, w, b), dy), (found,) + torch.autograd.grad(found, (x, w, b), dy)):
            assert (p - q).abs().max() < 1e-12, (kernel, stride, pad)


if __name__ == "__main__":
    self_test()
    if sys.argv[1] != "--self-test":
        folder = sys.argv.pop(1)
        sys.path.insert(0, folder)
        torch.nn.Conv3d.forward = lambda self, x: Convolution.apply(x, self.weight, self.bias, self.stride, self.padding)
        runpy.run_path(os.path.join(folder, "torch_parity.py"), run_name="__main__")
