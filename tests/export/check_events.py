"""Event files of TensorBoard's own reader against the run's: check_events.py FOLD_FOLDER CLASS...

Scalars of each epoch are history.csv's, each step once; PR curves and the confusion picture are those of predictions.csv; metrics
of the test are summary.json's.  Ends with 1 and says what is wrong if anything is.
"""
import csv
import glob
import io
import json
import sys

import numpy as np
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.pr_curve import metadata
from tensorboard.util import tensor_util

folder, classes = sys.argv[1], sys.argv[2:]


def expect(what, holds):
    if not holds:
        sys.exit(f"{folder}: {what}")


files = glob.glob(f"{folder}/events.out.tfevents.*")
expect(f"one file, not {files}", len(files) == 1)
events = EventAccumulator(folder, size_guidance={"scalars": 0, "images": 0, "tensors": 0})
events.Reload()
history = list(csv.DictReader(open(f"{folder}/history.csv")))
tags = {"learning_rate": "lr", "loss/train": "train_loss", "loss/val": "val_loss", "accuracy/train": "train_accuracy",
        "accuracy/val": "val_accuracy", "balanced_accuracy/val": "val_balanced_accuracy", "f1/val": "val_f1",
        "roc_auc/val": "val_roc_auc", "grad_norm/mean": "grad_norm_mean", "grad_norm/min": "grad_norm_min",
        "grad_norm/max": "grad_norm_max", "speed/cells_per_s": "cells_per_s", "speed/wait_share": "wait_share"}
for tag, column in tags.items():
    want = [(int(row["epoch"]), float(row[column])) for row in history if row[column] != ""]
    got = [(e.step, e.value) for e in events.Scalars(tag)]
    expect(f"{tag}: steps {[s for s, _ in got]}", [s for s, _ in got] == [s for s, _ in want])
    expect(f"{tag}: values", np.allclose([v for _, v in got], [v for _, v in want], rtol=1e-6, atol=0))
tests = [e.step for e in events.Scalars("test/accuracy")]
expect(f"the test is at {tests}, not at the last epoch", tests == [int(history[-1]["epoch"])])
stages = [row["stage"] for row in history if row.get("stage")]  # as their numbers
numbers = [list(dict.fromkeys(stages)).index(name) + 1 for name in stages]
expect("stages", [e.value for e in events.Scalars("stage")] == numbers if stages else "stage" not in events.Tags()["scalars"])
times = [e.wall_time for e in events.Scalars("loss/train")]
expect("time goes forward", times == sorted(times))

summary = json.load(open(f"{folder}/summary.json"))["metrics"]
for name, value in summary.items():
    if isinstance(value, (int, float)) and f"test/{name}" in events.Tags()["scalars"]:
        expect(f"test/{name}", abs(events.Scalars(f"test/{name}")[0].value - value) < 1e-6)

rows = list(csv.DictReader(open(f"{folder}/predictions.csv")))
label = np.array([int(r["label"]) for r in rows])
predicted = np.array([int(r["predicted"]) for r in rows])
logits = np.array([[float(v) for c, v in r.items() if c.startswith("logit_")] for r in rows])
scores = np.hstack([np.zeros_like(logits), logits]) if len(classes) == 2 else logits
probability = np.exp(scores - scores.max(axis=1, keepdims=True))
probability /= probability.sum(axis=1, keepdims=True)
thresholds = np.linspace(0, 1, 201)
for k in [1] if len(classes) == 2 else range(len(classes)):
    tag = f"test/pr_curve/{classes[k]}"
    about = events.SummaryMetadata(tag).plugin_data
    expect("plugin", about.plugin_name == metadata.PLUGIN_NAME)
    expect("thresholds", metadata.parse_plugin_metadata(about.content).num_thresholds == len(thresholds))
    got = tensor_util.make_ndarray(events.Tensors(tag)[0].tensor_proto)
    called = probability[:, k][:, None] >= thresholds[None] - 1e-12  # (n,thresholds)
    is_k = (label == k)[:, None]
    tp, fp = (called & is_k).sum(0), (called & ~is_k).sum(0)
    fn, tn = is_k.sum() - tp, (~is_k).sum() - fp
    want = np.stack([tp, fp, tn, fn, tp / np.maximum(tp + fp, 1), tp / np.maximum(tp + fn, 1)])
    expect(f"{tag}: {got.shape}", got.shape == (6, len(thresholds)) and np.allclose(got, want, atol=1e-6))

picture = events.Images("test/confusion")[0]
pixels = np.array(Image.open(io.BytesIO(picture.encoded_image_string)))
k = len(classes)
size = pixels.shape[0] // k
expect("size of the picture", pixels.shape == (picture.height, picture.width, 3) and pixels.shape[0] == k * size)
dark, white = np.array([8, 48, 107]), 255
for i in range(k):
    for j in range(k):
        share = ((label == i) & (predicted == j)).sum() / max((label == i).sum(), 1)
        corner = pixels[i * size + 1, j * size + 1].astype(float)  # no digit reaches it
        expect(f"square {i},{j}: {corner}", np.abs(corner - (white + share * (dark - white))).max() <= 0.5)
print(f"{folder}: {len(history)} epochs, {len(events.Tags()['scalars'])} scalars")
