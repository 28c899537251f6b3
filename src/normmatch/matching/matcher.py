"""Match the keypoints of your own photographs. Nothing here imports torch before a network is loaded.

matcher = Matcher()
result = matcher.match("cat.jpg", "raccoon.jpg", keypoints0, keypoints1)
result["matches0"]  # for each of keypoints0 the index into keypoints1, -1 where it has no partner
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from normmatch.checks import (
    check_count,
    check_flag,
    check_iterator,
    check_list,
    check_number,
    check_word,
)
from normmatch.config import LIMITS, BackendName, MatchOptions
from normmatch.errors import ConfigError, InputError
from normmatch.geometry import MAX_POINTS, CropKey, CropWithKeypoints, make_crop, place_keypoints
from normmatch.matching.backends import Backend, choose
from normmatch.matching.decoding import Result, decode
from normmatch.matching.given import Pair, as_pair, as_reference
from normmatch.matching.prefetch import ahead

if TYPE_CHECKING:
    from normmatch.matching.landmarks import Located
    from normmatch.model.network import NormMatch

ENCODE_BATCH = 8  # images that go through the backbone together
EMBED_BATCH = 32  # images whose keypoints are embedded together, if they have few
MAX_CACHE = 1_000_000  # images
MAX_CELLS = MAX_POINTS**2  # of the graphs of a batch: fewer go together where they have many points


class Matcher:
    """A loaded network that matches photographs, and remembers those of its last calls.

    Args:
        weights: a bundled name, a weights file, a folder that holds one, owner/name on a hub, or a NormMatch, which is
            copied; the backend onnx runs all but the last, where graphs lie beside weights that are no bundled ones'.
        device: auto, cpu, cuda or mps; auto is cuda where there is one.
        backend: what runs the network: torch, or onnx, which needs no torch; auto is torch where it is installed and
            there is a GPU, and for what onnx cannot do.
        compile: compile the network with torch: minutes, which thousands of pairs one by one on a GPU pay back.
        precision: of the backbone: auto, float32; with torch bfloat16 or float16, with onnx int8; auto is the fastest
            that the device has.
        size: side of the square that photographs are resized to, such as 518 for more precision; the network's own if
            not given.
        cache: how many images are remembered, by their content, encoded and with their keypoints.
    """

    def __init__(
        self,
        weights: "str | Path | NormMatch" = "small",
        *,
        device: str = "auto",
        backend: BackendName = "auto",
        compile: bool = False,
        precision: str = "auto",
        size: int | None = None,
        cache: int = 32,
    ) -> None:
        cache = check_count(cache, "cache", 0, MAX_CACHE, "a number of images", ConfigError)
        self.backend = _open_backend(weights, device, backend, compile, precision)
        if size is not None:
            self.backend.image_size = _check_size(size, self.backend)
        self.cache = cache
        self._features, self._tokens = LRUCache(cache), LRUCache(cache)  # of images, and of images with keypoints

    @classmethod
    def from_options(cls, options: MatchOptions, cache: int = 32) -> Self:
        """The network that the options of a command ask for."""
        return cls(
            options.weights, device=options.device, backend=options.backend, compile=options.compile,
            size=options.size, cache=cache,
        )  # fmt: skip

    def match(
        self,
        image0: Any,
        image1: Any,
        keypoints0: Any,
        keypoints1: Any,
        *,
        box0: Any = None,
        box1: Any = None,
        one_to_one: bool = False,
        mutual: bool = False,
        min_score: float | None = None,
    ) -> Result:
        """Match the keypoints of two images; there may be different numbers of them, and none.

        Args:
            image0, image1: a path, a PIL image, a numpy array (H, W, 3) of uint8 or floats in [0, 1], or a torch tensor
                (3, H, W); files and PIL images are turned upright as their EXIF data say.
            keypoints0, keypoints1: (M, 2) and (N, 2), xy in pixels of the upright images, pixel centres at +0.5.
            box0, box1: the object's xmin, ymin, width and height in the same pixels; the whole image without it.
            one_to_one: use no point twice (Hungarian method).
            mutual: keep only matches that are the best of both their points.
            min_score: matches below this score are dropped; None is the network's calibrated one, 0 keeps all.

        Returns:
            A dict of numpy arrays:
                matches0 (M,), matches1 (N,): index of the partner in the other image, -1 where there is none
                matching_scores0 (M,), matching_scores1 (N,): scores of the matches, in [0, 1]; of a match that was
                    dropped its score is kept
                matches (K, 2), scores (K,): the matches of matches0 as pairs of indices
                similarity (M, N): cosines; log_assignment (M, N): after Sinkhorn
        """
        pair = (self.crop(image0, keypoints0, box0, "image0"), self.crop(image1, keypoints1, box1, "image1"))
        return self.match_crops([pair], one_to_one=one_to_one, mutual=mutual, min_score=min_score)[0]

    def match_batch(
        self,
        pairs: Iterable[Pair | tuple[Any, ...]],
        *,
        one_to_one: bool = False,
        mutual: bool = False,
        min_score: float | None = None,
    ) -> list[Result]:
        """Match many pairs, several at a time whatever their sizes; options and results are those of `match`.

        A pair is (image0, image1, keypoints0, keypoints1), and may go on with box0 and box1.
        """

        def crops(pair: Pair) -> tuple[CropWithKeypoints, CropWithKeypoints]:
            return (
                self.crop(pair.image0, pair.keypoints0, pair.box0, "image0"),
                self.crop(pair.image1, pair.keypoints1, pair.box1, "image1"),
            )

        options: dict[str, Any] = {"one_to_one": one_to_one, "mutual": mutual, "min_score": min_score}
        size = self.backend.pair_batch
        read = ahead(
            crops, itertools.starmap(as_pair, enumerate(check_iterator(pairs, "pairs", "a list of pairs"))), size
        )
        return [result for chunk in chunks(read, size) for result in self.match_crops(chunk, **options)]

    def match_many(
        self,
        images: Iterable[Any],
        keypoints: Iterable[Any],
        boxes: Iterable[Any] | None = None,
        *,
        one_to_one: bool = False,
        mutual: bool = False,
        min_score: float | None = None,
    ) -> dict[tuple[int, int], Result]:
        """Match every image with every later one; the backbone sees each once. Keys are (i, j) with i < j."""
        images, keypoints = check_list(images, "images"), check_list(keypoints, "keypoints")
        boxes = [None] * len(images) if boxes is None else check_list(boxes, "boxes")
        if not len(images) == len(keypoints) == len(boxes):
            raise InputError(
                f"There are {len(images)} images, {len(keypoints)} sets of keypoints and {len(boxes)} boxes; "
                "expected as many of each."
            )
        options: dict[str, Any] = {"one_to_one": one_to_one, "mutual": mutual, "min_score": min_score}
        given = zip(images, keypoints, boxes, (f"image {i}" for i in range(len(images))), strict=True)
        crops = list(ahead(lambda item: self.crop(*item), given, ENCODE_BATCH))
        options["tokens"] = self.embed(crop for crop in crops if len(crop.keypoints))
        results: dict[tuple[int, int], Result] = {}
        for chunk in chunks(itertools.combinations(range(len(crops)), 2), self.backend.pair_batch):
            found = self.match_crops([(crops[i], crops[j]) for i, j in chunk], **options)
            results.update(zip(chunk, found, strict=True))
        return results

    def locate(
        self, image0: Any, image1: Any, keypoints0: Any, *, box0: Any = None, box1: Any = None, looks: Literal[1, 2] = 2
    ) -> "Located":
        """Find the points of one image in another, where none are given; arguments as of `match`, see `locate.py`."""
        return next(self.locate_many([(image0, keypoints0, box0)], [image1], [box1], looks=looks))

    def locate_many(
        self, references: Iterable[tuple[Any, ...]], images: Iterable[Any], boxes: Iterable[Any] | None = None,
        **options: Any,
    ) -> "Iterator[Located]":  # fmt: skip
        """Find the landmarks of a few images (image, keypoints, box) in many; options are those of `locate.py`."""
        from normmatch.matching.locate import locate_many

        known = [as_reference(item, number) for number, item in enumerate(check_list(references, "references"))]
        return locate_many(known, images, boxes, encoder=self.backend, **options)

    def crop(self, image: Any, keypoints: Any, box: Any = None, name: str = "image") -> CropWithKeypoints:
        """An image with its keypoints as the network takes them; arguments as of `match`, `name` is for messages."""
        return place_keypoints(keypoints, make_crop(image, box, self.backend.image_size, name))

    def match_crops(
        self,
        pairs: Sequence[tuple[CropWithKeypoints, CropWithKeypoints]],
        *,
        one_to_one: bool = False,
        mutual: bool = False,
        min_score: float | None = None,
        tokens: Mapping[CropKey, Any] | None = None,
    ) -> list[Result]:
        """Match pairs, the backend's `pair_batch` or fewer, whose images were read before; `tokens` are of `embed`."""
        min_score = self.backend.min_score if min_score is None else min_score
        flags = {"one_to_one": check_flag(one_to_one, "one_to_one"), "mutual": check_flag(mutual, "mutual")}
        options: dict[str, Any] = {**flags, "min_score": check_number(min_score, "min_score", 0, 1, "a score")}
        options["calibration"] = self.backend.calibration
        if tokens is None:
            tokens = self.embed(crop for pair in pairs if all(len(c.keypoints) for c in pair) for crop in pair)
        counts = [(len(first.keypoints), len(second.keypoints)) for first, second in pairs]
        results: dict[int, Result] = {}
        for batch in _batches([max(pair) if min(pair) else 0 for pair in counts], self.backend.pair_batch):
            tokens0, tokens1 = ([tokens[pairs[i][side].key] for i in batch] for side in (0, 1))
            found = decode(*self.backend.match(tokens0, tokens1), [counts[i] for i in batch], **options)
            results.update(zip(batch, found, strict=True))
        for i, shape in enumerate(counts):
            if i not in results:  # no point on a side: nothing to match
                nothing = np.zeros((1, *shape), np.float32)
                (results[i],) = decode(nothing, nothing, [shape], **options)
        return [results[i] for i in range(len(pairs))]

    def embed(self, crops: Iterable[CropWithKeypoints]) -> dict[CropKey, Any]:
        """The tokens of crops by their keys; of what is remembered nothing is computed again."""
        wanted = {crop.key: crop for crop in crops}
        tokens = self._tokens.find(wanted)
        self._features.find(image for image, _ in wanted)  # so that they count as used: their points may move next
        fresh: dict[bytes, list[CropWithKeypoints]] = {}  # by image, so that each is encoded once
        for key, crop in wanted.items():
            if key not in tokens:
                fresh.setdefault(crop.crop.key, []).append(crop)
        for some in chunks(fresh.values(), EMBED_BATCH):
            images = {crops[0].crop.key: crops[0].crop for crops in some}
            features = self._features.find(images)
            for new in chunks((crop for key, crop in images.items() if key not in features), ENCODE_BATCH):
                encoded = self.backend.encode(np.stack([crop.pixels for crop in new]))
                features.update(zip((crop.key for crop in new), encoded, strict=True))
            self._features.keep(features)
            unknown = list(itertools.chain(*some))
            for batch in _batches([len(crop.keypoints) for crop in unknown], EMBED_BATCH):
                chosen = [unknown[i] for i in batch]
                found = self.backend.embed([features[c.crop.key] for c in chosen], [c.keypoints for c in chosen])
                tokens.update(zip((crop.key for crop in chosen), found, strict=True))
        self._tokens.keep({key: tokens[key] for key in wanted})
        return tokens


