"""The files of flimcv in Python: data sets, weights and run folders.

    flimcv.to_h5(volumes, labels, groups, path="cells.h5")   writes a data file            needs flimcv[h5]
    flimcv.dataset("cells.h5")                               its cells for PyTorch         needs flimcv[torch]
    flimcv.network("runs/NAME/fold_0/best.safetensors")      the trained network           needs flimcv[torch]
    flimcv.read_run("runs/NAME")                             a run's results as tables     needs flimcv[pandas]
    python -m flimcv.convert x.pth                           PyTorch weights for train_cv  needs flimcv[torch]

Training, prediction and reports are the programs train_cv, predict, fold_metrics and others, which this package brings.
"""

from importlib import import_module, metadata

_PLACES = {"to_h5": ".h5", "dataset": ".cells", "network": ".model", "read_run": ".run"}
__all__ = sorted(_PLACES)


def __getattr__(name):
    """Each function's module is read when it is asked for: torch takes seconds to load."""
    if name in _PLACES:
        return getattr(import_module(_PLACES[name], __name__), name)
    if name == "__version__":
        return metadata.version("flimcv")
    raise AttributeError(f"module 'flimcv' has no attribute '{name}'")


def __dir__():
    return [*__all__, "__version__"]
