"""A linear classifier of hand-written digits, configured by Hydra."""

import hydra
from omegaconf import DictConfig
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split


@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config: DictConfig) -> float:
    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = train_test_split(images / 16, labels, random_state=0)
    model = SGDClassifier(loss="log_loss", random_state=0, **config.model)
    for epoch in range(config.epochs):
        model.partial_fit(x, y, classes=range(10))
        score = model.score(x_val, y_val)
        print(f"epoch {epoch}: val_acc={score:.4f}", flush=True)
    return score


if __name__ == "__main__":
    main()
