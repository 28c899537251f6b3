"""Every format: what is written is read again, what it cannot hold is said, and the files of real programs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from normmatch import annotations
from normmatch.annotations import Annotation, Landmarks, formats
from normmatch.annotations.reading import Reading
from normmatch.config import Format
from normmatch.errors import DataError

SHARED = Path(__file__).parents[2] / "../shared/formats"
KIND = Landmarks(("tip", "left", "right", "ñ end"), (("tip", "left"),), (("left", "right"),))


def objects() -> list[Annotation]:
    """Two photographs: one with all that can be said, one with two landmarks that a network found."""
    xy = np.array([[10.25, 20.5], [30.0, 4.125], [1.0, 59.0]])
    first = Annotation(
        "a.png", ("left", "tip", "ñ end"), xy, (1.0, 2.0, 40.0, 57.5), "wing", "train", np.array([True, False, True]),
        landmarks=KIND, absent=("right",), object="S1", scale=0.02, curves=(xy + 1,),
    )  # fmt: skip
    scores = np.array([0.5, 0.25])
    second = Annotation("b c.png", ("tip", "right"), xy[1:], None, "wing", "val", scores=scores, landmarks=KIND)
    return [first, second]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.png", "b c.png"):
        Image.new("RGB", (80, 60)).save(tmp_path / name)
    return tmp_path


def target(folder: Path, format: Format) -> Path:
    return folder / f"out{formats.OUTPUTS[format].ending}"


@pytest.mark.parametrize("format", formats.OUTPUTS)
def test_what_is_written_is_read_again(folder: Path, format: Format) -> None:
    """Places and order come back, and of the rest all that the format does not say it cannot hold."""
    path, holds = target(folder, format), formats.OUTPUTS[format].holds
    annotations.write(path, objects(), format, folder)
    names = KIND.names if format in ("tps", "yolo") or "names" in holds else ("1", "2", "3", "4")
    again = annotations.read(path, how=Reading(folder))
    assert [item.path.name for item in again] == ["a.png", "b c.png"]
    for old, new in zip(objects(), again, strict=True):
        called = {names[KIND.names.index(name)]: xy for name, xy in zip(old.names, old.keypoints, strict=True)}
        assert set(new.names) == set(called)
        np.testing.assert_allclose([called[name] for name in new.names], new.keypoints, atol=2e-6)
        assert [name for name in new.order if name in new.names] == sorted(new.names, key=new.order.index)
        if format not in ("csv", "labelstudio", "labelme"):  # which have no list of all landmarks
            assert new.order == names
        assert_held(old, new, holds)


def assert_held(old: Annotation, new: Annotation, holds: frozenset[str]) -> None:
    places = [old.names.index(name) if name in old.names else k for k, name in enumerate(new.names)]
    if "boxes" in holds and old.box:
        np.testing.assert_allclose(new.box or (), old.box, atol=2e-6)
    if "classes" in holds and (old.box or "boxes" not in holds):
        assert new.label == "wing"
    if "hidden" in holds and old.visible is not None:
        assert new.visible is not None
        np.testing.assert_array_equal(new.visible, old.visible[places])
    if "absent" in holds:
        assert new.absent == old.absent
    if "scores" in holds and old.scores is not None:
        assert new.scores is not None
        np.testing.assert_allclose(new.scores, old.scores[places])
    if "objects" in holds and old.object and "empty" not in holds:
        assert new.object == old.object
    assert new.split == (old.split if "splits" in holds else "")
    assert new.scale == (old.scale if "scale" in holds else None)
    assert len(new.curves) == (len(old.curves) if "curves" in holds else 0)
    assert bool(new.landmarks and new.landmarks.pairs) == ("pairs" in holds)
    assert bool(new.landmarks and new.landmarks.skeleton) == ("skeleton" in holds)


def test_what_is_lost_is_said() -> None:
    assert formats.losses(objects(), "native") == []
    lost = formats.losses(objects(), "tps")
    assert "the names of 4 landmarks, which are known by their order from now on" in lost
    assert {"2 scores", "1 boxes", "that 1 landmarks are hidden, which stay as if they were seen"} <= set(lost)
    assert not any("curve" in sentence or "scale" in sentence for sentence in lost)
    assert formats.losses([Annotation("a.png", ("1", "2"), np.ones((2, 2)))], "tps") == []
    assert "1 curves" in formats.losses(objects(), "csv")


@pytest.mark.parametrize(
    "format", [f for f, output in formats.OUTPUTS.items() if output.needs_sizes and f != "labelme"]
)
def test_a_size_that_is_needed_and_not_known(tmp_path: Path, format: Format) -> None:
    with pytest.raises(DataError, match=r"a.png.* is not known.*expected the photograph"):
        annotations.write(target(tmp_path, format), objects(), format)
    assert not list(tmp_path.iterdir())


def test_y_that_nobody_can_turn_is_not_written_as_pixels(tmp_path: Path) -> None:
    (tmp_path / "a.tps").write_text("LM=2\n1 2\n3 40\nIMAGE=lost.jpg\nID=0\n")
    items = annotations.read(tmp_path / "a.tps", turned=False)
    with pytest.raises(
        DataError, match="a.tps line 1: y counts from the bottom, and the height of lost.jpg is not known"
    ):
        annotations.write(tmp_path / "b.csv", items)
    with pytest.raises(DataError, match="y counts from the bottom"):
        annotations.read(tmp_path / "a.tps")
    annotations.write(tmp_path / "b.tps", items)
    np.testing.assert_array_equal(annotations.read(tmp_path / "b.tps", turned=False)[0].keypoints, [[1, 2], [3, 40]])


# ----------------------------------------------------------------------------------------- the files of real programs

# file: (objects, photographs, landmarks of the first, its name, {landmark: (x, y)}) or the words of what refuses it
REAL: dict[str, tuple[int, int, int, str, dict[str, tuple[float, float]]] | str] = {
    "tps/AMNH_28896_C.tps": (1, 1, 16, "Eldredgeops.png", {"1": (655, 854)}),
    "tps/Alberti_1983-7.87_C.tps": (1, 1, 16, "Afrops.jpg", {"1": (2521, 1697)}),
    "tps/Alberti_1983-8.90_C.tps": (1, 1, 16, "Tafel 8 rotation.jpg", {"1": (2436, 3184)}),
    "tps/Brauckmann_1986-6.5a_C.tps": (1, 1, 16, "Dienstina.jpg", {"1": (1221, 2449)}),
    "tps/WAM-07.277_C.tps": (1, 1, 16, "Trimerocephaloides cep.jpg", {"1": (449, 772), "16": (707, 436)}),
    "tps/data.tps": (4, 4, 14, "Thypld", {"1": (0.3130452507, 0.007293225255)}),
    "tps/digitized_aligned.tps": (4, 4, 73, "0", {"2": (-0.1111409376, 0.0002419485656)}),
    "tps/landñ.tps": (10, 10, 56, "ä", {"1": (-0.03361891469, -0.06719394125)}),
    "tps/lm.tps": (2, 2, 5, "plop.jpg", {"1": (726, 1580)}),
    "tps/mosq.tps": (40, 40, 18, "1", {"1": (-0.4933, 0.013)}),
    "tps/orthetrum_forewing.tps": (120, 120, 20, "drp030ortalbmDr720.jpg", {"2": (348, 592)}),
    "tps/outlines.tps": "0 landmarks",
    "tps/plethspecies-missingLMs.tps": (9, 9, 11, "P_cinereus", {"3": (-0.016470318, -0.016116581)}),
    "tps/plethspecies.tps": (9, 9, 11, "P_cinereus", {"1": (0.217091118, -0.000276374)}),
    "tps/small_sample.tps": (6, 6, 4, "Sample01", {"2": (150, 180)}),
    "tps/three-d.tps": "three dimensions",
    "tps/tps-example.tps": (58, 58, 12, "63001.jpg", {"1": (290, 372), "2": (100, 301)}),
    "dlc/Reaching-Mackenzie/labeled-data/reachingvideo1/CollectedData_Mackenzie.csv": (
        55, 55, 5, "labeled-data/reachingvideo1/img005.png", {"Finger1": (208.258767, 638.481982)}),
    "dlc/multi_mouse/labeled-data/m3v1mp4/CollectedData_dlc_team.csv": (
        20, 5, 3, "labeled-data/m3v1mp4/img1029.png", {"bodypart2": (100, 100)}),
    "dlc/openfield-Pranav/labeled-data/m4s1/CollectedData_Pranav.csv": (
        116, 116, 4, "labeled-data/m4s1/img0000.png", {"leftear": (33.819, 265.941)}),
    "dlc/predictions/briefDeepCut_resnet50_TESTAug16shuffle1_5.csv": (
        12, 12, 4, "0", {"bodypart1": (29.572412, 52.003557)}),
    "dlc/predictions/machinelabels.csv": (
        5, 5, 4, "labeled-data/brief/img07.png", {"bodypart2": (112.442702, 9.078854)}),
    "dlc/predictions/vid1_DLC_3D.csv": "three dimensions",
    "dlc/sleap-io_tests/CollectedData_LM.csv": (8, 4, 3, "labeled-data/video/img000.png", {"A": (0, 1), "B": (2, 3)}),
    "dlc/sleap-io_tests/dlc_testdata_v2.csv": (4, 4, 3, "labeled-data/video/img000.png", {"A": (0, 1)}),
    "dlc/sleap-io_tests/madlc_230_config.yaml": "has no points",
    "dlc/sleap-io_tests/madlc_testdata.csv": (6, 4, 3, "labeled-data/video/img000.png", {"A": (0, 1)}),
    "dlc/sleap-io_tests/maudlc_testdata_v2.csv": (8, 4, 3, "labeled-data/video/img000.png", {"A": (0, 1)}),
    "lightning_pose/CollectedData_dummy.csv": (
        3, 3, 14, "labeled-data/012609_A29_Block12_BCma1_t/img00010035.png", {"black_mouse_nose": (259, 401)}),
    "yolo/keytool/config.yaml": (5, 5, 5, "testimage10", {"1": (346, 1519)}),
    "yolo/keytool/data/labels/train/testimage10.txt": (1, 1, 5, "testimage10", {"2": (389, 1480)}),
    "yolo/keytool/data/labels/train/testimage13.txt": (1, 1, 5, "testimage13", {"2": (1716, 2080)}),
    "yolo/keytool/data/labels/val/testimage113.txt": (1, 1, 5, "testimage113", {"2": (1707, 2110)}),
    "yolo/keytool/data/labels/val/testimage118.txt": (1, 1, 5, "testimage118", {"2": (1283, 1913)}),
    "yolo/keytool/data/labels/val/testimage98.txt": (1, 1, 5, "testimage98", {"2": (1186, 2005)}),
    "yolo/ultralytics/coco-pose.yaml": "no labels",
    "yolo/ultralytics/dog-pose.yaml": "no labels",
    "yolo/ultralytics/hand-keypoints.yaml": "no labels",
    "yolo/ultralytics/tiger-pose.yaml": "no labels",
    "labelstudio/data_keypoints.json": (
        1, 1, 3, "image1.jpg", {"nose": (139.2, 68.366), "left_eye": (126.119, 53.557)}),
    "labelstudio/multi_animal_from_dlc.json": (6, 2, 4, "img12600.png", {"pup_snout": (960.853, 95.545)}),
    "labelstudio/label_config_keypoints.xml": "it is a labelling configuration",
    "alphatracker/at_testdata.json": (8, 4, 3, "img000.png", {"1": (1, 2)}),
    "csv/csv-example.csv": (58, 58, 12, "63001.jpg", {"1": (290, 372), "2": (100, 301)}),
    "csv/list_landmarks_celeba.txt": (5, 5, 5, "000001.jpg", {"lefteye": (165, 184), "righteye": (244, 176)}),
    "csv/loose_landmark_train.csv": (3, 3, 5, "n000001/0001_01", {"P1": (2.787, 2.898)}),
    "csv/traitœ.csv": "expected image,name,x,y",
    "cvat/datumaro_project/annotations.xml": (6, 6, 0, "Test/img0.jpg", {}),
    "cvat/datumaro_task/train.xml": (2, 2, 0, "img0.jpg", {}),
    "cvat/keytool/annotations.xml": (33, 33, 5, "testimage10.jpg", {"1": (346.06, 1519.62), "2": (389.85, 1480.21)}),
    "cvat/unidata_facial/annotations.xml": (225, 15, 1, "FKP/1.jpg", {"key_point": (1579.99, 2153.33)}),
    "imagej/Results.csv": (116, 116, 4, "1", {"1": (21.521, 265.428), "2": (33.819, 265.941)}),
    "labelme/20240507_v11.json": (1, 1, 2, "20240507_v11.jpg", {"2": (209.5093168, 387.7701863)}),
    "labelme/primitives.json": (1, 1, 1, "primitives.jpg", {"point": (345, 174)}),
    "morphologika/Rovinsky_etal Morphologika.txt": "have 3 dimensions",
    "nts/Outline.nts": (2, 2, 1100, "2", {"1": (303.78515625, 650.046875), "2": (304.80078125, 645.9375)}),
    "nts/Unbend_tadpole_tail_eye.nts": "is no NTS file of landmarks",
    "nts/digitized_centroid.NTS": "is no NTS file of landmarks",
    "nts/sample_2d.nts": "is no NTS file of landmarks",
    "pts/300vw/001/annot/000006.pts": (1, 1, 68, "000006", {"1": (743.224, 197.764), "68": (790.094, 256.132)}),
    "pts/300vw/401/annot/000731.pts": (1, 1, 68, "000731", {"1": (354.32681, 277.170196)}),
    "pts/300vw/401/annot/000732.pts": (1, 1, 68, "000732", {"1": (363.817, 271.708)}),
    "sleap/minimal_instance.000_centered_pair_low_quality.analysis.csv": (
        1, 1, 2, "0", {"A": (206.4300539, 188.3896402), "B": (279.1352145, 203.8658657)}),
    "sleap/minimal_instance.json": (2, 1, 2, "centered_pair_low_quality.mp4:0", {"A": (92.65220773, 202.7259777)}),
    "via/unit_test_annotation2.json": (3, 3, 4, "test_pattern_qbist.jpg", {'red "dot"': (51, 37), "4": (638, 475)}),
    "via/via_export_csv.csv": (5, 5, 0, "IMG-0001-00001.jpg", {}),
    "via/via_test_csv_import.csv": (3, 3, 4, "test_pattern_qbist.jpg", {'red "dot"': (51, 37)}),
    "webmorph_tem/f_african.tem": (1, 1, 189, "f_african", {"1": (562.5, 623), "2": (776.25, 622)}),
    "webmorph_tem/f_easian.tem": (1, 1, 189, "f_easian", {"1": (571.25, 614.25)}),
    "webmorph_tem/lisa1.tem": (1, 1, 83, "lisa1.jpg", {"1": (264, 545)}),
    "coco/cvat_export/person_keypoints_default.json": (5, 4, 17, "train_08.jpg", {"left_eye": (243, 97.11)}),
    "coco/datumaro/person_keypoints_val.json": (2, 1, 3, "b.jpg", {"2": (3, 4)}),
    "coco/mmpose/deepfasion2.json": (2, 2, 294, "000264.jpg", {"220": (417, 107)}),
    "coco/mmpose/test_300w.json": (2, 2, 68, "indoor_029.png", {"1": (268, 398.882)}),
    "coco/mmpose/test_animalpose.json": (2, 2, 20, "ca110.jpeg", {"R_Eye": (85, 102)}),
    "coco/mmpose/test_ap10k.json": (2, 2, 17, "000000037516.jpg", {"nose": (94, 475)}),
    "coco/mmpose/test_atrw.json": (2, 2, 15, "003464.jpg", {"right_ear": (285, 194)}),
    "coco/mmpose/test_coco.json": (14, 4, 17, "000000000785.jpg", {"nose": (367, 81)}),
    "coco/mmpose/test_cofw.json": (2, 2, 29, "001766.jpg", {"2": (131.5252211, 115.9712779)}),
    "coco/mmpose/test_fly.json": (2, 2, 32, "1400.jpg", {"eyeL": (134, 80)}),
    "coco/mmpose/test_horse10.json": (3, 3, 22, "0244.png", {"Eye": (117.3, 56.4)}),
    "coco/mmpose/test_macaque.json": (2, 2, 17, "d47f1b1ee9d3217e.jpg", {"nose": (641.06, 308.89)}),
    "coco/mmpose/test_posetrack18_val.json": (
        14, 3, 17, "images/val/012834_mpii_test/000000.jpg", {"nose": (401, 530)}),
    "coco/sleap-io_tests/category_folders/annotations.json": (
        3, 3, 17, "mouse/mouse_001.jpg", {"left_ear": (108, 100)}),
    "coco/sleap-io_tests/flat_images/annotations_negative_frame.json": (
        3, 3, 17, "image_001.jpg", {"nose": (100, 100)}),
    "coco/sleap-io_tests/mixed_animals/annotations.json": (6, 3, 17, "image_001.jpg", {"left_ear": (57, 180)}),
    "coco/sleap-io_tests/nested_paths/annotations.json": (
        3, 3, 17, "data/experiment_1/session_a/images/frame_000001.jpg", {"nose": (120, 135)}),
    "coco/sleap-io_tests/visibility_binary/annotations.json": (3, 3, 17, "image_001.jpg", {"left_ear": (101, 115)}),
}  # fmt: skip
SIZES = {"tps/tps-example.tps": (632, 480), "csv/csv-example.csv": (632, 480), "yolo/keytool": (2496, 2496)}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the files of real programs are not here")
@pytest.mark.filterwarnings("ignore:annotations.xml. 225 points share their label")
@pytest.mark.parametrize("name", REAL)
def test_files_of_real_programs(name: str) -> None:
    expected = REAL[name]
    size = next((size for key, size in SIZES.items() if name.startswith(key)), None)
    how = Reading(size=size, y="up" if name == "csv/csv-example.csv" else "file")
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            annotations.read(SHARED / name, how=how, turned=False)
        return
    found = annotations.read(SHARED / name, how=how, turned=False)
    first = found[0]
    assert (len(found), len({item.image for item in found}), len(first.order), first.image) == expected[:4]
    places = dict(zip(first.names, first.keypoints.tolist(), strict=True))
    for landmark, place in expected[4].items():
        assert places[landmark] == pytest.approx(place, abs=1e-3)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the files of real programs are not here")
def test_every_file_of_real_programs_is_in_the_table() -> None:
    files = {
        file.relative_to(SHARED).as_posix() for file in SHARED.rglob("*") if file.is_file() and file.suffix != ".md"
    }
    assert files == set(REAL)


@pytest.mark.parametrize("text", ["\n", "\n\nimage,name,x,y\n", ",\n"])
def test_a_first_line_without_cells_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError):
        annotations.read(tmp_path / "a.csv")
