#!/usr/bin/env python3
"""What pretraining is worth: fine-tuned encoders against training from scratch, over several seeds.

  tools/pretraining_worth.py --out runs/worth --programs build/release --device cuda --jobs 4 --minutes 8
  tools/pretraining_worth.py --out runs/worth --report          # the tables of what is there, without a run

Four sets of arms (--sets, in this order of importance; not all by default):
  main  simulated cells whose classes differ only in where in the cell the lifetimes are (flim_simulate --signal pattern): scratch at
        several lengths, masked pretraining fine-tuned with the encoder's learning rate at 1 and at 0.1 of the head's, with a
        contrastive term, frozen (--freeze-encoder), and a logistic regression on the embeddings (needs numpy and sklearn)
  real  the cells of --real in four folds of groups, pretrained per fold on what the fold does not test
  grid  as main, mask ratio x loss x contrastive weight
  pairs as main, what a contrastive term may learn from: its weight, brightness and size of both views, batches of one donor

Of six donors each seed draws two that are tested and seen by nothing else, and one that a pretraining only evaluates (its bits per
photon are those of a held-out donor); the pretraining has --unlabelled cells of the other three.  --labelled cells of the four that
are not tested have labels.  Each seed has its own donors, labels, pretrainings and weights; all arms of a seed share its donors and labels.

A run at chance has mostly not begun to learn: its training loss stays on a plateau, where single cells are learned by heart.  The table has
how many runs have left it (validation AUC 0.9) and when.

OUT/results.jsonl gets a line as each run ends: a call that was stopped loses what was running, and the same call goes on with the rest.
Runs that failed have a line, too, and are made again by the next call.  Needs Python 3, and for the embeddings numpy and sklearn.
"""
import argparse
import collections
import csv
import importlib.util
import json
import math
import os
import random
import shlex
import signal
import subprocess
import sys
import threading
import time

from compare_arms import mean_sd, row, t_quantile

METRICS = ("balanced_accuracy", "roc_auc", "log_loss")
FOLDS = 4  # of the real cells

# An arm: a pretraining (None: scratch; else its flags), how it is used, and the length of the training in epochs.
# use: "tune" (train_cv with flags) or "logistic" (a regression on the embeddings).
Arm = collections.namedtuple("Arm", "name pretraining use flags epochs")


def masked(ratio=0.4, loss="poisson", contrastive=0.0, more=""):
    """A pretraining's flags, which also name it."""
    return f"--mask-ratio {ratio} --masked-loss {loss} --contrastive {contrastive} {more}".strip()


def is_contrastive(flags):
    words = shlex.split(flags)
    return float(words[words.index("--contrastive") + 1]) > 0


