import { ValidationError } from "../errors.js";
import type { ImageFormat } from "../wire/index.js";
import type { ImagePart } from "./messages.js";

/** The bytes of an image, with what its header says. */
export interface SizedImage {
  readonly data: Uint8Array;
  readonly format: ImageFormat;
  readonly width: number;
  readonly height: number;
}

const PNG_SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const DATA_URI = /^data:[^,]*;base64,/i;

/** Constants of Qwen's image processor. */
const PATCH_PIXELS = 16;
const MERGED_PATCHES = 2;
const MIN_PIXELS = 256 * 256;
const MAX_PIXELS = 4096 * 4096;
const MAX_ASPECT_RATIO = 200;

/** Reads the size from the first bytes of a PNG or JPEG file; the image itself is not decoded. */
export function readImage({ image, format }: ImagePart): SizedImage {
  const data = typeof image === "string" ? bytesOfUri(image) : image;
  const size = pngSize(data) ?? jpegSize(data);
  if (size === undefined) throw refusal("must be a PNG or JPEG file, and its first bytes are of neither");
  if (format !== undefined && format !== size.format) {
    throw refusal(`is said to be ${format} and is ${size.format}`);
  }
  if (size.width === 0 || size.height === 0) throw refusal("has no pixels");
  return { data, ...size };
}

function bytesOfUri(uri: string): Uint8Array {
  if (/^https?:/i.test(uri)) {
    throw refusal("is an address on the web: fetch it first, and give its bytes or a data: URI");
  }
  const prefix = DATA_URI.exec(uri)?.[0];
  if (prefix === undefined) throw refusal("must be bytes or a data: URI in base64");
  try {
    return Uint8Array.from(atob(uri.slice(prefix.length)), (character) => character.charCodeAt(0));
  } catch {
    throw refusal("is a data: URI whose base64 cannot be read");
  }
}

type Size = Omit<SizedImage, "data">;

function pngSize(data: Uint8Array): Size | undefined {
  if (data.length < 24 || PNG_SIGNATURE.some((byte, index) => data[index] !== byte)) return undefined;
  const view = viewOf(data);
  return { format: "png", width: view.getUint32(16), height: view.getUint32(20) };
}

/** Walks from segment to segment until the one that begins a frame. */
function jpegSize(data: Uint8Array): Size | undefined {
  if (data[0] !== 0xff || data[1] !== 0xd8) return undefined;
  const view = viewOf(data);
  for (let place = 2; place + 9 <= data.length && data[place] === 0xff; ) {
    const marker = data[place + 1]!;
    if (marker === 0xff) place += 1;
    else if (isFrame(marker)) {
      return { format: "jpeg", width: view.getUint16(place + 7), height: view.getUint16(place + 5) };
    } else place += 2 + view.getUint16(place + 2);
  }
  throw refusal("is a JPEG file that ends before its size is said");
}

/** SOF0 to SOF15, without the tables that share their numbers: DHT, JPG and DAC. */
function isFrame(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
}

function viewOf({ buffer, byteOffset, byteLength }: Uint8Array): DataView {
  return new DataView(buffer, byteOffset, byteLength);
}

function refusal(why: string): ValidationError {
  return new ValidationError("image", `The image of a message ${why}.`);
}

/** Size that the image processor of Qwen3-VL, Qwen3.5 and Qwen3.8 gives an image: whole tiles, within bounds. */
export function qwenImageTokens({ width, height }: Pick<SizedImage, "width" | "height">): number {
  const ratio = Math.max(width, height) / Math.min(width, height);
  if (ratio > MAX_ASPECT_RATIO) {
    throw refusal(`is ${width} by ${height} pixels; its sides may differ by ${MAX_ASPECT_RATIO} to 1`);
  }
  const tile = PATCH_PIXELS * MERGED_PATCHES;
  const tiles = (along: (pixels: number) => number) => along(width) * along(height);
  const nearest = tiles((pixels) => roundHalfToEven(pixels / tile));
  if (nearest * tile ** 2 > MAX_PIXELS) {
    const shrink = Math.sqrt((height * width) / MAX_PIXELS);
    return tiles((pixels) => Math.max(1, Math.floor(pixels / shrink / tile)));
  }
  if (nearest * tile ** 2 < MIN_PIXELS) {
    const stretch = Math.sqrt(MIN_PIXELS / (height * width));
    return tiles((pixels) => Math.ceil((pixels * stretch) / tile));
  }
  return nearest;
}

/** As Python rounds. */
function roundHalfToEven(value: number): number {
  const rounded = Math.round(value);
  return value % 1 === 0.5 && rounded % 2 === 1 ? rounded - 1 : rounded;
}
