"""flimcv in Python against the programs, which test_package.sh puts first in PATH: the same bits of cells, the same logits, tables
with the files' numbers, files that the programs take, checkpoints that run nothing."""

import argparse
import contextlib
import csv
import io
import json
import os
import pathlib
import pickle
import random
import re
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy as np
import pandas as pd
import torch

import flimcv
from flimcv import checkpoint, convert, safetensors
from flimcv.model import Network

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
torch.set_num_threads(2)


def call(*words, code=0):
    """Standard output of a program, which must end with that code; else the call and what it said."""
    words = [str(word) for word in words]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"{' '.join(words)}\nended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def cells(n, classes=2, shape=(16, 7, 5), seed=0):
    """Volumes (n,T,H,W), class numbers and donors of decays that differ by class."""
    rng = np.random.default_rng(seed)
    labels, t = np.arange(n) % classes, np.arange(shape[0])
    rate = np.exp(-t[None] / (3.0 + 4 * labels[:, None])) * 6
    return rng.poisson(rate[:, :, None, None], (n, *shape)), labels, [f"D{i // classes % 3}" for i in range(n)]


class InFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(holder.name)

    def train(self, data, out, *flags):
        call("train_cv", "--data", data, "--out", out, "--folds", 2, "--epochs", 1, "--batch", 8, "--device", "cpu", *flags)


class TheBitsOfCells(InFolder):
    def checksum(self, path, **how):
        """As flim_bench loader: every bit of signal and mask, and which cell they are of."""
        total = 0
        data = flimcv.dataset(path, **how)
        for i in range(len(data)):
            x = data[i][0].numpy()
            self.assertTrue((x[1] == x[1, 0]).all())
            bits, mask = x[0].reshape(-1).view(np.uint32).astype(np.uint64), x[1, 0].reshape(-1).astype(np.uint64)
            odd = 2 * np.arange(bits.size, dtype=np.uint64) + np.uint64(1)
            shifts = np.arange(mask.size, dtype=np.uint64) % np.uint64(64)
            cell = i + 1 + int((bits * odd).sum(dtype=np.uint64)) + int((mask << shifts).sum(dtype=np.uint64))
            total += cell * 0x9E3779B97F4A7C15
        return f"{total % 2**64:016x}"

    def check(self, counts, masks=None):
        with h5py.File("x.h5", "w") as file:
            file["counts"], file["label"] = counts, np.arange(len(counts)) % 2
            if masks is not None:
                file["mask"] = masks
        text = call("flim_bench", "loader", "--data", "x.h5", "--no-scaling", "--passes", 1, "--workers", 2, "--batch", 3)
        self.assertEqual(re.search("checksum ([0-9a-f]+)", text).group(1), self.checksum("x.h5"), f"{counts.dtype} {counts.shape}")

    def test_every_count_of_16_bits(self):
        self.check(np.arange(65536, dtype=np.uint16).reshape(4, 64, 16, 16))

    def test_every_type(self):
        rng = np.random.default_rng(1)
        for kind in ("u1", "<u2", ">u2", "i2", "<u4", ">i4", "<i8", ">u8", "<f4", ">f4", "<f8", "f2"):
            counts = rng.poisson(0.5, (5, 16, 7, 9))
            counts[0, 3, 2, 1] = min(60000, np.iinfo(kind).max if kind[-2] in "ui" else 60000)
            self.check(counts.astype(kind))

    def test_large_and_fractional_counts(self):
        rng = np.random.default_rng(2)
        self.check(np.exp(rng.uniform(-5, 21, (6, 16, 8, 8))).astype(np.float32))
        self.check(rng.integers(0, 2**31, (6, 16, 8, 8), dtype=np.uint32))

    def test_masks(self):
        counts = np.random.default_rng(3).poisson(0.05, (5, 16, 7, 9)).astype(np.uint8)  # pixels without a photon
        for masks in (None, np.eye(7, 9)[None].repeat(5, 0), (np.arange(5 * 63).reshape(5, 7, 9) % 3).astype("i4")):
            self.check(counts, masks)

    def test_columns(self):
        volumes, labels, groups = cells(6)
        flimcv.to_h5(volumes, labels, groups, path="c.h5", names=[f"cell {i}" for i in range(6)], class_names=["a", "b"])
        data = flimcv.dataset("c.h5")
        self.assertEqual((len(data), data.shape, data.class_names), (6, (16, 7, 5), ["a", "b"]))
        self.assertEqual((data.groups, data.names[3], data[3][1], data[-1][1]), (groups, "cell 3", 1, 1))
        self.assertRaises(IndexError, lambda: data[6])
        batches = list(torch.utils.data.DataLoader(data, batch_size=4, num_workers=2))
        self.assertEqual([tuple(x.shape) for x, _ in batches], [(4, 2, 16, 7, 5), (2, 2, 16, 7, 5)])
        self.assertTrue(torch.equal(torch.cat([x for x, _ in batches]), torch.stack([data[i][0] for i in range(6)])))

    def test_minus_zero_and_what_float32_rounds_to_zero(self):
        counts = np.random.default_rng(4).poisson(0.3, (4, 16, 7, 9)).astype("f8")
        counts[:, :, 2, :], counts[:, :, 3, :] = -0.0, 1e-60
        self.check(counts)


