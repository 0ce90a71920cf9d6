import { ValidationError } from "../../errors.js";
import type { ImageFormat } from "../../wire/index.js";
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
