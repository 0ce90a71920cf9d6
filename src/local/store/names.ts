/**
 * The only names that ever become part of a file path: one path segment, no leading dot, so that nothing can
 * leave the data folder or hide in it, and short enough for every file system.
 */
const NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;

// Windows opens a device instead of a file under these names, whatever their extension.
const DEVICE = /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i;

/** Says what is wrong with a checkpoint name, or nothing when it may be used. */
export function checkName(name: string): string | undefined {
  if (NAME.test(name) && !name.endsWith(".") && !DEVICE.test(name)) return undefined;
  const shown = JSON.stringify(name.length > 60 ? `${name.slice(0, 60)}...` : name);
  return `must be 1 to 128 letters, digits, '.', '_' or '-', beginning with a letter, digit or '_' and not a device name, got ${shown}`;
}

/** A run id as a folder name: ids hold ':', which not every file system takes. */
export function runFolderName(runId: string): string {
  return runId.replaceAll(":", "_");
}