def arms_of(kind, options):
    """The arms of a set, the scratch ones first."""
    short, lengths = options.lengths[0], options.lengths
    frozen = max(200, short) if short >= 20 else short  # a trial's stays short
    if kind == "real":
        e = options.real_epochs
        return [Arm(f"scratch, {e} epochs", None, "tune", "", e),
                Arm("masked, encoder's rate x 1", masked(), "tune", "--encoder-lr-scale 1", e),
                Arm("masked, encoder's rate x 0.1", masked(), "tune", "--encoder-lr-scale 0.1", e),
                Arm("masked, contrastive 0.1, rate x 1", masked(contrastive=0.1), "tune", "--encoder-lr-scale 1", e)]
    scratch = [Arm(f"scratch, {e} epochs", None, "tune", "", e) for e in lengths]
    if kind == "pairs":
        dim = "--augment symmetry:1:0:7 --augment thin:1:0.2:1"
        ways = [("contrastive 0.1", masked(contrastive=0.1)), ("contrastive 0.01", masked(contrastive=0.01)),
                ("contrastive 0.1, both views thinned", masked(contrastive=0.1, more=dim)),
                ("contrastive 0.1, both views thinned and zoomed", masked(contrastive=0.1, more=f"{dim} --augment zoom:1:0.7:1.3")),
                ("contrastive 0.1, batches of one donor", masked(contrastive=0.1, more="--batch-from donor")),
                ("contrastive 0.1, all of these", masked(contrastive=0.1, more=f"{dim} --augment zoom:1:0.7:1.3 --batch-from donor"))]
        return scratch[:1] + [Arm("masked alone", masked(), "tune", "--encoder-lr-scale 1", short),
                              Arm("masked alone, logistic regression on embeddings", masked(), "logistic", "", short)] + [
            arm for name, flags in ways for arm in (Arm(name, flags, "tune", "--encoder-lr-scale 1", short),
                                                    Arm(f"{name}, logistic regression on embeddings", flags, "logistic", "", short))]
    if kind == "grid":
        return scratch[:1] + [
            Arm(f"mask {r}, {loss}" + (f", contrastive {c}" if c else ""), masked(r, loss, c), "tune", "--encoder-lr-scale 1", short)
            for c in (0.0, 0.1) for loss in ("poisson", "squared") for r in (0.4, 0.6, 0.8)]
    return scratch + [
        Arm(f"masked, encoder's rate x 1, {short} epochs", masked(), "tune", "--encoder-lr-scale 1", short),
        Arm(f"masked, encoder's rate x 0.1, {short} epochs", masked(), "tune", "--encoder-lr-scale 0.1", short),
        # The head of a frozen encoder takes a larger rate and more epochs (docs/learning.md).
        Arm(f"masked, frozen encoder, {frozen} epochs, lr 1e-2", masked(), "tune", "--freeze-encoder --lr 1e-2", frozen),
        Arm("masked, logistic regression on embeddings", masked(), "logistic", "", short),
        Arm(f"masked, contrastive 0.1, rate x 1, {short} epochs", masked(contrastive=0.1), "tune", "--encoder-lr-scale 1", short),
        Arm("contrastive 0.1, logistic regression on embeddings", masked(contrastive=0.1), "logistic", "", short),
    ] + [Arm(f"masked, encoder's rate x 1, {e} epochs", masked(), "tune", "--encoder-lr-scale 1", e) for e in lengths[1:]]


