"""Colours of the benchmarks' drawings: contune's own warm, its peers' cold."""

TEXT, QUIET, GRID = "#1b1f24", "#5b6470", "#e4e7eb"
BASELINE_COLOUR = "#d1431f"
OWN_COLOURS = ("#e8896c", "#b86a9b", "#e0a83a", "#8a5a44")
PEER_COLOURS = ("#2f6fb0", "#2a9d8f", "#6a51a3", "#7f8c99", "#3d5a80", "#9aa53a")
