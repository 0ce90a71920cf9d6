/** Whether a path matches one of the shell patterns, as Python's fnmatch reads them: `*` goes across folders. */
export function matchesAny(path: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => toRegExp(pattern.endsWith("/") ? `${pattern}*` : pattern).test(path));
}

function toRegExp(pattern: string): RegExp {
  let source = "";
  for (let i = 0; i < pattern.length; i++) {
    const character = pattern[i]!;
    const close = character === "[" ? pattern.indexOf("]", pattern[i + 1] === "!" ? i + 3 : i + 2) : -1;
    if (character === "*") source += ".*";
    else if (character === "?") source += ".";
    else if (close > 0) {
      const set = pattern
        .slice(i + 1, close)
        .replaceAll("\\", "\\\\")
        .replace(/^!/, "^");
      source += `[${set}]`;
      i = close;
    } else source += character.replace(/[\\^$.*+?()[\]{}|/]/, "\\$&");
  }
  return new RegExp(`^${source}$`, "s");
}
