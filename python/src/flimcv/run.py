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


def _fold_tables(path, name, **how):
    """The CSV files of that name of all folds, with the fold's number in front; folds are in the order of their numbers."""
    tables = []
    folders = [f for f in os.listdir(path) if f.startswith("fold_") and f[5:].isdigit()]
    for folder in sorted(folders, key=lambda f: int(f[5:])):
        file = os.path.join(path, folder, name)
        if os.path.exists(file):
            table = pd.read_csv(file, **how)
            table.insert(0, "fold", int(folder[5:]))
            tables.append(table)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def read_run(folder):
    """The results of a run folder (runs/NAME); of a run that is not done, those of its finished folds, with an empty summary."""
    path = os.fspath(folder)
    if not os.path.exists(os.path.join(path, "config.yaml")):
        raise FileNotFoundError(f"{path} is no run folder of train_cv: it has no config.yaml")
    summary = {"folds": []}
    file = os.path.join(path, "summary.json")
    if os.path.exists(file):
        with open(file, encoding="utf-8") as text:
            summary = json.load(text)
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
