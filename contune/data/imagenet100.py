"""ImageNet-100: a hundred classes of an ImageNet folder that a person has already."""

from pathlib import Path

from contune.data.folder import IMAGE_SUFFIXES, read_classes
from contune.data.imageset import Splits, Traits
from contune.data.places import search_places
from contune.data.walk import has_visible_file, visible_folders
from contune.errors import UserError

NUM_CLASSES = 100
FOLDERS = ("imagenet100", "imagenet")
TRAITS = Traits(image_size=224, channels=3, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


def imagenet100_splits(root: str | None, classes: str | None) -> Splits:
    """`root/train/wnid/*` and `root/val/wnid/*`; `classes` is a text file with one wnid a line.

    Without the file the folder must have exactly 100 classes. Classes are numbered by their sorted wnids.
    ImageNet's own validation images are the test set here, as in the literature.
    """
    folder = _find(root)
    class_names = _choose(folder, classes)
    return Splits(
        train=read_classes(folder / "train", class_names),
        test=read_classes(folder / "val", class_names),
        class_names=class_names,
        traits=TRAITS,
    )


def read_class_list(path: Path) -> tuple[str, ...]:
    """The first word of every line that is neither empty nor a # comment, sorted."""
    if not path.is_file():
        raise UserError(f"class list {str(path)!r} is not a file; give a text file with one wnid a line")
    lines = (line.split("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
    wnids = [words[0] for words in lines if words]
    if len(wnids) != NUM_CLASSES or len(set(wnids)) != NUM_CLASSES:
        raise UserError(
            f"class list {str(path)!r} names {len(wnids)} classes, {len(set(wnids))} of them different; "
            f"imagenet100 needs {NUM_CLASSES}, one wnid a line"
        )
    return tuple(sorted(wnids))


def _find(root: str | None) -> Path:
    places = search_places(root)
    candidates = [folder for place in places for folder in (place, *(place / name for name in FOLDERS))]
    for folder in candidates:
        if (folder / "train").is_dir() and (folder / "val").is_dir():
            return folder
    looked = ", ".join(map(str, candidates))
    raise UserError(
        f"imagenet100 is not on this disk: none of {looked} has both train/ and val/ with a folder for each "
        "class; ImageNet comes from https://image-net.org/download.php, and data.path names its folder"
    )


def _choose(folder: Path, classes: str | None) -> tuple[str, ...]:
    train = folder / "train"
    if classes is not None:
        wnids = read_class_list(Path(classes).expanduser())
    else:
        wnids = tuple(path.name for path in visible_folders(train))
    if len(wnids) != NUM_CLASSES:
        raise UserError(
            f"{str(train)!r} has {len(wnids)} class folders and imagenet100 is {NUM_CLASSES}; name a text "
            "file that lists them, one wnid a line, with data.classes"
        )
    for split in (train, folder / "val"):
        absent = [wnid for wnid in wnids if not _holds_images(split / wnid)]
        if absent:
            raise UserError(
                f"{str(split)!r} has no images of {len(absent)} of the {NUM_CLASSES} classes, such as "
                f"{absent[0]!r}; add them"
            )
    return wnids


def _holds_images(folder: Path) -> bool:
    return folder.is_dir() and has_visible_file(folder, IMAGE_SUFFIXES)
