"""Annotation formats: tiny copies of each, and the real files where they lie beside the project."""

import contextlib
import json
import os
from pathlib import Path

import pytest

from tokenselect.data import Sample, TableLayout, read_annotations
from tokenselect.data.annotations import matches, sniff_format
from tokenselect.data.labels import read_class_names

BESIDE = [folder / "shared" / "data" for folder in Path(__file__).parents]
REAL = next((folder for folder in BESIDE if folder.exists()), BESIDE[3])
needs_real_files = pytest.mark.skipif(
    not REAL.exists(), reason="no public data sets in shared/data beside the project"
)

KINETICS = """label,youtube_id,time_start,time_end,split,is_cc,label_id
air drumming,0wR5jVB-WPk,417,427,val,0,1
abseiling,3caPS4FHFF8,36,46,val,0,0
"""
SSV2 = [
    {"id": "74225", "label": "opening a box", "template": "Opening [something]"},
    {
        "id": "9",
        "label": "hitting match box with stick",
        "template": "Hitting [something] with [something]",
    },
]
SSV2_LABELS = {
    "Closing something": "0",
    "Hitting something with something": "2",
    "Opening something": "1",
}
UCF101 = "Archery/v_Archery_g08_c01.avi 3\nApplyEyeMakeup/v_ApplyEyeMakeup_g08_c02.avi 1\n"
UCF101_CLASSES = "1 ApplyEyeMakeup\n2 ApplyLipstick\n3 Archery\n"
LSA = """path\tlabel\tsign\tsigner
a/1.mp4\t23\tArgentina\t1
a/2.mp4\t23\tArgentina\t8
b/1.mp4\t24\tUruguay\t1
c/1.mp4\t25\tCountry\t7
c/2.mp4\t25\tCountry\t9
"""
GESTURES = (
    "stop\tone\ttrain\t120\t120\nleft_swipe\ttwo\tval\t160\t120\nstop\tthree\tval\t160\t120\n"
)
GESTURES_LAYOUT = TableLayout(
    path="{class}/{clip}.mp4",
    label="class",
    columns=("class", "clip", "split", "width", "height"),
    where={"split": "val"},
)


def repr_start(text: str) -> str:
    return repr(text[:2])


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def pairs(samples: list[Sample], root: Path) -> list[tuple[str, int | None]]:
    return [(str(Path(sample.path).relative_to(root)), sample.label) for sample in samples]


def test_kinetics_names_files_by_id_and_time(tmp_path):
    found = read_annotations(write(tmp_path / "val.csv", KINETICS))
    assert found.class_names == ["abseiling", "air drumming"]
    assert pairs(found.samples, tmp_path) == [
        ("0wR5jVB-WPk_000417_000427.mp4", 1),
        ("3caPS4FHFF8_000036_000046.mp4", 0),
    ]


def test_videos_are_found_in_the_folders_of_their_split_or_class(tmp_path):
    annotations = write(tmp_path / "val.csv", KINETICS)
    write(tmp_path / "videos/val/0wR5jVB-WPk_000417_000427.mkv", "")
    write(tmp_path / "videos/abseiling/3caPS4FHFF8_000036_000046.mp4", "")
    found = read_annotations(annotations, root=tmp_path / "videos")
    assert pairs(found.samples, tmp_path / "videos") == [
        ("val/0wR5jVB-WPk_000417_000427.mkv", 1),
        ("abseiling/3caPS4FHFF8_000036_000046.mp4", 0),
    ]


def test_class_names_of_a_file_set_the_order(tmp_path):
    names = write(tmp_path / "names.txt", "zumba\nair drumming\nabseiling\n")
    without_numbers = (
        KINETICS.replace(",is_cc,label_id", "").replace(",0,1", "").replace(",0,0", "")
    )
    annotations = write(tmp_path / "val.csv", without_numbers)
    found = read_annotations(annotations, class_names=names)
    assert [sample.label for sample in found.samples] == [1, 2] and found.num_classes == 3


def test_an_unknown_label_is_named(tmp_path):
    names = write(tmp_path / "names.txt", "zumba\nabseiling\n")
    with pytest.raises(
        ValueError, match="class 'air drumming', not among the 2 class names: zumba, abseiling"
    ):
        read_annotations(write(tmp_path / "val.csv", KINETICS), class_names=names)


@pytest.mark.parametrize("between", [" ", ",", "\t"])
def test_lists_of_paths_and_labels(tmp_path, between):
    lines = f"/far/a b.mp4{between}2\nc.mp4{between}0\n"
    found = read_annotations(write(tmp_path / "train.csv", lines))
    assert found.samples == [Sample("/far/a b.mp4", 2), Sample(str(tmp_path / "c.mp4"), 0)]
    assert found.class_names == ["0", "1", "2"]


