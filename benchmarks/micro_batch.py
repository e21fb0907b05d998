"""Large batches on a small GPU: memory and time of gradient caching (optim.micro_batch), and how exact it is.

    python benchmarks/micro_batch.py --out benchmarks/results/micro-batch-h200.json    # ResNet-50, 224 px, 8,192 views
    python benchmarks/micro_batch.py --encoder resnet-mini --size 32 --views 64 --direct 32 --micro-batch 16   # a CPU

Hardware: one GPU with 24 GiB or more (3 minutes), or a CPU for the small form. Wanted: under 24 GiB, at most 1.5 times
the time per view of a direct step with a batch that fits, gradients equal to 1e-5 with group norm.

Steps run through the real Trainer on random images, augmentation included. Peak memory is the allocator's, from the
images on the device to the optimizer. Gradients are compared in float64, as the length of the difference over the
length of the direct gradient. In float32 rounding hides the answer: noise of 1e-6 in the images moves the gradient of a
ResNet-18 by 1e-3, and cuDNN may use another algorithm for a chunk than for the whole batch. With batch norm, cached
gradients differ: each chunk has its own statistics.
"""

import time

import torch
from common import Row, digits, numbers, parser, release_memory, show, start, write
from torch import nn
from train import synthetic_trainer

from contune import encode_in_chunks, tcl_loss
from contune.config import Config
from contune.models import EncoderSpec
from contune.recipes import find_recipe

NUM_STEPS = 3
DIM = 128


def measured(config: Config, device: torch.device, size: int, memory: float) -> Row:
    """Milliseconds of a step and its peak memory, after enough steps to capture a CUDA graph.

    A step in chunks may use `memory` GiB.
    """
    release_memory(device)
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(memory / whole if config.optim.micro_batch else 1.0, device)
    trainer, batches = synthetic_trainer(config, image_size=size, num_images=config.optim.batch_images)
    on_gpu = device.type == "cuda"
    for _ in range(5 if trainer.engine.captured else 1):
        loss = trainer.take_step(*batches[0])["loss"].item()
    if on_gpu:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    begun = time.perf_counter()
    for _ in range(NUM_STEPS):
        loss = trainer.take_step(*batches[0])["loss"].item()
    seconds = (time.perf_counter() - begun) / NUM_STEPS
    return {
        "views": trainer.views_per_step,
        "micro_batch": config.optim.micro_batch,
        "engine": str(trainer.engine),
        "loss": loss,
        "ms": 1000 * seconds,
        "us_per_view": 1e6 * seconds / trainer.views_per_step,
        "allocated_gib": torch.cuda.max_memory_allocated(device) / 2**30 if on_gpu else None,
        "reserved_gib": torch.cuda.max_memory_reserved(device) / 2**30 if on_gpu else None,
    }


def gradient_difference(spec: EncoderSpec, device: torch.device, num_views: int, micro_batch: int) -> float:
    """|cached - direct| / |direct| over all weights, in float64."""
    torch.manual_seed(0)
    backbone = spec.build()
    encoder = nn.Sequential(backbone, nn.Linear(int(backbone.num_features), DIM)).to(device).double()  # type: ignore[arg-type]  # timm models carry an int
    views = torch.randn(num_views, spec.channels, spec.image_size, spec.image_size, device=device, dtype=torch.float64)
    labels_N = torch.arange(num_views, device=device) % max(2, num_views // 8)

    found = []
    for size in (num_views, micro_batch):
        encoder.zero_grad()
        z_ND = encoder(views) if size == num_views else encode_in_chunks(encoder, views, micro_batch=size)
        tcl_loss(z_ND, labels_N).backward()
        gradients = [parameter.grad for parameter in encoder.parameters() if parameter.grad is not None]
        found.append(torch.cat([gradient.flatten() for gradient in gradients]))
    direct, cached = found
    return float((cached - direct).norm() / direct.norm())


def main() -> None:
    options = parser(__doc__, "micro-batch")
    options.add_argument("--encoder", default="resnet50")
    options.add_argument("--size", type=int, default=224, help="side of the images [default: 224]")
    options.add_argument("--views", type=int, default=8192, help="in a cached step, two of each image [default: 8192]")
    options.add_argument("--direct", type=int, default=512, help="views in a direct step [default: 512]")
    options.add_argument("--micro-batch", type=numbers, default=[256, 384], help="[default: 256,384]")
    options.add_argument("--memory", type=float, default=24.0, help="GiB that a cached step may use [default: 24]")
    options.add_argument("--compared", type=int, default=64, help="views whose gradients are compared [default: 64]")
    arguments = options.parse_args()
    device, out = start(arguments, "micro-batch")
    steps = [(arguments.direct, 0, engine) for engine in ("eager", "auto")]
    steps += [(arguments.views, size, engine) for size in arguments.micro_batch for engine in ("eager", "auto")]
    rows: list[Row] = []
    differences: list[Row] = []
    result = {"bench": "micro-batch", "encoder": arguments.encoder, "size": arguments.size, "rows": rows}
    for views, micro_batch, engine in steps:
        config = find_recipe("cifar100-tcl")().override(
            [
                f"model.encoder={arguments.encoder}",
                f"data.image_size={arguments.size}",
                "augment.policy=simaugment",
                f"optim.batch_images={views // 2}",
                f"optim.micro_batch={micro_batch}",
                f"run.engine={engine}",
                f"run.device={device.type}",
            ]
        )
        rows.append(measured(config, device, arguments.size, arguments.memory))
        direct = [row["us_per_view"] for row in rows if not row["micro_batch"]]
        rows[-1]["ratio_to_fastest_direct"] = rows[-1]["us_per_view"] / min(direct)
        write(out, device, result)
    for norm in ("group", "batch"):
        spec = EncoderSpec(
            encoder=arguments.encoder, stem="auto", norm=norm, image_size=arguments.size, channels=3,
            mean=(0.5,) * 3, std=(0.25,) * 3,
        )  # fmt: skip
        for parts in (2, 4):
            size = arguments.compared // parts
            difference = gradient_difference(spec, device, arguments.compared, size)
            differences.append({"norm": norm, "views": arguments.compared, "micro_batch": size, "error": difference})
            release_memory(device)
    write(out, device, result | {"gradients": differences})
    cells = [
        (f"{row['views']:,}", row["micro_batch"] or "direct", row["engine"], digits(row["us_per_view"]),
         f"{row['ratio_to_fastest_direct']:.2f}", digits(row["allocated_gib"]), digits(row["reserved_gib"]))
        for row in rows
    ]  # fmt: skip
    columns = ("views", "micro-batch", "engine", "µs/view", "ratio", "GiB allocated", "GiB reserved")
    show(f"{arguments.encoder}, {arguments.size} px", columns, cells)
    compared = [(row["norm"], row["views"], row["micro_batch"], f"{row['error']:.1e}") for row in differences]
    show("Relative difference of the gradients, float64", ("norm", "views", "micro-batch", "difference"), compared)
    print(f"\nrows  {out}")


if __name__ == "__main__":
    main()
