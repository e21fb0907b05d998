"""timm's ResNets with `FusedNorm` in the place of batch-norm, addition and ReLU."""

from typing import Any

from torch import Tensor, nn

from contune.device import HAS_TRITON, timm
from contune.models.fused_norm import FusedNorm

_resnet: Any = timm.models.resnet


class _BasicBlock(_resnet.BasicBlock):  # type: ignore[misc]  # timm's is not known to mypy
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = self.bn1(self.conv1(x), relu=True)
        y: Tensor = self.bn2(self.conv2(hidden), shortcut, relu=True)
        return y


class _Bottleneck(_resnet.Bottleneck):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = self.bn1(self.conv1(x), relu=True)
        hidden = self.bn2(self.conv2(hidden), relu=True)
        y: Tensor = self.bn3(self.conv3(hidden), shortcut, relu=True)
        return y


class _ResNet(_resnet.ResNet):  # type: ignore[misc]
    def forward_features(self, x: Tensor) -> Tensor:
        y: Tensor = self.maxpool(self.bn1(self.conv1(x), relu=True))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            y = stage(y)
        return y


_FUSED: dict[type[nn.Module], type[nn.Module]] = {
    _resnet.BasicBlock: _BasicBlock,
    _resnet.Bottleneck: _Bottleneck,
    _resnet.ResNet: _ResNet,
}


def has_norms_to_fuse(model: nn.Module) -> bool:
    """Whether all of its ResNets' are; with some of them the compiler has more to give."""
    parts = [module for module in model.modules() if isinstance(module, tuple(_FUSED))]
    return HAS_TRITON and bool(parts) and all(_is_fusable(part) for part in parts)


def fuse_norms(model: nn.Module) -> None:
    """Has timm's ResNets in `model`, where they are plain ones, compute so. Weights and their names stay."""
    for module in list(model.modules()):
        if _is_fusable(module):
            for norm in _norms(module):
                norm.__class__ = FusedNorm
            module.__class__ = _FUSED[type(module)]


def _is_fusable(module: nn.Module) -> bool:
    return type(module) in _FUSED and _is_plain(module)


def _norms(module: Any) -> list[nn.Module]:
    """Of a block or a stem, those of the shortcut included."""
    shortcut = list(getattr(module, "downsample", None) or [])
    own = [getattr(module, name, None) for name in ("bn1", "bn2", "bn3")]
    return [norm for norm in (*own, *shortcut[-1:]) if norm is not None]


def _is_plain(module: Any) -> bool:
    """Nothing between convolution, batch-norm and ReLU, such as attention or what drops parts of it."""
    between = [getattr(module, name, None) for name in ("se", "drop_path", "drop_block", "aa")]
    acts = [getattr(module, name, None) for name in ("act1", "act2", "act3")]
    return (
        all(part is None or type(part) is nn.Identity for part in between)
        and all(act is None or type(act) is nn.ReLU for act in acts)
        and all(type(norm) is nn.BatchNorm2d and norm.affine and norm.track_running_stats for norm in _norms(module))
        and not getattr(module, "grad_checkpointing", False)
    )
