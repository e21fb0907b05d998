"""TCLLoss in a plain PyTorch loop: a small network on handwritten digits, a few seconds on a CPU.

python examples/plain_loop.py
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from contune import TCLLoss

EPOCHS, BATCH = 30, 128


def two_views(x_BD: Tensor) -> Tensor:
    """The batch twice, with a small random affine change of each 8×8 image."""
    images_N1HW = x_BD.repeat(2, 1).unflatten(1, (1, 8, 8))
    change_N23 = torch.eye(2, 3) + 0.1 * torch.randn(len(images_N1HW), 2, 3)
    grid = nn.functional.affine_grid(change_N23, list(images_N1HW.shape), align_corners=False)
    return nn.functional.grid_sample(images_N1HW, grid, align_corners=False).flatten(1)


def nearest_class(train_ND: Tensor, labels_N: Tensor, test_MD: Tensor) -> Tensor:
    """The class of the most similar training image."""
    train_ND, test_MD = nn.functional.normalize(train_ND), nn.functional.normalize(test_MD)
    return labels_N[(test_MD @ train_ND.T).argmax(dim=1)]


def main() -> None:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    x_ND, labels_N = torch.tensor(pixels / 16).float(), torch.tensor(digits)
    train, test = slice(0, 898), slice(898, None)

    encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128))
    projector = nn.Sequential(nn.ReLU(), nn.Linear(128, 64))
    criterion = TCLLoss(temperature=0.1)
    optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)

    for epoch in range(EPOCHS):
        for batch in torch.randperm(898)[: 898 // BATCH * BATCH].split(BATCH):
            z_ND = projector(encoder(two_views(x_ND[batch])))
            loss = criterion(z_ND, labels_N[batch].repeat(2))  # one label for each row of z
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}")

    with torch.no_grad():
        features_ND = encoder(x_ND)
    for name, rows_ND in (("raw pixels", x_ND), ("features", features_ND)):
        hits_M = nearest_class(rows_ND[train], labels_N[train], rows_ND[test]) == labels_N[test]
        print(f"nearest neighbor on {name}: {100 * hits_M.float().mean().item():.1f} % of {len(hits_M)} test digits")


if __name__ == "__main__":
    main()
