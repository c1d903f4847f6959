"""One trial of the objective, with the hyper-parameters that Hermes gives."""

import argparse

import optuna
from objective import objective


class Reported(optuna.trial.FixedTrial):
    def report(self, value, step):
        print(f"step {step}: val_acc={value:.4f}", flush=True)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--alpha", type=float, required=True)
parser.add_argument("--penalty", required=True)
print(f"val_acc={objective(Reported(vars(parser.parse_args()))):.4f}", flush=True)
