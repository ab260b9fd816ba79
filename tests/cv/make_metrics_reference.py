#!/usr/bin/env python3
"""Writes tests/cv/metrics_reference.txt: random cases and what scikit-learn says of them (made with 1.2.1, numpy 1.24).

    python3 tests/cv/make_metrics_reference.py [FILE]     the same cases every time; --check compares with the kept file instead

A case is
    case N K THRESHOLD
    label ...            N class numbers
    logit ...            N x K' float32 (K' = 1 for two classes), as nine digits
    METRIC VALUE         one line each, 17 digits, nan = undefined
A line `million LEVELS AUC AP` is of a million cells with scores 0..LEVELS-1, made by million(): ties by the thousand.
The scores of the ranking metrics are the logits (two classes) or log(p/(1-p)) of the softmax: the same order as the
probabilities, without ties made by rounding.  Log loss is computed without clipping (eps=1e-300).
"""
import sys
import warnings
from pathlib import Path

try:
    import numpy as np
    from sklearn import metrics as M
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(77)

warnings.filterwarnings("ignore")
KEPT = Path(__file__).parent / "metrics_reference.txt"


def log_odds(z, c):
    others = np.sort(np.delete(z, c, axis=1), axis=1)
    top = others[:, -1:]
    return z[:, c] - top[:, 0] - np.log(np.exp(others - top).sum(1))


def reference(y, logits, k, threshold):
    z = logits.astype(np.float64)
    if k == 2:
        p1 = 1 / (1 + np.exp(-z[:, 0]))
        p = np.stack([1 / (1 + np.exp(z[:, 0])), p1], 1)
        predicted = (p1 > threshold).astype(int)
        scores = {1: z[:, 0]}
    else:
        e = np.exp(z - z.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        predicted = p.argmax(1)
        scores = {c: log_odds(z, c) for c in range(k)}
    labels = list(range(k))
    kind = {"average": "binary"} if k == 2 else {"average": "macro", "labels": labels}
    out = {
        "accuracy": M.accuracy_score(y, predicted),
        "balanced_accuracy": M.balanced_accuracy_score(y, predicted),
        "precision": M.precision_score(y, predicted, zero_division=0, **kind),
        "recall": M.recall_score(y, predicted, zero_division=0, **kind),
        "specificity": np.mean([M.recall_score(y != c, predicted != c, zero_division=0) for c in (labels if k > 2 else [1])]),
        "f1": M.f1_score(y, predicted, zero_division=0, **kind),
        "macro_f1": M.f1_score(y, predicted, labels=labels, average="macro", zero_division=0),
        "mcc": M.matthews_corrcoef(y, predicted),
        "log_loss": M.log_loss(y, p, labels=labels, eps=1e-300),
        "brier": M.brier_score_loss(y, p[:, 1], pos_label=1) if k == 2 else np.mean(((p - np.eye(k)[y]) ** 2).sum(1)),
    }
    whole = len(set(y)) == k
    if not (whole if k > 2 else (y == 1).any()):
        out["recall"] = np.nan  # scikit-learn says 0 and warns
    if any((y == c).all() for c in (labels if k > 2 else [1])):
        out["specificity"] = np.nan
    out["roc_auc"] = np.mean([M.roc_auc_score(y == c, s) for c, s in scores.items()]) if whole else np.nan
    defined = all((y == c).any() and (y != c).any() for c in scores)
    out["average_precision"] = np.mean([M.average_precision_score(y == c, s) for c, s in scores.items()]) if defined else np.nan
    confidence, winner = p.max(1), p.argmax(1)
    bins = np.clip(np.ceil(confidence * 15) - 1, 0, 14)
    out["ece"] = sum(abs((winner == y)[bins == b].sum() - confidence[bins == b].sum()) for b in range(15)) / len(y)
    return out


def cases():
    rng = np.random.default_rng(20)
    for number in range(240):
        k = [2, 2, 3, 5][number % 4]
        n = int(rng.integers(1, 36))
        y = rng.integers(0, k, n)
        z = rng.normal(0, 3, (n, 1 if k == 2 else k)).astype(np.float32)
        shape = rng.integers(0, 8)
        if shape == 0:
            y = np.full(n, rng.integers(0, k))  # one class
        elif shape == 1:
            y = np.minimum(y, max(k - 2, 0)) if k > 2 else y * 0
        elif shape == 2:
            z = z[:1].repeat(n, 0)  # constant scores
        elif shape in (3, 4):
            z = z[rng.integers(0, max(1, n // 2), n)]  # ties
        elif shape == 5 and k == 2:
            z = np.round(z)
        elif shape == 6:
            z = z * 8  # saturated, but within what exp(-x) can hold
        yield y, z, k, float(rng.choice([0.5, 0.3, 0.9]))


def million(levels):
    """Labels and whole scores by SplitMix64, which tests/cv/test_metrics.c computes as well."""
    z = np.arange(1, 1000001, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(levels)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    score = z % np.uint64(levels)
    label = (z >> np.uint64(40)) % np.uint64(1000) < 200 + 600 * score // np.uint64(levels)
    return label.astype(int), score.astype(float)


def text():
    lines = [f"# scikit-learn reference for tests/cv/test_metrics.c; written by tests/cv/make_metrics_reference.py"]
    for y, z, k, threshold in cases():
        lines.append(f"case {len(y)} {k} {threshold}")
        lines.append("label " + " ".join(map(str, y)))
        lines.append("logit " + " ".join(f"{v:.9g}" for v in z.ravel()))
        lines += [f"{name} {float(value):.17g}" for name, value in reference(y, z, k, threshold).items()]
    for levels in (2, 7, 1000, 1 << 20):
        label, score = million(levels)
        lines.append(f"million {levels} {M.roc_auc_score(label, score):.17g} {M.average_precision_score(label, score):.17g}")
    return "\n".join(lines) + "\n"


def agree(a, b):
    a, b = a.split(), b.split()
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if x != y:
            try:
                if abs(float(x) - float(y)) > 1e-13 * max(1, abs(float(y))):
                    return False
            except ValueError:
                return False
    return True


if __name__ == "__main__":
    if "--check" in sys.argv:
        made, kept = text().splitlines(), KEPT.read_text().splitlines()
        bad = [i + 1 for i, (a, b) in enumerate(zip(made, kept)) if not agree(a, b)]
        if bad or len(made) != len(kept):
            sys.exit(f"{KEPT}: {len(bad)} lines differ from what scikit-learn says now, first {bad[:1]}")
        print(f"{len(kept)} lines agree")
    else:
        Path(sys.argv[1] if len(sys.argv) > 1 else KEPT).write_text(text())
