# %% [markdown]
# # Reading a run closely
# Run it whole, `python examples/read_run.py runs/NAME [DATA.h5]`, or cell by cell in an editor that knows `# %%` (VS Code, Spyder,
# Jupyter with jupytext).

# %%
import sys

import numpy as np
import pandas as pd

import flimcv

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/first"
data = sys.argv[2] if len(sys.argv) > 2 else None
pd.set_option("display.width", 160, "display.max_columns", 30)
run = flimcv.read_run(folder)

# %% [markdown]
# ## How well does it do?
# `pooled` is over all test cells; `sd` over folds says how much a new donor may differ.

# %%
metrics = [m for m in ("balanced_accuracy", "roc_auc", "f1", "mcc", "brier") if m in run.summary.index]
print(run.summary.loc[metrics].round(3).to_string())
print(run.folds[["fold", "n_train", "n_test", "best_epoch", "threshold"]].to_string(index=False))
for finding in run.findings:
    print("finding:", finding)

# %% [markdown]
# ## Did it learn, and when did it stop?

# %%
losses = run.history.pivot(index="epoch", columns="fold", values="train_loss")
print("Training loss, one column per fold:")
print(losses.iloc[np.unique(np.linspace(0, len(losses) - 1, 6).astype(int))].round(4).to_string())

# %% [markdown]
# ## Which donors are hard?

# %%
cells = run.predictions
cells["right"] = cells["label"] == cells["predicted"]
by_group = cells.groupby(["fold", "group"])["right"].agg(["size", "mean"]).rename(columns={"size": "cells", "mean": "accuracy"})
print(by_group.round(3).to_string())

# %% [markdown]
# ## Which cells is it most wrong about?
# Look at these by eye: wrong labels, two cells in one window and empty masks are found here first.

# %%
probability = cells[[c for c in cells.columns if c.startswith("prob_")]].to_numpy()
if probability.shape[1] == 1:  # two classes: the probability of class 1
    probability = np.hstack([1 - probability, probability])
cells["of_true_class"] = probability[np.arange(len(cells)), cells["label"]]
print(cells.nsmallest(5, "of_true_class")[["fold", "index", "name", "group", "label", "predicted", "of_true_class"]].to_string(index=False))

# %% [markdown]
# ## The network itself, in PyTorch

# %%
if data:
    import torch

    worst = cells.nsmallest(1, "of_true_class").iloc[0]
    net = flimcv.network(f"{folder}/fold_{worst['fold']}")
    x, label = flimcv.dataset(data)[worst["index"]]
    x.requires_grad_(True)
    logit = net(x[None])[0, -1]
    logit.backward()  # which photons, had there been more, would have moved the logit
    saliency = x.grad[0].abs().sum(dim=(1, 2))
    print(f"cell {worst['index']}: logit {logit.item():.4f}; time bins that count most: {torch.topk(saliency, 3).indices.tolist()}")
