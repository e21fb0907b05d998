"""Regenerates what the documents show: the README's table of results and pictures, the pages of experiments.

python docs/build.py                     tables and figures, from results/, and the picture of the loss
python docs/build.py --run runs/digits   also the map of the digits, from the encoder of that run
python docs/build.py --check             write nothing; fail where a table is not the one results/ gives
"""

import argparse
from pathlib import Path

from experiment_tables import PAGE, draw_experiment, experiment_folders, experiment_page
from results_table import insert, results_table

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a finished run of the recipe `digits`")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the table is stale")
    options = parser.parse_args()
    folders = experiment_folders(ROOT / "results")
    wanted = {README: insert(README.read_text(), results_table(ROOT / "results"))}
    wanted |= {folder / PAGE: experiment_page(folder) for folder in folders}
    if options.check:
        for path, text in wanted.items():
            if not path.exists() or path.read_text() != text:
                shown = path.relative_to(ROOT)
                raise SystemExit(f"the table in {shown} is not the one that results/ gives; run `make docs`")
        return
    for path, text in wanted.items():
        path.write_text(text)
    for folder in folders:
        draw_experiment(folder)
    from drawings import draw_map, draw_pull  # matplotlib takes a while, and --check needs none

    draw_pull(IMAGES / "pull.png")
    if options.run is not None:
        draw_map(IMAGES / "digits.png", options.run)


if __name__ == "__main__":
    main()
