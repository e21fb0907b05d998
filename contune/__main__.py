"""`python -m contune`, for `torchrun -m contune`."""

from contune.cli import main

main()
