import type { Sender } from "./sender.js";
import type { PoolName } from "./types.js";

/** Connections pooled by purpose. */
export interface Connections {
  senderFor(pool: PoolName): Sender;
  /** The next requests of this pool use new connections; those under way finish on the old ones. */
  renew(pool: PoolName): void;
  /** Ends every connection, also those in use. */
  close(): Promise<void>;
}

/** The parts that differ between Node and other runtimes. */
export interface Platform {
  env(name: string): string | undefined;
  /** User agent and X-Stainless-* headers that describe this runtime. */
  userAgentHeaders(): Record<string, string>;
  createConnections(): Connections;
  /** Runs a shell command and resolves to what it printed. */
  runCommand?(command: string): Promise<string>;
  /** The key that ~/.tinker/credentials.json holds for the server at this address. */
  readStoredCredential?(baseURL: string): string | undefined;
  zstdCompress?(bytes: Uint8Array): Promise<Uint8Array>;
}
