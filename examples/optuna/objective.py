"""An objective as Optuna's users write it; `python objective.py` searches with Optuna alone."""

import numpy as np
import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


def objective(trial):
    alpha = trial.suggest_float("alpha", 1e-5, 1e-1, log=True)
    penalty = trial.suggest_categorical("penalty", ["l1", "l2"])
    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(images / 16, labels, random_state=0)
    model = SGDClassifier(loss="log_loss", alpha=alpha, penalty=penalty, random_state=0)
    for epoch in range(20):
        model.partial_fit(x, y, classes=np.arange(10))
        score = model.score(x_val, y_val)
        trial.report(score, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned
    return score


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=8)
    print(study.best_params, study.best_value)
