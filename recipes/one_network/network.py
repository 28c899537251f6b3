"""One backbone, two heads: NormMatch's matching head, and dense unit descriptors that say where a point is.

    image (B, 3, H, W)  ->  maps of the backbone's blocks (B, C, h, w)
    maps  ->  matching head (normmatch.model)                    which of these points is it?
    maps  ->  DenseHead  ->  descriptors (B, D, f h, f w)        where is it, or is it absent?

Places are shares of the image, x right, y down: cell (i, j) of an h x w map is centred at ((j + 0.5) / w,
(i + 0.5) / h).
"""

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import tuning
from normmatch.config import PRESETS
from normmatch.model.backbone import Features, TimmBackbone
from normmatch.model.network import NormMatch
from settings import Settings

MATCHED = (8, 11)  # the blocks that the matching head reads, counted from 0
INPUT_SCALE = 20.0  # of the unit maps, so that the entries of 384 channels are about one
NONE_SCALE = 10.0  # lets the logit of "absent" move as fast as those of the places


class Encoding(NamedTuple):
    """What is known of images."""

    maps: dict[int, Tensor]  # block, counted from 0 -> (B, C, h, w)
    features: Features  # for the matching head
    trunk: Tensor  # (B, W, 2h, 2w): of the dense head, before its decoder
    dense: Tensor  # (B, D, f h, f w): unit descriptors


def read(image_map: Tensor, xy: Tensor) -> Tensor:
    """A map (B, C, h, w) at places (B, N, 2), bilinearly: (B, N, C)."""
    grid = (xy * 2 - 1).unsqueeze(2).to(image_map.dtype)
    return F.grid_sample(image_map, grid, padding_mode="border", align_corners=False)[..., 0].mT


def cell_centers(height: int, width: int, device: torch.device | str) -> Tensor:
    """The places (h w, 2) of a map's cells."""
    y = (torch.arange(height, device=device) + 0.5) / height
    x = (torch.arange(width, device=device) + 0.5) / width
    return torch.stack(torch.meshgrid(y, x, indexing="ij")[::-1], -1).reshape(-1, 2)


