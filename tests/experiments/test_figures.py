"""Every kind of figure, drawn once from made-up results."""

import pytest
from made_up import made_up_outcome
from matplotlib.figure import Figure
from matplotlib.text import Text

from contune.experiments import Outcome, find_experiment
from contune.experiments.figures import make_figure

CURVES = {
    "epoch": [0.5, 1.0, 1.5],
    **{f"{prefix}{sign}_gradient": [0.3, None, 0.1] for prefix in ("", "supcon_") for sign in ("positive", "negative")},
}


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)}


def drawn(name: str, *linear: float) -> Figure:
    """Each row with these accuracies, the last one without a run."""
    experiment = find_experiment(name)
    *rows, last = experiment.rows
    outcomes = [made_up_outcome(row, *linear, curves=CURVES) for row in rows]
    return make_figure(experiment, [*outcomes, Outcome(last, num_missing=1)])


@pytest.mark.parametrize(
    ("name", "num_panels", "shown"),
    [
        ("ssl-digits", 1, {"fast probe", "kNN", "BYOL", "Random encoder", "Raw pixels (not run yet)"}),
        ("table1", 4, {"Cross-entropy", "SupCon", "TCL", "CIFAR-10", "ImageNet-100", "open: the paper"}),
        ("fig-batch", 1, {"SupCon", "TCL", "batch size", "1024", "open: the paper"}),
        ("fig-augment", 1, {"AutoAugment", "SimAugment", "augmentation"}),
        (
            "ci",
            2,
            {
                "SupCon − Cross-entropy",
                "SupCon − Cross-entropy, fast probe",
                "difference, points\n(measured as on the left)",
            },
        ),
        ("fig-k1", 3, {"TCL, k1 = 20,000", "SupCon", "k1", "compared with SupCon on the same batches"}),
        ("fig-k2", 3, {"TCL, k2 = 1", "mean gradient from negatives", "fast probe, top-1 %"}),
    ],
)
def test_a_figure_names_what_it_shows(name: str, num_panels: int, shown: set[str]) -> None:
    figure = drawn(name, 90.0, 91.0, 92.0)
    panels = [axes for axes in figure.axes if axes.lines or axes.containers]
    assert len(panels) == num_panels
    assert {find_experiment(name).title, "95 % interval over runs", *shown} <= words(figure)
