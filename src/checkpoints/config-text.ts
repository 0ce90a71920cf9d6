/**
 * Writes a changed `config.json`. Numbers keep the form that they have in the original: to transformers `7.0` is a number
 * for a float, and `7`, which JavaScript makes of it, is not.
 */
export function configText(config: Readonly<Record<string, unknown>>, original: string): string {
  const floats = new Set(
    [...original.matchAll(/("[^"\\]+")\s*:\s*(-?\d+)\.0+(?=\s*[,}])/g)].map(
      ([, key, whole]) => `${key}: ${whole}`,
    ),
  );
  const text = JSON.stringify(config, null, 2);
  return `${text.replaceAll(/"[^"\\]+": -?\d+(?=[,\n])/g, (entry) => (floats.has(entry) ? `${entry}.0` : entry))}\n`;
}
