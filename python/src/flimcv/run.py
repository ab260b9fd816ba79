"""A run folder of train_cv as pandas tables."""

import json
import os
from dataclasses import dataclass
from typing import Any

from ._extras import need

pd = need("pandas", "pandas")

_TEXTS = {"name": str, "group": str}  # "NA" and "007" are names, too


@dataclass
class Run:
    """What read_run found.  Metrics have the names of docs/metrics.md; what is undefined is NaN.

    summary: one row per metric, columns mean and sd (over folds), pooled (over all test cells), holdout.
    folds: one row per fold: its numbers of cells, epochs, threshold, then its metrics on its test part.
    history: one row per fold and epoch.  predictions: one row per fold and test cell.
    findings: what was odd in the data, as summary.json lists it.
    """

    path: str
    summary: Any
    folds: Any
    history: Any
    predictions: Any
    findings: list


def _summary_tables(summary):
    parts = ("mean", "sd", "pooled", "holdout")
    table = pd.DataFrame({part: pd.Series(summary.get(part) or {}, dtype=float) for part in parts})
    order = list(summary.get("mean") or {})
    rows = []
    for fold in summary["folds"]:
        row = {key: value for key, value in fold.items() if not isinstance(value, dict)}
        rows.append({**row, **(fold.get("metrics") or {})})
    table.index.name = "metric"
    return table.reindex(order + [m for m in table.index if m not in order]), pd.DataFrame(rows)


def _numbered(path, prefix):
    """The folders PREFIX0, PREFIX1, ... in the order of their numbers."""
    begin = len(prefix)
    return sorted((f for f in os.listdir(path) if f.startswith(prefix) and f[begin:].isdigit()), key=lambda f: int(f[begin:]))


def _fold_tables(path, name, **how):
    """The CSV files of that name of all folds, with the fold's number in front; folds are in the order of their numbers."""
    tables = []
    for folder in _numbered(path, "fold_"):
        file = os.path.join(path, folder, name)
        if os.path.exists(file):
            table = pd.read_csv(file, **how)
            table.insert(0, "fold", int(folder[5:]))
            tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _read_summary(path):
    """summary.json of a run, or as much of one as its readers need; ValueError for that of several seeds."""
    summary = {"folds": []}
    file = os.path.join(path, "summary.json")
    if os.path.exists(file):
        with open(file, encoding="utf-8") as text:
            summary = json.load(text)
    seeds = [f for f in _numbered(path, "seed_") if os.path.exists(os.path.join(path, f, "config.yaml"))]
    if seeds or "seeds" in summary:
        example = os.path.join(path, seeds[0] if seeds else "seed_1")
        raise ValueError(
            f"{path} is the folder of a run with --seeds, each seed's run is a folder in it: {', '.join(seeds)}.  Read one of them, "
            f"flimcv.read_run({example!r}); {file} sums them up"
        )
    if not isinstance(summary.get("folds"), list):
        raise ValueError(f"{file}: has no list of folds: {path} is no run folder of train_cv")
    return summary


def read_run(folder):
    """The results of a run folder (runs/NAME); of a run that is not done, those of its finished folds, with an empty summary.

    The folder of a run with --seeds is a ValueError that names the runs in it.
    """
    path = os.fspath(folder)
    if not os.path.exists(os.path.join(path, "config.yaml")):
        raise FileNotFoundError(f"{path} is no run folder of train_cv: it has no config.yaml")
    summary = _read_summary(path)
    table, folds = _summary_tables(summary)
    predictions = _fold_tables(path, "predictions.csv", dtype=_TEXTS, keep_default_na=False, na_values={})
    for column in _TEXTS.keys() & set(predictions.columns):  # what a spreadsheet would take for a formula has an apostrophe
        predictions[column] = predictions[column].str.replace(r"^'(?=[=+\-@])", "", regex=True)
    return Run(
        path=path,
        summary=table,
        folds=folds,
        history=_fold_tables(path, "history.csv"),
        predictions=predictions,
        findings=summary.get("findings") or [],
    )
