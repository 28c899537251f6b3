"""The record of a matched pair as plain JSON values: what JSON files, lines of a list's results and tables hold."""

from typing import Any

from normmatch.annotations import Annotation
from normmatch.matching.decoding import Result

DIGITS = 6  # of scores: the rest is noise of the arithmetic


def make_record(first: Annotation, second: Annotation, result: Result) -> dict[str, Any]:
    """Both images with their points, and the matches.

    `matches` lists the matched points; matches0 and the rest are as in `Matcher.match`.
    """
    values = result_values(result)
    return {
        "image0": first.image,
        "image1": second.image,
        "names0": list(first.names),
        "names1": list(second.names),
        "keypoints0": first.keypoints.tolist(),
        "keypoints1": second.keypoints.tolist(),
        "matches": [
            {"name0": first.names[i], "name1": second.names[j], "score": values["matching_scores0"][i]}
            for i, j in result["matches"].tolist()
        ],
        **values,
    }


def result_values(result: Result) -> dict[str, Any]:
    """Matches and scores of both images, without names."""
    return {
        **{key: result[key].tolist() for key in ("matches0", "matches1")},
        **{key: result[key].astype(float).round(DIGITS).tolist() for key in ("matching_scores0", "matching_scores1")},
    }
