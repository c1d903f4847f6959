"""A linear classifier of hand-written digits, trained by partial_fit."""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--alpha", type=float, default=1e-4)
parser.add_argument("--penalty", choices=["l1", "l2"], default="l2")
parser.add_argument("--epochs", type=int, default=20)
args = parser.parse_args()

images, labels = load_digits(return_X_y=True)
x, x_val, y, y_val = train_test_split(images / 16, labels, random_state=0)
model = SGDClassifier(loss="log_loss", alpha=args.alpha, penalty=args.penalty, random_state=0)
order = np.random.default_rng(0)
for epoch in range(args.epochs):
    rows = order.permutation(len(x))
    model.partial_fit(x[rows], y[rows], classes=range(10))
    probabilities = model.predict_proba(x)[range(len(x)), y]
    loss = -np.log(np.clip(probabilities, 1e-12, 1)).mean()
    print(f"epoch {epoch}: loss={loss:.4f} val_acc={model.score(x_val, y_val):.4f}", flush=True)
