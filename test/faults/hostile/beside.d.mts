export interface AttackResult {
  readonly attack: string;
  readonly requests: number;
  readonly byStatus: Readonly<Record<string, number>>;
  readonly differences: readonly string[];
}
export function runBeside(options?: {
  seed?: number;
  count?: number;
  only?: string;
  log?: (line: string) => void;
}): Promise<AttackResult[]>;
export function besideReport(results: readonly AttackResult[]): string;
