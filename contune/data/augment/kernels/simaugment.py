"""SimAugment's views in one launch, within 5e-5 of SimAugment.apply in [0, 1]; simaugment_view.py has the kernel.

B: images, N: views, C: channels, H, W: the image's height, width, S: the view's side.
"""

from torch import Tensor

from contune.data.augment.blur import blur_radius
from contune.data.augment.constants import constant
from contune.data.augment.kernels.simaugment_view import view_kernel
from contune.data.augment.policy import Params
from contune.data.augment.resample import _largest_centre_box
from contune.data.augment.simaugment import SimAugment

LARGEST_IMAGE, LARGEST_VIEW = 128, 64
"""Sides whose three channels and two matrices of weights a program holds in registers, a channel of the image at a
time in shared memory."""


def fits(policy: SimAugment, images_BCHW: Tensor) -> bool:
    """Whether a program can hold an image and its view; larger ones are for SimAugment.apply."""
    return max(images_BCHW.shape[-2:]) <= LARGEST_IMAGE and policy.image_size <= LARGEST_VIEW


def launch(
    policy: SimAugment,
    images_BCHW: Tensor,
    params: Params,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    out_NCHW: Tensor,
) -> None:
    """Normalised views of uint8 images into `out_NCHW`, which is channels_last; view n is of image n mod B."""
    num_images, C, H, W = images_BCHW.shape
    S = policy.image_size
    centre_height, centre_width = _largest_centre_box(H, W, policy.crop_ratio)
    radius = blur_radius(policy.blur_sigma[1], S)
    drawn = {name: value.contiguous() for name, value in params.items()}
    attempts = drawn["crop_area"].shape[1]
    view_kernel[(len(out_NCHW),)](
        images_BCHW.contiguous(),
        drawn["crop_area"], drawn["crop_aspect"], drawn["crop_position"], drawn["flip"],
        drawn["jitter_factors"], drawn["jitter_turn"], drawn["jitter_order"],
        drawn["gray"], drawn["blur_sigma"], drawn["solarize"],
        constant((*mean, *std), images_BCHW.device), out_NCHW, num_images,
        C=C, H=H, W=W, S=S, PH=_padded(H), PW=_padded(W), PS=_padded(S),
        CENTRE_H=centre_height, CENTRE_W=centre_width, ATTEMPTS=attempts, PA=_padded(attempts),
        CUBIC=policy.interpolation == "bicubic",
        JITTERS=policy.jitter_probability > 0,
        GRAYS=policy.gray > 0,
        BLURS=policy.blur > 0, RADIUS=radius, PT=_padded(radius + 1),
        SOLARIZES=policy.solarize > 0,
        # Four warps spill at the larger sizes, eight leave too little to do for each at the smaller ones.
        num_warps=4 if S <= 32 and max(H, W) <= 64 else 8,
        enable_fp_fusion=True,
    )  # fmt: skip


def _padded(length: int) -> int:
    return max(16, 1 << (length - 1).bit_length())
