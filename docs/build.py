"""Regenerates what the README shows: its table of results and its pictures.

python docs/build.py                     the table, from results/, and the picture of the loss
python docs/build.py --run runs/digits   also the map of the digits, from the encoder of that run
python docs/build.py --check             write nothing; fail where the table is not the one results/ gives
"""

import argparse
from pathlib import Path

from results_table import insert, results_table

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a finished run of the recipe `digits`")
    parser.add_argument("--check", action="store_true", help="write nothing, fail where the table is stale")
    options = parser.parse_args()
    text = README.read_text()
    wanted = insert(text, results_table(ROOT / "results"))
    if options.check:
        if text != wanted:
            raise SystemExit("the table in README.md is not the one that results/ gives; run `make docs`")
        return
    README.write_text(wanted)
    from drawings import draw_map, draw_pull  # matplotlib takes a while, and --check needs none

    draw_pull(IMAGES / "pull.png")
    if options.run is not None:
        draw_map(IMAGES / "digits.png", options.run)


if __name__ == "__main__":
    main()
