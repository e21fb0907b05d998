"""The paper's figure of k2: gradients from negatives over training."""

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from contune.experiments.outcome import Outcome
from contune.experiments.response_panels import DASHED, DOTTED, draw, dress_curves, head_panel, line, two_panels
from contune.experiments.responses import NEGATIVE
from contune.experiments.style import STYLE, SUPCON, TCL, title_and_legend
from contune.report.style import BLUE, MUTED, VERMILLION


def k2_figure(title: str, outcomes: Sequence[Outcome]) -> Figure:
    """A panel for each k2: the mean gradient from negatives of TCL, of SupCon's run, and SupCon's on TCL's batches."""
    tuned = [each for each in outcomes if each.row.series == TCL]
    supcon = [each for each in outcomes if each.row.series == SUPCON]
    with matplotlib.rc_context(STYLE):
        figure, *panels = two_panels(title)
        for axes, outcome in zip(panels, tuned, strict=True):
            draw(axes, outcome, NEGATIVE, colour=BLUE)
            for other in supcon:
                draw(axes, other, NEGATIVE, colour=VERMILLION, dashes=DASHED)
            draw(axes, outcome, f"supcon_{NEGATIVE}", colour=MUTED, dashes=DOTTED)
            dress_curves(axes, "mean gradient from negatives")
            head_panel(axes, outcome.row.title)
        top = max(axes.get_ylim()[1] for axes in panels)
        for axes in panels:
            axes.set_ylim(0, top)
        handles = [
            line(TCL, BLUE),
            line(f"{SUPCON}, its own run", VERMILLION, dashes=DASHED),
            line(f"{SUPCON}'s formula on the batches of TCL's run", MUTED, dashes=DOTTED),
        ]
        title_and_legend(figure, title, handles)
    return figure
