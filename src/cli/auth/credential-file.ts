import { chmod, mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { z } from "zod";
import { errorCode, writeFileAtomic } from "../../files.node.js";
import { readStoredCredentials, storedCredentialsPath } from "../../transport/stored-credentials.node.js";

/** Whom a key belongs to, in the words of the server and of the file. */
export const keyDetails = z.looseObject({
  org_details: z.looseObject({ name: z.string() }),
  user_details: z.looseObject({ email: z.string() }),
});

// Loose: what another version of either command line wrote stays as it is.
const storedKey = z.looseObject({
  /** "manual" for a key that was pasted, "generated" for one that an older command line made for itself. */
  type: z.string(),
  key: z.string(),
  name: z.string(),
  details: keyDetails.nullish(),
});

const credentialFile = z.looseObject({
  version: z.literal(1).default(1),
  default: z.string().nullish(),
  keys: z.record(z.string(), storedKey).default({}),
});

/** One key of the file. */
export type StoredKey = z.infer<typeof storedKey>;

/** The key that is in use, with the id it is stored under. */
export interface DefaultKey {
  readonly keyId: string;
  readonly record: StoredKey;
}

/** The key in use, if one is stored. */
export function defaultKey(): DefaultKey | undefined {
  const { default: keyId, keys } = load();
  const record = keyId == null ? undefined : keys[keyId];
  return keyId == null || record === undefined ? undefined : { keyId, record };
}

/** Stores a key and makes it the one in use; the others stay. */
export function storeDefaultKey(keyId: string, record: StoredKey): Promise<void> {
  const file = load();
  return save({ ...file, default: keyId, keys: { ...file.keys, [keyId]: record } });
}

/** Removes a key; none is in use then, if it was that one. */
export function forgetKey(keyId: string): Promise<void> {
  const file = load();
  const { [keyId]: _, ...keys } = file.keys;
  return save({ ...file, default: file.default === keyId ? undefined : file.default, keys });
}

/** Whose key it is, as in: "laptop" (me@example.com, Example). */
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
  // The umask may have taken rights of the owner's own.
  if (isNew) await chmod(folder, 0o700);
  // Byte by byte what the official command line writes: in this order, and without nulls.
  const withoutNulls = (_: string, value: unknown) => value ?? undefined;
  await writeFileAtomic(
    path,
    JSON.stringify({ version, default: keyId, keys, ...rest }, withoutNulls, 2),
    0o600,
  );
}
