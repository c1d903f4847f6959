"""A residual network on hand-written digits, enlarged: what `benchmarks.peers --gpu` searches."""

import argparse
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
import torchvision
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy, interpolate
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--learning_rate", type=float, default=0.01)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--epochs", type=int, default=16)
parser.add_argument("--pixels", type=int, default=64, help="a side of an image")
args = parser.parse_args()

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
device = "cuda" if torch.cuda.is_available() else "cpu"

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
data = TensorDataset(images, torch.tensor(digits.target))
train = torch.utils.data.Subset(data, range(1437))
validation = torch.utils.data.Subset(data, range(1437, len(data)))
model = torchvision.models.resnet18(num_classes=10).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.learning_rate, momentum=0.9)


def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    large = interpolate(images.to(device), size=args.pixels).expand(-1, 3, -1, -1)
    return cross_entropy(model(large), labels.to(device))


for epoch in range(args.epochs):
    model.train()
    for x, y in DataLoader(train, args.batch_size, shuffle=True):
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        seen = [loss_of(x, y).item() * len(y) for x, y in DataLoader(validation, 180)]
    print(f"epoch {epoch}: val_loss={sum(seen) / len(validation)}", flush=True)
