import { TinkerError } from "../errors.js";

/** Where `auth login`, of this command line and of the official one, keeps keys. */
export function storedCredentialsPath(): string {
  const { homedir } = process.getBuiltinModule("node:os");
  return `${homedir()}/.tinker/credentials.json`;
}

/** What the file says, whatever that is. What the file system objects to is thrown as it is. */
export function readStoredCredentials(): unknown {
  // Not imported at the top: as a module, node:fs alone costs several milliseconds of start-up time.
  const { readFileSync } = process.getBuiltinModule("node:fs");
  const path = storedCredentialsPath();
  const text = readFileSync(path, "utf8");
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Not the parser's own words: they quote the file.
    throw new TinkerError(
      `${path} is not valid JSON. Move it away and store the key again with \`tinkerts auth login\`.`,
    );
  }
}