class TheColumns(InFolder):
    """As the programs read them, or refused with the file, the array and what was found."""

    COUNTS = np.random.default_rng(5).poisson(1, (6, 8, 5, 4)).astype("u1")

    def write(self, path="x.h5", attributes=(), **arrays):
        """attributes: (array or "/", name, value)."""
        with h5py.File(path, "w") as file:
            for name, values in {"counts": self.COUNTS, **arrays}.items():
                if values is not None:
                    file[name] = values
            for where, name, value in attributes:
                file[where].attrs[name] = value
        return path

    def refused(self, message, **how):
        path = self.write(**how)
        with self.assertRaisesRegex(ValueError, f"^{path}: {message}", msg=str(how)):
            data = flimcv.dataset(path)
            for i in range(len(data)):
                data[i]

    def test_what_is_packed_is_refused_and_what_flim_repack_writes_is_read(self):
        labels, arrays = [0, 1, 0, 0, 0, 1], {"label": np.array([1, 2, 1, 1, 1, 2], "u1"), "group": np.arange(6) // 2,
                                             "mask": np.ones((6, 5, 4), "u1")}
        for name in ("counts", "label", "group", "mask"):
            for attribute in ("scale_factor", "add_offset", "_FillValue", "missing_value", "valid_range", "valid_min", "valid_max",
                              "_Unsigned"):
                self.refused(f"/{name}: packed numbers .attribute {attribute}.*flim_repack", attributes=[(name, attribute, 1)],
                             **{**arrays, "label": np.array(labels)})
        self.write("packed.h5", attributes=[("label", "add_offset", -1), ("group", "scale_factor", 2), ("mask", "add_offset", -1),
                                            ("counts", "scale_factor", 3)], **arrays)
        call("flim_repack", "packed.h5", "plain.h5")
        data = flimcv.dataset("plain.h5")
        self.assertEqual((list(data.labels), data.groups), (labels, ["0", "0", "2", "2", "4", "4"]))
        self.assertEqual(float(data[0][0][1].max()), 0)
        self.assertTrue(np.array_equal(data[3][0][0], np.log1p(3.0 * self.COUNTS[3]).astype("f4") / np.float32(10)))

    def test_labels_are_the_programs_or_refused(self):
        names = [("/", "class_names", ["a", "b", "c"])]
        for values in ([0, 1, 0, 1, 1, 0], [True, False] * 3, [[0], [1], [0], [1], [1], [0]], [[0, 1, 0, 1, 1, 0]],
                       [0.0, 1.0] * 3, [2, 0, 2, 0, 2, 0], [0, 2, 1, 0, 2, 1]):
            for kind in ("i1", "u1", ">i4", "<u8", "f4", ">f8", "?"):
                if kind != "?" or isinstance(values[0], bool):
                    path = self.write(label=np.array(values).astype(kind), attributes=names)
                    call("flim_repack", path, "r.h5")
                    with h5py.File("r.h5") as file:
                        want = list(file["label"][()])
                    os.unlink("r.h5")
                    self.assertEqual(list(flimcv.dataset(path).labels), want)
        for values, message in (
            ([0, 1, 0.5, 0, 1, 0], "cell 2: found 0.5, expected a whole number"),
            ([0, 1, 0, 0, 1, np.nan], "cell 5: found nan, expected a whole number"),
            ([0, 1, np.inf, 0, 1, 0], "cell 2: found inf"),
            ([0, 1, 0, -1, 1, 0], r"cell 3: found -1, expected 0\.\."),
            (np.array([0, 1, 2**64 - 1, 0, 1, 0], "u8"), "cell 2: found 18446744073709551615"),
            ([1, 2, 1, 2, 1, 2], r"cell 1: found 2, expected 0\.\.1, each at least once"),
            ([0, 1, 0, 1, 0], r"found shape \(5,\), expected one value for each of the 6 cells"),
            ([0, 1, 0, 1, 0, 1, 0], r"found shape \(7,\)"),
            (np.eye(6, dtype="u1")[:, :2], r"found shape \(6, 2\)"),
            (np.zeros((2, 3), "u1"), r"found shape \(2, 3\)"),
            (0, r"found shape \(\)"),
            (["a", "b"] * 3, "found texts"),
            (np.zeros(6, "c8"), "found complex64"),
        ):
            self.refused(f"/label: {message}", label=values)
        self.refused(r"/label: cell 1: found 3, expected 0\.\.2, as class_names", label=[0, 3, 0, 0, 1, 2], attributes=names)
        self.refused("attribute class_names: two classes are 'a'", label=[0, 1] * 3, attributes=[("/", "class_names", ["a", "a"])])
        self.refused("attribute class_names: found", label=[0, 1] * 3, attributes=[("/", "class_names", [1, 2])])
        data = flimcv.dataset(self.write(label=[0] * 6, attributes=[("/", "class_names", "both")]))
        self.assertEqual(data.class_names, ["both"])

    def test_categories_links_and_views_are_refused(self):
        enumeration = h5py.enum_dtype({"a": 3, "b": 7}, basetype="u1")
        codes = np.array([3, 7, 3, 7, 3, 7], enumeration)
        for name in ("label", "group", "name"):
            self.refused(f"/{name}: found an enumeration.*flim_repack", **{name: codes})
            self.refused(f"/{name}: found MATLAB's characters", attributes=[(name, "MATLAB_class", np.bytes_("char"))],
                         **{name: np.array([[65, 66] * 3], "u2")})
            with h5py.File(self.write("c.h5"), "a") as file:
                file[f"{name}/codes"], file[f"{name}/categories"] = [0, 1] * 3, ["a", "b"]
            self.assertRaisesRegex(ValueError, f"c.h5: /{name}: .*categories.*flim_repack", flimcv.dataset, "c.h5")
            with h5py.File(self.write("c.h5", **{name: [0, 1] * 3, "list": ["x", "y"]}), "a") as file:
                file[name].attrs["categories"] = file["list"].ref
            self.assertRaisesRegex(ValueError, f"c.h5: /{name}: categories.*flim_repack", flimcv.dataset, "c.h5")
        self.write("other.h5", label=[0, 1] * 3)
        for name in ("counts", "label", "mask", "group", "name"):
            with h5py.File(self.write("v.h5", **({"counts": None} if name == "counts" else {})), "a") as file:
                layout = h5py.VirtualLayout((6, 8, 5, 4) if name == "counts" else (6,), "u1")
                layout[:] = h5py.VirtualSource("gone.h5", name, layout.shape)
                file.create_virtual_dataset(name, layout)
            self.assertRaisesRegex(ValueError, f"v.h5: /{name}: its values are in other files.*flim_repack", flimcv.dataset, "v.h5")
            for link in (h5py.SoftLink("/nowhere"), h5py.ExternalLink("gone.h5", name)):
                with h5py.File(self.write("l.h5", **({"counts": None} if name == "counts" else {})), "a") as file:
                    file[name] = link
                self.assertRaisesRegex(ValueError, f"l.h5: /{name}: cannot be opened", flimcv.dataset, "l.h5")

    def test_groups_and_names(self):
        for values, want in (
            ([3, 1, 3, 1, 3, 1], ["3", "1"]), ([3.0, -1.0] * 3, ["3", "-1"]), ([True, False] * 3, ["1", "0"]),
            (np.array([b"a ", b"b\0c"] * 3, "S4"), ["a ", "b"]), (["Zoë", "x"] * 3, ["Zoë", "x"]),
        ):
            data = flimcv.dataset(self.write(group=values, name=values))
            self.assertEqual((data.groups, data.names), (want * 3, want * 3))
        for names, want in ((["x", "y"], "x"), (["x", "x"], "0"), (["x"], "0")):
            data = flimcv.dataset(self.write(group=[0, 1] * 3, attributes=[("/", "group_names", names)]))
            self.assertEqual(data.groups[0], want)
        for name in ("group", "name"):
            self.refused(rf"/{name}: found shape \(5,\)", **{name: ["a"] * 5})
            self.refused(f"/{name}: cell 1: found 0.5", **{name: [0, 0.5] * 3})
            self.refused(f"/{name}: cell 1: found b'\\\\xe4', expected UTF-8", **{name: np.array([b"a", b"\xe4"] * 3)})
            for attribute in ("_FillValue", "missing_value"):
                self.refused(f"/{name}: cell 1: found 'NA', which marks a missing value .attribute {attribute}",
                             attributes=[(name, attribute, "NA")], **{name: ["a", "NA"] * 3})
                flimcv.dataset(self.write(attributes=[(name, attribute, "")], **{name: ["a", ""] * 3}))

    def test_masks(self):
        ones = np.ones((6, 5, 4))
        for bad, message in ((ones[:5], r"found shape \(5, 5, 4\), expected \(6, 5, 4\)"), (ones.transpose(0, 2, 1), "found shape"),
                             (ones[0], "found shape"), (ones.astype("c8"), "found complex64"), (ones.astype("S1"), "found texts")):
            self.refused(f"/mask: {message}", mask=bad)
        ones[4, 2, 3] = np.nan
        self.refused("/mask: cell 4, y 2, x 3: found NaN", mask=ones)

    def test_counts(self):
        for kind, value in (("i1", -1), ("i8", -1), ("f4", -0.5), ("f4", np.nan), ("f8", np.inf), ("f2", np.inf), ("u4", 2**31),
                            ("i8", 2**31), ("u8", 2**63), ("f8", 2147483647.5)):
            counts = self.COUNTS.astype(kind)
            counts[3, 7, 1, 2] = value
            self.refused(f"/counts: cell 3, t 7, y 1, x 2: found {re.escape(str(counts[3, 7, 1, 2]))}, expected a photon count",
                         counts=counts)
            call("flim_repack", "x.h5", "r.h5", code=3)
        self.refused("/counts: found texts", counts=np.full((6, 8, 5, 4), b"1"))
        self.refused("/counts: found complex64", counts=self.COUNTS.astype("c8"))
        self.refused("/counts: found no dataset", counts=None, **{"counts/x": 1})
        self.refused("/counts: there is none", counts=None)
        self.refused(r"/counts: found shape \(6, 8, 5\), expected four axes", counts=self.COUNTS[..., 0])

    def test_axes_are_doubted_as_the_programs_do(self):
        for shape, message in (((9, 21, 21, 64), "looks like NYXT or TYXN.*flim_repack --axes"), ((64, 9, 9, 30), "NYXT or TYXN"),
                               ((9, 9, 32, 20), "looks like XYTN"), ((6, 4, 9, 9), "T >= 8"), ((9, 30, 2, 6), "H and W >= 3"),
                               ((0, 8, 5, 4), "N >= 1")):
            counts = np.random.default_rng(6).poisson(1, shape).astype("u1")
            self.refused(f"/counts: found shape {re.escape(str(shape))}.*{message}", counts=counts)
            call("flim_repack", "x.h5", "r.h5", code=3)
        self.write(counts=np.moveaxis(self.COUNTS.repeat(2, 2)[:, :, :4].repeat(2, 1), 1, -1))  # (6,4,4,16)
        self.assertRaisesRegex(ValueError, "NYXT", flimcv.dataset, "x.h5")
        call("flim_repack", "x.h5", "r.h5", "--axes", "NYXT")
        self.assertEqual(flimcv.dataset("r.h5").shape, (16, 4, 4))
        counts = self.COUNTS[:, :, :, :3].repeat(2, 2)[:, :, :8].repeat(8, 3)[:, :, :8]  # (6,8,8,24), and it is right
        self.write(counts=counts)
        self.assertRaisesRegex(ValueError, 'axes="NTHW"', flimcv.dataset, "x.h5")
        self.assertEqual(flimcv.dataset("x.h5", axes="NTHW").shape, (8, 8, 24))
        self.assertRaisesRegex(ValueError, "axes 'NHWT'.*flim_repack", flimcv.dataset, "x.h5", axes="NHWT")


