#!/usr/bin/env python3
"""Random search and Optuna's TPE and GP on the tables that search_bench wrote: live trials to within 2 % of the best.

Only the benchmark needs Optuna (pip install optuna scipy torch). Points that break a rule are not in the
tables: they are drawn again and do not count. A point that does not fit counts, and is told to the sampler as one and
a half times the slowest step of the table.

  search_bench FOLDER && optuna_search.py FOLDER [SEEDS] [SAMPLER...]
"""

import json
import pathlib
import random
import statistics
import sys

GOOD_ENOUGH = 1.02
MOST_TRIALS = 100
MOST_DRAWS = 200  # for one legal point


class Table:
    def __init__(self, path):
        document = json.loads(path.read_text())
        self.name = path.stem
        self.axes = document["axes"]
        self.steps = {tuple(values): step for values, step in document["points"]}
        known = [step for step in self.steps.values() if step is not None]
        self.best = min(known)
        self.penalty = 1.5 * max(known)

    def is_good(self, step):
        return step is not None and step <= GOOD_ENOUGH * self.best


def by_random(table, seed):
    order = list(table.steps.values())
    random.Random(seed).shuffle(order)
    return next(i + 1 for i, step in enumerate(order) if table.is_good(step))


def by_optuna(make_sampler):
    def search(table, seed):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=make_sampler(optuna, seed))
        for number in range(1, MOST_TRIALS + 1):
            for _ in range(MOST_DRAWS):
                trial = study.ask()
                # Axes of one value are no choice.
                values = tuple(
                    trial.suggest_categorical(knob, axis) if len(axis) > 1 else axis[0]
                    for knob, axis in table.axes.items()
                )
                if values in table.steps:
                    break
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                return MOST_TRIALS + 1
            step = table.steps[values]
            if table.is_good(step):
                return number
            study.tell(trial, table.penalty if step is None else step)
        return MOST_TRIALS + 1

    return search


SAMPLERS = {
    "random": by_random,
    "tpe": by_optuna(lambda optuna, seed: optuna.samplers.TPESampler(seed=seed, multivariate=True)),
    "gp": by_optuna(lambda optuna, seed: optuna.samplers.GPSampler(seed=seed)),
}


def p90(values):
    return sorted(values)[max(0, -(-9 * len(values) // 10) - 1)]


def main():
    folder = pathlib.Path(sys.argv[1])
    num_seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    names = sys.argv[3:] or list(SAMPLERS)
    tables = [Table(path) for path in sorted(folder.glob("*.json"))]
    for name in names:
        results = []
        for table in tables:
            found = [SAMPLERS[name](table, seed) for seed in range(num_seeds)]
            results += found
            print(f"{name:8} {table.name:24} median {statistics.median(found):6.1f}  p90 {p90(found):4}", flush=True)
        print(f"{name:8} {'all':24} median {statistics.median(results):6.1f}  p90 {p90(results):4}", flush=True)


if __name__ == "__main__":
    main()
