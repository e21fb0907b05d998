"""TCLLoss in a training script as timm users write them: any timm model, timm's optimizers and schedules.

python examples/timm_training.py [--model resnet18 --epochs 50 --opt lamb --lr 5e-3 ...]

It trains on handwritten digits, half a minute on a CPU. It prints the accuracy of the nearest training digit on test
digits: 68 % before training and 98 % after the default 12 epochs.
"""

import argparse

import timm
import torch
from sklearn.datasets import load_digits
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter
from torch import Tensor, nn

from contune import TCLLoss


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="test_resnet")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--opt", default="adamw")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--temperature", type=float, default=0.1)
    return parser.parse_args()


def digits(size: int = 32) -> tuple[Tensor, Tensor]:
    """Images (N, 1, size, size) with mean 0 and deviation 1, and labels."""
    bunch = load_digits()
    x_N1HW = nn.functional.interpolate(torch.tensor(bunch.images[:, None]).float(), size=size, mode="bilinear")
    return (x_N1HW - x_N1HW.mean()) / x_N1HW.std(), torch.tensor(bunch.target)


def view(x_B1HW: Tensor) -> Tensor:
    """Each image a little moved, turned and slanted in a way of its own."""
    change_B23 = torch.eye(2, 3) + 0.1 * torch.randn(len(x_B1HW), 2, 3)
    grid = nn.functional.affine_grid(change_B23, list(x_B1HW.shape), align_corners=False)
    return nn.functional.grid_sample(x_B1HW, grid, padding_mode="border", align_corners=False)


@torch.no_grad()
def nearest_neighbor(model: nn.Module, x_N1HW: Tensor, labels_N: Tensor, num_train: int) -> float:
    """Percentage of the images after the first `num_train` whose most similar one among those has their class."""
    model.eval()
    features_ND = nn.functional.normalize(torch.cat([model(part) for part in x_N1HW.split(256)]))
    nearest_M = (features_ND[num_train:] @ features_ND[:num_train].T).argmax(dim=1)
    return 100 * (labels_N[nearest_M] == labels_N[num_train:]).float().mean().item()


def train_one_epoch(
    model: nn.Module, projector: nn.Module, criterion: nn.Module, batches: list[tuple[Tensor, Tensor]],
    optimizer: torch.optim.Optimizer,
) -> float:  # fmt: skip
    model.train()
    losses = AverageMeter()
    for x_B1HW, labels_B in batches:
        z_ND = projector(model(torch.cat([view(x_B1HW), view(x_B1HW)])))
        loss = criterion(z_ND, labels_B.repeat(2))  # instead of cross-entropy on model(x_B1HW)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), len(x_B1HW))
    return float(losses.avg)


def main(args: argparse.Namespace) -> None:
    torch.manual_seed(0)
    x_N1HW, labels_N = digits()
    num_train = 898

    model = timm.create_model(args.model, num_classes=0, in_chans=1)
    projector = nn.Sequential(nn.Linear(model.num_features, 128), nn.ReLU(), nn.Linear(128, 64))
    criterion = TCLLoss(temperature=args.temperature)
    optimizer = create_optimizer_v2(
        nn.ModuleList([model, projector]), opt=args.opt, lr=args.lr, weight_decay=args.weight_decay
    )
    scheduler, num_epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=args.epochs, warmup_epochs=1)
    print(f"before: {nearest_neighbor(model, x_N1HW, labels_N, num_train):.1f} % of {len(labels_N) - num_train} digits")
    for epoch in range(num_epochs):
        scheduler.step(epoch)
        order = torch.randperm(num_train)[: num_train // args.batch_size * args.batch_size].split(args.batch_size)
        loss = train_one_epoch(model, projector, criterion, [(x_N1HW[b], labels_N[b]) for b in order], optimizer)
        print(f"epoch {epoch + 1}: loss {loss:.3f}")
    print(f"after: {nearest_neighbor(model, x_N1HW, labels_N, num_train):.1f} % of {len(labels_N) - num_train} digits")


if __name__ == "__main__":
    main(arguments())