class Results:
    """results.jsonl: what is done, and where the next line goes.  Shared by the threads."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "results.jsonl")
        self.lock = threading.Lock()
        self.records = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                text = file.read()
            for line in text.splitlines():
                try:
                    record = json.loads(line)
                except ValueError:
                    continue  # the line that a stopped call was writing
                self.records[record["key"]] = record
            if text and not text.endswith("\n"):
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write("\n")

    def done(self, key):
        return key in self.records and "error" not in self.records[key]

    def add(self, record):
        with self.lock:
            self.records[record["key"]] = record
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
        what = record.get("error") or ", ".join(f"{name} {value:.3f}" for name, value in record.get("metrics", {}).items())
        print(f"{time.strftime('%H:%M:%S')} {record['seconds']:6.1f} s  {record['key']}: {what}", file=sys.stderr, flush=True)


class Task:
    """One run of a program: done by make(), which returns what its record has beside key and seconds; needs: keys of others."""

    def __init__(self, key, make, needs=()):
        self.key, self.make, self.needs = key, make, needs


class Failed(Exception):
    pass


class Study:
    def __init__(self, options):
        self.o = options
        self.results = Results(options.out)
        self.deadline = time.monotonic() + 60 * options.minutes if options.minutes else math.inf
        self.running = set()
        self.lock = threading.Lock()
        self.slot = threading.local()
        self.cells = {}

    def program(self, name, *flags):
        """Runs a program to its end; Failed with its last words otherwise, or where the time is over."""
        environment = dict(os.environ)
        if self.o.devices and getattr(self.slot, "device", None) is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.slot.device
        command = [os.path.join(self.o.programs, name), *map(str, flags)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as process:
            with self.lock:
                self.running.add(process)
            text = process.communicate()[0]
            with self.lock:
                self.running.discard(process)
        if process.returncode:
            raise Failed(f"exit {process.returncode}: {shlex.join(command)}: {text.strip()[-500:]}")
        return text

    def run(self, name, folder, *flags):
        """A program with a run folder, whose run goes on if an earlier call was stopped in it."""
        folder = os.path.join(self.o.out, folder)
        if os.path.exists(os.path.join(folder, "config.yaml")):
            self.program(name, "--resume", "--out", folder, "--quiet")
        else:
            self.program(name, *flags, "--workers", self.o.workers, "--device", self.o.device, "--out", folder, "--quiet")
        return folder

    # ---- data

    def simulated(self):
        """The file with the simulated cells, made once: enough that three donors have the unlabelled ones."""
        path = os.path.join(self.o.out, "simulated.h5")
        per_donor = max(-(-(self.o.unlabelled + self.o.labelled) // 3), -(-self.o.test // 2))
        if not os.path.exists(path):
            self.program("flim_simulate", "--out", path, "--cells", 6 * per_donor, "--donors", 6, "--signal", "pattern", "--seed",
                         self.o.data_seed, *shlex.split(self.o.simulate))
        table = os.path.join(self.o.out, "simulated.csv")
        if not os.path.exists(table):
            self.program("flim_info", path, "--cells", table, "--force")
        with open(table, encoding="utf-8", newline="") as file:
            self.cells = {c["name"]: (c["group"], int(c["index"]), int(c["label"])) for c in csv.DictReader(file)}
        return path

    def draw(self, seed):
        """A seed's donors and cells: {test, evaluated, groups that are tested, names with labels, exclude files}."""
        rng = random.Random(f"pretraining_worth {seed}")
        donors = sorted({c[0] for c in self.cells.values()})
        rng.shuffle(donors)
        tested, evaluated, others = sorted(donors[:2]), donors[2], sorted(donors[3:])

        def some(groups, n):
            names = []
            for i, g in enumerate(groups):
                of_group = [name for name, c in self.cells.items() if c[0] == g]
                names += rng.sample(of_group, min(len(of_group), (n + i) // len(groups)))
            return names

        labelled = some(sorted([evaluated, *others]), self.o.labelled)
        test = some(tested, self.o.test)
        seen = set(some(others, self.o.unlabelled)) | {n for n in labelled if self.cells[n][0] != evaluated}
        seen |= set(some([evaluated], max(self.o.unlabelled // 20, 16)))
        lists = {}
        for name, keep in (("pretraining", seen), ("training", set(labelled) | set(test))):
            lists[name] = os.path.join(self.o.out, f"not_in_{name}_{seed}.txt")
            with open(lists[name], "w", encoding="utf-8") as file:
                file.writelines(f"{n}\n" for n in self.cells if n not in keep)
        return {"tested": tested, "evaluated": evaluated, "labelled": labelled, "test": test, "exclude": lists}

    # ---- runs

    def pretrain(self, folder, flags, data, epochs, seed, more):
        """An encoder; a contrastive epoch draws each cell twice, so that it has half the epochs."""
        epochs = max(epochs // 2 if is_contrastive(flags) else epochs, 2)
        self.run("pretrain", folder, "--data", data, *self.o.preset, "--epochs", epochs, "--warmup-epochs", min(self.o.warmup_epochs, epochs - 1),
                 "--seed", seed, *shlex.split(flags), *shlex.split(self.o.pretrain_flags), *more)
        with open(os.path.join(self.o.out, folder, "pretraining", "history.csv"), encoding="utf-8") as file:
            last = list(csv.DictReader(file))[-1]
        number = lambda name: float(last[name]) if last.get(name) not in (None, "", "nan") else None
        return {"kind": "pretrain", "epochs": epochs, "bits_per_photon": number("val_bits_per_photon"), "pairs_found": number("pairs_found"),
                "train_loss": number("train_loss"), "flags": flags}

    def scores(self, folder):
        with open(os.path.join(self.o.out, folder, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        record = {"kind": "train", "metrics": {m: summary["mean"][m] for m in METRICS if summary["mean"].get(m) is not None}}
        decay = (summary.get("baselines") or {}).get("decay")
        first = []  # of each fold: the first epoch whose validation AUC is 0.9; -1: none is
        for k in summary["folds"]:
            with open(os.path.join(self.o.out, folder, f"fold_{k['fold']}", "history.csv"), encoding="utf-8") as file:
                first.append(next((int(e["epoch"]) for e in csv.DictReader(file) if float(e["val_roc_auc"] or "nan") >= 0.9), -1))
        record["first_epoch_auc_0.9"] = first
        if decay:
            record["decay"] = {m: decay[m] for m in METRICS if decay.get(m) is not None}
        return record

    def tune(self, folder, arm, seed, flags, encoder):
        more = ["--pretrained", os.path.join(self.o.out, encoder, "encoder.safetensors")] if encoder else []
        self.run("train_cv", folder, *flags, *self.o.preset, "--epochs", arm.epochs, "--patience", 0, "--seed", seed,
                 *shlex.split(self.o.train_flags), *shlex.split(arm.flags), *more)
        return self.scores(folder)

    def logistic(self, folder, encoder, data, drawn):
        """A regression on the embeddings' mean and standard deviation of the labelled cells: what the encoder offers a linear head."""
        import numpy
        from sklearn.linear_model import LogisticRegressionCV
        from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        folder = os.path.join(self.o.out, folder)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "embeddings.npy")
        if os.path.exists(path):
            os.remove(path)
        self.program("predict", "--model", os.path.join(self.o.out, encoder, "encoder.safetensors"), "--data", data, "--no-scan", "--workers",
                     self.o.workers, "--device", self.o.device, "--embeddings", path, "--out", os.path.join(folder, "none.csv"), "--quiet")
        features = numpy.load(path)
        features = features.reshape(len(self.cells), -1)
        os.remove(path)
        rows = lambda names: ([self.cells[n][1] for n in names], numpy.array([self.cells[n][2] for n in names]))
        (train, labels), (test, truth) = rows(drawn["labelled"]), rows(drawn["test"])
        model = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=10, class_weight="balanced", max_iter=2000))
        model.fit(features[train], labels)
        p = model.predict_proba(features[test])
        variance = numpy.linalg.svd(features[train] - features[train].mean(0), compute_uv=False) ** 2
        return {"kind": "train", "effective_dimensions": float(variance.sum() ** 2 / (variance**2).sum()),
                "features": features.shape[1], "metrics": {"balanced_accuracy": balanced_accuracy_score(truth, p.argmax(1)),
                                             "roc_auc": roc_auc_score(truth, p[:, 1]), "log_loss": log_loss(truth, p)}}

    # ---- what there is to do

    def tasks_of(self, kind, seed, encoders):
        """The tasks of a set and seed in order; encoders: {flags: folder} of the simulated data, shared by main and grid."""
        tasks = []
        arms = [a for a in arms_of(kind, self.o) if not self.o.arms or any(word in a.name for word in self.o.arms)]

        def folder_of(*parts):
            return os.path.join(*("_".join("".join(c if c.isalnum() or c in ".-" else " " for c in str(p)).split()) for p in parts))

        if kind == "real":
            data = self.o.real
            flags = ["--data", data, "--folds", FOLDS, "--cv", "stratified-group", "--batch", self.o.batch]
            for arm in arms:
                whole = folder_of("real", arm.name, seed)
                if arm.pretraining is None:
                    tasks.append(Task(f"real|{arm.name}|{seed}|all", lambda a=arm, f=whole: self.tune(f, a, seed, flags, None)))
                    splits, first = whole, tasks[-1].key
                    continue
                for k in range(FOLDS):
                    encoder = folder_of("real", "encoders", arm.pretraining, seed, k)
                    more = ["--splits", os.path.join(self.o.out, splits), "--fold", k, "--val-fraction", 0, "--batch", self.o.real_pretrain_batch,
                            "--accumulate", 1]
                    if encoder not in encoders:
                        encoders[encoder] = f"real|encoder {arm.pretraining}|{seed}|{k}"
                        tasks.append(Task(encoders[encoder], lambda e=encoder, m=more, f=arm.pretraining: self.pretrain(
                            e, f, data, self.o.real_pretrain_epochs, seed, m), [first]))
                    tasks.append(Task(f"real|{arm.name}|{seed}|{k}", lambda a=arm, e=encoder, k=k, w=whole: self.tune(
                        os.path.join(w, f"fold_{k}"), a, seed, [*flags, "--fold", k], e), [encoders[encoder]]))
            return tasks

        data, drawn = self.data, self.draw(seed)
        flags = ["--data", data, "--exclude", drawn["exclude"]["training"], "--test-groups", ",".join(drawn["tested"]), "--batch", self.o.batch]
        more = ["--exclude", drawn["exclude"]["pretraining"], "--groups-out", ",".join(drawn["tested"]), "--val-groups", drawn["evaluated"],
                "--batch", self.o.pretrain_batch, "--accumulate", self.o.accumulate]
        for arm in arms:
            folder, needs, encoder = folder_of(kind, arm.name, seed), [], None
            if arm.pretraining is not None:
                encoder = folder_of("encoders", arm.pretraining, seed)
                if encoder not in encoders:
                    encoders[encoder] = f"simulated|encoder {arm.pretraining}|{seed}|all"
                    tasks.append(Task(encoders[encoder], lambda e=encoder, f=arm.pretraining: self.pretrain(
                        e, f, data, self.o.pretrain_epochs, seed, more)))
                needs = [encoders[encoder]]
            if arm.use == "logistic":
                if not self.o.sklearn:
                    continue
                make = lambda f=folder, e=encoder: self.logistic(f, e, data, drawn)
            else:
                make = lambda a=arm, f=folder, e=encoder: self.tune(f, a, seed, flags, e)
            tasks.append(Task(f"{kind}|{arm.name}|{seed}|all", make, needs))
        return tasks

    def stop(self):
        """Ends what runs: TERM, after which each program writes a checkpoint."""
        with self.lock:
            for process in self.running:
                process.send_signal(signal.SIGTERM)

    def work(self, tasks):
        """Runs the tasks in order on --jobs threads, each after those that it needs; what needs a failed one is left out."""
        waiting, failed, busy = list(tasks), set(), set()
        changed = threading.Condition()

        def next_task():
            with changed:
                while True:
                    if time.monotonic() >= self.deadline:
                        return None
                    for task in list(waiting):
                        if self.results.done(task.key):
                            waiting.remove(task)
                        elif any(key in failed for key in task.needs):
                            waiting.remove(task)
                            failed.add(task.key)
                        elif all(self.results.done(key) for key in task.needs):
                            waiting.remove(task)
                            busy.add(task.key)
                            return task
                    if not waiting:
                        return None
                    changed.wait(1)

        def worker(number):
            if self.o.devices:
                self.slot.device = self.o.devices[number % len(self.o.devices)]
            while (task := next_task()) is not None:
                begun = time.monotonic()
                try:
                    record = task.make()
                except (Failed, OSError, ImportError, KeyError, ValueError) as error:
                    if time.monotonic() < self.deadline:
                        record = {"error": f"{type(error).__name__}: {error}"}
                    else:
                        record = None  # ended by the clock: no failure
                with changed:
                    busy.discard(task.key)
                    if record is not None:
                        kind, arm, seed, fold = task.key.split("|")
                        self.results.add({"key": task.key, "set": kind, "arm": arm, "seed": int(seed), "fold": fold,
                                          "seconds": round(time.monotonic() - begun, 2), **record})
                    if record is None or "error" in record:
                        failed.add(task.key)
                    changed.notify_all()

        threads = [threading.Thread(target=worker, args=(i,), daemon=True) for i in range(self.o.jobs)]
        for thread in threads:
            thread.start()
        stopped = False
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.05)
                if time.monotonic() >= self.deadline and not stopped:
                    stopped = True
                    time.sleep(0.2)  # for what was just being started
                    self.stop()
        except KeyboardInterrupt:
            self.deadline = time.monotonic()
            self.stop()
            raise
        return failed

    def all(self):
        os.makedirs(self.o.out, exist_ok=True)
        with open(os.path.join(self.o.out, "call.txt"), "a", encoding="utf-8") as file:
            file.write(shlex.join(sys.argv) + "\n")
        if set(self.o.sets) - {"real"}:
            self.data = self.simulated()
        encoders, tasks = {}, []
        for kind in self.o.sets:
            for seed in self.o.seeds:
                tasks += self.tasks_of(kind, seed, encoders)
        failed = self.work(tasks)
        left = [t.key for t in tasks if not self.results.done(t.key) and t.key not in failed]
        if left or failed:
            print(f"{len(left)} runs not begun, {len(failed)} failed or stopped of {len(tasks)}", file=sys.stderr)
        return not failed and not left

    # ---- tables

    def report(self):
        for kind in self.o.sets:
            arms = [a for a in arms_of(kind, self.o)]
            scores = {a.name: self.scores_of(kind, a.name) for a in arms}
            if not any(scores.values()):
                continue
            print(f"\n## {kind}\n")
            scratch = [a for a in arms if a.pretraining is None and scores[a.name]]
            best = max(scratch, key=lambda a: mean_sd([m["balanced_accuracy"] for m in scores[a.name].values()])[0], default=None)
            row("arm", ["seeds", "balanced accuracy", "ROC AUC", "log loss", "to scratch, as long", f"to {best.name if best else 'scratch'}",
                        "bits per photon", "pairs found", "effective dimensions", "validation AUC 0.9: runs, median epoch"])
            row("---", ["---"] * 10)
            for arm in arms:
                if scores[arm.name]:
                    same = next((a for a in scratch if a.epochs == arm.epochs), None)
                    self.line(kind, arm.name, scores[arm.name], [scores[a.name] if a and a is not arm else {} for a in (same, best)],
                              arm.pretraining)
            decay = {r["seed"]: r["decay"] for r in self.results.records.values() if r.get("set") == kind and r.get("decay")}
            if decay:
                self.line(kind, "summed decay (logistic regression)", decay, [{}, scores[best.name] if best else {}], None)
            self.comparisons(kind, scores, decay)
        seconds = collections.Counter()
        for record in self.results.records.values():
            seconds[record.get("set"), record.get("kind")] += record["seconds"]
        print("\nSeconds of the runs: " + ", ".join(f"{a} {b or 'failed'} {s:.0f}" for (a, b), s in sorted(seconds.items(), key=str)))
        errors = [r for r in self.results.records.values() if "error" in r]
        for r in errors[:20]:
            print(f"failed: {r['key']}: {r['error'][:300]}")

    def scores_of(self, kind, name):
        """{seed: metrics}; of runs per fold the mean of a seed's folds, once there are all."""
        by_seed = collections.defaultdict(dict)
        for r in self.results.records.values():
            if r.get("set") == kind and r.get("arm") == name and r.get("metrics"):
                by_seed[r["seed"]][r["fold"]] = r["metrics"]
        return {s: {m: sum(f[m] for f in folds.values()) / len(folds) for m in METRICS if all(m in f for f in folds.values())}
                for s, folds in sorted(by_seed.items()) if "all" in folds or len(folds) == FOLDS}

    @staticmethod
    def difference(scores, reference, metric="balanced_accuracy"):
        pairs = [scores[s][metric] - reference[s][metric] for s in scores if s in reference]
        if not pairs:
            return ""
        mean, sd = mean_sd(pairs)
        if len(pairs) < 2:
            return f"{mean:+.3f}"
        half = t_quantile(len(pairs) - 1) * sd / math.sqrt(len(pairs))
        return f"{mean:+.3f} ({mean - half:+.3f} to {mean + half:+.3f})"

    def line(self, kind, name, scores, references, pretraining):
        cells = [str(len(scores))]
        for metric in METRICS:
            values = [m[metric] for m in scores.values() if metric in m]
            cells.append("{:.3f} ± {:.3f}".format(*mean_sd(values)) if values else "")
        cells += [self.difference(scores, reference) for reference in references]
        data = "real" if kind == "real" else "simulated"  # whose encoders
        encoders = [r for r in self.results.records.values()
                    if pretraining and r.get("arm") == f"encoder {pretraining}" and r.get("set") == data and "error" not in r]
        for what, text in (("bits_per_photon", "{:+.3f} ± {:.3f}"), ("pairs_found", "{:.2f} ± {:.2f}")):
            values = [r[what] for r in encoders if r.get(what) is not None]
            shown = values and (what != "pairs_found" or is_contrastive(pretraining))
            cells.append(text.format(*mean_sd(values)) if shown else "")
        dimensions = [r["effective_dimensions"] for r in self.results.records.values()
                      if r.get("set") == kind and r.get("arm") == name and r.get("effective_dimensions")]
        cells.append("{:.1f} ± {:.1f}".format(*mean_sd(dimensions)) if dimensions else "")
        first = [e for r in self.results.records.values() if r.get("set") == kind and r.get("arm") == name
                 for e in r.get("first_epoch_auc_0.9", [])]
        reached = sorted(e for e in first if e >= 0)
        cells.append(f"{len(reached)} of {len(first)}" + (f", {reached[len(reached) // 2]}" if reached else "") if first else "")
        row(name, cells)

    def comparisons(self, kind, scores, decay):
        """The differences that issue and defaults ask for, each paired by seed."""
        pick = lambda *words: next((s for name, s in scores.items() if all(w in name for w in words) and s), {})
        pairs = [("encoder's rate x 1 - x 0.1", pick("masked", "rate x 1"), pick("masked", "rate x 0.1")),
                 ("contrastive 0.1 - masked alone, rate x 1", pick("contrastive 0.1", "rate x 1"), pick("masked, encoder's rate x 1")),
                 ("frozen encoder - summed decay", pick("frozen"), decay),
                 ("logistic regression on embeddings - summed decay", pick("masked, logistic"), decay)]
        lines = [f"{name}: {text}" for name, a, b in pairs if kind in ("main", "real") and (text := self.difference(a, b))]
        if lines:
            print("\nBalanced accuracy, paired by seed, 95 % interval: " + "; ".join(lines))


def numbers(text):
    """1-5 or 1,2,7."""
    values = []
    for piece in text.split(","):
        low, _, high = piece.partition("-")
        values += range(int(low), int(high or low) + 1)
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder for runs and results.jsonl")
    parser.add_argument("--programs", default="build/release", help="folder of train_cv, pretrain, ... (default build/release)")
    parser.add_argument("--sets", default="", help="main, real, grid, pairs, in the order of their runs (default main,real,grid; without --real main,grid)")
    parser.add_argument("--arms", action="append", metavar="WORDS", help="only arms whose name has WORDS; repeatable (scratch is one)")
    parser.add_argument("--seeds", type=numbers, default="1-5", help="as in 1-5 or 1,2,7 (default 1-5)")
    parser.add_argument("--preset", default="--preset tiny", help="flags of the network for both programs (default '--preset tiny')")
    parser.add_argument("--lengths", type=numbers, default="60,120,240", help="epochs of training; the first is the fine-tuning's (default 60,120,240)")
    parser.add_argument("--batch", type=int, default=16, help="of training (default 16)")
    parser.add_argument("--train-flags", default="", help="more flags of every train_cv")
    parser.add_argument("--pretrain-epochs", type=int, default=40, help="half with a contrastive term (default 40)")
    parser.add_argument("--pretrain-batch", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1, help="batches per update in pretraining (default 1)")
    parser.add_argument("--warmup-epochs", type=int, default=5)
    parser.add_argument("--pretrain-flags", default="", help="more flags of every pretrain")
    parser.add_argument("--unlabelled", type=int, default=8000)
    parser.add_argument("--labelled", type=int, default=160)
    parser.add_argument("--test", type=int, default=1000, help="cells of the two donors that are tested (default 1000)")
    parser.add_argument("--simulate", default="", help="flags of flim_simulate, as '--bins 128 --photons 4000'")
    parser.add_argument("--data-seed", type=int, default=1, help="seed of flim_simulate (default 1)")
    parser.add_argument("--real", default="", help="the file of the set real")
    parser.add_argument("--real-epochs", type=int, default=60)
    parser.add_argument("--real-pretrain-epochs", type=int, default=200)
    parser.add_argument("--real-pretrain-batch", type=int, default=16)
    parser.add_argument("--device", default="auto", help="of the programs (default auto)")
    parser.add_argument("--devices", default="", help="values of CUDA_VISIBLE_DEVICES that the jobs take in turn, as 0,1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument("--workers", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)), help="loader threads of a run")
    parser.add_argument("--minutes", type=float, default=0, help="stop after so long; 0: never (default)")
    parser.add_argument("--report", action="store_true", help="only the tables of what results.jsonl has")
    options = parser.parse_args()
    options.sets = (options.sets or ("main,real,grid" if options.real or options.report else "main,grid")).split(",")
    if unknown := set(options.sets) - {"main", "real", "grid", "pairs"}:
        parser.error(f"--sets {','.join(sorted(unknown))}: expected main, real, grid, pairs")
    if "real" in options.sets and not options.real and not options.report:
        parser.error("--sets real needs --real FILE")
    options.preset = shlex.split(options.preset)
    options.devices = [d for d in options.devices.split(",") if d]
    if options.arms:
        options.arms.append("scratch")
    options.sklearn = all(importlib.util.find_spec(name) for name in ("numpy", "sklearn"))
    if not options.sklearn and not options.report:
        print("no numpy or no sklearn: no regression on the embeddings", file=sys.stderr)
    study = Study(options)
    complete = True if options.report else study.all()
    study.report()
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
