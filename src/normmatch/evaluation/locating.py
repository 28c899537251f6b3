"""How well landmarks are located, `normmatch eval --task locate`: predictions, a line each, that are scored later.

*Pairs*: one photograph is the reference, the other is asked, as a dataset pairs them (SPair-71k; lists as PF-PASCAL and
PF-WILLOW have them, see `datasets/pf.py`). *Draws*, of any annotated folder: 1, 3, 5, 10 seeded references of a class;
some of the others are asked, and teach as a folder's photographs do. A landmark that an object has not is asked, too:
whether it is there is what `visible` is about.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from normmatch import annotations
from normmatch.annotations import Annotation
from normmatch.annotations.images import find_image
from normmatch.annotations.names import swap_left_right
from normmatch.config import DatasetName, ProtocolName
from normmatch.datasets.catalog import WITH_PROTOCOLS, open_dataset
from normmatch.datasets.pf import is_list, read_list
from normmatch.datasets.types import Split
from normmatch.errors import ConfigError, DataError
from normmatch.evaluation.config import EvalConfig
from normmatch.evaluation.located import Row, make_tables, score
from normmatch.evaluation.provenance import made_with
from normmatch.evaluation.tables import print_table, write_markdown
from normmatch.matching.given import MARGIN, Reference
from normmatch.matching.locate import POOL, choose_evenly, prepare
from normmatch.matching.matcher import Matcher
from normmatch.matching.sight import Encoder, Photograph, Sight
from normmatch.outputs import MADE_BY, check_outputs, words_apart, write_json, write_text, writing
from normmatch.progress import show_progress
from normmatch.weights import find_weights

FILE = "located.jsonl"
REMEMBERED = 2000  # crops: 3.4 GB


def evaluate_locating(what: Sequence[str], config: EvalConfig) -> dict[str, Any]:
    """Predict, or read predictions; score them; write and print the tables."""
    file = (config.out or Path()) / FILE
    outputs = {
        "--out": file if config.out and not config.predictions else None,
        "--json": config.json,
        "--markdown": config.markdown,
    }
    if config.predictions:
        check_outputs(outputs, config.predictions, config.overwrite)
        rows = [row for path in config.predictions for row in read_rows(path)]
        about: dict[str, Any] = {"data": " ".join(map(str, config.predictions))}
    else:
        if not 1 <= len(what) <= 2:
            raise ConfigError("expected a dataset or a keypoints file, and weights before it if not the bundled ones.")
        weights, data = (["small", *what])[-2:]
        split = open_data(data, config)
        check_outputs(outputs, (config.root, find_weights(weights), data), config.overwrite)
        matcher = Matcher(weights, device=config.device)
        device = getattr(matcher.backend, "device", None)
        about = {"data": data, "weights": weights} | ({"made_with": made_with(device)} if device else {})
        count = count_queries(split, config)
        rows = list(show_progress(predict(split, matcher.backend, config), count, 0, True, "photographs"))
        if config.out:
            with writing(file):
                lines = [json.dumps(row) + "\n" for row in ({"made_by": MADE_BY, **about}, *rows)]
                write_text(file, "".join(lines))
    report = {**about, "results": score(rows)}
    tables = make_tables(report)
    with words_apart(config.json, config.markdown):
        if config.json:
            with writing(config.json):
                write_json(config.json, report, indent=1)
        if config.markdown:
            with writing(config.markdown):
                write_markdown(config.markdown, tables)
        for table in tables:
            print_table(table)
    return report


def open_data(data: str, config: EvalConfig) -> Split:
    """The objects of a dataset by its name, of a list of pairs, or of a keypoints file."""
    if data in get_args(DatasetName):
        # This protocol knows the objects' boxes, which errors are measured by, and leaves no keypoint out.
        protocol: ProtocolName = "thinkmatch" if data in WITH_PROTOCOLS else "nmt"
        splits = open_dataset(data, config.root, protocol).splits  # type: ignore[arg-type]
        if config.split not in splits:
            raise DataError(f"{data} has no split {config.split}; it has {', '.join(splits)} (--split).")
        split = splits[config.split]
    elif is_list(path := Path(data)):
        split = read_list(path, config.root)
    else:
        found = [one for one in annotations.read(path) if one.names]
        folders = [path if path.is_dir() else path.parent, config.root]
        places = [find_image(one.image, [*folders, *(folder / "images" for folder in folders)]) for one in found]
        known = [replace(o, image=str(place)) for o, place in zip(found, places, strict=True) if place]
        if not known:
            raise DataError(f"None of the photographs of {path} is beside it, nor in {config.root} (--root).")
        split = Split(tuple(known))
    if not config.references and split.pairs is None:
        raise ConfigError(f"{data} has no pairs of its own; expected --references, such as 1,3,5,10.")
    return split


def count_queries(split: Split, config: EvalConfig) -> int:
    """How many photographs will be asked."""
    if not config.references:
        return len(_chosen_pairs(split, config))
    sizes = [len(some) for some in _by_class(split).values()]
    return sum(config.draws * min(config.queries, max(n - r, 0)) for n in sizes for r in config.references)


def predict(split: Split, encoder: Encoder, config: EvalConfig) -> Iterator[Row]:
    """A row for each photograph that is asked."""
    sight = Sight(encoder, REMEMBERED, config.cache)
    if not config.references:
        for number in _chosen_pairs(split, config):
            first, second = (split.objects[i] for i in split.pairs[number])  # type: ignore[index]
            yield from _ask([first], [second], sight, config, {"draw": 0})
        return
    for some in _by_class(split).values():
        for count in config.references:
            for draw in range(config.draws if len(some) > count else 0):
                order = np.random.default_rng(config.seed + draw).permutation(len(some))[: count + config.queries]
                chosen = [some[i] for i in order]
                yield from _ask(chosen[:count], chosen[count:], sight, config, {"draw": draw})


def _ask(
    known: Sequence[Annotation], asked: Sequence[Annotation], sight: Sight, config: EvalConfig, about: dict[str, Any]
) -> Iterator[Row]:
    """Some references, and photographs in which their landmarks are located."""
    names = list(dict.fromkeys(name for one in known for name in one.names))[:: config.every]
    references = [Reference(one.image, _place(one, names), _box(one, config)) for one in known]
    photographs = [Photograph.of(one.image, one.image) for one in asked]
    boxes = [_box(one, config) for one in asked]
    pool = choose_evenly(list(zip(photographs, boxes, strict=True)), POOL) if config.references else []
    start = time.process_time()
    fitted = prepare(references, sight, pool, looks=config.looks, turned=config.turned, mirrored=False, flip=None)
    for one, photograph, box in zip(asked, photographs, boxes, strict=True):
        found = fitted.locate(photograph, box)
        seconds, start = time.process_time() - start, time.process_time()
        truth, low, high = _place(one, names), one.keypoints.min(0), one.keypoints.max(0)
        yield about | {
            "class": one.label, "references": len(known), "image": one.image, "names": names,
            "flip": [names.index(other) if (other := swap_left_right(name)) in names else i
                     for i, name in enumerate(names)],
            "truth": [None if np.isnan(xy[0]) else xy.tolist() for xy in truth],
            "size": max(one.box[2:]) if one.box else float((high - low).max()),
            "seconds": seconds, **{key: np.round(getattr(found, key), 4).tolist()
                                   for key in ("keypoints", "scores", "visible", "spread")},
        }  # fmt: skip


def _place(one: Annotation, names: Sequence[str]) -> np.ndarray:
    """Landmarks (K, 2); NaN where the object has none."""
    known = dict(zip(one.names, one.keypoints, strict=True))
    return np.array([known.get(name, (np.nan, np.nan)) for name in names])


def _box(one: Annotation, config: EvalConfig) -> tuple[float, ...] | None:
    """The object's box, or that of its landmarks and a margin, if boxes are known."""
    if not config.boxes:
        return None
    low, high = one.keypoints.min(0), one.keypoints.max(0)
    return one.box or (*(low - MARGIN * (high - low)), *np.maximum((1 + 2 * MARGIN) * (high - low), 8.0))


def _by_class(split: Split) -> dict[str, list[Annotation]]:
    found: dict[str, list[Annotation]] = {}
    for one in split.objects:
        found.setdefault(one.label, []).append(one)
    return found


def _chosen_pairs(split: Split, config: EvalConfig) -> list[int]:
    """Seeded pairs, so many of each class at most; all of a reference's together, so that it is read once."""
    assert split.pairs is not None
    labels = np.array([split.objects[i].label for i in split.pairs[:, 0]])
    rng, chosen = np.random.default_rng(config.seed), list[int]()
    for label in dict.fromkeys(labels.tolist()):
        chosen += rng.permutation(np.flatnonzero(labels == label))[: config.pairs].tolist()
    return sorted(chosen, key=lambda number: tuple(split.pairs[number]))  # type: ignore[index]


def read_rows(path: Path) -> list[Row]:
    """The predictions of a file, behind its first line, which says where they come from."""
    try:
        _, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if rows and all(
            row.keys() >= {"class", "references", "draw", "truth", "size", "keypoints", "scores"} for row in rows
        ):
            return rows
    except (OSError, ValueError, AttributeError, RecursionError):
        pass
    raise DataError(f"{path} holds no predictions of locating; expected {FILE}, which --out wrote.")
