"""A user's own folder: what is read from CSV and COCO files, how it is split, and every mistake with its line."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.images import ImageIndex
from normmatch.datasets import folder
from normmatch.errors import ConfigError, DataError
from normmatch.outputs import write_json

HEADER = "image,class,name,x,y\n"


def make_images(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (60, 40)).save(root / name)


def write_csv(root: Path, body: str, header: str = HEADER) -> Path:
    """Three images a.png, b.png, c.png and the rows `body`."""
    make_images(root, "a.png", "b.png", "c.png")
    (root / "points.csv").write_text(header + body, encoding="utf-8")
    return root


def rows(*images: str, label: str = "cat", extra: str = "") -> str:
    """Two keypoints, eye and nose, for each image."""
    return "".join(f"{i},{label},eye,10,20{extra}\n{i},{label},nose,12.5,25{extra}\n" for i in images)


def coco(root: Path, change: Callable[[dict[str, Any]], object] = lambda content: None) -> Path:
    """A small COCO folder, changed by `change` before it is written."""
    make_images(root, "images/1.png", "images/2.png", "images/3.png")
    content: dict[str, Any] = {
        "images": [{"id": i, "file_name": f"{i}.png", "width": 60, "height": 40} for i in (1, 2, 3)],
        "categories": [{"id": 7, "name": "cat", "keypoints": ["eye", "nose", "tail"], "skeleton": []}],
        "annotations": [
            {
                "id": 10,
                "image_id": 1,
                "category_id": 7,
                "bbox": [1, 2, 30, 20],
                "keypoints": [5, 6, 2, 7, 8, 1, 0, 0, 0],
            },
            {"id": 11, "image_id": 2, "category_id": 7, "keypoints": [1, 2, 2, 3, 4, 2, 5.5, 6, 2]},
            {"id": 12, "image_id": 3, "category_id": 7, "keypoints": [1, 2, 2, 3, 4, 2, 5.5, 6, 2]},
            {"id": 13, "image_id": 3, "category_id": 7, "keypoints": [0] * 9, "bbox": [0, 0, 5, 5], "iscrowd": 1},
        ],
    }
    change(content)
    (root / "keypoints.json").write_text(json.dumps(content), encoding="utf-8")
    return root


def everything(root: Path) -> list[Any]:
    return [item for split in folder.load(root).splits.values() for item in split.objects]


# ---- what is read ----


def test_csv(tmp_path: Path) -> None:
    dataset = folder.load(write_csv(tmp_path, rows("a.png", "b.png", "c.png")), val_share=0)
    assert dataset.name == "folder"
    assert list(dataset.splits) == ["train"]
    assert not dataset.skipped
    objects = dataset.splits["train"].objects
    assert [item.path for item in objects] == [tmp_path / f"{i}.png" for i in "abc"]
    assert (objects[0].label, objects[0].names, objects[0].box) == ("cat", ("eye", "nose"), None)
    assert objects[0].keypoints.dtype == np.float64
    np.testing.assert_array_equal(objects[0].keypoints, [[10, 20], [12.5, 25]])  # as given: no half pixel is added


def test_csv_with_boxes_objects_and_splits(tmp_path: Path) -> None:
    header = "split,image,class,object,name,x,y,xmin,ymin,width,height\n"
    body = (
        "train,a.png,cat,1,eye,1,2,0,0,10,12\ntrain,a.png,dog,2,eye,3,4,,,,\n"
        "train,a.png,cat,1,nose,2,2,0,0,10,12\ntrain,a.png,dog,2,nose,3,5,,,,\n"
        "test,b.png,cat,,eye,1,2,,,,\ntest,b.png,cat,,nose,2,3,,,,\n"
        "val,c.png,dog,x,eye,1,2,,,,\nval,c.png,dog,x,nose,2,3,,,,\n"
    )
    splits = folder.load(write_csv(tmp_path, body, header)).splits
    assert {name: [item.label for item in split.objects] for name, split in splits.items()} == {
        "train": ["cat", "dog"],
        "val": ["dog"],
        "test": ["cat"],
    }
    assert [item.box for item in splits["train"].objects] == [(0, 0, 10, 12), None]
    assert splits["train"].objects[0].names == ("eye", "nose")


def test_csv_as_spreadsheets_write_it(tmp_path: Path) -> None:
    """A byte-order mark, Windows line ends, spaces, quotes, a blank line and letters beyond ASCII."""
    make_images(tmp_path, "größe, 1.png", "b.png")
    text = 'image, class,name,x,y\r\n"größe, 1.png",cat, eye ,1,2\r\n"größe, 1.png",cat,nose,1,2\r\n\r\n'
    text += "b.png,cat,eye,1,2\r\nb.png,cat,nose,3,4\r\n"
    (tmp_path / "points.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    objects = everything(tmp_path)
    assert {item.path.name for item in objects} == {"größe, 1.png", "b.png"}
    assert all(item.names == ("eye", "nose") for item in objects)


def test_coco(tmp_path: Path) -> None:
    dataset = folder.load(coco(tmp_path), val_share=0)
    objects = dataset.splits["train"].objects
    assert dataset.skipped == {"annotations without a labelled keypoint": 1}
    assert [item.path for item in objects] == [tmp_path / "images" / f"{i}.png" for i in (1, 2, 3)]
    assert (objects[0].names, objects[0].box, objects[0].label) == (
        ("eye", "nose"),
        (1, 2, 30, 20),
        "cat",
    )  # v=0: absent
    np.testing.assert_array_equal(objects[0].keypoints, [[5, 6], [7, 8]])
    assert (objects[1].names, objects[1].box) == (("eye", "nose", "tail"), None)


@pytest.mark.parametrize(("name", "format"), [("a.json", "native"), ("a.json", "coco"), ("a.csv", "csv")])
def test_every_format_is_trained_on_and_matched(tmp_path: Path, name: str, format: annotations.Format) -> None:
    """With class, split, box, hidden points and two objects in an image."""
    make_images(tmp_path, "images/1.png", "images/2.png", "3.png", "4.png")
    xy = np.array([[5.25, 6.0], [7.0, 1 / 3]])
    items = [
        Annotation("1.png", ("eye", "nose"), xy, (1, 2, 30, 20), "cat", "train", np.array([True, False])),
        Annotation("1.png", ("eye", "nose"), xy + 1, None, "dog", "train"),
        Annotation("2.png", ("eye", "nose"), xy + 2, (1, 2, 30, 20), "cat", "train"),
        Annotation("3.png", ("eye", "nose"), xy + 3, None, "dog", "train"),
        Annotation("4.png", ("eye", "nose"), xy + 4, None, "dog", "val"),
    ]
    annotations.write(tmp_path / name, items, format)
    splits = folder.load(tmp_path).splits
    read = [*splits["train"].objects, *splits["val"].objects]
    places = ("images/1.png", "images/1.png", "images/2.png", "3.png", "4.png")
    assert [item.path for item in read] == [tmp_path / place for place in places]
    for item, given in zip(read, items, strict=True):
        assert (item.names, item.label, item.split, item.box) == (given.names, given.label, given.split, given.box)
        np.testing.assert_array_equal(item.keypoints, given.keypoints)
    assert read[0].visible is not None
    assert read[0].visible.tolist() == [True, False]
    index = ImageIndex(annotations.read(tmp_path / name), tmp_path / name)
    np.testing.assert_array_equal(index.find(tmp_path / "images/2.png").keypoints, xy + 2)
    assert len(index.all(tmp_path / "images/1.png")) == 2


def test_a_file_without_classes_has_one(tmp_path: Path) -> None:
    body = "".join(f"{image},eye,1,2\n{image},nose,3,4\n" for image in ("a.png", "b.png"))
    assert {item.label for item in everything(write_csv(tmp_path, body, "image,name,x,y\n"))} == {"object"}


# ---- splits ----


def many(root: Path) -> Path:
    names = [f"{label}{i}.png" for label in ("cat", "dog") for i in range(20)]
    make_images(root, *names)
    (root / "points.csv").write_text(HEADER + "".join(rows(name, label=name[:3]) for name in names))
    return root


def test_validation_is_held_out_class_by_class(tmp_path: Path) -> None:
    splits = folder.load(many(tmp_path), val_share=0.2).splits
    labels = [item.label for item in splits["val"].objects]
    assert (labels.count("cat"), labels.count("dog")) == (4, 4)
    train, val = ({item.image for item in splits[name].objects} for name in ("train", "val"))
    assert not train & val
    assert len(train | val) == 40


def test_split_depends_on_the_seed_alone(tmp_path: Path) -> None:
    many(tmp_path)
    held = [{item.image for item in folder.load(tmp_path, seed=s).splits["val"].objects} for s in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


def test_given_validation_is_kept(tmp_path: Path) -> None:
    body = rows("a.png", extra=",val") + rows("b.png", "c.png", extra=",train")
    splits = folder.load(write_csv(tmp_path, body, HEADER.strip() + ",split\n")).splits
    assert {name: len(split.objects) for name, split in splits.items()} == {"train": 2, "val": 1}


@pytest.mark.parametrize("images", [2, 3])
def test_too_few_photographs_for_a_validation_split(tmp_path: Path, images: int) -> None:
    splits = folder.load(write_csv(tmp_path, rows(*["a.png", "b.png", "c.png"][:images]))).splits
    assert {name: len(split.objects) for name, split in splits.items()} == {"train": images}


def test_val_share_out_of_range(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="val_share"):
        folder.load(many(tmp_path), val_share=1.0)


# ---- mistakes ----


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("d.png,cat,eye,1,2\n", r"points.csv line 6: there is no image 'd.png'"),
        ("c.png,cat,eye,nan,2\n", "line 6: 'nan' is no pixel coordinate"),
        ("c.png,cat,eye,1,inf\n", "line 6: 'inf' is no pixel"),
        ("c.png,cat,eye,,2\n", "line 6: '' is no pixel"),
        ("c.png,cat,eye,1 px,2\n", "line 6: '1 px' is no pixel"),
        ("c.png,cat,eye,1\n", "line 6: there are more or fewer values"),
        ("c.png,cat,eye,1,2,3\n", "line 6: there are more or fewer values"),
        (",cat,eye,1,2\n", "line 6: the value of `image` is empty"),
        ("c.png,,eye,1,2\n", "line 6: the value of `class` is empty"),
        ("c.png,cat,,1,2\n", "line 6: the value of `name` is empty"),
        ("b.png,cat,eye,1,2\n", r"line 6: a second 'eye' in the object that begins at points.csv line 4; .* `object`"),
        ("b.png,dog,ear,1,2\n", "line 6: another class, box or split in the object that begins at points.csv line 4"),
        ("c.png,dog,eye,1,2\n", "line 6: this is the only object of the class 'dog'"),
        (
            "c.png,cat,ey,1,2\nc.png,cat,noze,1,2\n",
            "line 6: no other object of the class 'cat' has a keypoint 'ey', nor",
        ),
        ('c.png,"cat,eye,1,2\n', "line 6: not a line of a CSV file"),
        ("c.png,ca\x1bt,eye,1,2\n", r"line 6: the class is 'ca\\x1bt'; expected printable text"),
        ("c.png,cat,e\u202eye,1,2\n", r"line 6: the value of `name` is 'e\\u202eye'; expected printable"),
        (
            "c.png,cat,eye,75.1,2\n",
            r"line 6: the keypoint 'eye' at \(75.1, 2\) is far outside c.png, which has 60 x 40",
        ),
        ("c.png,cat,eye,-15.1,2\n", "line 6: the keypoint 'eye' .* is far outside c.png"),
        ("c.png,cat,eye,1,50.1\n", "line 6: the keypoint 'eye' .* is far outside c.png"),
        ("c.png,cat,eye,1,-10.1\n", "line 6: the keypoint 'eye' .* is far outside c.png"),
        ("/" * 5000 + "c.png,cat,eye,1,2\n", "line 6: there is no image"),
    ],
)
def test_csv_mistakes(tmp_path: Path, body: str, match: str) -> None:
    write_csv(tmp_path, rows("a.png", "b.png") + body)
    with pytest.raises(DataError, match=match) as error:
        folder.load(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("header", "match"),
    [
        ("image,class,name,x\n", "the columns are image,class,name,x; expected image,name,x,y"),
        ("image;class;name;x;y\n", "the columns are image;class"),
        ("image,class,name,x,y,y\n", "line 1"),
        ("image,class,name,x,y,xmin\n", "all four"),
        ("image,class,name,x,y,Split\n", "class, object, split, visible, score"),
        ("", "points.csv is empty"),
    ],
)
def test_csv_columns(tmp_path: Path, header: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        folder.load(write_csv(tmp_path, "", header))


def test_csv_bad_boxes_and_splits(tmp_path: Path) -> None:
    header = HEADER.strip() + ",xmin,ymin,width,height,split\n"
    for extra, match in (
        (",0,0,0,5,train", "line 2: the box is 0 wide"),
        (",0,0,,5,train", "line 2: '' is no pixel"),
        (",60,0,5,5,train", "line 2: the box covers less than one pixel of a.png, which has 60 x 40"),
        (",-5,0,5,5,train", "line 2: the box covers less than one pixel"),
        (",0,40,5,5,train", "line 2: the box covers less than one pixel"),
        (",0,-5,5,5,train", "line 2: the box covers less than one pixel"),
        (",0,0,5,5,dev", "line 2: the split is 'dev'"),
        (",0,0,5,5,", "line 2: the value of `split` is empty"),
    ):
        with pytest.raises(DataError, match=match):
            folder.load(write_csv(tmp_path, rows("a.png", "b.png", extra=extra), header))


def test_image_in_two_splits(tmp_path: Path) -> None:
    body = "".join(f"a.png,cat,{name},1,2,{o},{s}\n" for o, s in ((1, "train"), (2, "val")) for name in ("eye", "nose"))
    with pytest.raises(DataError, match=r"line 4: a.png is in train as well"):
        folder.load(write_csv(tmp_path, body, HEADER.strip() + ",object,split\n"))


def test_name_in_one_object_only_is_a_warning(tmp_path: Path) -> None:
    write_csv(tmp_path, rows("a.png", "b.png") + "c.png,cat,eye,1,2\nc.png,cat,noze,1,2\n")
    with pytest.warns(
        UserWarning, match=r"points.csv line 6: no other object of the class 'cat' has a keypoint 'noze'"
    ):
        assert len(everything(tmp_path)) == 3


def test_names_that_never_meet_twice(tmp_path: Path) -> None:
    pairs = {"a.png": "eye nose", "b.png": "nose tail", "c.png": "tail eye"}
    body = "".join(f"{image},cat,{name},1,2\n" for image, names in pairs.items() for name in names.split())
    with pytest.raises(DataError, match="no two objects of the class 'cat' in train have two keypoint names in common"):
        folder.load(write_csv(tmp_path, body))
    body = "".join(f"{line},{'val' if line.startswith('c') else 'train'}\n" for line in body.splitlines())
    with pytest.raises(DataError, match="no two objects of the class 'cat' in train or val have two"):
        folder.load(write_csv(tmp_path, body, HEADER.strip() + ",split\n"))


def test_points_and_boxes_a_little_outside(tmp_path: Path) -> None:
    header = HEADER.strip() + ",xmin,ymin,width,height\n"
    body = "".join(f"{i},cat,eye,-15,-10,-5,-5,6,6\n{i},cat,nose,75,50,-5,-5,6,6\n" for i in ("a.png", "b.png"))
    assert len(everything(write_csv(tmp_path, body, header))) == 2


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n"])
def test_image_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    write_csv(tmp_path, rows("a.png", "b.png"))
    (tmp_path / "b.png").write_bytes(content)
    with pytest.raises(DataError, match=r"^points.csv line 4: the image '.*b.png' cannot be read; expected"):
        folder.load(tmp_path)


@pytest.mark.filterwarnings("error")  # Pillow's own warning of large images
@pytest.mark.parametrize("width", [10_001, 20_000, 1 << 30])
def test_absurd_image(tmp_path: Path, width: int) -> None:
    """The header of a PNG says how large it is, whatever follows."""
    write_csv(tmp_path, rows("a.png", "b.png"))
    content = bytearray((tmp_path / "b.png").read_bytes())
    content[16:24] = width.to_bytes(4, "big") + (10_000).to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    (tmp_path / "b.png").write_bytes(content)
    with pytest.raises(DataError, match=r"^points.csv line 4: the image '.*b.png' .*100,000,000 pixels"):
        folder.load(tmp_path)


def test_turned_image_is_measured_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("b.jpg", "c.jpg"):
        Image.new("RGB", (60, 40)).save(tmp_path / name, exif=exif)
    body = "".join(f"{image},cat,eye,1,2\n{image},cat,toe,1,70\n" for image in ("b.jpg", "c.jpg"))
    (tmp_path / "points.csv").write_text(HEADER + body)
    assert len(everything(tmp_path)) == 2


def test_every_header_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def size(path: Path) -> tuple[int, int]:
        seen.append(path.name)
        return 60, 40

    monkeypatch.setattr(folder, "upright_size", size)
    folder.load(write_csv(tmp_path, rows("a.png", "b.png", "c.png")))
    assert seen == ["a.png", "b.png", "c.png"]


def edit(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one place in the COCO file, such as annotations.0.bbox."""
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))

    def change(content: Any) -> None:
        for key in parents:
            content = content[key]
        content[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("annotations", None, "not a COCO-keypoints file"),
        ("images", {}, "not a COCO-keypoints file"),
        ("categories.0", 3, "not a COCO-keypoints file"),
        ("images.0.id", 2, "the image id 2 is missing, used twice"),
        ("images.0.id", [1], r"the image id \[1\]"),
        ("categories.0.id", None, "the category id None"),
        ("images.0.file_name", "9.png", r"keypoints.json annotation 10: there is no image '9.png'"),
        ("images.0.file_name", None, "annotation 10: its image needs a `file_name`"),
        ("images.0.split", ["train"], "annotation 10: the split is"),
        ("annotations.0.image_id", 99, "annotation 10: its image_id or category_id"),
        ("annotations.0.category_id", [7], "annotation 10: its image_id or category_id"),
        ("annotations.0.keypoints", [1, 2, 2], "annotation 10: `keypoints` must hold x, y, v for each of the 3 names"),
        ("annotations.0.keypoints", "many", "annotation 10: `keypoints` must hold"),
        ("annotations.0.keypoints.0", float("nan"), r"annotation 10: nan is no pixel coordinate \(of eye\)"),
        ("annotations.0.keypoints.1", None, "annotation 10: None is no pixel"),
        ("annotations.0.keypoints.1", True, "annotation 10: True is no pixel"),
        ("annotations.0.keypoints.2", "2", "annotation 10: the visibility"),
        ("annotations.0.bbox", [1, 2, 0, 5], "annotation 10: the box is 0 wide"),
        ("annotations.0.bbox", [0, 0, 0, 0], "annotation 10: the box is 0 wide"),
        ("annotations.0.bbox", [1, 2, 3], r"annotation 10: the box is \[1, 2, 3\]; expected xmin"),
        ("annotations.0.bbox.2", 1e300, "annotation 10: 1e.300 is no pixel"),
        ("categories.0.keypoints", ["eye", "eye", "tail"], "annotation 10: the keypoints of its category"),
        ("categories.0.keypoints", ["eye", "", "tail"], "annotation 10: the value of `name` is empty"),
        ("categories.0.keypoints", ["eye", "\ud800", "tail"], r"annotation 10: the value of `name` is '\\ud800'"),
        ("categories.0.name", "a\nb", r"annotation 10: the class is 'a\\nb'; expected printable"),
        (
            "annotations.0.bbox",
            [60, 2, 3, 5],
            "annotation 10: the box covers less than one pixel of 1.png, which has 60 x 40",
        ),
        ("annotations.0.keypoints.0", 76, r"annotation 10: the keypoint 'eye' at \(76, 6\) is far outside 1.png"),
        ("annotations", [], "has no keypoints"),
        ("annotations", [{"id": 1, "image_id": 1, "category_id": 7}], "has no annotated keypoint"),
    ],
)
def test_coco_mistakes(tmp_path: Path, path: str, value: Any, match: str) -> None:
    with pytest.raises(DataError, match=match) as error:
        folder.load(coco(tmp_path, edit(path, value)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "9" * 5000])
