"""An ONNX file of flim_export against predict, by onnxruntime: check_onnx.py MODEL.onnx DATA.h5 PREDICTIONS.csv [SUMMARY.json...]

The graph gets the cells of DATA, and its logits and probabilities must be those of PREDICTIONS within 1e-5 (logits above 1: of
themselves), at any batch size.
With the summaries of the models' folds, calibrated probabilities are computed from them here and compared, too.  Prints the
largest differences; ends with 1 and says what is wrong if anything is.
"""
import csv
import json
import sys

import h5py
import numpy as np
import onnx
import onnxruntime

TOLERANCE = 1e-5


def expect(what, holds):
    if not holds:
        sys.exit(f"{sys.argv[1]}: {what}")


def softmax(scores):  # (n,K)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def probabilities_of(logits):  # (n,K') -> (n,K), double
    logits = logits.astype(np.float64)
    return softmax(np.concatenate([np.zeros_like(logits), logits], axis=1) if logits.shape[1] == 1 else logits)


model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
expect("not of format 8 and operator set 17", model.ir_version == 8 and [o.version for o in model.opset_import] == [17])
about = {p.key: p.value for p in model.metadata_props}
with open(sys.argv[3], newline="") as f:
    rows = list(csv.DictReader(f))
logit_columns = [c for c in rows[0] if c.startswith("logit_")]
prob_columns = [c for c in rows[0] if c.startswith("prob_")]
want_logits = np.array([[float(r[c]) for c in logit_columns] for r in rows])
want_probabilities = np.array([[float(r[c]) for c in prob_columns] for r in rows])
with h5py.File(sys.argv[2]) as f:
    counts = f["counts"][:].astype(np.float32)
    names = [n.decode() if isinstance(n, bytes) else n for n in f.attrs["class_names"]]
    inside = f["mask"][:] != 0 if "mask" in f else counts.max(axis=1) > 0  # (n,H,W)
    has_mask = "mask" in f
n, t, h, w = counts.shape

expect(f"metadata says {about}", [about["T"], about["H"], about["W"]] == [str(t), str(h), str(w)])
expect("names of the classes", json.loads(about["class_names"]) == names)
expect("origin of the mask", about["mask"] == ("file" if has_mask else "counts"))
expect("hashes of the weights", len(json.loads(about["weights_sha256"])) == int(about["models"]))
expect("the threshold is for two classes", ("threshold" in about) == (len(names) == 2))
if "bin_width_ns" in about:
    expect("bins x their width", abs(float(about["bin_width_ns"]) * t - float(about["time_range_ns"])) < 1e-6)
for value in [*model.graph.input, *model.graph.output]:
    expect(f"{value.name} has no free batch size", value.type.tensor_type.shape.dim[0].dim_param == "N")

kept = np.where(inside[:, None], counts, 0) if "inside mask" in about["preprocessing"] else counts
spread = np.broadcast_to(inside[:, None], counts.shape)
feeds = {
    "input": {"input": np.stack([np.log1p(kept.astype(np.float64)) / 10, spread], axis=1).astype(np.float32)},
    "counts": {"counts": counts},
    "counts, mask": {"counts": counts, "mask": 7 * inside.astype(np.float32)},  # any number but 0 is inside
}[about["inputs"]]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])


def run(first, last):
    out = session.run(None, {k: v[first:last] for k, v in feeds.items()})
    return dict(zip([o.name for o in session.get_outputs()], out))


got = run(0, n)
part = run(1, 2)
size = np.maximum(1, np.abs(want_logits))
differences = {
    "logits": (np.abs(got["logits"] - want_logits) / size).max(),
    "probabilities": np.abs(got["probabilities"][:, -len(prob_columns):] - want_probabilities).max(),  # of two classes, class 1's
    "probabilities of the logits": np.abs(got["probabilities"] - probabilities_of(want_logits)).max(),
    "a cell alone": (np.abs(part["logits"] - want_logits[1:2]) / size[1:2]).max(),
}
expect("shapes", got["logits"].shape == want_logits.shape and got["probabilities"].shape == (n, len(names)))
if len(sys.argv) > 4 and int(about["models"]) == 1:  # calibration of one model, from its own logits
    fold = json.load(open(sys.argv[4]))["calibration"]
    bias = np.array(fold["bias"], dtype=np.float64)
    shifted = want_logits / fold["temperature"] + (bias[1] - bias[0] if len(names) == 2 else bias)
    differences["calibrated"] = np.abs(got["calibrated_probabilities"] - probabilities_of(shifted)).max()
elif len(sys.argv) > 4:
    differences["calibrated sum"] = np.abs(got["calibrated_probabilities"].sum(axis=1) - 1).max()
print(", ".join(f"{k} {v:.1e}" for k, v in differences.items()), f"({n} cells, logits to {np.abs(want_logits).max():.2f})")
expect(f"differs from predict by more than {TOLERANCE}", all(v <= TOLERANCE for v in differences.values()))
