import { gzipSync } from "node:zlib";

export interface TarMember {
  name: string;
  content?: string | Uint8Array;
  /** The type flag; "0" is a file. */
  kind?: string;
  link?: string;
  /** A size other than the content's. */
  size?: number;
}

/** A tar archive, byte by byte as the format says, with whatever a member asks for. */
export function tar(members: readonly TarMember[], options: { end?: boolean } = {}): Buffer {
  const blocks: Buffer[] = [];
  for (const member of members) {
    const content = Buffer.from(member.content ?? "");
    blocks.push(header(member, member.size ?? content.length), content);
    blocks.push(Buffer.alloc((512 - (content.length % 512)) % 512));
  }
  if (options.end !== false) blocks.push(Buffer.alloc(1024));
  return Buffer.concat(blocks);
}

export const tarGz = (members: readonly TarMember[]) => gzipSync(tar(members));

function header(member: TarMember, size: number): Buffer {
  const block = Buffer.alloc(512);
  block.write(member.name, 0, 100);
  block.write("0000644\0", 100);
  block.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
  block.write("00000000000\0", 136);
  block.write("        ", 148);
  block.write(member.kind ?? "0", 156);
  block.write(member.link ?? "", 157, 100);
  block.write("ustar\x0000", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

export function pax(records: Record<string, string>, kind = "x"): TarMember {
  const content = Object.entries(records).map(([key, value]) => {
    const rest = Buffer.byteLength(` ${key}=${value}\n`);
    let length = rest + String(rest).length;
    if (rest + String(length).length !== length) length = rest + String(length).length;
    return `${length} ${key}=${value}\n`;
  });
  return { name: "PaxHeader", kind, content: content.join("") };
}
