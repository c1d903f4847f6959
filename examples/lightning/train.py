"""A perceptron on hand-written digits, as a LightningModule."""

import argparse

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split


class Perceptron(L.LightningModule):
    def __init__(self, lr, hidden):
        super().__init__()
        self.save_hyperparameters()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
        )

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.layers(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_acc", (self.layers(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    L.seed_everything(0)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    train, val = random_split(data, [1500, len(data) - 1500])
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="auto", logger=False)
    trainer.fit(
        Perceptron(args.lr, args.hidden),
        DataLoader(train, 32, shuffle=True),
        DataLoader(val, 512),
    )


if __name__ == "__main__":
    main()
