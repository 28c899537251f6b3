#!/usr/bin/env bash
# The paper's ablations, at a fifth of a full training. ablations.sh VOC BACKBONE VGG16
#
# Measured at commit 2d826ca with torch 2.11 on one H200, seed 0, 1,000 steps of 64 pairs, three commands of two rows each
# beside one another, nine minutes in all. Test set, nmt:
#   full 88.98, without augmentation 86.46, without layer loss 90.23, vanilla transformer 84.82,
#   cross-entropy 78.94, VGG16 80.33
set -euo pipefail
normmatch ablate --out runs/ablation --data.root "$1" --model.backbone-weights "$2" --vgg16-weights "$3" \
  --model.drop-path 0.1 --augment.flip 0.5 --steps 1000
