/** Results for docs/proof.md, picked up by scripts/conformance.mjs. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";

export function writeReport(name: string, result: unknown): void {
  const folder = process.env["TINKERTS_CONFORMANCE_RESULTS"];
  if (folder !== undefined && folder !== "")
    writeFileSync(join(folder, `${name}.json`), JSON.stringify(result, undefined, 1));
}
