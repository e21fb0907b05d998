"""A few images and those that the encoder finds most like them.

Shapes: M images, Q queries, D features.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.analysis.measured import Measured, evenly_spaced
from contune.analysis.page import escape, lead, missing, section, shorten_path
from contune.analysis.thumbnails import thumbnail

NUM_QUERIES = 8
NUM_NEIGHBOURS = 6
LONGEST_IN_A_ROW = 6
"""Letters of a class name that fit under one of six pictures side by side."""


def neighbours(measured: Measured) -> str:
    title = "Nearest neighbours"
    if len(measured) < 2:
        return section("neighbours", title, missing("Neighbours take at least two images."))
    if not measured.features.isfinite().all():
        return section("neighbours", title, missing("The encoder’s features are not finite."))
    queries = choose_queries(measured.wrong())
    indices_QK, similarities_QK = nearest(measured.features, queries)
    cards = [
        _card(measured, query, indices, similarities)
        for query, indices, similarities in zip(queries, indices_QK.tolist(), similarities_QK.tolist(), strict=True)
    ]
    text = "First an image, then the most similar others of the same split, by cosine."
    if measured.labels is not None:
        text += " A dashed border and ✗ mark another class."
    shown = {measured.class_of(index) or "" for index in (*queries, *indices_QK.flatten().tolist())}
    look = "queries roomy" if max(map(len, shown)) > LONGEST_IN_A_ROW else "queries"
    return section("neighbours", title, lead(text), f'<div class="{look}">', *cards, "</div>")


def choose_queries(wrong_M: Tensor) -> list[int]:
    """Half of them misclassified where there are as many, the rest not; each half spread over the split."""
    wrong, right = wrong_M.nonzero()[:, 0], (~wrong_M).nonzero()[:, 0]
    num_right = min(len(right), max(NUM_QUERIES // 2, NUM_QUERIES - len(wrong)))
    chosen = [
        group[evenly_spaced(len(group), most)] for group, most in ((right, num_right), (wrong, NUM_QUERIES - num_right))
    ]
    return torch.cat(chosen).tolist()


def nearest(features_MD: Tensor, queries: list[int]) -> tuple[Tensor, Tensor]:
    """Positions and cosines of the images most similar to each query, itself left out; of equals the first."""
    z_MD = F.normalize(features_MD.float(), dim=1)
    sim_QM = z_MD[queries] @ z_MD.T
    sim_QM[torch.arange(len(queries)), queries] = -torch.inf
    ranked = sim_QM.sort(dim=1, descending=True, stable=True)
    num = min(NUM_NEIGHBOURS, len(features_MD) - 1)
    return ranked.indices[:, :num], ranked.values[:, :num]


def _card(measured: Measured, query: int, indices: list[int], similarities: list[float]) -> str:
    kind, mistaken = measured.class_of(query), measured.taken_for(query)
    caption = escape(kind) if kind is not None else escape(shorten_path(str(measured.images.names[query]), 24))
    if mistaken is not None:
        caption += f' <span class="mistaken">taken for {escape(mistaken)}</span>'
    items = "\n".join(
        _neighbour(measured, index, similarity, query) for index, similarity in zip(indices, similarities, strict=True)
    )
    return f"""<div class="query">
<figure class="asked">{_picture(measured, query)}<figcaption>{caption}</figcaption></figure>
<ol>
{items}
</ol>
</div>"""


def _neighbour(measured: Measured, index: int, similarity: float, query: int) -> str:
    kind = measured.class_of(index)
    other = kind != measured.class_of(query)
    mark = '<span class="mark" role="img" aria-label="another class">✗</span>' if other else ""
    caption = f"<figcaption>{escape(kind)}</figcaption>" if kind is not None else ""
    named = " · ".join(filter(None, (kind, str(measured.images.names[index]))))
    hint = escape(f"{named}, cosine {similarity:.3f}")
    look = ' class="other"' if other else ""
    return f'<li title="{hint}"><figure{look}>{_picture(measured, index)}{mark}{caption}</figure></li>'


def _picture(measured: Measured, index: int) -> str:
    kind, name = measured.class_of(index), str(measured.images.names[index])
    description = escape(name if kind is None else f"{kind}, {name}")
    return thumbnail(measured.images, index, measured.channels, description)
