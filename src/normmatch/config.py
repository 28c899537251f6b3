"""Every setting of NormMatch as frozen dataclasses, and the presets. Field comments become the command line's help."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AugmentConfig:
    """Training augmentation. Each has its own probability; 0 switches it off. Ranges as measured in docs/results.md."""

    affine: float = 1.0
    """probability of an affine jitter of an image and its keypoints"""
    rotation: float = 14.0
    """largest rotation, in degrees"""
    scale: tuple[float, float] = (0.85, 1.2)
    """range of the scale of each axis"""
    shift: float = 0.08
    """largest shift, as a share of the image"""
    photometric: float = 1.0
    """probability of a photometric jitter"""
    gain: float = 0.3
    """largest relative change of brightness, and of contrast"""
    flip: float = 0.0
    """probability of mirroring an image; left and right in its keypoints' names are swapped with it"""
    mixup: float = 0.3
    """probability of blending an image with another one"""
    mixup_share: tuple[float, float] = (0.5, 0.8)
    """range of the own image's share in the blend"""
    cutmix: float = 0.0
    """probability of covering a rectangle with a piece of another image; covered keypoints leave both images"""
    erase: float = 0.0
    """probability of erasing a rectangle; erased keypoints leave both images"""
    cover_area: tuple[float, float] = (0.02, 0.2)
    """range of the share of the image that cutmix or erasing covers"""