def test_lists_of_frame_folders_carry_a_count(tmp_path):
    found = read_annotations(write(tmp_path / "train.txt", "clips/one 299 4\nclips/two 31 0\n"))
    assert pairs(found.samples, tmp_path) == [("clips/one", 4), ("clips/two", 0)]


def test_a_bad_line_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"line 2: expected `path label`, got 'b.mp4'"):
        read_annotations(write(tmp_path / "train.txt", "a.mp4 1\nb.mp4\n"))


def test_ssv2_templates_meet_their_labels(tmp_path):
    annotations = write(tmp_path / "validation.json", json.dumps(SSV2))
    write(tmp_path / "labels.json", json.dumps(SSV2_LABELS))
    found = read_annotations(annotations)
    assert pairs(found.samples, tmp_path) == [("74225.webm", 1), ("9.webm", 2)]
    assert found.class_names[1] == "Opening something"


def test_ssv2_without_labels_sorts_the_templates(tmp_path):
    found = read_annotations(write(tmp_path / "validation.json", json.dumps(SSV2)))
    assert [sample.label for sample in found.samples] == [1, 0]


def test_a_test_set_has_no_labels(tmp_path):
    found = read_annotations(write(tmp_path / "test.json", '[{"id": "5"}]'))
    assert pairs(found.samples, tmp_path) == [("5.webm", None)]


@pytest.mark.parametrize("lines", [UCF101, UCF101.replace(" 3", "").replace(" 1", "")])
def test_ucf101_lists_with_and_without_numbers(tmp_path, lines):
    write(tmp_path / "classInd.txt", UCF101_CLASSES)
    found = read_annotations(write(tmp_path / "list01.txt", lines))
    assert [sample.label for sample in found.samples] == [2, 0]
    assert found.class_names == ["ApplyEyeMakeup", "ApplyLipstick", "Archery"]


def test_a_table_with_a_header(tmp_path):
    found = read_annotations(write(tmp_path / "clips.tsv", LSA))
    assert pairs(found.samples, tmp_path)[2] == ("b/1.mp4", 1)
    assert found.class_names == ["23", "24", "25"]


def test_rows_and_classes_of_a_table_are_chosen(tmp_path):
    layout = TableLayout(names="sign", classes="23-61:2", where={"signer": "8-9"})
    found = read_annotations(write(tmp_path / "clips.tsv", LSA), table=layout)
    assert pairs(found.samples, tmp_path) == [("a/2.mp4", 0), ("c/2.mp4", 1)]
    assert found.class_names == ["Argentina", "Country"]


def test_parts_of_a_table_agree_on_the_classes(tmp_path):
    path = write(tmp_path / "clips.tsv", LSA)
    part = read_annotations(path, table=TableLayout(where={"signer": "9"}))
    assert part.num_classes == 3 and part.samples[0].label == 2


def test_a_table_without_a_header_needs_names_of_columns(tmp_path):
    path = write(tmp_path / "split.tsv", GESTURES)
    found = read_annotations(path, table=GESTURES_LAYOUT)
    assert pairs(found.samples, tmp_path) == [("left_swipe/two.mp4", 0), ("stop/three.mp4", 1)]
    with pytest.raises(ValueError, match="has no column label, path"):
        read_annotations(path, annotation_format="table")


@pytest.mark.parametrize(
    ("value", "values", "is_in"),
    [("3", "1-7", True), ("8", "1-7", False), ("10", "9,10", True), ("24", "23-61:2", False),
     ("train", "train", True), ("train", "val, train", True), ("1-7", "1-7", True)],
)  # fmt: skip
def test_values_are_words_numbers_ranges(value, values, is_in):
    assert matches(value, values) is is_in


def test_a_folder_of_class_folders(tmp_path):
    for name in ("b/1.mp4", "b/deep/2.avi", "a/3.webm", "a/notes.txt", "c/frames/img_1.jpg"):
        write(tmp_path / name, "")
    found = read_annotations(tmp_path)
    assert pairs(found.samples, tmp_path) == [
        ("a/3.webm", 0), ("b/1.mp4", 1), ("b/deep/2.avi", 1), ("c/frames", 2)
    ]  # fmt: skip
    assert found.class_names == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("content", "name"),
    [("a\nb c\n", "names.txt"), ("1 a\n2 b c\n", "names.txt"), ('["a", "b c"]', "names.json"),
     ('{"b c": "1", "a": "0"}', "names.json"), ('{"0": "a", "1": "b c"}', "names.json")],
)  # fmt: skip
def test_files_of_class_names(tmp_path, content, name):
    assert read_class_names(write(tmp_path / name, content)) == ["a", "b c"]


