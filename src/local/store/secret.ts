import { randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { TinkerError } from "../../errors.js";
import { errorCode } from "../../files.node.js";
import { type DataFolder, writePrivateAtomic } from "./data-folder.js";

const SECRET_BYTES = 32;

/** The secret of a data folder, made when it is first opened; only the server's user may read it. */
export async function openSecret(folder: DataFolder): Promise<Uint8Array> {
  const path = folder.join("secret");
  const text = await readFile(path, "utf8").catch((error: unknown) => {
    if (errorCode(error) !== "ENOENT") throw error;
    return undefined;
  });
  if (text === undefined) {
    const secret = randomBytes(SECRET_BYTES);
    await writePrivateAtomic(path, `${secret.toString("hex")}\n`);
    return secret;
  }
  // With a new secret, all users would lose access to their data.
  if (!/^[0-9a-f]{64}\s*$/.test(text)) {
    throw new TinkerError(
      `${path} must hold 64 hexadecimal digits, and does not: put back the file as it was. Without it no API key has access to its runs and checkpoints; if it is lost, delete it and start without API keys to see them all.`,
    );
  }
  return Buffer.from(text.trim(), "hex");
}
