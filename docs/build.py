"""Regenerates what the documents show: the README's numbers and pictures, and the page of results.

python docs/build.py                     text and figures, from results/ and benchmarks/results/
python docs/build.py --run runs/digits   also the map of the digits, from the encoder of that run
python docs/build.py --check             write nothing; fail if a text or figure is not the one the files give
"""

import argparse
from pathlib import Path

from tables import (
    draw_figures,
    insert,
    read_results,
    results_page,
    results_table,
    stale_figures,
    verdict,
    why,
)

from contune.experiments.verdicts import find_all, read_claims

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "results.md"
RESULTS = ROOT / "results"
BENCHMARKS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a finished run of the recipe `digits`")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where something is stale")
    options = parser.parse_args()
    results = read_results(RESULTS)
    findings = find_all(read_claims(RESULTS), results)
    blocks = {
        "numbers": why(BENCHMARKS),
        "verdict": verdict(findings, results, "docs/results.md"),
        "results": results_table(results, "CIFAR-100"),
    }
    readme = README.read_text()
    for name, block in blocks.items():
        readme = insert(readme, name, block)
    wanted = {README: readme, PAGE: results_page(RESULTS, IMAGES)}
    if options.check:
        stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
        for path in [*stale, *stale_figures(RESULTS, IMAGES)]:
            raise SystemExit(f"{path.relative_to(ROOT)} is not what results/ gives; run `make docs`")
        return
    for path, text in wanted.items():
        path.write_text(text)
    draw_figures(RESULTS, IMAGES)
    from drawings import draw_map, draw_pull  # matplotlib is slow to import, and --check needs none of it

    draw_pull(IMAGES / "pull.png")
    if options.run is not None:
        draw_map(IMAGES / "digits.png", options.run)


if __name__ == "__main__":
    main()
