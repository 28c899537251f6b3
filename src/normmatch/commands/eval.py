"""`normmatch eval`: accuracy of trained networks."""

from typing import Annotated

from tyro.conf import Positional, arg

from normmatch.evaluation.config import EvalConfig

What = Annotated[tuple[str, ...], arg(metavar="[WEIGHTS ...] DATASET", help_behavior_hint="")]


def evaluate(what: Positional[What] = (), config: Annotated[EvalConfig, arg(name="")] = EvalConfig()) -> None:  # noqa: B008 - frozen
    """Measure how many keypoints trained networks match right, class by class, beside the paper's numbers.

    Several weights, say of several seeds, give mean and standard deviation. With `--task locate` it is how well
    landmarks are located: `normmatch eval wings.json --task locate --references 1 3 5 10` for any photographs.

    Args:
        what: folders or files that training wrote, or bundled names (small if none is given); then the dataset:
            pascal-voc, spair-71k, willow, hpatches, synthetic or folder; to locate also a keypoints file, or a list of
            pairs as PF-PASCAL and PF-WILLOW have it
        config: the rest
    """
    from normmatch.evaluation.locating import evaluate_locating
    from normmatch.evaluation.run import evaluate as run

    (evaluate_locating if config.task == "locate" else run)(what, config)
