# mypy: ignore-errors
"""JPEGs with the statistics of photographs. Runs on the nodes; needs numpy and Pillow, nothing of rackproof.

The dead-leaves model (occluding shapes whose sizes follow a power law; Lee, Mumford, Huang 2001) gives edges and the
1/f spectrum of natural scenes; the shapes carry gradients and 1/f texture.
"""

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFilter


def photograph(rng, width, height):
    """A picture in YCbCr."""
    leaves = 160
    labels = Image.new("I", (width, height), 0)
    draw = ImageDraw.Draw(labels)
    longest = max(width, height)
    radii = np.clip(0.018 * longest / np.sqrt(rng.random(leaves)), 3, 0.4 * longest)
    for label in range(1, leaves):
        x, y, r = rng.random() * width, rng.random() * height, radii[label]
        if rng.random() < 0.5:
            s = 0.4 + 0.6 * rng.random()
            draw.ellipse((x - r, y - r * s, x + r, y + r * s), fill=label)
        else:
            angles = np.sort(rng.random(rng.integers(3, 7))) * 2 * np.pi
            draw.polygon([(x + r * np.cos(a), y + r * np.sin(a)) for a in angles], fill=label)
    label = np.asarray(labels, dtype=np.int32)
    light = rng.normal(125, 48, leaves).astype(np.float32)
    slope = rng.normal(0, 70 / longest, (2, leaves)).astype(np.float32)
    texture = np.exp(rng.normal(2.1, 0.8, leaves)).astype(np.float32)
    scene = rng.normal(0, 10, 2)
    xs = np.arange(width, dtype=np.float32)[None, :] - width / 2
    ys = np.arange(height, dtype=np.float32)[:, None] - height / 2
    luma = light[label] + slope[0][label] * xs + slope[1][label] * ys + texture[label] * _one_over_f(rng, width, height)
    planes = [luma + rng.normal(0, 1.5, luma.shape).astype(np.float32)]
    for tint in scene:
        planes.append(128 + tint + rng.normal(0, 14, leaves).astype(np.float32)[label] + 0.06 * (luma - 125))
    bands = [Image.fromarray(np.clip(plane, 0, 255).astype(np.uint8)) for plane in planes]
    lens = ImageFilter.GaussianBlur(0.5)
    return Image.merge("YCbCr", [band.filter(lens) for band in bands])


def _one_over_f(rng, width, height):
    """Noise with amplitudes of 1/f, standard deviation 1."""
    fy, fx = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :]
    f = np.hypot(fx, fy)
    f[0, 0] = np.inf
    spectrum = (rng.standard_normal(f.shape) + 1j * rng.standard_normal(f.shape)) / f
    noise = np.fft.irfft2(spectrum, s=(height, width)).astype(np.float32)
    return noise / (noise.std() or 1)


class Camera:
    """JPEGs of one shard. Sizes scatter like those of photographs; their mean over the shard is the requested one."""

    def __init__(self, spec, shard):
        self.spec, self.shard = spec, shard
        self.owed = 0.0
        self.density = 4.4 if spec["large"] else 0.45  # bytes a pixel before enlarging; each JPEG corrects it
        for trial in range(2):
            pixels = spec["mean_bytes"] / self.density
            data, area = self._take(np.random.default_rng([spec["seed"], shard, trial, 1]), pixels, 4 / 3)[::2]
            self.density = len(data) / area

    def jpeg(self, number):
        spec = self.spec
        rng = np.random.default_rng([spec["seed"], number])
        drawn = spec["mean_bytes"] * float(np.exp(rng.normal(0, 0.4) - 0.08))
        self.owed += drawn
        want = min(max(self.owed, 0.25 * spec["mean_bytes"]), 3 * spec["mean_bytes"])
        aspect = (4 / 3, 3 / 4, 3 / 2, 1.0)[int(rng.choice(4, p=(0.6, 0.2, 0.12, 0.08)))]
        data, size, area = self._take(rng, want / self.density, aspect)
        self.owed -= len(data)
        self.density = 0.8 * self.density + 0.2 * len(data) / area
        return data, size

    def _take(self, rng, pixels, aspect):
        """A JPEG, its width and height, and the pixels before enlarging."""
        width, height = (max(32, round((pixels * a) ** 0.5 / 4) * 4) for a in (aspect, 1 / aspect))
        picture = photograph(rng, width, height)
        out = io.BytesIO()
        if self.spec["large"]:
            picture = picture.resize((width * 3, height * 3), Image.BICUBIC)
            picture.save(out, "JPEG", quality=100, subsampling=0)
        else:
            picture.save(out, "JPEG", quality=96, subsampling=2)
        return out.getvalue(), picture.size, width * height