PARTS = {"train": "abc", "val": "ac", "test": "b"}


@pytest.fixture(name="parts")
def folders_with_parts(tmp_path) -> Path:
    for part, classes in PARTS.items():
        for name in classes:
            write(tmp_path / part / name / "1.mp4", "")
    return tmp_path


def test_a_class_folder_that_a_part_lacks_shifts_no_label(parts):
    names = read_annotations(parts / "train").class_names
    val = read_annotations(parts / "val", class_names=names)
    assert [sample.label for sample in val.samples] == [0, 2] and val.class_names == names


def test_a_renamed_class_folder_is_an_error(parts):
    (parts / "val" / "c").rename(parts / "val" / "C major")
    with pytest.raises(
        ValueError, match=r"val has the class 'C major', not among the 3 .*: a, b, c"
    ):
        read_annotations(parts / "val", class_names=["a", "b", "c"])


def test_parts_are_not_taken_for_classes(parts):
    with pytest.raises(ValueError, match=r"holds the parts train, val and test, not classes"):
        read_annotations(parts)
    (parts / "other").mkdir()
    write(parts / "other" / "1.mp4", "")
    assert read_annotations(parts).class_names == ["other", "test", "train", "val"]


def test_classes_that_differ_by_case_alone_stay_apart(tmp_path):
    for name in ("Run", "run"):
        write(tmp_path / name / "1.mp4", "")
    found = read_annotations(tmp_path)
    assert [sample.label for sample in found.samples] == [0, 1]
    with pytest.raises(ValueError, match="class 'RUN'"):
        read_annotations(write(tmp_path / "list.csv", "path,label\n1.mp4,RUN\n"),
                         class_names=["Run", "run"])  # fmt: skip


def test_two_classes_of_one_name_are_an_error(tmp_path):
    names = write(tmp_path / "names.txt", "zumba\nzumba\n")
    with pytest.raises(ValueError, match="two classes are called 'zumba'"):
        read_annotations(write(tmp_path / "val.txt", "a.mp4 0\n"), class_names=names)


