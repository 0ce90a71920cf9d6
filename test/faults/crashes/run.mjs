// The backend under kill -9, on a full disk and on a read-only one.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeTinyModel } from "../shared/tiny-model.mjs";
import { runDisk } from "./disk.mjs";
import { expectedHashes, runKills } from "./kills.mjs";

/** `{ kills, restarts, checkpoints, disk, differences, seconds }`. */
export async function runCrashes({ from, kills, log }) {
  const folder = mkdtempSync(join(tmpdir(), "tinkerts-crashes-"));
  const startedMs = performance.now();
  try {
    const modelFolder = join(folder, "model");
    await writeTinyModel(modelFolder);
    const expected = await expectedHashes(folder, modelFolder);
    const killed = await runKills({ from, kills, folder, modelFolder, expected, log });
    const disk = await runDisk({ folder, modelFolder, log });
    const differences = [...killed.differences, ...disk.differences];
    return { ...killed, disk, differences, seconds: Math.round((performance.now() - startedMs) / 1000) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The section of docs/proof.md. */
export function crashesReport(result) {
  const { kills, disk } = result;
  const total = Object.values(kills).reduce((sum, each) => sum + each, 0);
  const asCell = (text) =>
    text
      .replace(/\(request [^,]*, /, "(")
      .replaceAll(/\/[^\s']*\/disk/g, "/disk")
      .replaceAll("\n", " ");
  const said = Object.entries(disk.said).map(([when, text]) => `| ${when} | ${asCell(text)} |`);
  return `
\`tinkerts serve\` on one data folder, killed with SIGKILL ${total} times (${kills.saving} while saving, ${kills.training} while training, ${kills.starting} while starting) and
started again: **${result.differences.length} differences**, ${result.restarts} inspections, ${result.seconds} s. Every checkpoint that was acknowledged and not deleted is listed and has the bits of
an undisturbed run at that step (${result.checkpoints} at the end), also when the kill hit the one that was replacing it; what is listed is whole, also where the
answer was cut off; deleted ones stay away; nothing half-written is left; a random one is loaded and saved again after each restart, with the
same bits. SIGKILL shows that writes are atomic; that they are also synced before the answer is in the code, and not shown here.

A full and a read-only disk: ${disk.how}; ${disk.checks} checks. Training goes on, checkpoints of before stay whole, and once there is space again, saving works.

| when | what the user reads |
|---|---|
${said.join("\n")}
${result.differences.map((text) => `- ${text}`).join("\n")}`;
}
