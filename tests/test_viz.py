"""The pictures: lines end at the keypoints, colours say right and wrong, files are whole or not there."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import same_color, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from PIL import Image

from normmatch import viz
from normmatch.errors import ConfigError, InputError
from normmatch.outputs import PICTURES, made_by_us

KEYPOINTS0 = np.array([[10.5, 20.0], [30.0, 5.0], [0.5, 39.5]])
KEYPOINTS1 = np.array([[60.0, 10.0], [5.0, 50.0], [20.0, 20.0], [40.0, 40.0]])
MATCHES = np.array([2, -1, 0])


def two_images() -> Figure:
    return viz.plot_images([np.zeros((40, 50, 3), np.uint8), torch.ones(3, 60, 80)])


def lines(figure: Figure) -> dict[int, ConnectionPatch]:
    patches = [artist for artist in figure.artists if isinstance(artist, ConnectionPatch)]
    return {int(str(patch.get_gid()).split()[1]): patch for patch in patches}


def test_images_stand_side_by_side_at_one_height() -> None:
    figure = viz.plot_images([np.zeros((40, 50, 3), np.uint8), torch.rand(3, 60, 80)], ["a", "b"])
    left, right = [axes for axes in figure.axes if axes.images]
    assert [left.get_title(), right.get_title()] == ["a", "b"]
    box0, box1 = left.get_position(), right.get_position()
    assert box0.height == pytest.approx(box1.height)
    assert box0.x1 < box1.x0
    assert box0.width / box1.width == pytest.approx((50 / 40) / (80 / 60))  # no image is stretched
    assert tuple(left.images[0].get_extent()) == (0, 50, 40, 0)  # the first pixel's centre is at (0.5, 0.5)
    assert right.images[0].get_array().shape == (60, 80, 3)


def test_a_keypoint_is_drawn_on_its_pixel() -> None:
    """One white pixel, one dot at its centre: the two must fall together on the canvas."""
    image = np.zeros((9, 9, 3), np.uint8)
    image[6, 2] = 255
    figure = viz.plot_images([image])
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # (h, w, 3)
    viz.plot_keypoints(figure, [np.array([[2.5, 6.5]])], colors=["red"])
    figure.canvas.draw()
    dotted = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    ys, xs = np.nonzero((dotted[..., 0] > 200) & (dotted[..., 1] < 50))
    x, y = round(xs.mean()), round(ys.mean())
    row = figure.axes[0].get_window_extent()
    inside = pixels[int(pixels.shape[0] - row.y1) + 2 : int(pixels.shape[0] - row.y0) - 2, :, 0].astype(int)
    peak = np.argwhere(inside > 200).mean(axis=0)
    assert abs(peak[1] - x) <= 2
    assert abs(peak[0] + int(pixels.shape[0] - row.y1) + 2 - y) <= 2


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_lines_end_at_the_keypoints(kind: str) -> None:
    convert = torch.tensor if kind == "torch" else np.asarray
    figure = two_images()
    viz.plot_matches(figure, convert(KEYPOINTS0), convert(KEYPOINTS1), convert(MATCHES))
    drawn = lines(figure)
    assert set(drawn) == {0, 2}  # the unmatched one has no line
    for index, line in drawn.items():
        np.testing.assert_allclose(line.xy1, KEYPOINTS0[index])
        np.testing.assert_allclose(line.xy2, KEYPOINTS1[MATCHES[index]])
        np.testing.assert_allclose(line.axesA.get_position(), figure.axes[0].get_position())
        assert line.axesB.get_position().x0 > line.axesA.get_position().x1
    left, right = viz.panels(figure)
    np.testing.assert_allclose(left.collections[0].get_offsets(), KEYPOINTS0)
    np.testing.assert_allclose(right.collections[0].get_offsets(), KEYPOINTS1)
    assert left.get_xlim() == (0, 50)  # dots do not move the limits
    assert left.get_ylim() == (40, 0)


def test_lines_lie_between_the_images_and_the_dots() -> None:
    figure = two_images()
    viz.plot_matches(figure, KEYPOINTS0, KEYPOINTS1, MATCHES)
    image_level = max(axes.get_zorder() for axes in figure.axes if axes.images)
    dot_level = min(axes.get_zorder() for axes in figure.axes if axes.collections)
    assert all(image_level < line.get_zorder() < dot_level for line in lines(figure).values())


def test_right_is_green_and_wrong_is_red() -> None:
    figure = two_images()
    viz.plot_matches(figure, KEYPOINTS0, KEYPOINTS1, np.array([2, 1, 0]), truth=np.array([2, 3, -1]))
    drawn = lines(figure)
    assert [same_color(drawn[i].get_edgecolor(), viz.RIGHT) for i in range(3)] == [True, False, False]
    assert [same_color(drawn[i].get_edgecolor(), viz.WRONG) for i in range(3)] == [False, True, True]
    assert [drawn[i].get_linestyle() == "-" for i in range(3)] == [True, False, False]  # for those who see no red
    red, green = to_rgba(viz.WRONG), to_rgba(viz.RIGHT)
    assert red[0] > red[1] + 0.5
    assert green[1] > green[0] + 0.5
    dots = viz.panels(figure)[1].collections[0].get_facecolors()  # each has the colour of its line
    assert same_color(dots, [viz.WRONG, viz.WRONG, viz.RIGHT, viz.UNMATCHED])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["1 right", "2 wrong"]


def test_scores_colour_the_lines_and_a_bar_explains_them() -> None:
    from matplotlib import colormaps

    figure = two_images()
    scores = torch.tensor([0.0, 0.4, 1.0])
    axes_before = len(figure.axes)
    viz.plot_matches(figure, KEYPOINTS0, KEYPOINTS1, np.array([2, 1, 0]), scores)
    for index, line in lines(figure).items():
        assert same_color(line.get_edgecolor(), colormaps[viz.COLORMAP](float(scores[index])))
    assert len(figure.axes) == axes_before + 1
    assert figure.axes[-1].get_xlim() == (0, 1)


def test_names_stand_at_both_ends() -> None:
    figure = two_images()
    viz.plot_matches(figure, KEYPOINTS0, KEYPOINTS1, MATCHES, names=["nose", "ear", "tail"])
    left, right = viz.panels(figure)
    assert {text.get_text(): tuple(text.xy) for text in left.texts} == {
        name: tuple(point) for name, point in zip(["nose", "ear", "tail"], KEYPOINTS0, strict=True)
    }
    assert {text.get_text(): tuple(text.xy) for text in right.texts} == {
        "nose": tuple(KEYPOINTS1[2]),
        "tail": tuple(KEYPOINTS1[0]),
    }


def test_points_of_the_second_image_keep_names_of_their_own() -> None:
    """So that a wrong match does not look right."""
    figure, names = two_images(), ["nose", "ear", "tail"]
    others = [f"point {j}" for j in range(len(KEYPOINTS1))]
    viz.plot_matches(figure, KEYPOINTS0, KEYPOINTS1, MATCHES, names=names, names1=others)
    right = viz.panels(figure)[1]
    assert {text.get_text(): tuple(text.xy) for text in right.texts} == dict(
        zip(others, map(tuple, KEYPOINTS1), strict=True)
    )


def test_many_points_are_drawn_finer() -> None:
    widths, dots, sizes = [], [], []
    for count in (3, 60):
        figure = two_images()
        points = np.random.default_rng(0).uniform(0, 40, (count, 2))
        viz.plot_matches(figure, points, points, np.arange(count), names=[str(i) for i in range(count)])
        left, _ = viz.panels(figure)
        widths.append(lines(figure)[0].get_linewidth())
        dots.append(left.collections[0].get_sizes()[0])
        sizes.append(left.texts[0].get_fontsize())
    assert widths[1] < 0.6 * widths[0]
    assert dots[1] < 0.5 * dots[0]
    assert 3.5 <= sizes[1] < 0.6 * sizes[0]


def test_no_keypoints_draw_nothing(tmp_path: Path) -> None:
    figure = two_images()
    none = np.zeros((0, 2))
    viz.plot_keypoints(figure, [none, none], names=[[], []])
    viz.plot_matches(figure, none, none, np.zeros(0, int), scores=np.zeros(0), names=[])
    viz.save_plot(figure, tmp_path / "empty.png", dpi=40)
    assert not lines(figure)


def test_keypoints_take_a_colour_for_each_image_or_point() -> None:
    figure = two_images()
    viz.plot_keypoints(figure, [KEYPOINTS0, KEYPOINTS1], colors=["red", ["red", "lime", "blue", "black"]])
    left, right = viz.panels(figure)
    assert all(same_color(color, "red") for color in left.collections[0].get_facecolors())
    assert same_color(right.collections[0].get_facecolors(), ["red", "lime", "blue", "black"])


def test_rows_of_images() -> None:
    images = [np.full((20, 20, 3), i, np.uint8) for i in range(5)]
    figure = viz.plot_images(images, ["a", "b", "c", "d", "e"], columns=2)
    boxes = [axes.get_position() for axes in viz.panels(figure)]
    assert [box.x0 for box in boxes] == pytest.approx([0, boxes[1].x0, 0, boxes[1].x0, 0])
    assert boxes[0].y0 == pytest.approx(boxes[1].y0)
    assert boxes[0].y0 > boxes[2].y1 > boxes[2].y0 > boxes[4].y1 > boxes[4].y0 > 0
    shown = [axes for axes in figure.axes if axes.images]
    assert [int(axes.images[0].get_array()[0, 0, 0]) for axes in shown] == list(range(5))
    assert [axes.get_title() for axes in shown] == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("name", [r"$\bad{$", "a_b^c", "$x$"])
def test_dollars_in_a_name_are_dollars(tmp_path: Path, name: str) -> None:
    names = [name] * 3
    figure = viz.plot_images([np.zeros((40, 50, 3), np.uint8), np.zeros((60, 80, 3), np.uint8)], [name, name])
    viz.plot_matches(figure, KEYPOINTS0, KEYPOINTS1, MATCHES, names=names, names1=[name] * 4)
    viz.plot_keypoints(figure, [KEYPOINTS0, KEYPOINTS1], [names, [name] * 4])
    viz.save_plot(figure, tmp_path / "names.png", dpi=40)
    viz.save_plot(viz.plot_similarity(np.zeros((2, 2)), [name] * 2, [name] * 2), tmp_path / "heat.png", dpi=40)
    texts = [text for axes in figure.axes for text in (*axes.texts, axes.title) if text.get_text()]
    assert len(texts) == 3 + 4 + 3 + 4 + 2
    assert not any(text.get_parse_math() for text in texts)


def test_a_pair_in_one_call() -> None:
    images = [np.zeros((40, 50, 3), np.uint8), np.ones((60, 80, 3), np.uint8)]
    figure = viz.plot_pair(images, KEYPOINTS0, KEYPOINTS1, MATCHES, truth=MATCHES, titles=["a", "b"])
    assert set(lines(figure)) == {0, 2}
    assert [axes.get_title() for axes in figure.axes if axes.images] == ["a", "b"]


def test_similarity_marks_the_best_of_each_row() -> None:
    values = torch.tensor([[0.1, 0.9, 0.3], [0.8, 0.2, 0.1]])
    figure = viz.plot_similarity(values, ["a", "b"], ["x", "y", "z"])
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), values)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y", "z"]
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[1, 0], [0, 1]])


@pytest.mark.parametrize("ending", PICTURES)
def test_save(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"picture{ending}"
    viz.save_plot(two_images(), path, dpi=50)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    assert made_by_us(path)
    if ending in (".png", ".jpg"):
        with Image.open(path) as image:
            width, height = image.size
        assert 2.45 < width / height < 2.7  # 50/40 + 80/60, so the empty strip below the images is cut off


def test_dpi_sets_the_size(tmp_path: Path) -> None:
    sizes = []
    for dpi in (40, 80):
        viz.save_plot(two_images(), tmp_path / "picture.png", dpi=dpi)
        with Image.open(tmp_path / "picture.png") as image:
            sizes.append(image.size[0])
    assert sizes[1] == pytest.approx(2 * sizes[0], rel=0.02)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"old")
    figure = two_images()

    def full_disk(target: Path, **_: object) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", full_disk)
    with pytest.raises(InputError, match="No space left"):
        viz.save_plot(figure, path)
    assert path.read_bytes() == b"old"
    assert [item.name for item in tmp_path.iterdir()] == ["picture.png"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        viz.save_plot(two_images(), tmp_path / "file" / "picture.png")
    with pytest.raises(InputError, match="ending"):
        viz.save_plot(two_images(), tmp_path / "picture.exe")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"keypoints0": np.zeros((3, 3))}, "keypoints0"),
        ({"keypoints1": np.full((4, 2), np.nan)}, "keypoints1"),
        ({"matches0": np.array([0, 1])}, "matches0"),
        ({"matches0": np.array([0, 1, 4])}, "matches0"),
        ({"matches0": np.array([0, 1, -2])}, "matches0"),
        ({"matches0": np.array([0.0, 1.0, 2.0])}, "matches0"),
        ({"scores": np.array([0.1, 0.2])}, "scores"),
        ({"scores": np.array([0.1, 0.2, 1.5])}, "scores"),
        ({"scores": np.array([0.1, 0.2, np.nan])}, "scores"),
        ({"truth": np.array([0, 1])}, "truth"),
        ({"names": ["a"]}, "names"),
    ],
)
def test_bad_matches(change: dict, word: str) -> None:
    good = {"keypoints0": KEYPOINTS0, "keypoints1": KEYPOINTS1, "matches0": MATCHES}
    with pytest.raises(InputError, match=word):
        viz.plot_matches(two_images(), **{**good, **change})


def test_bad_images_and_counts() -> None:
    with pytest.raises(InputError, match="image 0"):
        viz.plot_images([np.zeros((40, 50), np.uint8)])
    with pytest.raises(InputError, match="int64"):
        viz.plot_images([np.zeros((40, 50, 3), np.int64)])
    with pytest.raises(InputError, match="at least one"):
        viz.plot_images([])
    with pytest.raises(InputError, match="titles"):
        viz.plot_images([np.zeros((40, 50, 3), np.uint8)], ["a", "b"])
    with pytest.raises(InputError, match="1 images"):
        viz.plot_matches(viz.plot_images([np.zeros((40, 50, 3), np.uint8)]), KEYPOINTS0, KEYPOINTS1, MATCHES)
    with pytest.raises(InputError, match="names of image 1"):
        viz.plot_keypoints(two_images(), [KEYPOINTS0, KEYPOINTS1], names=[["a", "b", "c"], ["a"]])
    with pytest.raises(InputError, match="similarity"):
        viz.plot_similarity(np.zeros(3))
    with pytest.raises(InputError, match="names1"):
        viz.plot_similarity(np.zeros((2, 3)), ["a", "b"], ["x"])


def test_without_matplotlib_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    importlib.reload(viz)  # importing needs no matplotlib
    with pytest.raises(ConfigError, match=r"normmatch\[viz\]"):
        two_images()


def test_no_global_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyplot keeps every figure alive: it is never loaded."""
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    viz.plot_matches(two_images(), KEYPOINTS0, KEYPOINTS1, MATCHES, np.ones(3))
    viz.plot_similarity(np.zeros((2, 3)))
    assert "matplotlib.pyplot" not in sys.modules


def test_landmarks_that_are_hardly_there_are_named_not_drawn() -> None:
    image = np.zeros((40, 60, 3), np.uint8)
    figure = viz.plot_located(image, [[10, 10], [20, 20]], [0.9, 0.1], ["eye", "tail"], [0.9, 0.2], "a.jpg")
    words = [text.get_text() for axes in figure.axes for text in (*axes.texts, axes.title)]
    assert "eye" in words
    assert "a.jpg; perhaps not in the picture: tail" in words
    (axes,) = viz.panels(figure)
    assert [len(dots.get_offsets()) for dots in axes.collections] == [1]
    with pytest.raises(InputError, match="expected 2 values from 0 to 1"):
        viz.plot_located(image, [[10, 10], [20, 20]], [0.9])
