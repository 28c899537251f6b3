"""`normmatch eval`: accuracy of a trained network."""

from tyro.conf import Positional

from normmatch.commands.options import File, Root
from normmatch.config import DatasetName, ProtocolName
from normmatch.data.protocols import get_protocol


def evaluate(
    weights: Positional[str],
    name: Positional[DatasetName],
    root: Root,
    protocol: ProtocolName = "nmt",
    split: str = "test",
    pairs: int = 1000,
    seed: int = 0,
    json: File = None,
) -> None:
    """Measure how many keypoints a trained network matches right, class by class.

    Args:
        weights: a folder or file that training wrote
        name: the dataset
        root: the folder that it lies in
        protocol: the rules to read the annotations and to score by
        split: train, val or test
        pairs: pairs a class; a dataset that comes with pairs uses those
        seed: fixes the pairs
        json: a file for the result
    """
    import torch

    from normmatch.data.catalog import load_splits
    from normmatch.evaluate import evaluate as score
    from normmatch.evaluate import print_accuracy
    from normmatch.io import write_json
    from normmatch.model.matcher import NormMatch

    model = NormMatch.from_pretrained(weights).to("cuda" if torch.cuda.is_available() else "cpu")
    splits = load_splits(name, root, protocol, model.config.image_size, needed=(split,))
    result = {
        "weights": weights,
        "split": split,
        **score(model, splits[split], name, get_protocol(protocol), pairs, seed),
    }
    print_accuracy(result)
    if json is not None:
        write_json(json, result)