class LRUCache:
    """The `most` things that were used last, by their keys."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._things: OrderedDict[Hashable, Any] = OrderedDict()  # the least recently used first
        self._lock = threading.Lock()

    def find(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """Those of the keys that are known, with their things; they count as used."""
        with self._lock:
            found = {key: self._things[key] for key in keys if key in self._things}
            for key in found:
                self._things.move_to_end(key)
        return found

    def keep(self, things: Mapping[Any, Any]) -> None:
        """Add things, and let those go that were not used for longest."""
        with self._lock:
            self._things.update(things)
            for key in things:
                self._things.move_to_end(key)
            while len(self._things) > self.most:
                self._things.popitem(last=False)


def _open_backend(weights: Any, device: str, backend: str, compile: bool, precision: str) -> Backend:
    compile = check_flag(compile, "compile")
    if check_word(backend, "backend", ("auto", "torch", "onnx"), ConfigError) == "auto":
        backend = choose(weights, device, compile, precision)
    if backend == "torch":
        from normmatch.matching.backends.torch import TorchBackend

        return TorchBackend(weights, device, precision, compile)
    from normmatch.matching.backends.onnx import OnnxBackend

    return OnnxBackend(weights, device, precision, compile)


def _check_size(size: Any, backend: Backend) -> int:
    """A side of images that the network can take."""
    size = check_count(size, "size", 1, int(LIMITS["image_size"][1]), "a side of images in pixels", ConfigError)
    step = backend.step
    if size != backend.image_size and (not step or size % step or size < 2 * step):
        expected = (
            f"a multiple of {step} from {2 * step} on" if step else f"{backend.image_size}, the only one it knows"
        )
        raise ConfigError(f"size is {size}; expected {expected}.")
    return size


def _batches(counts: Sequence[int], most: int) -> Iterator[list[int]]:
    """Indices of what has points, similar numbers of them together, at most `most` and fewer where these are many."""
    batch: list[int] = []
    for i in sorted((i for i, count in enumerate(counts) if count), key=lambda i: counts[i]):
        if batch and (len(batch) == most or (len(batch) + 1) * counts[i] ** 2 > MAX_CELLS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """The items in lists of `size`, the last of what is left; none is taken before it is asked for."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
