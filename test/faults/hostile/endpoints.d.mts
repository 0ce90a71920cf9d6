export function endpoints(
  who: Readonly<Record<string, string | number>>,
  index: number,
): { method: string; path: string }[];
