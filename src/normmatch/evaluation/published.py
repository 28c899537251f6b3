"""Numbers of the paper (Normalized Matching Transformer), in per cent, to stand beside ours.

The rows of its peers are printed there as their authors reported them, each under its authors' rules; so they are shown
beside protocol nmt with a note, and beside no other protocol, except BBGM's beside its own.
"""

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
MEAN = "mean of classes"


def _voc(text: str) -> dict[str, float]:
    return dict(zip((*VOC_CLASSES, MEAN), map(float, text.split()), strict=True))


PASCAL_VOC = {
    "NMT": _voc(
        "75.8 81.9 90.9 82.4 93.5 95.4 92.7 90.7 84.6 85.2 92.9 89.3 89.4 86.9 77.2 98.5 85.8 88.0 97.6 95.5 88.7"
    ),
    "COMMON": _voc(
        "65.6 75.2 80.8 79.5 89.3 92.3 90.1 81.8 61.6 80.7 95.0 82.0 81.6 79.5 66.6 98.9 78.9 80.9 99.3 93.8 82.7"
    ),
    "BBGM": _voc(
        "61.5 75.0 78.1 80.0 87.4 93.0 89.1 80.2 58.1 77.6 76.5 79.3 78.6 78.8 66.7 97.4 76.4 77.5 97.7 94.4 80.1"
    ),
}
SPAIR = {"NMT": {MEAN: 86.7}, "COMMON": {MEAN: 84.5}, "GMTR": {MEAN: 83.2}, "BBGM": {MEAN: 78.9}}
JITTER = {2.0: 0.12, 5.0: 0.50, 10.0: 1.41}  # drops of NMT's mean accuracy on PascalVOC, by deviation in pixels
HPATCHES = {  # NMT's mean matching accuracy by threshold in pixels
    1: {"viewpoint": 74.31, "illumination": 91.61, "overall": 82.81},
    3: {"viewpoint": 75.12, "illumination": 91.61, "overall": 83.22},
    5: {"viewpoint": 78.09, "illumination": 91.92, "overall": 84.89},
}


def published_rows(dataset: str, protocol: str) -> dict[str, dict[str, float]]:
    """The published accuracies that may stand beside ours, by method and class."""
    rows = {"pascal-voc": PASCAL_VOC, "spair-71k": SPAIR}.get(dataset, {})
    if protocol == "nmt":
        return rows
    return {"BBGM": rows["BBGM"]} if protocol == "bbgm" and rows else {}


LOCATING: dict[str, dict[str, tuple[float | None, float | None, float | None]]] = {  # PCK by image at 0.01, 0.05, 0.1
    "spair-71k": {
        "SemAlign3D (the category is known)": (15.8, 77.5, 88.9),
        "MARCO (DINOv2-L, 770 px)": (27.0, 77.6, 87.2),
        "ImCorr (DINOv2-B, 896 px)": (33.2, 78.9, 86.2),
        "SimpleMatch (DINOv2-B, 252 px)": (None, None, 84.1),
        "Geo-SC (SD 1.5 + DINOv2-B)": (21.7, 72.8, 83.2),
        "GECO (DINOv2-B, 518 px)": (14.2, 59.6, 73.6),
        "DIY-SC (DINOv2-B, weak labels)": (9.0, 51.1, 70.6),
        "DINOv2-B, nearest neighbour, untrained": (6.3, 38.4, 53.9),
    }
}