class TheNetwork(InFolder):
    def check(self, path, *, classes, masks, mask_counts=False, **size):
        volumes, labels, groups = cells(24, classes)
        mask = (np.indices((7, 5)).sum(0) % 3 > 0)[None].repeat(24, 0) if masks else None
        flimcv.to_h5(volumes, labels, groups, path=f"{path}.h5", masks=mask)
        flag = ["--mask-counts"] if mask_counts else []
        flag += [word for key, value in size.items() for word in (f"--{key}", value)]
        self.train(f"{path}.h5", path, "--fold", 0, "--lr", 1e-2, *flag)
        call("predict", "--model", f"{path}/fold_0/best.safetensors", "--data", f"{path}.h5", "--out", f"{path}.csv", "--precision",
             "fp32", "--device", "cpu")
        net, data = flimcv.network(f"{path}/fold_0"), flimcv.dataset(f"{path}.h5", mask_counts=mask_counts)
        with torch.no_grad():
            logits = net(torch.stack([x for x, _ in data])).numpy()
            probabilities = net.probabilities(torch.from_numpy(logits)).numpy()
        with open(f"{path}.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        keys = [k for k in rows[0] if k.startswith("logit_")]
        want = np.array([[float(row[key]) for key in keys] for row in rows])
        self.assertEqual(want.shape, logits.shape)
        self.assertGreater(np.ptp(want), 1e-3)  # else any network would agree
        worst = np.abs(want - logits).max()
        self.assertLessEqual(worst, 1e-5 * max(1, np.abs(want).max()), f"{path}: {size}, {classes} classes")
        for key in (k for k in rows[0] if k.startswith("prob_")):
            want = np.array([float(row[key]) for row in rows])
            self.assertLessEqual(np.abs(want - probabilities[:, int(key[5:])]).max(), 1e-5)

    def test_logits_are_those_of_predict(self):
        self.check("two", classes=2, preset="tiny", masks=False)
        self.check("masked", classes=2, preset="tiny", masks=True, mask_counts=True)
        self.check("three", classes=3, preset="small", masks=True)
        self.check("base", classes=5, preset="base", masks=False)

    def test_logits_of_any_width_and_depth(self):
        self.check("deep", classes=2, width=12, depth=2, masks=True)
        self.check("deeper", classes=3, width=4, depth=3, masks=False)
        self.check("wide", classes=2, width=44, depth=1, masks=False)
        self.assertEqual(flimcv.network("deeper/fold_0").depth, 3)

    def test_metadata_and_errors(self):
        volumes, labels, groups = cells(12)
        flimcv.to_h5(volumes, labels, groups, path="m.h5", class_names=["quiescent", "activated"])
        self.train("m.h5", "m", "--fold", 1, "--preset", "tiny")
        net = flimcv.network("m/fold_1/best.safetensors")
        self.assertEqual((net.class_names, net.metadata["preset"], net.training), (["quiescent", "activated"], "tiny", False))
        self.assertRaisesRegex(FileNotFoundError, "folder of a fold", flimcv.network, "m")
        tensors, metadata = safetensors.read("m/fold_1/best.safetensors")
        for name, change, message in (
            ("missing", lambda t: t.pop("down.bn.bias"), "'down.bn.bias' is missing"),
            ("extra", lambda t: t.update(more=np.zeros(1, "f4")), "'more' does not belong"),
            ("shape", lambda t: t.update({"head.fc1.bias": np.zeros(3, "f4")}), r"'head.fc1.bias' has shape \(3,\)"),
            ("other", lambda t: t.pop("stem.conv.weight"), "not weights of this network"),
        ):
            changed = dict(tensors)
            change(changed)
            safetensors.write(f"{name}.safetensors", changed, metadata)
            self.assertRaisesRegex(ValueError, message, flimcv.network, f"{name}.safetensors")
        whole = pathlib.Path("m/fold_1/best.safetensors").read_bytes()
        for length in (0, 7, 8, 100, len(whole) - 1):
            pathlib.Path("cut.safetensors").write_bytes(whole[:length])
            self.assertRaisesRegex(ValueError, "cut.safetensors", flimcv.network, "cut.safetensors")


class TheRun(InFolder):
    def test_tables_hold_the_files_numbers(self):
        volumes, labels, _ = cells(36)
        groups = [("=1+1", "NA", "007")[i // 2 % 3] for i in range(36)]
        flimcv.to_h5(volumes, labels, groups, path="r.h5")
        self.train("r.h5", "r", "--preset", "tiny", "--epochs", 3)
        run = flimcv.read_run("r")
        summary = json.loads(pathlib.Path("r/summary.json").read_text(encoding="utf-8"))
        for part in ("mean", "sd", "pooled"):
            for metric, value in summary[part].items():
                got = run.summary.loc[metric, part]
                self.assertTrue(got == value or (value is None and np.isnan(got)), (part, metric, got, value))
        self.assertTrue(run.summary["holdout"].isna().all())
        self.assertEqual(len(run.folds), 2)
        for row, fold in zip(run.folds.to_dict("records"), summary["folds"]):
            self.assertEqual((row["fold"], row["n_test"], row["threshold"]), (fold["fold"], fold["n_test"], fold["threshold"]))
            self.assertEqual(row["balanced_accuracy"], fold["metrics"]["balanced_accuracy"])
        self.assertEqual(run.history.groupby("fold").size().to_dict(), {0: 3, 1: 3})
        self.assertEqual(sorted(run.predictions["index"]), list(range(36)))
        self.assertEqual(sorted(set(run.predictions["group"])), ["007", "=1+1", "NA"])
        for _, row in run.predictions.iterrows():
            self.assertEqual(row["group"], groups[row["index"]])
        self.assertEqual(run.findings, summary["findings"])

    def test_a_run_that_is_not_done(self):
        volumes, labels, groups = cells(24)
        flimcv.to_h5(volumes, labels, groups, path="u.h5")
        self.train("u.h5", "u", "--preset", "tiny", "--fold", 1)
        run = flimcv.read_run("u")
        self.assertEqual(set(run.predictions["fold"]), {1})
        self.assertRaisesRegex(FileNotFoundError, "no run folder", flimcv.read_run, ".")

    def test_a_folder_of_several_seeds_names_its_runs(self):
        volumes, labels, groups = cells(24)
        flimcv.to_h5(volumes, labels, groups, path="s.h5")
        self.train("s.h5", "s", "--preset", "nano", "--seeds", "2,10")
        for state in ("done", "begun"):
            self.assertRaisesRegex(ValueError, "^s is the folder of .*--seeds.*: seed_2, seed_10.*read_run.'s/seed_2'", flimcv.read_run, "s")
            pathlib.Path("s/summary.json").unlink(missing_ok=True)
        self.assertEqual(len(flimcv.read_run("s/seed_10").folds), 2)
        pathlib.Path("s/seed_2/summary.json").write_text("{}")
        self.assertRaisesRegex(ValueError, "seed_2/summary.json: has no list of folds", flimcv.read_run, "s/seed_2")


class TheDataFile(InFolder):
    def refused(self, message, **arguments):
        with self.assertRaisesRegex(ValueError, message, msg=str({k: v for k, v in arguments.items() if k != "volumes"})):
            flimcv.to_h5(**arguments, path="bad.h5")
        self.assertEqual(os.listdir("."), [])

    def test_what_is_missing_is_no_value(self):
        volumes, _, _ = cells(4)
        for missing in (None, np.nan, pd.NA, pd.NaT, np.float32("nan"), np.datetime64("NaT"), np.ma.masked):
            for column, others in (("labels", "aab"), ("labels", (0, 1, 1)), ("groups", "aab"), ("groups", (0, 1, 1)), ("names", "abc")):
                values = [*others[:2], missing, others[2]]
                whole = np.empty(4, object)
                whole[:] = values
                for form in (values, whole, pd.Series(values, dtype=object, index=[3, 1, 2, 0])):
                    self.refused(f"^{column}: cell 2 has none", volumes=volumes, **{column: form})
        for column, values in (("labels", pd.Series(["a", "b", np.nan, "a"])), ("labels", pd.Series([0, 1, None, 1])),
                               ("labels", pd.Series([0, 1, None, 1], dtype="Int64")), ("labels", np.array([0, 1, np.nan, 1], "f4")),
                               ("labels", pd.Categorical(["a", "b", None, "b"])), ("groups", pd.Series(["a", "b", pd.NA, "b"], dtype="string")),
                               ("labels", np.ma.array([0, 1, 0, 1], mask=[0, 0, 1, 0])), ("labels", ["a", "b", "", "b"]),
                               ("groups", [b"a", b"b", b"", b"a"]), ("names", np.ma.array(list("abcd"), mask=[0, 0, 1, 0]))):
            self.refused(f"^{column}: cell 2 has none", volumes=volumes, **{column: values})

    def test_what_is_no_label_mask_or_count(self):
        volumes, labels, groups = cells(4)
        good = dict(volumes=volumes, labels=labels, groups=groups)
        nan = np.ones((4, 7, 5))
        nan[2, 6, 1] = np.nan
        hidden = np.ma.array(np.ones((4, 7, 5)), mask=np.isnan(nan))
        for masks in (nan, nan.astype("f2"), hidden, list(hidden)):
            self.refused(r"^masks\[2\], y 6, x 1: is missing", **good, masks=masks)
        for masks in (np.full((4, 7, 5), None), np.full((4, 7, 5), "0")):
            self.refused("^masks: type", **good, masks=masks)
        for kind, value in (("f8", 4e38), ("f4", 3e38), ("f8", 2147483648), ("u8", 2**64 - 1), ("u4", 2**31)):
            large = volumes.astype(kind)
            large[1, 3, 2, 1] = value
            large[0, 0, 0, 0] = 0.5 if kind[0] == "f" else 0
            self.refused(r"^volumes\[1\] holds a count of .*at most 2147483647", **{**good, "volumes": large})
        self.refused(r"^volumes\[0\] holds negative, infinite or missing",
                     **{**good, "volumes": np.ma.array(volumes, mask=volumes == volumes[0, 0, 0, 0])})
        for bad, message in (([0, 1, 0.5, 1], "cell 2 has 0.5"), ([0, 1, -1, 1], "cell 2 has -1"), ([0, 1, 2**40, 1], "cell 2 has 1099"),
                             ([0, 1, np.inf, 1], "cell 2 has inf"), (np.zeros(4, "c8"), "complex"),
                             ([b"a", b"\xe4", b"a", b"a"], "cell 1: b'.xe4' is no UTF-8"), (["a", "b\0c", "a", "b"], "cell 1: .*zero byte")):
            self.refused(f"^labels: .*{message}", **{**good, "labels": bad})
        for names in (["a", "a"], ["a", None], ["a", np.nan], [0, 1], ["a", ""]):
            self.refused("^class_names: class [01] is .*expected a text of its own", **good, class_names=names)

    def test_numbers_stay_numbers_however_they_come(self):
        volumes, labels, groups = cells(12, classes=12)
        for i, form in enumerate((labels, list(labels), labels.astype("f4"), pd.Series(labels, dtype="Int64"), labels.astype(object))):
            flimcv.to_h5(volumes, form, groups, path=f"{i}.h5")
            data = flimcv.dataset(f"{i}.h5")
            self.assertEqual((list(data.labels), data.class_names), (list(labels), None))

    def test_the_programs_take_it(self):
        volumes, labels, groups = cells(12)
        for kind, largest, stored in (("i8", 200, "u1"), ("f8", 300, "u2"), ("u4", 70000, "u4"), ("f4", 0.5, "f4")):
            volumes = volumes.astype(kind)
            volumes[0, 0, 0, 0] = largest
            path = flimcv.to_h5(list(volumes), labels, groups, path=f"{stored}.h5", time_range_ns=12.5, names=list("abcdefghijkl"))
            with h5py.File(path) as file:
                self.assertEqual((file["counts"].dtype, file["counts"].chunks), (np.dtype(stored), (1, 16, 7, 5)))
                self.assertTrue((file["counts"][()] == volumes).all())
            call("flim_info", path)
        flimcv.to_h5(volumes, ["b" if label else "a" for label in labels], groups, path="names.h5")
        with h5py.File("names.h5") as file:
            self.assertEqual((list(file.attrs["class_names"]), list(file["label"][:4])), (["a", "b"], [0, 1, 0, 1]))

    def test_bad_input_is_named_and_leaves_no_file(self):
        volumes, labels, groups = cells(4)
        good = dict(volumes=volumes, labels=labels, groups=groups)
        negative, odd = volumes.copy(), [*volumes[:3], volumes[3][:8]]
        negative[2, 1, 1, 1] = -1
        nan = volumes.astype("f4")
        nan[1, 0, 0, 0] = np.nan
        for change, message in (
            (dict(volumes=negative), r"volumes\[2\] holds negative"),
            (dict(volumes=nan), r"volumes\[1\] holds negative, infinite or missing"),
            (dict(volumes=odd), r"volumes\[3\] has shape \(8, 7, 5\)"),
            (dict(volumes=volumes[0]), r"volumes\[0\] has shape"),
            (dict(volumes=volumes.astype("c8")), "has type complex64"),
            (dict(volumes=[]), "no volumes"),
            (dict(labels=labels[:3]), r"labels: shape \(3,\)"),
            (dict(labels=labels - 0.5), "labels: must be class numbers"),
            (dict(labels=labels - 1), "labels: must be class numbers"),
            (dict(labels=list("abca"), class_names=["a", "b"]), "'c' is none of"),
            (dict(class_names=["a"]), "class 1, but class_names has 1"),
            (dict(groups=groups[:1]), "groups: shape"),
            (dict(masks=np.ones((4, 5, 7))), r"masks: shape \(4, 5, 7\)"),
        ):
            self.refused(message, **{**good, **change})
        pathlib.Path("there.h5").write_text("mine")
        self.assertRaises(FileExistsError, flimcv.to_h5, **good, path="there.h5")
        self.assertEqual((pathlib.Path("there.h5").read_text(), os.listdir(".")), ("mine", ["there.h5"]))


def converted(*words, code=0):
    """What `python -m flimcv.convert` says, in this process, which has torch already."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            got = convert.main([str(word) for word in words])
        except SystemExit as end:  # argparse
            got = end.code
    if got != code:
        raise AssertionError(f"flimcv.convert {' '.join(words)}\nended with {got}, not {code}:\n{said.getvalue()}")
    return said.getvalue()


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("it_ran",)


class TheCheckpoint(InFolder):
    PUBLISHED = (
        ("stem.conv", "stem.0"), ("stem.bn", "stem.1"), ("down.conv", "downsample1.0"), ("down.bn", "downsample1.1"),
        ("skip.conv", "shortcut.0"), ("skip.bn", "shortcut.1"), ("res", "res_block"),
        ("head.fc1", "classifier.0"), ("head.bn", "classifier.1"), ("head.fc2", "classifier.4"),
    )

    def published(self, net):
        """The state_dict as the published script names it."""
        out = {}
        for name, value in net.state_dict().items():
            for own, theirs in self.PUBLISHED:
                name = name.replace(own, theirs)
            out[name] = value
        self.assertTrue({"stem.0.weight", "res_block2.shortcut.0.bias", "res_block1.conv1.weight", "classifier.4.bias"} <= out.keys())
        return out

    def network(self, classes=2):
        torch.manual_seed(1)
        net = Network(8, classes)
        for name, value in net.named_buffers():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
        return net.eval()

    def test_all_forms_give_the_same_weights(self):
        net = self.network(3)
        x = torch.rand(2, 2, 16, 7, 5)
        state = self.published(net)
        for i, form in enumerate((
            state,
            net.state_dict(),
            {"epoch": 3, "model_state_dict": state, "optimizer_state_dict": {"state": {}, "param_groups": []}},
            {"state_dict": {f"module.{k}": v for k, v in state.items()}},
            {"model": {f"_orig_mod.{k}": v for k, v in net.state_dict().items()}, "best": 0.5},
            {"model": state, "arguments": argparse.Namespace(lr=1e-3), "best": np.float64(0.5), "seen": {1, 2}},
            {k: v.t().contiguous().t() if v.ndim == 2 else v for k, v in state.items()},  # other strides
            {k: v.half() if v.is_floating_point() else v for k, v in state.items()},
        )):
            torch.save(form, "x.pth")
            said = converted("x.pth", f"{i}.safetensors")
            self.assertIn("width 8, 3 classes, 5", said)
            with torch.no_grad():
                torch.testing.assert_close(flimcv.network(f"{i}.safetensors")(x), net(x), atol=1e-3 if i == 7 else 0, rtol=0)

    def test_the_programs_take_them(self):
        volumes, labels, groups = cells(24)
        flimcv.to_h5(volumes, labels, groups, path="c.h5", class_names=["q", "a"])
        net = self.network()
        torch.save(self.published(net), "x.pth")
        call(sys.executable, "-m", "flimcv.convert", "x.pth", "--classes", "q,a", "--cells", "16x7x5")
        self.train("c.h5", "c", "--fold", 0, "--preset", "tiny", "--init-weights", "x.safetensors")
        call("predict", "--model", "x.safetensors", "--data", "c.h5", "--out", "c.csv", "--precision", "fp32", "--device", "cpu")
        with open("c.csv", encoding="utf-8") as file:
            want = [float(row["logit_1"]) for row in csv.DictReader(file)]
        with torch.no_grad():
            got = net(torch.stack([x for x, _ in flimcv.dataset("c.h5")]))[:, 0].numpy()
        self.assertLessEqual(np.abs(got - want).max(), 1e-5)
        self.assertIn("there already", converted("x.pth", code=2))
        self.assertIn("2 classes, but 3 names", converted("x.pth", "--force", "--classes", "a,b,c", code=3))

    def test_nothing_is_run(self):
        for name, form in (("object", RunsCode()), ("within", {"state_dict": self.network().state_dict(), "x": RunsCode()})):
            torch.save(form, f"{name}.pth")
            with open(f"{name}.pkl", "wb") as file:
                pickle.dump(form, file)
        torch.save(self.network(), "model.pth")  # a whole model names its class
        torch.jit.save(torch.jit.trace(self.network(), torch.rand(1, 2, 8, 3, 3)), "script.pth")
        torch.save(self.network().state_dict(), "bytes.pth", _use_new_zipfile_serialization=False)
        safe = pathlib.Path("bytes.pth").read_bytes()
        self.assertIn(b"ctorch._utils\n_rebuild_tensor_v2\n", safe)
        pathlib.Path("legacy.pth").write_bytes(safe.replace(b"ctorch._utils\n_rebuild_tensor_v2\n", b"cos\nsystem\n"))
        converted("bytes.pth", "bytes.safetensors")  # the form before torch 1.6
        for file in ("object.pth", "object.pkl", "within.pkl", "model.pth", "script.pth"):
            said = converted(file, "out.safetensors", code=3)
            self.assertRegex(said, "holds no state_dict|no file of torch.save")
            self.assertFalse(os.path.exists("it_ran") or os.path.exists("out.safetensors"), file)
        for file in ("within.pth", "legacy.pth"):  # tensors, and beside them something that would run
            code = 0 if file == "within.pth" else 3
            converted(file, f"{file}.safetensors", code=code)
            self.assertFalse(os.path.exists("it_ran"), file)

    def test_damaged_bytes_are_read_or_refused(self):
        form = {"state_dict": {"a": torch.rand(3, 4), "b": torch.arange(5)}, "x": 1.5}
        torch.save(form, "x.pth", _use_new_zipfile_serialization=False)  # no checksum stands before the reader
        whole, rng, ends = pathlib.Path("x.pth").read_bytes(), random.Random(1), set()
        for i in range(300):
            damaged = bytearray(whole)
            for _ in range(rng.choice((1, 1, 2, 4))):
                damaged[rng.randrange(len(whole))] = rng.randrange(256)
            pathlib.Path("x.pth").write_bytes(damaged)
            try:
                for tensor in convert._state_dict(checkpoint.read("x.pth"), "x.pth").values():
                    self.assertLessEqual(tensor.array().size, 12)
                ends.add("read")
            except ValueError:
                ends.add("refused")
        self.assertEqual(ends, {"read", "refused"})

    def test_what_is_no_checkpoint(self):
        state = self.published(self.network())
        short = {k: v for k, v in state.items() if k != "res_block3.bn2.bias"}
        both = {**state, "stem.conv.weight": state["stem.0.weight"]}
        for form, message in (({}, "holds no state_dict"), ({"a": 1}, "holds no state_dict"), ([1], "holds no state_dict"),
                              (short, "'res3.bn2.bias' is missing"), (both, "two tensors are 'stem.conv.weight'")):
            torch.save(form, "x.pth")
            self.assertIn(message, converted("x.pth", code=3))
        whole = pathlib.Path("x.pth").read_bytes()
        for content in (b"", b"text", whole[:1000], whole[:-100]):
            pathlib.Path("x.pth").write_bytes(content)
            self.assertIn("x.pth: no file of torch.save", converted("x.pth", code=3))
        self.assertIn("No such file", converted("none.pth", code=3))


class ThePublishedCheckpoint(InFolder):
    """A checkpoint with the published script's keys, names and shapes in its order, and the network computed from those names alone."""

    BLOCKS = (("res_block1", 32, 32, 1), ("res_block2", 32, 64, 2), ("res_block3", 64, 128, 2))  # channels, out, stride of H and W

    def state_dict(self):
        state, rng = {}, torch.Generator().manual_seed(3)

        def affine(name, *shape):
            fan = np.prod(shape[1:])
            state[f"{name}.weight"] = torch.randn(shape, generator=rng) * (2 / fan) ** 0.5
            state[f"{name}.bias"] = torch.randn(shape[0], generator=rng) / 10

        def bn(name, n):
            for key, least in (("weight", 0.5), ("bias", -0.2), ("running_mean", -0.2), ("running_var", 0.5)):
                state[f"{name}.{key}"] = least + torch.rand(n, generator=rng)
            state[f"{name}.num_batches_tracked"] = torch.tensor(7)

        affine("stem.0", 32, 2, 7, 1, 1)
        bn("stem.1", 32)
        affine("downsample1.0", 32, 32, 3, 1, 1)
        bn("downsample1.1", 32)
        for name, channels, out, _ in self.BLOCKS:
            affine(f"{name}.conv1", out, channels, 3, 3, 3)
            bn(f"{name}.bn1", out)
            affine(f"{name}.conv2", out, out, 3, 3, 3)
            bn(f"{name}.bn2", out)
            if channels != out:
                affine(f"{name}.shortcut.0", out, channels, 1, 1, 1)
                bn(f"{name}.shortcut.1", out)
        affine("classifier.0", 64, 128)
        bn("classifier.1", 64)
        affine("classifier.4", 1, 64)
        return state

    def logits(self, state, x):
        F = torch.nn.functional

        def conv(x, name, stride, padding):
            return F.conv3d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride, padding)

        def bn(x, name):
            values = [state[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")]
            return F.batch_norm(x, *values, training=False, eps=1e-5)

        def act(x):
            return torch.where(x > 0, x, 0.01 * x)

        x = act(bn(conv(x, "stem.0", 1, (3, 0, 0)), "stem.1"))
        x = act(bn(conv(x, "downsample1.0", (2, 1, 1), (1, 0, 0)), "downsample1.1"))
        for name, channels, out, stride in self.BLOCKS:
            steps = (1, stride, stride)
            inner = bn(conv(act(bn(conv(x, f"{name}.conv1", steps, 1), f"{name}.bn1")), f"{name}.conv2", 1, 1), f"{name}.bn2")
            x = act(inner + (x if channels == out else bn(conv(x, f"{name}.shortcut.0", steps, 0), f"{name}.shortcut.1")))
            x = x if channels == out else F.max_pool3d(x, (2, 1, 1))
        x = F.linear(x.mean((2, 3, 4)), state["classifier.0.weight"], state["classifier.0.bias"])
        return F.linear(act(bn(x, "classifier.1")), state["classifier.4.weight"], state["classifier.4.bias"])

    def test_its_logits_are_ours(self):
        state = self.state_dict()
        learned = [torch.nn.Parameter(value) for name, value in state.items() if not re.search("running|tracked", name)]
        self.assertEqual(sum(p.numel() for p in learned), 909057)
        adam = torch.optim.Adam(learned, lr=1e-3)
        for parameter in learned:
            parameter.grad = torch.ones_like(parameter)
        kept = {name: value.clone() for name, value in state.items()}
        adam.step()  # so that the optimizer's state holds tensors, too
        torch.save({"epoch": 12, "model_state_dict": kept, "optimizer_state_dict": adam.state_dict(), "train_loss": 0.4,
                    "val_loss": np.float64(0.5), "train_acc": 0.8, "val_acc": 0.8, "val_f1": np.float64(0.85),
                    "val_precision": np.float64(0.8), "val_recall": np.float64(0.9), "fold": "isolated_cells_D1"}, "best_model.pth")
        self.assertIn("width 32, 2 classes, 909057 parameters", converted("best_model.pth", "--classes", "q,a"))
        volumes, labels, groups = cells(4, shape=(32, 21, 21), seed=5)
        flimcv.to_h5(volumes, labels, groups, path="p.h5", class_names=["q", "a"])
        x = torch.stack([x for x, _ in flimcv.dataset("p.h5")])
        with torch.no_grad():
            want = self.logits(kept, x)[:, 0].numpy()
            ours = flimcv.network("best_model.safetensors")(x)[:, 0].numpy()
        call("predict", "--model", "best_model.safetensors", "--data", "p.h5", "--out", "p.csv", "--precision", "fp32", "--device", "cpu")
        with open("p.csv", encoding="utf-8") as file:
            native = np.array([float(row["logit_1"]) for row in csv.DictReader(file)])
        self.assertGreater(np.ptp(want), 1e-2)
        for got in (ours, native):
            self.assertLessEqual(np.abs(got - want).max(), 1e-5 * max(1, np.abs(want).max()))


class TheExtras(unittest.TestCase):
    def test_a_missing_package_is_named_with_its_extra(self):
        for module, use, extra in (("torch", "network", "torch"), ("torch", "dataset", "torch"), ("h5py", "to_h5", "h5"),
                                   ("pandas", "read_run", "pandas")):
            code = f"import sys; sys.modules['{module}'] = None; import flimcv; flimcv.{use}"
            said = call(sys.executable, "-c", code, code=1)
            self.assertIn(f"pip install 'flimcv[{extra}]'", said)

    def test_importing_is_cheap(self):
        call(sys.executable, "-c", "import sys, flimcv; assert not {'torch', 'pandas', 'h5py', 'numpy'} & set(sys.modules)")


class TheExamples(InFolder):
    def test_from_files_to_a_report_and_a_close_look(self):
        volumes, labels, groups = cells(36)
        for i, (volume, label, group) in enumerate(zip(volumes, labels, groups)):
            os.makedirs(group, exist_ok=True)
            np.save(f"{group}/cell{i}_{('in', 'act')[label]}.npy", np.moveaxis(volume, 0, -1).astype("u2"))
        np.save("D0/background.npy", volumes[0])
        said = call(sys.executable, EXAMPLES / "from_npy.py", "D0", "D1", "D2", "--class", "_in=quiescent", "--class", "_act=activated",
                    "--time-last", "--out", "runs/first", "--", "--preset", "tiny", "--folds", 3, "--epochs", 2, "--batch", 8,
                    "--device", "cpu")
        self.assertIn("36 cells of 3 donors; 1 files fit no class", said)
        report = re.search("The report: (.*)", said).group(1)
        self.assertGreater(os.path.getsize(report), 1000)
        said = call(sys.executable, EXAMPLES / "read_run.py", "runs/first", "runs/first.h5")
        for text in ("balanced_accuracy", "Training loss", "accuracy", "of_true_class", "time bins that count most"):
            self.assertIn(text, said)


if __name__ == "__main__":
    unittest.main()
