"""TCLLoss in a LightningModule: a small network on handwritten digits, a few seconds on a CPU.

pip install lightning
python examples/lightning_module.py

Prints the accuracy of the nearest training digit on test digits: 95.8 % by raw pixels, 96.4 % by learned features.
"""

import logging
import warnings

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from contune import TCLLoss

EPOCHS, BATCH = 30, 128


class Contrastive(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))
        self.projector = nn.Sequential(nn.ReLU(), nn.Linear(128, 64))
        # With several processes the loss sees the batches of all of them; with one it changes nothing.
        self.criterion = TCLLoss(temperature=0.1, distributed=True)

    def forward(self, x_BD: Tensor) -> Tensor:
        features_BD: Tensor = self.encoder(x_BD)
        return features_BD

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x_BD, labels_B = batch
        z_ND = self.projector(self.encoder(two_views(x_BD)))
        loss: Tensor = self.criterion(z_ND, labels_B.repeat(2))  # one label for each row of z
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def two_views(x_BD: Tensor) -> Tensor:
    """The batch twice, each 8×8 image a little moved, turned and slanted in a way of its own."""
    images_N1HW = x_BD.repeat(2, 1).unflatten(1, (1, 8, 8))
    change_N23 = torch.eye(2, 3) + 0.1 * torch.randn(len(images_N1HW), 2, 3)
    grid = nn.functional.affine_grid(change_N23, list(images_N1HW.shape), align_corners=False)
    return nn.functional.grid_sample(images_N1HW, grid, align_corners=False).flatten(1)


def nearest_class(train_ND: Tensor, labels_N: Tensor, test_MD: Tensor) -> Tensor:
    """The class of the most similar training image."""
    train_ND, test_MD = nn.functional.normalize(train_ND), nn.functional.normalize(test_MD)
    return labels_N[(test_MD @ train_ND.T).argmax(dim=1)]


def main() -> None:
    warnings.filterwarnings("ignore", module="lightning")  # on loader workers, which data in memory needs none of
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    pixels, digits = load_digits(return_X_y=True)
    x_ND, labels_N = torch.tensor(pixels / 16).float(), torch.tensor(digits)
    train, test = slice(0, 898), slice(898, None)

    module = Contrastive()
    loader = DataLoader(TensorDataset(x_ND[train], labels_N[train]), batch_size=BATCH, shuffle=True, drop_last=True)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, loader)

    with torch.no_grad():
        features_ND = module(x_ND)
    print(f"loss after {trainer.current_epoch} epochs: {trainer.callback_metrics['loss']:.3f}")
    for name, rows_ND in (("raw pixels", x_ND), ("features", features_ND)):
        hits_M = nearest_class(rows_ND[train], labels_N[train], rows_ND[test]) == labels_N[test]
        print(f"nearest neighbor on {name}: {100 * hits_M.float().mean().item():.1f} % of {len(hits_M)} test digits")


if __name__ == "__main__":
    main()
