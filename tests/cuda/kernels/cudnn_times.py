"""cuDNN's times, through PyTorch, for the convolutions that flimcv has kernels of its own for (batch 64, base).

    python3 cudnn_times.py [bf16] [fp16] [tf32]
"""
import sys

import torch
import torch.nn.functional as F

LAYERS = [  # name, C, K, (T, H, W), kernel, stride, pad
    ("stem", 2, 32, (256, 21, 21), (7, 1, 1), (1, 1, 1), (3, 0, 0)),
    ("down", 32, 32, (256, 21, 21), (3, 1, 1), (2, 1, 1), (1, 0, 0)),
    ("res1", 32, 32, (128, 21, 21), (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    ("res2.conv1", 32, 64, (128, 21, 21), (3, 3, 3), (1, 2, 2), (1, 1, 1)),
    ("res2.conv2", 64, 64, (128, 11, 11), (3, 3, 3), (1, 1, 1), (1, 1, 1)),
    ("res3.conv1", 64, 128, (64, 11, 11), (3, 3, 3), (1, 2, 2), (1, 1, 1)),
    ("res3.conv2", 128, 128, (64, 6, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1)),
]


def median_ms(run, n=10):
    for _ in range(3):
        run()
    times = []
    for _ in range(n):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return sorted(times)[n // 2]


def main():
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32}
    for name in sys.argv[1:] or ["bf16", "tf32"]:
        total = [0.0, 0.0, 0.0]
        for layer, c, k, size, kernel, stride, pad in LAYERS:
            x = torch.randn(64, c, *size, device="cuda").to(types[name]).to(memory_format=torch.channels_last_3d)
            w = torch.randn(k, c, *kernel, device="cuda").to(types[name]).to(memory_format=torch.channels_last_3d)
            y = F.conv3d(x, w, None, stride, pad)
            dy = torch.randn_like(y)

            def grad(mask):
                return torch.ops.aten.convolution_backward(dy, x, w, None, stride, pad, (1, 1, 1), False, (0, 0, 0), 1, mask)

            ms = [median_ms(lambda: F.conv3d(x, w, None, stride, pad)),
                  median_ms(lambda: grad([True, False, False])) if c > 2 else 0.0,
                  median_ms(lambda: grad([False, True, False]))]
            times = 2 if layer == "res1" else 1
            total = [a + times * b for a, b in zip(total, ms)]
            print(f"cuDNN {name} {layer:11s} fprop {ms[0]:.3f}  dgrad {ms[1]:.3f}  wgrad {ms[2]:.3f} ms")
            del x, w, y, dy
        print(f"cuDNN {name} all         fprop {total[0]:.3f}  dgrad {total[1]:.3f}  wgrad {total[2]:.3f} ms (res1 twice)")


if __name__ == "__main__":
    main()
