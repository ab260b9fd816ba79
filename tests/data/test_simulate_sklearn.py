"""What tells flim_simulate's classes apart, by scikit-learn: called with the data file and 'plain' or 'confounded'.

Leaving one donor out, logistic regression on (log photons, area, peak bin) must know next to nothing of plain data, and the
summed decay (logistic regression) must tell the classes apart; of confounded data the former tells them apart."""
import sys

import h5py
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

path, kind = sys.argv[1:]
with h5py.File(path, "r") as f:
    counts, mask, label, group = f["counts"][:], f["mask"][:], f["label"][:], f["group"][:]
    zeros = (counts == 0).mean()
decay = (counts * mask[:, None]).sum((2, 3)).astype(float)
plain = np.c_[np.log(decay.sum(1)), mask.sum((1, 2)), decay.argmax(1)]


def score(features):
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200, tol=1e-3, class_weight="balanced"))
    guess = cross_val_predict(model, features, label, groups=group, cv=LeaveOneGroupOut())
    return balanced_accuracy_score(label, guess)


baseline, lifetime = score(plain), score(np.sqrt(decay / decay.sum(1, keepdims=True)))
print(f"{path}: {kind}: balanced accuracy {baseline:.3f} from photons, area and peak bin, {lifetime:.3f} from the decay")
if kind == "plain":
    good = baseline <= 0.60 and lifetime >= 0.85 and 0.96 < zeros < 0.98 and abs((label == 1).mean() - 0.27) < 0.01
else:
    good = baseline >= 0.80
sys.exit(0 if good else 1)