def test_a_class_name_that_cannot_be_saved_is_an_error(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    write(tmp_path / os.fsdecode(b"caf\xe9") / "1.mp4", "")
    with pytest.raises(ValueError, match=r"class name .* is not plain text"):
        read_annotations(tmp_path)


def test_names_of_a_table_are_matched_by_name(tmp_path):
    path = write(tmp_path / "clips.tsv", LSA)
    layout = TableLayout(names="sign", where={"signer": "9"})
    found = read_annotations(path, table=layout, class_names=["Country", "Argentina", "Uruguay"])
    assert [sample.label for sample in found.samples] == [0]
    with pytest.raises(ValueError, match="class '25', not among the 1 class names: Argentina"):
        read_annotations(path, table=layout, class_names=["Argentina"])


@pytest.mark.parametrize(
    ("content", "name"),
    [(KINETICS, "val.csv"), (LSA, "clips.tsv"), (UCF101, "list.txt"), (json.dumps(SSV2), "v.json"),
     ("a.mp4 1\nb.mp4 0\n", "list.txt")],
)  # fmt: skip
def test_a_byte_order_mark_changes_nothing(tmp_path, content, name):
    plain = read_annotations(write(tmp_path / name, content))
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert read_annotations(tmp_path / name) == plain
    names = write(tmp_path / "names.txt", "")
    names.write_text("zumba\nrun\n", encoding="utf-8-sig")
    assert read_class_names(names) == ["zumba", "run"]


def test_only_newlines_end_a_line(tmp_path):
    names = ["a\u2028b.mp4", "c\x0bd.mp4", "e\x85f.mp4", os.fsdecode(b"caf\xe9.mp4")]
    path = tmp_path / "train.txt"
    path.write_bytes(os.fsencode("".join(f"{name} 0\r\n" for name in names)))
    assert [Path(s.path).name for s in read_annotations(path).samples] == names


BROKEN = {
    "kinetics without an end": (
        "val.csv",
        KINETICS.replace("time_end", "end"),
        "no column time_end",
    ),
    "kinetics with a bad time": (
        "val.csv",
        KINETICS.replace("417", "soon"),
        "line 2: expected a who",
    ),
    "a label_id of two names": ("val.csv", KINETICS.replace("0,0", "0,1"), "label_id 1 has two"),
    "a huge label_id": ("val.csv", KINETICS.replace("0,1\n", "0,20000000\n"), "below 100,000"),
    "a huge label": ("list.txt", "a.mp4 1\nb.mp4 20000000\n", "line 2: label 20000000 is too la"),
    "a label of 5000 digits": ("list.txt", "a.mp4 1\nb.mp4 " + "9" * 5000, "line 2: expected"),
    "kinetics without labels": ("val.csv", KINETICS.replace("label,", "name,", 1), None),
    "a row cut short": ("clips.tsv", "path\tlabel\na.mp4\n", None),
    "a field without end": ("clips.csv", 'path,label\n"' + "x" * 140_000, "line 2: field larger"),
    "json cut short": ("val.json", '[{"id": "5"', "val.json is not valid JSON"),
    "json of another kind": ("val.json", '["a", "b"]', 'a list of entries with an "id"'),
    "json too deep": ("val.json", "[" * 100_000, "val.json is not valid JSON"),
    "utf-16": ("list.txt", "a.mp4 1\n".encode("utf-16"), "list.txt is UTF-16"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_wrong_is_said_with_the_file(tmp_path, kind):
    name, content, message = BROKEN[kind]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if message is None:
        assert read_annotations(path).samples[0].label is None
        return
    with pytest.raises(ValueError, match=message) as error:
        read_annotations(path)
    assert name in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("filler", [" " * 30_000, "9 " * 15_000, "a," * 15_000], ids=repr_start)
@pytest.mark.parametrize("ending", ["x", " 1", "-"])
def test_a_long_line_takes_steps_in_proportion(tmp_path, filler, ending):
    """A search that backtracks needs minutes here: the timeout of the suite ends it."""
    path = write(tmp_path / "list.txt", f"a.mp4 1\nb{filler}{ending}\n")
    with contextlib.suppress(ValueError):
        read_annotations(path)
    with contextlib.suppress(ValueError):
        read_annotations(write(tmp_path / "first.txt", f"b{filler}{ending}\n"))
    read_class_names(path)


def test_what_cannot_be_told_is_to_be_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot tell the format of .* name it"):
        read_annotations(write(tmp_path / "what.txt", "once upon a time\n"))
    with pytest.raises(ValueError, match="annotation_format must be one of folder, kinetics"):
        read_annotations(tmp_path / "what.txt", annotation_format="xml")
    with pytest.raises(FileNotFoundError, match="no annotations at"):
        read_annotations(tmp_path / "nowhere.csv")


@needs_real_files
@pytest.mark.parametrize(
    ("name", "annotation_format", "num_samples", "num_classes"),
    [("kinetics400_val_head.csv", "kinetics", 59, 2), ("slowfast_train_head.csv", "list", 30, 1),
     ("ssv2_validation_head.json", "ssv2", 60, 174),
     ("ucf101_trainlist01_head.txt", "ucf101", 40, 101)],
)  # fmt: skip
def test_real_annotations(name, annotation_format, num_samples, num_classes):
    path = REAL / "annotations" / name
    assert sniff_format(path) == annotation_format
    found = read_annotations(path)
    assert (len(found), found.num_classes) == (num_samples, num_classes)
    assert all(sample.label is not None for sample in found.samples)


@needs_real_files
def test_the_split_of_lsa64():
    layout = TableLayout(names="sign", classes="23-61:2", where={"signer": "1-7"})
    found = read_annotations(REAL / "lsa64" / "clips.tsv", table=layout)
    assert (len(found), found.num_classes) == (700, 20)
    assert Path(found.samples[-1].path).exists()


def test_rows_can_be_parts_of_a_video(tmp_path):
    table = write(
        tmp_path / "parts.tsv", "path\tlabel\tfirst\tend\na.mp4\tno\t4\t9\na.mp4\tyes\t9\t20\n"
    )
    layout = TableLayout(start="first", stop="end")
    found = read_annotations(table, table=layout)
    assert [(sample.label, sample.span) for sample in found.samples] == [(0, (4, 9)), (1, (9, 20))]
    wrong = write(tmp_path / "wrong.tsv", "path\tlabel\tfirst\tend\na.mp4\tno\t9\t4\n")
    with pytest.raises(ValueError, match=r"first and end must be frame numbers.* got '9' and '4'"):
        read_annotations(wrong, table=layout)
    with pytest.raises(ValueError, match="start and stop must both name a column"):
        TableLayout(start="first")


@pytest.mark.parametrize(
    "text",
    [
        "video,label\na b.mp4,run\nc.mp4,walk\n",
        "id\tFilename\tClass\n1\ta b.mp4\trun\n2\tc.mp4\twalk\n",
        "a b.mp4,run\nc.mp4,walk\n",
    ],
)
def test_a_table_is_known_by_the_usual_names_of_its_columns(tmp_path, text):
    (tmp_path / "labels.csv").write_text(text)
    found = read_annotations(tmp_path / "labels.csv")
    assert [Path(sample.path).name for sample in found.samples] == ["a b.mp4", "c.mp4"]
    assert [found.class_names[sample.label] for sample in found.samples] == ["run", "walk"]
