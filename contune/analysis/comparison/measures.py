"""The accuracies that a comparison shows, and in what they were not measured alike."""

from collections.abc import Sequence

from contune.analysis.comparison.runs import CLASSIFIER, JUDGED, KNN, LINEAR, Group
from contune.analysis.page import escape
from contune.analysis.wording import measure_title

TITLES = {JUDGED: "Classifier or probe", LINEAR: measure_title(LINEAR), KNN: measure_title(KNN)}
NOTHING = "–"
JUDGED_MEANS = (
    f" “{TITLES[JUDGED]}” is what <code>contune experiment</code> calls top-1: of a method that trains a classifier "
    "together with the encoder, as cross-entropy does, the accuracy of that classifier; of any other, the linear probe."
)


def measures(groups: Sequence[Group]) -> list[str]:
    """Where no method trains a classifier, all are judged by the linear probe, which is there already."""
    judged = any(run.trains_classifier for group in groups for run in group.runs)
    return [measure for measure in TITLES if judged or measure != JUDGED]


def not_alike(groups: Sequence[Group]) -> str:
    """In what the rows' measurements differ, so that not all can be compared; nothing where all can."""
    found: dict[str, set[str]] = {}
    for measure in (CLASSIFIER, LINEAR, KNN):
        for run in (run for group in groups for run in group.runs if run.top1(measure) is not None):
            names = ("Data", "Split", measure_title(measure))
            for name, value in zip(names, run.measured_as(measure), strict=True):
                found.setdefault(name, set()).add(str(value))
    items = [f"<li>{name}: {escape(' · '.join(sorted(ways)))}</li>" for name, ways in found.items() if len(ways) > 1]
    if not items:
        return ""
    text = "Not all rows were measured alike; those that were not are not compared below."
    return f'<p class="lead unlike">{text}</p><ul class="notes">{"".join(items)}</ul>'
