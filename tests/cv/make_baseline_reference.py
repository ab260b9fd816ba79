#!/usr/bin/env python3
"""Writes tests/cv/baseline_reference.txt: small data sets and the coefficients that scikit-learn's LogisticRegression finds.

    python3 tests/cv/make_baseline_reference.py [FILE]

A case is
    case N FEATURES CLASSES RIDGE BALANCED
    label ...          N
    x ...              N x FEATURES, %.9g
    coefficient ...    K' x (FEATURES + 1), the intercept last, on features standardised by all N cells (ddof 0)
"""
import sys
import warnings
from pathlib import Path

try:
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler
except ImportError as problem:
    print(f"skipped: {problem}")
    sys.exit(77)

warnings.filterwarnings("ignore")
rng = np.random.default_rng(8)
lines = ["# scikit-learn reference for tests/cv/test_baseline.c; written by tests/cv/make_baseline_reference.py"]
for number in range(12):
    k, n, features = [2, 2, 3, 4][number % 4], int(rng.integers(20, 60)), int(rng.integers(1, 7))
    ridge, balanced = [1.0, 0.1, 10.0][number % 3], number % 2
    y = np.r_[np.arange(k), rng.integers(0, k, n - k) * (rng.random(n - k) < 0.7)]
    x = rng.normal(0, 1, (n, features)) * 10 ** rng.uniform(-2, 4, features) + rng.normal(0, 50, features)
    x[:, 0] += y * x[:, 0].std()
    if number in (5, 7):
        x[:, 0] = y * 5.0 + 1  # separable
    x = np.array([[float(f"{v:.9g}") for v in row] for row in x])
    z = StandardScaler().fit_transform(x)
    model = LogisticRegression(C=1 / ridge, solver="newton-cg", tol=1e-8, max_iter=2000, multi_class="multinomial" if k > 2 else "ovr",
                               class_weight="balanced" if balanced else None)
    model.fit(z, y)
    table = np.c_[model.coef_, model.intercept_]
    if k > 2:
        table[:, -1] -= table[:, -1].mean()  # softmax leaves their sum free
    lines.append(f"case {n} {features} {k} {ridge} {balanced}")
    lines.append("label " + " ".join(map(str, y)))
    lines.append("x " + " ".join(f"{v:.9g}" for v in x.ravel()))
    lines.append("coefficient " + " ".join(f"{v:.12g}" for v in table.ravel()))
Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "baseline_reference.txt").write_text("\n".join(lines) + "\n")
