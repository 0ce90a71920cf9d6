// Pictures of pages have few colours: with a palette of 256 they are a third as large, and look the same.
import { crc32, deflateSync } from "node:zlib";

const MAX_COLORS = 256;
/** The others are those that would be missed most: a small green dot among many greys. */
const MAX_COMMON = 200;

/** A PNG with a palette, from the pixels (4 bytes each, opaque) of a picture. */
export function smallPng({ width, height, pixels }) {
  const counts = new Map();
  for (let at = 0; at < pixels.length; at += 4) {
    const color = (pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2];
    counts.set(color, (counts.get(color) ?? 0) + 1);
  }
  const byCount = [...counts].sort((one, other) => other[1] - one[1]).map(([color]) => color);
  const palette = byCount.slice(0, MAX_COMMON);
  const far = (color) => distance(palette[nearest(palette, color)], color) * counts.get(color);
  while (palette.length < Math.min(MAX_COLORS, byCount.length))
    palette.push(byCount.reduce((one, other) => (far(other) > far(one) ? other : one)));
  const places = new Map(byCount.map((color) => [color, nearest(palette, color)]));
  const rows = Buffer.alloc(height * (width + 1));
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const at = 4 * (y * width + x);
      const color = (pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2];
      rows[y * (width + 1) + 1 + x] = places.get(color);
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("PLTE", Buffer.from(palette.flatMap((color) => [color >> 16, (color >> 8) & 255, color & 255]))),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

function nearest(palette, color) {
  let [best, least] = [0, Number.POSITIVE_INFINITY];
  for (const [place, other] of palette.entries()) {
    const found = distance(color, other);
    if (found < least) [best, least] = [place, found];
  }
  return best;
}

function distance(one, other) {
  const between = (shift) => (((one >> shift) & 255) - ((other >> shift) & 255)) ** 2;
  return between(16) + between(8) + between(0);
}

function chunk(type, data) {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const framed = Buffer.alloc(named.length + 8);
  framed.writeUInt32BE(data.length, 0);
  framed.set(named, 4);
  framed.writeUInt32BE(crc32(named), named.length + 4);
  return framed;
}
