#!/usr/bin/env bash
# Speed, as docs/performance.md has it. On a GPU, and on two CPU cores.
#
# H200: commit 3b23114, torch 2.11, random weights, bfloat16 backbone, compiled, nothing else on the GPU, the compiler's
# cache filled before; the options of then: --curve 20 1000 10 100 for the points. CPU: AMD EPYC (family 25, model 17, AVX-512 bf16), two cores, torch 2.15, a machine at rest.
set -euo pipefail
if [ "${1:-gpu}" = gpu ]; then
  normmatch bench model small --precisions bfloat16 --seconds 0.25 --parts pair points batches cached --batches 1 256
  normmatch bench model paper --precisions bfloat16 --seconds 0.25 --parts pair batches --batches 128
  normmatch bench train small --seconds 3
else
  normmatch bench model small --device cpu --no-compile --parts files --seconds 8
fi
