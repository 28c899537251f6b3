"""Tasks on the workers of a Ray cluster, with Ray Data. Every machine must see the photographs and the weights."""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from normmatch.errors import ConfigError
from normmatch.matching.run_folder import Record, Task

Work = Callable[[list[Task]], Iterable[Record]]
MAX_BLOCKS = 1000  # of a list: what is handed to the workers at a time


class _Worker:
    """A process of the cluster; tasks and records travel as JSON text, so that they are the same here and there."""

    def __init__(self, work: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
        self.work = work(*arguments)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        return {"records": [json.dumps(list(self.work(json.loads(chunk)))) for chunk in batch["chunk"]]}


def run_with_ray(
    chunks: Sequence[Sequence[Task]],
    work: Callable[..., Work],
    arguments: tuple[Any, ...],
    device: str,
    workers: int | None,
) -> Iterator[Record]:
    """The records of all chunks in their order; `work(*arguments)` in each process does a chunk.

    Ray is started on this machine unless the program has done so, or the environment's RAY_ADDRESS names a cluster.
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
        gpus = int(resources.get("GPU", 0)) if device in ("auto", "cuda") else 0
        count = workers or gpus or max(1, int(resources.get("CPU", 1)))
        rows = [{"chunk": json.dumps(list(chunk))} for chunk in chunks]
        done = ray.data.from_items(rows, override_num_blocks=min(len(rows), MAX_BLOCKS)).map_batches(
            _Worker,
            fn_constructor_args=(work, arguments),
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
