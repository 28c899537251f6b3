"""Matching pairs on the workers of a Ray cluster, with Ray Data. Every machine must see the images and the weights."""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from normmatch.config import MatchOptions
from normmatch.errors import ConfigError
from normmatch.matching.matcher import Matcher
from normmatch.matching.pair_list import Record, Task, run_tasks

MAX_BLOCKS = 1000  # of the list of pairs: what is handed to the workers at a time


class _Worker:
    """A process of the cluster with a network of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = MatchOptions(**options)
        self.matcher = Matcher.from_options(self.options)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        chunks = [json.loads(chunk) for chunk in batch["chunk"]]
        return {"records": [json.dumps(list(run_tasks(self.matcher, chunk, self.options))) for chunk in chunks]}


def run_with_ray(chunks: Sequence[Sequence[Task]], options: MatchOptions, workers: int | None) -> Iterator[Record]:
    """The records of all chunks in their order.

    Chunks and records travel as JSON text, so that they are the same here and there. Ray is started on this machine
    unless the program has done so, or the environment's RAY_ADDRESS names a cluster.
    """
    import ray

    started = not ray.is_initialized()
    if started:
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # an address where nobody answers; a machine too busy to start it
            raise ConfigError(f"Ray cannot be started here, or reached: {' '.join(str(error).split())}") from error
    context = ray.data.DataContext.get_current()
    kept = context.enable_progress_bars, context.execution_options.preserve_order
    context.enable_progress_bars, context.execution_options.preserve_order = False, True
    try:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if options.device in ("auto", "cuda") else 0
        count = workers or gpus or max(1, int(resources.get("CPU", 1)))
        rows = [{"chunk": json.dumps(list(chunk))} for chunk in chunks]
        done = ray.data.from_items(rows, override_num_blocks=min(len(rows), MAX_BLOCKS)).map_batches(
            _Worker,
            fn_constructor_args=(asdict(options),),
            batch_size=1,
            num_cpus=1,
            num_gpus=1 if gpus else None,
            compute=ray.data.ActorPoolStrategy(size=min(count, len(rows))),
        )
        for row in done.iter_rows():
            yield from json.loads(row["records"])
    finally:
        context.enable_progress_bars, context.execution_options.preserve_order = kept
        if started:
            ray.shutdown()
