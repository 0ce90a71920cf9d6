/** Metrics that summarize a run; the first that it has is shown. */
const HEADLINES = [
  /^env\/all\/reward\/total$/,
  /^env\/.*reward/,
  /(?:^|\/)reward(?:\/|$)/,
  /^train_mean_nll$/,
  /^(?:train\/)?(?:dpo_)?loss$/,
  /(?:^|[/_])(?:loss|nll)$/,
];
/** Evaluations that runs are judged by; the first that a run has is shown. */
const JUDGED = [/reward/, /accuracy|correct|score|pass|win_rate/, /nll|loss/];

/** The metric that says best how a run goes; undefined if none does. */
export function headlineOf(names: readonly string[]): string | undefined {
  return HEADLINES.map((pattern) => names.find((name) => pattern.test(name))).find(
    (name) => name !== undefined,
  );
}

/** Whether a metric may be that of a headline. */
export function mayBeHeadline(name: string): boolean {
  return HEADLINES.some((pattern) => pattern.test(name));
}

/** Whether a metric was measured on data that are not trained on. */
export function isEvaluation(name: string): boolean {
  return /^(?:test|eval)\//.test(name);
}

/** The evaluation that a run is judged by. */
export function judgedBy(names: readonly string[]): string | undefined {
  const totals = names.filter((name) => !name.includes("/env/") || name.endsWith("/env/all/reward/total"));
  return JUDGED.map((pattern) => totals.find((name) => pattern.test(name))).find((name) => name) ?? totals[0];
}

/** Whether a smaller value of a metric is the better one. */
export function isLowerBetter(name: string): boolean {
  return /(?:^|[/_.:])(?:loss|nll|bpb|error|errors|perplexity|ppl|kl)(?:$|[/_.:])/.test(name);
}
