/** A word for any of the shells, whatever is in it. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