class OffsetDecoder(nn.Module):
    """Descriptors at any place: each of the four cells around it is decoded with the offset from its centre.

        d(p) = sum_c w_c(p) MLP(FiLM(t_c; p - c)) + bilinear skip,    w_c bilinear

    Read on a finer grid it is a learned interpolation of the map.
    """

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.film = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 2 * width))
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, dim))
        self.skip = nn.Linear(width, dim)
        nn.init.zeros_(self.film[2].weight)
        nn.init.zeros_(self.film[2].bias)

    def decode(self, cells: Tensor, offset: Tensor) -> Tensor:
        """Cells (..., W) seen from an offset (..., 2) in cells: (..., D)."""
        gain, shift = self.film(offset).chunk(2, -1)
        return self.mlp(F.gelu(cells * (1 + gain) + shift))

    def at(self, trunk: Tensor, xy: Tensor) -> Tensor:
        """Descriptors (B, N, D), not yet unit, at places xy (B, N, 2)."""
        height, width = trunk.shape[-2:]
        place = xy * xy.new_tensor((width, height)) - 0.5  # in cells, cell 0 at 0
        corner = place.floor()
        result = self.skip(read(trunk, xy))
        for dx in (0, 1):
            for dy in (0, 1):
                cell = corner + corner.new_tensor((dx, dy))
                offset = place - cell
                weight = (1 - offset.abs()).prod(-1, keepdim=True)  # (B, N, 1)
                column, row = cell[..., 0].clamp(0, width - 1).long(), cell[..., 1].clamp(0, height - 1).long()
                index = (row * width + column).unsqueeze(1).expand(-1, trunk.shape[1], -1)  # (B, W, N)
                result = result + weight * self.decode(trunk.flatten(2).gather(2, index).mT, offset)
        return result

    def everywhere(self, trunk: Tensor, finer: int) -> Tensor:
        """`at` the centres of a grid that is `finer` times as fine: (B, D, finer h, finer w)."""
        height, width = trunk.shape[-2:]
        cells = F.pad(trunk, (1, 1, 1, 1), mode="replicate").permute(0, 2, 3, 1)  # (B, h + 2, w + 2, W)
        inner = [(i + 0.5) / finer - 0.5 for i in range(finer)]  # of a fine cell's centre from its cell's
        rows = []
        for y in inner:
            row = []
            for x in inner:
                total = None
                for row_of_cell in {math.floor(y), math.floor(y) + 1}:
                    for column_of_cell in {math.floor(x), math.floor(x) + 1}:
                        offset = cells.new_tensor((x - column_of_cell, y - row_of_cell))
                        weight = float((1 - abs(x - column_of_cell)) * (1 - abs(y - row_of_cell)))
                        top, left = 1 + row_of_cell, 1 + column_of_cell
                        if weight:
                            window = cells[:, top : top + height, left : left + width]
                            part = weight * self.decode(window, offset)
                            total = part if total is None else total + part
                row.append(total)
            rows.append(torch.stack(row, 3))  # (B, h, w, finer, D)
        fine = torch.stack(rows, 3).permute(0, 5, 1, 3, 2, 4)  # (B, D, h, finer, w, finer)
        fine = fine.reshape(len(trunk), -1, height * finer, width * finer)
        skip = self.skip(trunk.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        if finer > 1:
            skip = F.interpolate(skip, scale_factor=finer, mode="bilinear")
        return fine + skip


class DenseHead(nn.Module):
    """Maps of some blocks to unit descriptors at twice their resolution: 1x1, two residual 3x3 blocks, up, out."""

    def __init__(self, channels: Sequence[int], settings: Settings, width: int = 256) -> None:
        super().__init__()
        self.finer = settings.finer if settings.decoder == "offset" else 0
        self.mix = nn.Parameter(torch.ones(len(channels)))
        self.enter = nn.Conv2d(sum(channels), width, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 1))
            for _ in range(2)
        )
        last = [nn.Conv2d(width, width, 3, padding=1)]
        if settings.light:
            last = [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, width, 1)]
        self.up = nn.Sequential(nn.GELU(), *last)
        self.out = nn.Sequential(nn.GELU(), nn.Conv2d(width, settings.dim, 1))
        self.skip = nn.Conv2d(sum(channels), settings.dim, 1)
        self.offset = OffsetDecoder(width, settings.dim) if self.finer else None
        self.log_scale = nn.Parameter(torch.tensor(20.0).log())
        self.none = nn.Linear(settings.dim, 1)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Trunk (B, W, 2h, 2w) and unit descriptors (B, D, f h, f w)."""
        units = [F.normalize(m.float(), dim=1) * weight for m, weight in zip(maps, self.mix, strict=True)]
        x = torch.cat(units, 1) * INPUT_SCALE
        y = self.enter(x)
        for block in self.blocks:
            y = y + block(y)
        trunk = self.up(F.interpolate(y, scale_factor=2, mode="bilinear"))
        if self.offset is None:
            dense = self.out(trunk) + F.interpolate(self.skip(x), scale_factor=2, mode="bilinear")
        else:
            dense = self.offset.everywhere(trunk, self.finer)
            coarse = self.skip(x)
            dense = dense + F.interpolate(coarse, size=dense.shape[-2:], mode="bilinear")
            trunk = torch.cat([trunk, F.interpolate(coarse, scale_factor=2, mode="bilinear")], 1)
        return trunk, F.normalize(dense.float(), dim=1)

    def at(self, trunk: Tensor, dense: Tensor, xy: Tensor) -> Tensor:
        """Unit descriptors (B, N, D) of places (B, N, 2)."""
        if self.offset is None:
            return F.normalize(read(dense, xy), dim=-1)
        width = trunk.shape[1] - self.skip.out_channels
        decoded = self.offset.at(trunk[:, :width], xy) + read(trunk[:, width:], xy)
        return F.normalize(decoded.float(), dim=-1)

    def logits(self, queries: Tensor, dense: Tensor) -> Tensor:
        """Of the places of a target: queries (..., N, D), dense (..., D, h, w) -> (..., N, h w + 1); absent is last."""
        places = (queries @ dense.flatten(-2)) * self.log_scale.exp()
        return torch.cat([places, self.none(queries) * NONE_SCALE], -1)


class OneNetwork(nn.Module):
    """The backbone with both heads; `settings` say how it is built and what is trained."""

    def __init__(self, settings: Settings, start: str = "random") -> None:
        super().__init__()
        self.settings = settings
        config = replace(
            PRESETS["small"], backbone_weights=start, image_size=settings.size, drop_path=settings.drop_path
        )
        self.matching = NormMatch(config)
        self.start = copy.deepcopy(self.backbone).requires_grad_(False) if settings.read_start else None
        tuning.prepare(self.backbone.net, settings.tune, settings.rank)
        channels = [self.backbone.channels[0]] * (len(settings.blocks) + settings.read_start)
        self.locating = DenseHead(channels, settings)
        if settings.together:
            from together import Together

            self.together = Together(settings.dim, settings.together)

    @property
    def backbone(self) -> TimmBackbone:
        """The encoder of both heads."""
        return self.matching.backbone  # type: ignore[return-value]

    def maps(self, image: Tensor, blocks: Sequence[int]) -> dict[int, Tensor]:
        """Normalised maps (B, C, h, w) of blocks, counted from 0, of images (B, 3, H, W) in [0, 1]."""
        order = sorted(set(blocks))
        image = self.backbone.standardize(image)
        found = self.backbone.net.forward_intermediates(image, indices=order, norm=True, intermediates_only=True)
        return dict(zip(order, found, strict=True))

    def forward(self, image: Tensor, also: Sequence[int] = ()) -> Encoding:
        """Encode images; `also` names blocks, counted from 0, whose maps are wanted too."""
        maps = self.maps(image, [*MATCHED, *self.settings.blocks, *also])
        first, last = maps[MATCHED[0]], maps[MATCHED[1]]
        features = Features((first, last), last.mean((2, 3)), (image.shape[-2], image.shape[-1]))
        read_by_head = [maps[block] for block in self.settings.blocks]
        if self.start is not None:
            with torch.no_grad():
                read_by_head.append(self.start(image).maps[1])
        return Encoding(maps, features, *self.locating(read_by_head))

    def locate(self, queries: Tensor, xy: Tensor, known: Tensor, dense: Tensor) -> list[Tensor]:
        """Answers, each better than the one before, of where a source's points lie in a target.

        Args:
            queries, xy, known: (P, K, D), (P, K, 2), (P, K): the source's points; only known ones are asked for.
            dense: (P, D, h, w): the target's descriptors.

        Returns:
            Logits (P, K, h w + 1) of the places and, last, of "absent".
        """
        if self.settings.together:
            return self.together(self.locating, queries, xy, known, dense)
        return [self.locating.logits(queries, dense)]

    def heads(self) -> list[nn.Parameter]:
        """The parameters of both heads."""
        together = self.together.parameters() if self.settings.together else ()
        return [*self.matching.head.parameters(), *self.locating.parameters(), *together]

    def save(self, path: Path) -> None:
        """All weights in half precision, with the settings."""
        state = {k: v.half() if v.is_floating_point() else v for k, v in self.state_dict().items()}
        save_file(state, path, metadata={"settings": json.dumps(asdict(self.settings))})

    @classmethod
    def load(cls, path: Path) -> Self:
        with safe_open(path, "pt") as file:
            settings = Settings(**json.loads(file.metadata()["settings"]))
        network = cls(settings)
        network.load_state_dict(load_file(path))
        return network.eval()

    def compile(self) -> None:  # type: ignore[override]
        """Compile what repeats, part by part: a ViT's blocks share their code, and so do the transformer's layers."""
        own = [self.locating, *(self.together.layers if self.settings.together else ())]
        for part in [*self.backbone.net.blocks, *self.matching.head.compiled_parts(), *own]:
            part.compile(dynamic=False)


def pick(features: Features, index: Tensor) -> Features:
    """The features of some images of a batch."""
    return Features(tuple(m[index] for m in features.maps), features.pooled[index], features.size)  # type: ignore
