"""Where names of classes stand on a map."""

from contune.analysis.map_labels import EDGE, LINE_HEIGHT, Label, place_labels, text_width

WIDTH, HEIGHT = 760, 600


def overlaps(one: Label, other: Label) -> bool:
    apart = one.ends[1] <= other.ends[0] or other.ends[1] <= one.ends[0]
    return not apart and abs(one.y - other.y) < LINE_HEIGHT - 1e-6


def test_a_name_with_room_stands_in_the_middle_of_its_point() -> None:
    (label,) = place_labels(["cat"], [(300.0, 200.0)], WIDTH, HEIGHT)
    assert (label.x, label.side) == (300.0, "middle")
    assert abs(label.y - 200) < LINE_HEIGHT / 2


def test_at_an_edge_a_name_begins_or_ends_there() -> None:
    names = ["orange fruit round", "Ebene – plain land", "汉字汉字汉字汉字汉字"]
    points = [(24.0, 100.0), (736.0, 300.0), (740.0, 500.0)]
    labels = place_labels(names, points, WIDTH, HEIGHT)
    assert [(label.x, label.side) for label in labels] == [(EDGE, "left"), (WIDTH - EDGE, "right"), (752, "right")]
    assert all(label.ends[0] >= 0 and label.ends[1] <= WIDTH for label in labels)


def test_names_on_one_point_stand_below_each_other_and_stay_inside() -> None:
    for y in (24.0, 300.0, 576.0):
        labels = place_labels([f"sweet pepper {k}" for k in range(4)], [(380.0, y)] * 4, WIDTH, HEIGHT)
        assert not any(overlaps(a, b) for place, a in enumerate(labels) for b in labels[:place])
        assert all(LINE_HEIGHT <= label.y <= HEIGHT for label in labels)


def test_the_first_stays_where_it_is_and_a_neighbour_beside_it_too() -> None:
    labels = place_labels(["left", "right", "left"], [(100.0, 200.0), (600.0, 200.0), (110.0, 205.0)], WIDTH, HEIGHT)
    assert labels[0].y == labels[1].y
    assert labels[2].y >= labels[0].y + LINE_HEIGHT


def test_twenty_names_on_one_point_are_all_there() -> None:
    assert len(place_labels(["a class"] * 20, [(380.0, 300.0)] * 20, WIDTH, HEIGHT)) == 20


def test_wide_letters_take_more_room() -> None:
    assert text_width("汉字") > text_width("ab")
    assert text_width("AB") > text_width("ab")
