"""The network of docs/network.md in PyTorch, with the weights of a file."""

import json
import os

from . import safetensors
from ._extras import need

torch = need("torch", "torch")
nn = torch.nn

SLOPE = 0.01  # of the leaky ReLU


def _act(x):
    return nn.functional.leaky_relu(x, SLOPE)


class ConvBN(nn.Module):
    """A convolution and its BatchNorm: (N,C,T,H,W) -> (N,out,T',H',W')."""

    def __init__(self, channels, out, kernel, stride=1, padding=0):
        super().__init__()
        self.conv = nn.Conv3d(channels, out, kernel, stride, padding)
        self.bn = nn.BatchNorm3d(out)

    def forward(self, x):
        return self.bn(self.conv(x))


class Residual(nn.Module):
    """Two 3x3x3 convolutions and a skip over them; `spatial` is the stride over H and W."""

    def __init__(self, channels, out, spatial):
        super().__init__()
        stride = (1, spatial, spatial)
        self.conv1, self.bn1 = nn.Conv3d(channels, out, 3, stride, 1), nn.BatchNorm3d(out)
        self.conv2, self.bn2 = nn.Conv3d(out, out, 3, 1, 1), nn.BatchNorm3d(out)
        self.skip = nn.Identity() if channels == out and spatial == 1 else ConvBN(channels, out, 1, stride)

    def forward(self, x):
        inner = _act(self.bn1(self.conv1(x)))
        return _act(self.bn2(self.conv2(inner)) + self.skip(x))


class Head(nn.Module):
    """(N,C,T,H,W) -> (N,outputs): mean over T, H and W, two linear layers."""

    def __init__(self, channels, hidden, outputs, dropout):
        super().__init__()
        self.fc1, self.bn = nn.Linear(channels, hidden), nn.BatchNorm1d(hidden)
        self.dropout, self.fc2 = nn.Dropout(dropout), nn.Linear(hidden, outputs)

    def forward(self, x):
        x = x.mean((2, 3, 4))
        return self.fc2(self.dropout(_act(self.bn(self.fc1(x)))))


def block_name(number, i):
    """The residual block i, counted from 0, of the three resolutions 1, 2 and 3."""
    return f"res{number}" if i == 0 else f"res{number}_{i + 1}"


class Network(nn.Module):
    """The published network of some width, with `depth` residual blocks at each resolution (published: 1); state_dict's names
    are those of weight files.

    Input (N,2,T,H,W): log1p(counts)/10 and the mask.  Output: logits (N,1) of class 1 for two classes, else (N,K).
    """

    def __init__(self, width=32, classes=2, dropout=0.25, block_dropout=0.0, depth=1):
        super().__init__()
        self.classes, self.depth, self.class_names, self.metadata = classes, depth, None, {}
        self.stem = ConvBN(2, width, (7, 1, 1), 1, (3, 0, 0))
        self.down = ConvBN(width, width, (3, 1, 1), (2, 1, 1), (1, 0, 0))
        for number, channels, out, spatial in ((1, width, width, 1), (2, width, 2 * width, 2), (3, 2 * width, 4 * width, 2)):
            for i in range(depth):  # the first block changes channels and resolution
                setattr(self, block_name(number, i), Residual(channels, out, spatial) if i == 0 else Residual(out, out, 1))
        self.pool, self.drop = nn.MaxPool3d((2, 1, 1)), nn.Dropout3d(block_dropout)
        self.head = Head(4 * width, 2 * width, 1 if classes == 2 else classes, dropout)

    def forward(self, x):
        x = _act(self.down(_act(self.stem(x))))
        for number in (1, 2, 3):
            for i in range(self.depth):
                x = getattr(self, block_name(number, i))(x)
                x = self.drop(self.pool(x) if number > 1 and i == self.depth - 1 else x)
        return self.head(x)

    def probabilities(self, logits):
        """Logits of forward() -> (N,K) probabilities."""
        if self.classes > 2:
            return torch.softmax(logits, dim=1)
        return torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=1)


def bare_name(name):
    """A tensor's name without what DistributedDataParallel, torch.compile and Lightning put before it."""
    prefixes = ("module.", "_orig_mod.", "model.")
    while name.startswith(prefixes):
        name = name[len(next(p for p in prefixes if name.startswith(p))) :]
    return name


def build(tensors, where):
    """A Network with those weights ({name: array}); width, depth and classes follow from them.  ValueError names what does not fit."""
    tensors = {bare_name(name): array for name, array in tensors.items() if not name.endswith(".num_batches_tracked")}
    for name in ("stem.conv.weight", "head.fc2.weight"):
        if name not in tensors:
            raise ValueError(f"{where}: no tensor '{name}': these are not weights of this network")
    outputs = tensors["head.fc2.weight"].shape[0]
    depth = 1
    while f"{block_name(1, depth)}.conv1.weight" in tensors:
        depth += 1
    net = Network(width=tensors["stem.conv.weight"].shape[0], classes=2 if outputs == 1 else outputs, depth=depth)
    own = {name: value for name, value in net.state_dict().items() if not name.endswith(".num_batches_tracked")}
    for name in [*(own.keys() - tensors.keys()), *(tensors.keys() - own.keys())]:
        what = "is missing" if name in own else "does not belong to this network"
        raise ValueError(f"{where}: tensor '{name}' {what}")
    for name, array in tensors.items():
        if tuple(array.shape) != tuple(own[name].shape):
            raise ValueError(f"{where}: tensor '{name}' has shape {tuple(array.shape)}, expected {tuple(own[name].shape)}")
    state = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
    net.load_state_dict(state, strict=False)  # all but num_batches_tracked, which no file has
    return net


def network(path):
    """The network of a weight file, or of a fold's folder, in evaluation mode.

    path: a .safetensors file, or a folder with best.safetensors (runs/NAME/fold_0, runs/NAME/final).
    Its .class_names (list or None) and .metadata (of the file) come from there.  Logits are those of `predict --precision fp32`
    to 1e-5; flimcv.dataset() gives the input.  A run is an ensemble: average the logits of its folds.
    """
    file = os.path.join(path, "best.safetensors") if os.path.isdir(path) else os.fspath(path)
    if not os.path.exists(file):
        raise FileNotFoundError(f"{file} does not exist: give a .safetensors file, or the folder of a fold (runs/NAME/fold_0)")
    tensors, metadata = safetensors.read(file)
    net = build(tensors, file)
    net.metadata = metadata
    net.class_names = json.loads(metadata["class_names"]) if "class_names" in metadata else None
    return net.eval()