def test_json_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "keypoints.json").write_text(text)
    with pytest.raises(DataError, match=r"keypoints\.json is (not a JSON|no keypoints|empty)"):
        folder.load(tmp_path)


def test_not_utf8(tmp_path: Path) -> None:
    write_csv(tmp_path, rows("a.png"))
    with (tmp_path / "points.csv").open("ab") as file:
        file.write("größe.png,cat,eye,1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"points\.csv line 4 is not UTF-8"):
        folder.load(tmp_path)


@pytest.mark.parametrize("name", ["points.csv", "points.json"])
def test_absurdly_large(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "MAX_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(DataError, match="1 MiB at most"):
        folder.load(tmp_path)


def test_results_in_the_folder_are_no_annotations(tmp_path: Path) -> None:
    """`eval --json` may write beside the photographs; keypoints that NormMatch wrote are annotations all the same."""
    root = write_csv(tmp_path, rows("a.png", "b.png"))
    write_json(root / "result.json", {"results": []})
    (root / "normmatch.previous.json").write_text("{}")
    assert len(folder.load(root, val_share=0).splits["train"].objects) == 2
    (root / "points.csv").unlink()
    found = annotations.read(write_csv(tmp_path / "more", rows("a.png", "b.png", "c.png")) / "points.csv")
    annotations.write(root / "points.json", found)
    assert len(folder.load(root, val_share=0).splits["train"].objects) == 3


def test_annotation_file_none_or_several(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder"):
        folder.load(tmp_path / "nowhere")
    with pytest.raises(DataError, match="found none"):
        folder.load(tmp_path)
    coco(write_csv(tmp_path, rows("a.png", "b.png")))
    with pytest.raises(DataError, match=r"found several \(keypoints.json, points.csv\)"):
        folder.load(tmp_path)
