"""Export runs to the model collection, models/, and list them in results/models.json.

    python docs/models.py runs/digits runs/cifar100-tcl    # the folder's name becomes the model's

models/ is not in git. A release hosts each folder as NAME.tar.gz, with models.json beside them. Each folder has a model
card. `contune.load_encoder(NAME)` checks the weights against the list.
"""

import argparse
import json
from pathlib import Path

from safetensors import safe_open

from contune.export import export_run
from contune.hub import LIST
from contune.models.saved import DIGEST, ENCODER_FILE
from contune.run import RunFolder

SHOWN = ("linear", "linear-fast", "classifier", "knn")
ROOT = Path(__file__).parent.parent
LISTED, COLLECTION = ROOT / "results" / LIST, ROOT / "models"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    models = {each["name"]: each for each in json.loads(LISTED.read_text())} if LISTED.exists() else {}
    for run in parser.parse_args().runs:
        folder, _ = export_run(run, "safetensors", COLLECTION / run.name, license="mit")
        result, file = RunFolder(run).result() or {}, folder / ENCODER_FILE
        with safe_open(file, framework="pt") as opened:
            digest = opened.metadata()[DIGEST]
        models[run.name] = {
            "name": run.name,
            "file": ENCODER_FILE,
            "bytes": file.stat().st_size,
            "sha256": digest,
            "top1": {each["name"]: round(each["top1"], 2) for each in result["measures"] if each["name"] in SHOWN},
            "command": result["command"].partition(" --out")[0],
            "git_revision": result["git_revision"],
            "release": f"{run.name}.tar.gz",
        }
    text = json.dumps(list(models.values()), indent=2) + "\n"
    for path in (LISTED, COLLECTION / LIST):
        path.write_text(text)
    print(f"{len(models)} models in {LISTED}")


if __name__ == "__main__":
    main()
