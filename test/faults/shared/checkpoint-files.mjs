// What a checkpoint is on disk, bit for bit.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runFolderName } from "../../../dist/local/store/names.js";

export function checkpointFolder(dataDir, tinkerPath) {
  const [run, kind, name] = tinkerPath.slice("tinker://".length).split("/");
  return join(dataDir, "runs", runFolderName(run), "checkpoints", kind, name);
}

/** One hash over the tensors of a checkpoint, optimizer included; undefined when there is no such folder. */
export function checkpointHash(dataDir, tinkerPath) {
  const folder = checkpointFolder(dataDir, tinkerPath);
  const hash = createHash("sha256");
  let names;
  try {
    names = readdirSync(folder).sort();
  } catch {
    return undefined;
  }
  for (const name of names) {
    if (!name.endsWith(".safetensors")) continue;
    hash.update(`${name}\n`).update(readFileSync(join(folder, name)));
  }
  return hash.digest("hex");
}
