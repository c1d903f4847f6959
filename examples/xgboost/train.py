"""Boosted trees on hand-written digits."""

import argparse

import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--eta", type=float, default=0.3)
parser.add_argument("--max_depth", type=int, default=6)
parser.add_argument("--rounds", type=int, default=30)
args = parser.parse_args()

images, labels = load_digits(return_X_y=True)
x, x_val, y, y_val = train_test_split(images, labels, random_state=0)
train, val = xgboost.DMatrix(x, y), xgboost.DMatrix(x_val, y_val)
settings = {
    "objective": "multi:softprob",
    "num_class": 10,
    "eta": args.eta,
    "max_depth": args.max_depth,
    "nthread": 1,
}
# It prints the losses of each round: [0]  train-mlogloss:1.62  val-mlogloss:1.69
xgboost.train(settings, train, args.rounds, evals=[(train, "train"), (val, "val")])
