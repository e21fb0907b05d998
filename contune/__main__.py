"""`python -m contune`, which `torchrun -m contune` needs."""

from contune.cli import main

main()
