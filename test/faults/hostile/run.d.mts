export interface HostileResult {
  readonly requests: number;
  readonly byKind: Readonly<Record<string, number>>;
  readonly differences: readonly string[];
}
export function runHostile(options?: {
  seed?: number;
  requests?: number;
  from?: number;
  log?: (line: string) => void;
}): Promise<HostileResult>;
export function hostileReport(result: HostileResult): string;
