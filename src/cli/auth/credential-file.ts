import { chmod, mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { errorCode, writeFileAtomic } from "../../files.node.js";
import { HOSTED_BASE_URL } from "../../transport/auth.js";
import {
  readStoredCredentials,
  storedCredentialsPath,
  storedKeyId,
} from "../../transport/stored-credentials.node.js";

/** Owner of a key, as the server and the file name it. */
export const keyDetails = z.looseObject({
  org_details: z.looseObject({ name: z.string() }),
  user_details: z.looseObject({ email: z.string() }),
});

// Loose: fields that another version of either command line wrote stay unchanged.
const storedKey = z.looseObject({
  /** "manual" for a pasted key, "generated" for one that an older command line made for itself. */
  type: z.string(),
  key: z.string(),
  name: z.string(),
  /** The server the key is for; the hosted service's key has none, as the official command line writes it. */
  base_url: z.string().optional(),
  details: keyDetails.nullish(),
});

const credentialFile = z.looseObject({
  version: z.literal(1).default(1),
  default: z.string().nullish(),
  keys: z.record(z.string(), storedKey).default({}),
});

/** One key of the file. */
export type StoredKey = z.infer<typeof storedKey>;

/** The key that is stored for a server, with its id. */
export interface StoredCredential {
  readonly keyId: string;
  readonly record: StoredKey;
}

/** The key stored for a server, if any. */
export function storedCredential(server: string): StoredCredential | undefined {
  const file = load();
  const keyId = storedKeyId(file, server);
  return keyId === undefined ? undefined : { keyId, record: file.keys[keyId]! };
}

/** Stores the key for a server; keys of other servers stay. */
export function storeKey(server: string, keyId: string, record: StoredKey): Promise<void> {
  const file = load();
  // Only the hosted service's key is the default, because the official package sends the default to any server.
  return server === HOSTED_BASE_URL
    ? save({ ...file, default: keyId, keys: { ...file.keys, [keyId]: record } })
    : save({ ...file, keys: { ...file.keys, [keyId]: { ...record, base_url: server } } });
}

/** Removes a key. */
export function forgetKey(keyId: string): Promise<void> {
  const file = load();
  const { [keyId]: _, ...keys } = file.keys;
  return save({ ...file, default: file.default === keyId ? undefined : file.default, keys });
}

/** The owner of a key as text: "laptop" (me@example.com, Example). */
export function keyTitle({ name, details }: Pick<StoredKey, "name" | "details">): string {
  const owner = details ? ` (${details.user_details.email}, ${details.org_details.name})` : "";
  return `"${name}"${owner}`;
}

function load(): z.infer<typeof credentialFile> {
  let stored: unknown;
  try {
    stored = readStoredCredentials();
  } catch (error) {
    if (errorCode(error) !== "ENOENT") throw error;
    stored = {};
  }
  const { success, data, error } = credentialFile.safeParse(stored);
  if (success) return data;
  const [issue] = error.issues;
  throw new Error(
    `${storedCredentialsPath()} is not as \`auth login\` writes it (${issue!.path.join(".") || "the file"}: ` +
      `${issue!.message}): move it away and log in again`,
  );
}

async function save({
  version,
  default: keyId,
  keys,
  ...rest
}: z.infer<typeof credentialFile>): Promise<void> {
  const path = storedCredentialsPath();
  const folder = dirname(path);
  const isNew = (await mkdir(folder, { recursive: true, mode: 0o700 })) !== undefined;
  // The umask may have removed the owner's own permissions.
  if (isNew) await chmod(folder, 0o700);
  // Byte for byte what the official command line writes: in this order, and without nulls.
  const withoutNulls = (_: string, value: unknown) => value ?? undefined;
  await writeFileAtomic(
    path,
    JSON.stringify({ version, default: keyId, keys, ...rest }, withoutNulls, 2),
    0o600,
  );
}
