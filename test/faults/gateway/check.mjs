// What a recording must hold, whatever was killed while it was written.

/** A logprob that is computed again differs in its last bits, since rows of a batch are padded otherwise. */
const MAX_DIFFERENCE = 1e-3;

/**
 * What is wrong with a recording.
 * @param received answers that agents read to their end, `{ session, message, content }`
 * @param sessions the records of the recording
 * @param datums what it is exported as
 * @param computed the logprobs of each datum's targets, from a forward pass
 */
export function recordingDifferences({ received, sessions, datums, computed }) {
  const key = (session, message, content) => JSON.stringify([session, message, content]);
  const recorded = new Set(
    sessions.flatMap(({ id, threads }) =>
      threads.flatMap(({ turns, messages }) =>
        turns.map(({ messageCount }) => key(id, messageCount, messages[messageCount]?.content)),
      ),
    ),
  );
  const lost = received.filter(
    ({ session, message, content }) => !recorded.has(key(session, message, content)),
  );
  const kept = sessions
    .flatMap(({ threads }) => threads.flatMap(({ turns }) => turns))
    .filter(({ isRepeated }) => !isRepeated)
    .reduce((sum, { tokens }) => sum + tokens.length, 0);
  const trained = datums.reduce(
    (sum, { lossFnInputs: { weights } }) => sum + weights.filter((weight) => weight === 1).length,
    0,
  );
  const foreign = datums.flatMap(({ lossFnInputs: { weights, logprobs } }, at) =>
    weights.filter(
      (weight, place) => weight === 1 && !(Math.abs(logprobs[place] - computed[at][place]) <= MAX_DIFFERENCE),
    ),
  );
  return [
    ...lost.map(({ session, message }) => `${session}: the answer at message ${message} is not recorded`),
    ...(trained === kept ? [] : [`${trained} tokens are trained, and ${kept} were sampled and kept`]),
    ...(trained === 0 ? ["nothing is trained"] : []),
    ...(foreign.length === 0
      ? []
      : [`${foreign.length} trained tokens have another logprob than the model gives them there`]),
  ];
}
