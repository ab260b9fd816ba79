"""Packages that only some functions need."""

from importlib import import_module


def need(module, extra):
    """The module, or an ImportError that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs {module}, which cannot be imported ({error}): pip install 'flimcv[{extra}]', or python3-{module} of Debian"
        ) from error
