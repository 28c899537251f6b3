#!/usr/bin/env bash
# HPatches. hpatches.sh HPATCHES PHOTOGRAPHS
#   HPATCHES     98 of its 116 sequences, longer side 400, homographies rescaled: 490 pairs
#   PHOTOGRAPHS  a folder of any photographs; measured with 265 of PascalVOC
#
# Two CPU cores, torch 2.15. Viewpoint, illumination, overall, within 1 / 3 / 5 px (one number on this grid):
#   bundled `small`                                           72.5  99.8  86.4
#   head trained on homographies, 240 steps (commit 14bfff1)  92.0 100.0  96.1     10 minutes
set -euo pipefail
normmatch eval small hpatches --root "$1" --precision bf16-mixed
normmatch train small --out runs/homographies --init small --data.name synthetic --data.root "$2" --backbone-lr 0 \
  --frozen-copies 1 --loss.names 0 --augment.flip 0 --augment.mixup 0 --augment.rotation 30 --steps 240 --warmup 10 \
  --lr 3e-4 --batch-size 32 --precision bf16-mixed --no-compile
normmatch eval runs/homographies hpatches --root "$1" --precision bf16-mixed
normmatch eval runs/homographies hpatches --root "$1" --precision bf16-mixed --gray    # 86.9  99.9  93.6
