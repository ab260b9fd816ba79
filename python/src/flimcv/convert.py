"""PyTorch checkpoints as weight files: python -m flimcv.convert x.pth [OUT.safetensors]

For train_cv --init-weights and predict --model.  The network may have this project's names (stem.conv, res1.conv1, head.fc1) or
those of the published script (stem.0, downsample1.0, res_block1.conv1, shortcut.0, classifier.0, 1 and 4).  Nothing in the
file is run: tensors are read, and all else is left alone.
"""

import argparse
import json
import os
import re
import sys

from . import checkpoint, safetensors

# Of the published script's names, the longest first; \1 is a block's number.
_NAMES = (
    (r"stem\.0", "stem.conv"),
    (r"stem\.1", "stem.bn"),
    (r"downsample1\.0", "down.conv"),
    (r"downsample1\.1", "down.bn"),
    (r"res_block([123])\.shortcut\.0", r"res\1.skip.conv"),
    (r"res_block([123])\.shortcut\.1", r"res\1.skip.bn"),
    (r"res_block([123])", r"res\1"),
    (r"classifier\.0", "head.fc1"),
    (r"classifier\.1", "head.bn"),
    (r"classifier\.4", "head.fc2"),
)
_HOLDERS = ("model_state_dict", "state_dict", "model", "net", "network", "weights")


def own_name(name):
    """This project's name of a tensor, which may have the published script's."""
    for pattern, replacement in _NAMES:
        found = re.match(pattern + r"\.", name)
        if found:
            return found.expand(replacement) + name[found.end() - 1 :]
    return name


def _state_dict(content, where):
    """The Tensors in what a file holds: a state_dict, or a checkpoint that has one beside other things."""
    if isinstance(content, dict):
        for holder in _HOLDERS:
            if isinstance(content.get(holder), dict):
                return _state_dict(content[holder], where)
        tensors = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, checkpoint.Tensor)}
        if tensors and len(tensors) == len(content):
            return tensors
    raise ValueError(
        f"{where}: holds no state_dict, neither itself nor under {', '.join(_HOLDERS)}.  A whole model holds code, which is not run "
        "here: load it where it was made, and save it with torch.save(model.state_dict(), ...)"
    )


def convert(path, out, class_names=None, shape=None):
    """Writes the weights of a .pth file to a .safetensors file and returns the Network.  ValueError says what does not fit.

    class_names: in the order of the outputs.  shape: (T,H,W) of the cells; without it predict takes cells of any size.
    """
    from .model import bare_name, build

    tensors = {}
    for name, value in _state_dict(checkpoint.read(path), path).items():
        own = own_name(bare_name(name))
        if own in tensors:
            raise ValueError(f"{path}: two tensors are '{own}'; one of them is '{name}'")
        if not name.endswith(".num_batches_tracked"):
            tensors[own] = value.array()
    net = build(tensors, path)
    if class_names is not None and len(class_names) != net.classes:
        raise ValueError(f"{path}: {net.classes} classes, but {len(class_names)} names of classes: {', '.join(class_names)}")
    metadata = {"flimcv_format": "1", "width": str(net.stem.conv.out_channels), "preprocessing": "log1p(counts)/10, mask"}
    if net.depth > 1:
        metadata["depth"] = str(net.depth)
    if class_names is not None:
        metadata["class_names"] = json.dumps(list(class_names))
    if shape is not None:
        metadata.update(zip("THW", (str(int(size)) for size in shape)))
    order = [name for name in net.state_dict() if name in tensors]
    safetensors.write(out, {name: tensors[name] for name in order}, metadata)
    return net


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m flimcv.convert", description=__doc__.split("\n\n", 1)[1].strip())
    parser.add_argument("checkpoint", metavar="X.pth", help="of torch.save: a state_dict, or a checkpoint that holds one")
    parser.add_argument("out", metavar="OUT.safetensors", nargs="?", help="default: X.safetensors")
    parser.add_argument("--classes", metavar="A,B", help="names of the classes in the order of the outputs")
    parser.add_argument("--cells", metavar="TxHxW", help="size of the cells, as in 256x21x21, for others to be refused")
    parser.add_argument("--force", action="store_true", help="overwrite OUT")
    options = parser.parse_args(arguments)
    out = options.out or os.path.splitext(options.checkpoint)[0] + ".safetensors"
    shape = options.cells.split("x") if options.cells else None
    if shape and (len(shape) != 3 or not all(size.isdigit() for size in shape)):
        parser.error(f"--cells {options.cells}: must be like 256x21x21")
    if os.path.exists(out) and not options.force:
        parser.error(f"{out} is there already: give another name, or --force")
    try:
        net = convert(options.checkpoint, out, options.classes.split(",") if options.classes else None, shape)
    except (OSError, ValueError, ImportError) as error:
        print(f"flimcv.convert: error: {error}", file=sys.stderr)
        return 6 if isinstance(error, OSError) and getattr(error, "filename", None) == out else 3
    parameters = sum(p.numel() for p in net.parameters())
    depth = f", depth {net.depth}" if net.depth > 1 else ""
    print(f"{out}: width {net.stem.conv.out_channels}{depth}, {net.classes} classes, {parameters} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
