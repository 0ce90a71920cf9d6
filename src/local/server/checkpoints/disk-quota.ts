import { statfs } from "node:fs/promises";
import type { AdapterState } from "../../engine/engine.js";
import type { Store } from "../../store/store.js";
import { HttpError } from "../http/http-error.js";
import { OwnerShares } from "../http/owner-shares.js";

/** Settings of the disk quota. */
export interface DiskQuotaOptions {
  readonly store: Pick<Store, "runs" | "checkpoints" | "folder">;
  readonly owners: number;
  /** Bytes of all checkpoints. Infinite: what the disk has, and with one owner the disk itself is the limit. */
  readonly diskBytes: number;
}

/** Keeps the checkpoints and spilled weights of each owner within their share of the disk, counted before anything is written. */
export class DiskQuota {
  readonly #options: DiskQuotaOptions;
  /** Bytes that are being written, and those of files that are not checkpoints. */
  readonly #taken = new Set<{ readonly owner: string; readonly bytes: number }>();

  constructor(options: DiskQuotaOptions) {
    this.#options = options;
  }

  /** Saves a checkpoint of so many bytes; 403 where that is more than the owner's share. */
  async saving<T>(owner: string, bytes: number, save: () => Promise<T>): Promise<T> {
    const giveBack = await this.take(owner, bytes);
    try {
      return await save();
    } finally {
      giveBack();
    }
  }

  /** Counts so many bytes until the returned function is called; 403 where that is more than the owner's share. */
  async take(owner: string, bytes: number): Promise<() => void> {
    const { owners, diskBytes, store } = this.#options;
    if (owners <= 1 && diskBytes === Number.POSITIVE_INFINITY) return () => {};
    const { bavail, bsize } = await statfs(store.folder.path);
    const shares: OwnerShares = new OwnerShares(owners, () =>
      Math.min(diskBytes, shares.total + bavail * bsize),
    );
    for (const { runId, sizeBytes } of store.checkpoints.list())
      shares.add(store.runs.get(runId)?.owner ?? "", sizeBytes);
    for (const taken of this.#taken) shares.add(taken.owner, taken.bytes);
    const [used, limit] = [shares.heldBy(owner), shares.limitFor(owner)];
    if (used + bytes > limit) {
      throw new HttpError(
        403,
        `This checkpoint takes ${shown(bytes)}, and your others take ${shown(used)} of the ${shown(limit)} of disk that you may use now. Delete checkpoints that you no longer need (\`tinkerts checkpoint delete\`), or save them with a time to live, so that they expire.`,
      );
    }
    const taken = { owner, bytes };
    this.#taken.add(taken);
    return () => this.#taken.delete(taken);
  }
}

/** Bytes of the files' headers and of the records beside them. */
const FILES_BYTES = 4096;
const TENSOR_HEADER_BYTES = 200;

/** Upper bound for the bytes of a checkpoint's files. */
export function bytesOf({ tensors, optimizer }: AdapterState): number {
  const weights = Object.values(tensors).reduce(
    (sum, { data }) => sum + data.byteLength + TENSOR_HEADER_BYTES,
    0,
  );
  return FILES_BYTES + (optimizer === undefined ? weights : 3 * weights);
}

function shown(bytes: number): string {
  return bytes < 1e6
    ? `${Math.ceil(bytes / 1e3)} kB`
    : bytes < 1e9
      ? `${(bytes / 1e6).toFixed(1)} MB`
      : `${(bytes / 1e9).toFixed(2)} GB`;
}
