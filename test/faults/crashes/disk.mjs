// A disk that is full, and one that cannot be written: a clear error, and nothing damaged.
import { spawnSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkpointHash } from "../shared/checkpoint-files.mjs";
import { ServerEnded, ServerProcess } from "./server-process.mjs";
import { connect, newModel, trainStep } from "./trainer.mjs";
import { listedPaths } from "./verify.mjs";

const DISK_BYTES = 1 << 20;

/** A small disk of its own: a tmpfs, which only root may mount. */
class SmallDisk {
  constructor(folder) {
    this.path = join(folder, "disk");
    mkdirSync(this.path);
    this.problem = mount("-t", "tmpfs", "-o", `size=${DISK_BYTES}`, "tinkerts-faults", this.path);
  }

  setReadOnly(isReadOnly) {
    const problem = mount("-o", `remount,${isReadOnly ? "ro" : "rw"},size=${DISK_BYTES}`, this.path);
    if (problem !== undefined) throw new Error(problem);
  }

  fill() {
    for (const bytes of [1 << 16, 1 << 12, 1]) {
      for (let file = 0; file < DISK_BYTES / bytes && file < 512; file += 1) {
        try {
          writeFileSync(join(this.path, `filler-${bytes}-${file}`), Buffer.alloc(bytes));
        } catch {
          break;
        }
      }
    }
  }

  empty() {
    for (const bytes of [1 << 16, 1 << 12, 1]) {
      for (let file = 0; file < 512; file += 1)
        rmSync(join(this.path, `filler-${bytes}-${file}`), { force: true });
    }
  }

  remove() {
    spawnSync("umount", ["-l", this.path]);
  }
}

function mount(...parameters) {
  const { status, stderr, error } = spawnSync("mount", parameters, { encoding: "utf8" });
  return status === 0 ? undefined : `mount failed: ${error?.message ?? stderr.trim()}`;
}

/** `{ how, checks, errors seen, differences }`; `how` says why when a disk of its own cannot be had. */
export async function runDisk({ folder, modelFolder, log }) {
  const result = { how: "tmpfs of 1 MiB, remounted read-only", checks: 0, said: {}, differences: [] };
  const disk = new SmallDisk(folder);
  if (disk.problem !== undefined) {
    result.how = `not shown here: ${disk.problem}`;
    log(`full and read-only disk: ${result.how}`);
    return result;
  }
  const check = (isRight, text) => {
    result.checks += 1;
    if (!isRight) result.differences.push(text);
  };
  try {
    await useDisk(disk, { modelFolder, check, said: result.said });
  } catch (error) {
    result.differences.push(`disk: ${error.stack ?? error}`);
  } finally {
    disk.remove();
  }
  log(
    `full and read-only disk: ${result.checks} checks, ${result.differences.length === 0 ? "all right" : result.differences.join("; ")}`,
  );
  for (const [where, text] of Object.entries(result.said)) log(`  ${where}: ${text}`);
  return result;
}

async function useDisk(disk, { modelFolder, check, said }) {
  const dataDir = join(disk.path, "data");
  let server = await new ServerProcess({ dataDir, modelFolder }).started;
  let service = connect(server.baseURL);
  const training = await newModel(service);
  const hashes = new Map();
  const keep = (path) => hashes.set(path, checkpointHash(dataDir, path));
  const intact = async (when) => {
    const listed = await listedPaths(service);
    check(
      listed.length === hashes.size,
      `${when}: ${listed.length} checkpoints are listed instead of ${hashes.size}`,
    );
    for (const [path, hash] of hashes)
      check(checkpointHash(dataDir, path) === hash, `${when}: ${path} is damaged`);
  };
  /** What a refused save says; it must come soon and name the reason. */
  const refusal = async (when, reason, request) => {
    const text = await request().then(
      () => "no error at all",
      (error) => error.message,
    );
    said[when] = text;
    check(reason.test(text), `${when}: the error says only "${text}"`);
  };

  await trainStep(training, 0);
  keep((await training.saveState("first")).path);
  keep((await training.saveState("latest", { overwrite: true })).path);

  disk.fill();
  await trainStep(training, 1);
  const full = /space left|disk is full/;
  await refusal("full disk, new checkpoint", full, () => training.saveState("second"));
  await refusal("full disk, overwriting", full, () => training.saveState("latest", { overwrite: true }));
  await refusal("full disk, for a sampler", full, () => training.saveWeightsForSampler("second"));
  await trainStep(training, 2);
  await intact("full disk");
  const other = connect(server.baseURL);
  await refusal("full disk, new client", full, () => newModel(other));
  await other.close();
  disk.empty();
  keep((await training.saveState("third")).path);
  await intact("space again");

  disk.setReadOnly(true);
  const readOnly = /read-only|cannot be written/;
  await refusal("read-only, new checkpoint", readOnly, () => training.saveState("fourth"));
  await refusal("read-only, overwriting", readOnly, () => training.saveState("latest", { overwrite: true }));
  await intact("read-only");
  await server.kill();
  await service.close();
  await refusal("read-only, start", readOnly, () => started(dataDir, modelFolder));
  disk.setReadOnly(false);
  disk.fill();
  const onFull = await started(dataDir, modelFolder).catch((error) => error);
  if (onFull instanceof ServerEnded) {
    said["full disk, start"] = onFull.said;
    check(full.test(onFull.said), `full disk, start: it says only "${onFull.said}"`);
  } else {
    said["full disk, start"] = "it starts";
    await onFull.kill();
  }
  disk.empty();
  server = await started(dataDir, modelFolder);
  service = connect(server.baseURL);
  await intact("after all that");
  for (const path of hashes.keys()) {
    const resumed = await service.createTrainingClientFromStateWithOptimizer(path);
    const copy = await resumed.saveState("copy");
    check(checkpointHash(dataDir, copy.path) === hashes.get(path), `${path} loads as something else`);
  }
  await service.close();
  await server.stop();
}

const started = (dataDir, modelFolder) => new ServerProcess({ dataDir, modelFolder }).started;
