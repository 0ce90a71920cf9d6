import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { AdapterState, Engine } from "../../engine/engine.js";
import { readAdapterFolder, writeAdapterFiles } from "../../store/adapter-files.js";
import { bytesOf, type DiskQuota } from "../checkpoints/disk-quota.js";
import { HttpError } from "../http/http-error.js";

/** Weights a sampler holds on to while it samples. */
export interface AdapterLease {
  readonly adapterId: string;
  release(): void;
}

interface Loaded {
  readonly adapterId: string;
  readonly baseModel: string;
  readonly ready: Promise<void>;
  /** Owner of the disk space for spilled weights; set for weights that exist nowhere else. */
  readonly owner: string | undefined;
  /** Which engine has them, counted from the first. */
  readonly engineNumber: number;
  users: number;
  isDropped: boolean;
}

interface Spilled {
  readonly owner: string;
  readonly folder: string;
  readonly written: Promise<void>;
  /** Gives the owner's share of the disk back. */
  giveBack?: () => void;
}

/**
 * The sampler weights in the engine: shared by all samplers of one checkpoint, the least recently used ones
 * evicted. Unnamed weights, which have no checkpoint to be read from again, wait in a spill folder, or are lost where
 * their owner's share of the disk is full.
 */
export class AdapterPool {
  readonly #engine: Engine;
  readonly #spillFolder: string;
  readonly #maxLoaded: number;
  readonly #disk: Pick<DiskQuota, "take">;
  // In order of use, the least recent first.
  readonly #loaded = new Map<string, Loaded>();
  readonly #spilled = new Map<string, Spilled>();
  #nextId = 0;
  #engineNumber = 0;

  constructor(engine: Engine, spillFolder: string, maxLoaded: number, disk: Pick<DiskQuota, "take">) {
    this.#engine = engine;
    this.#spillFolder = spillFolder;
    this.#maxLoaded = maxLoaded;
    this.#disk = disk;
  }

  /** Takes a frozen copy of a model's current weights in under `key`. */
  async adopt(key: string, owner: string, modelAdapterId: string, baseModel: string): Promise<void> {
    const adapterId = this.#newId();
    await this.#engine.cloneAdapter(modelAdapterId, adapterId);
    this.#loaded.set(key, {
      adapterId,
      baseModel,
      ready: Promise.resolve(),
      owner,
      engineNumber: this.#engineNumber,
      users: 0,
      isDropped: false,
    });
    this.#makeRoom();
  }

  /** Loads the weights unless they are loaded, and keeps them until the lease is released. */
  async acquire(key: string, baseModel: string, read: () => Promise<AdapterState>): Promise<AdapterLease> {
    let entry = this.#loaded.get(key);
    if (entry === undefined) {
      entry = this.#load(key, baseModel, read);
    } else {
      this.#loaded.delete(key);
      this.#loaded.set(key, entry);
    }
    const held = entry;
    held.users += 1;
    try {
      await held.ready;
    } catch (error) {
      held.users -= 1;
      const current = this.#loaded.get(key);
      // They were on their way to a disk that did not take them.
      if (current !== undefined && current !== held) return this.acquire(key, baseModel, read);
      this.#loaded.delete(key);
      throw error;
    }
    this.#makeRoom();
    let isReleased = false;
    return {
      adapterId: held.adapterId,
      release: () => {
        if (isReleased) return;
        isReleased = true;
        held.users -= 1;
        if (held.isDropped && held.users === 0) void this.#remove(held);
        else this.#makeRoom();
      },
    };
  }

  /** The engine was lost: what has a checkpoint or was spilled is loaded again when it is used, the rest is gone. */
  lose(): void {
    this.#engineNumber += 1;
    this.#loaded.clear();
  }

  /** Forgets the weights, at once or when the last sample that uses them has ended. */
  async drop(key: string): Promise<void> {
    const entry = this.#loaded.get(key);
    if (entry !== undefined) {
      this.#loaded.delete(key);
      entry.isDropped = true;
      if (entry.users === 0) await this.#remove(entry);
    }
    const spilled = this.#spilled.get(key);
    if (spilled !== undefined) {
      this.#spilled.delete(key);
      await spilled.written.catch(() => undefined);
      await removeFolder(spilled.folder);
      spilled.giveBack?.();
    }
  }

  #load(key: string, baseModel: string, read: () => Promise<AdapterState>): Loaded {
    const adapterId = this.#newId();
    const spilled = this.#spilled.get(key);
    const load = async () => {
      if (spilled !== undefined) await spilled.written;
      const state = spilled === undefined ? await read() : await readAdapterFolder(spilled.folder);
      await this.#engine.importAdapter(adapterId, baseModel, state, { optimizer: false });
    };
    const entry: Loaded = {
      adapterId,
      baseModel,
      ready: load(),
      owner: spilled?.owner,
      engineNumber: this.#engineNumber,
      users: 0,
      isDropped: false,
    };
    this.#loaded.set(key, entry);
    return entry;
  }

  #makeRoom(): void {
    if (this.#loaded.size <= this.#maxLoaded) return;
    for (const [key, entry] of this.#loaded) {
      if (entry.users > 0) continue;
      this.#loaded.delete(key);
      if (entry.owner !== undefined && !this.#spilled.has(key)) this.#spill(key, entry.owner, entry);
      else void this.#remove(entry);
      if (this.#loaded.size <= this.#maxLoaded) return;
    }
  }

  #spill(key: string, owner: string, entry: Loaded): void {
    const folder = join(this.#spillFolder, entry.adapterId);
    const write = async () => {
      const state = await this.#engine.exportAdapter(entry.adapterId, { optimizer: false });
      spilled.giveBack = await this.#disk.take(owner, bytesOf(state));
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await writeAdapterFiles(folder, state, entry.baseModel);
      await this.#remove(entry);
    };
    const spilled: Spilled = { owner, folder, written: Promise.resolve().then(write) };
    this.#spilled.set(key, spilled);
    spilled.written.catch((error: unknown) => this.#keep(key, entry, spilled, error));
  }

  /** Weights that the disk did not take stay where they are, unless that is for their owner to mend. */
  async #keep(key: string, entry: Loaded, spilled: Spilled, error: unknown): Promise<void> {
    const isWanted = this.#spilled.get(key) === spilled;
    if (isWanted) this.#spilled.delete(key);
    if (!isWanted || error instanceof HttpError) await this.#remove(entry);
    else if (entry.engineNumber === this.#engineNumber) this.#loaded.set(key, entry);
    await removeFolder(spilled.folder);
    spilled.giveBack?.();
  }

  async #remove(entry: Loaded): Promise<void> {
    await entry.ready.catch(() => undefined);
    await this.#engine.removeAdapter(entry.adapterId).catch(() => undefined);
  }

  #newId(): string {
    this.#nextId += 1;
    return `sampler-${this.#nextId}`;
  }
}

/** A file that cannot be removed now is removed when the next server starts; ending a session must go on. */
async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true }).catch(() => undefined);
}
