// The sections of docs/proof.md that `npm run conformance` writes, from what its tests left behind.

const table = (head, rows) =>
  [head, head.map(() => "---"), ...rows]
    .map(
      (cells) =>
        `| ${cells
          .map((cell) =>
            String(cell ?? "-")
              .replaceAll("|", "\\|")
              .replaceAll("\n", " "),
          )
          .join(" | ")} |`,
    )
    .join("\n");
const thousands = (count) => count.toLocaleString("en-US");

/** @param {Record<string, any>} found results by name  @returns {Record<string, string>} markdown by section */
export function conformanceSections(found) {
  const sections = {};
  if (found.wire) sections.wire = wire(found.wire);
  if (found.methods || found["same-script"]) {
    sections["python-client"] = [
      found.methods && methods(found.methods, found["methods-with-tokens"]),
      found["same-script"] && sameScript(found["same-script"]),
    ]
      .filter(Boolean)
      .join("\n\n");
  }
  if (found.renderers) {
    const counts = { ...found.formulas, ...found.reinforcement, ...found.distillation };
    sections.renderers = [
      renderers(found.renderers),
      Object.keys(counts).length > 0 && formulas(counts),
      found.rollouts && rollouts(found.rollouts),
      found["reinforcement-runs"] && rewardRuns(found["reinforcement-runs"]),
      found.preferences && preferences(found.preferences),
    ]
      .filter(Boolean)
      .join("\n\n");
  }
  if (found["lm-eval"] && found["inspect-ai"])
    sections.harnesses = harnesses(found["lm-eval"], found["inspect-ai"]);
  if (found["other-backends"]) sections["other-backends"] = otherBackend(found["other-backends"]);
  return sections;
}

function wire({ version, seed, total, counts, statements, explained }) {
  const messages = Object.entries(counts).filter(([name]) => name.includes(" "));
  const types = Object.entries(counts).filter(([name]) => !name.includes(" "));
  return `The judge is the published package \`tinker\` ${version}: its own pydantic models and protobuf code. It read ${thousands(total)} generated values (seed ${seed}), none of them differently.

- ${types.length} JSON types, ${thousands(types[0]?.[1] ?? 0)} values each, every field, both ways. We write and the package reads; it writes, we read and write back, and it compares.
- Protobuf messages, byte for byte where two writers must agree: ${messages.map(([name, count]) => `${name} ${thousands(count)}`).join(", ")}.
- Every message, field, enum and server setting of the package is compared with ours. A new one fails the run until it is known here.
- ${statements} names in docs/protocol-differences.md are looked up in the package's source.

${Object.keys(explained).length} types never travel as JSON of their own; test/conformance/wire.test.ts says why for each.`;
}

function renderers({ version, seed, counts, onPurpose, differences, allowed }) {
  const operations = [
    ["prompt", "prompts"],
    ["example", "examples"],
    ["examples", "conversations as examples"],
    ["tools", "declared tools"],
    ["parse", "answers read"],
    ["stream", "streams"],
  ];
  const total = Object.values(counts).reduce(
    (sum, count) => sum + operations.reduce((some, [name]) => some + (count[name] ?? 0), 0),
    0,
  );
  return `The judge is \`tinker-cookbook\` ${version}, with vocabularies of real models where the package registry has them and one of characters for all. Both sides did the same ${thousands(total)} things with generated conversations and answers (seed ${seed}), and gave the same tokens, weights and messages, or both refused: ${differences} differences but for those that are wanted.

${table(
  ["renderer", ...operations.map(([, title]) => title), "differ on purpose"],
  Object.entries(counts).map(([name, count]) => [
    `\`${name}\``,
    ...operations.map(([operation]) => thousands(count[operation] ?? 0)),
    thousands(onPurpose[name] ?? 0),
  ]),
)}

Where ours differ on purpose:

${wantedDifferences(allowed)}`;
}

function wantedDifferences(allowed) {
  const rows = allowed.map(({ name, reason, times }) => [name, reason, thousands(times)]);
  return table(["difference", "why", "times"], rows);
}

function rollouts({ counts, allowed }) {
  return `Both sides also ran ${thousands(counts.episodes)} scripted episodes under limits and with hooks, ${thousands(counts.groups)} groups whose environments fail and hang under all strategies, and wrote down ${thousands(counts.records)} episodes: the same turns, rewards, reasons, failures and records, but for

${wantedDifferences(allowed)}`;
}

function rewardRuns({ steps, seconds }) {
  const times = Object.entries(seconds).map(
    ([name, { ours, theirs }]) => `${name} ${ours.toFixed(1)} s and ${theirs.toFixed(1)} s`,
  );
  return `The same ${steps} steps by reward, on the same problems with the same seeds, ran from both cookbooks on the built-in backend. Synchronous runs have the same metrics, make the same calls and end with the same weights, bit for bit; sampler and trainer never disagree (\`optim/kl_sample_train\` is 0). The calls differ in three ways: ours saves its first weights, to go back to; it samples from weights that are saved for that alone, where Python's waits for a checkpoint; and it saves none for a step that will not be. Streamed, ours takes groups in their order, so that its weights are those of the synchronous run. Asynchronous, ours trains all steps, where Python's may drop the last ones and call them done. Ours and theirs took: ${times.join(", ")}.`;
}

function formulas(counts) {
  const titles = {
    datum: "datums of examples",
    meanNll: "mean negative log-likelihoods",
    bitsPerByte: "bits per byte",
    scheduleMultiplier: "steps of learning rate schedules",
    learningRate: "recommended learning rates",
    checkpoints: "files of checkpoint records",
    boxed: "boxed answers",
    number: "numbers in answers",
    sameNumber: "answers graded",
    choice: "letters of choices",
    passAtK: "pass@k",
    assembleData: "batches of episodes as advantages and data",
    klPenalty: "batches with a KL penalty",
    divergences: "batches with divergences of sampler, trainer and step",
    trajectoryMetrics: "batches with metrics",
    samplerMetrics: "batches with ages of their samplers",
    discountedSums: "discounted sums",
    splitEvenly: "splits into substeps",
    teacherPenalty: "batches with the reverse KL to teachers",
    offPolicyTargets: "data with a teacher's soft targets",
    hinted: "batches taught with a hint",
    teacherMessages: "hints",
  };
  const list = Object.entries(counts).map(([name, count]) => `${titles[name]} ${thousands(count)}`);
  return `Formulas give the same too: ${list.join(", ")}. In reinforcement learning three things differ on purpose: tokens that were only read have no advantage, also with a discounted penalty; data of which nothing is learnt are not sent; and the metrics of ends are shares of the episodes, where Python's are always 1. In distillation three more do: the token that was sampled stands behind a teacher's tokens, with weight 0; means are over the tokens that are learnt; and an answer that a teacher has no room for has no advantage.`;
}

function preferences(counts) {
  const list = Object.entries(counts).map(([name, count]) => `${name} ${thousands(count)}`);
  return `Preferences are the same: ${list.join(", ")}. Where Python trains what a format puts before every answer, ours trains the label: it stands in the prompt here. DeepSeek V3, which Python's headings do not fit, has them said by the user.`;
}

function harnesses(lmEval, inspect) {
  const { choice, rolling, generation, chat } = lmEval.scores;
  const share = (score) => score.toFixed(2);
  return `A model is trained on some of ${lmEval.rows} generated questions, and two harnesses ask its checkpoint all of them through \`/v1\`. Their scores are those that \`computeLogprobs\` and greedy samples give:

${table(
  ["harness", "task", "score"],
  [
    [
      `lm-eval ${lmEval.version}`,
      `multiple choice, ${lmEval.compared} log-likelihoods`,
      `acc ${share(choice.acc)}, acc_norm ${share(choice.acc_norm)}`,
    ],
    [
      `lm-eval ${lmEval.version}`,
      "log-likelihoods of whole texts",
      `${share(rolling.bits_per_byte)} bits per byte`,
    ],
    [`lm-eval ${lmEval.version}`, "generation from texts", `exact_match ${share(generation.exact_match)}`],
    [`lm-eval ${lmEval.version}`, "generation in chats", `exact_match ${share(chat.exact_match)}`],
    [
      `inspect-ai ${inspect.version}`,
      `answers in chats; ${inspect.rows} rows, one too long for the model`,
      `match ${share(inspect.accuracy)}`,
    ],
  ],
)}`;
}

function methods(plain, withTokens) {
  const runs = [plain, withTokens].filter(Boolean);
  const calls = runs.flatMap(({ rows, configuration }) =>
    rows.flatMap(({ client, method, sync, async }) => [
      { call: `${client}.${method}`, configuration, result: sync },
      { call: `${client}.${method}, async`, configuration, result: async },
    ]),
  );
  const count = (test) => calls.filter(({ result }) => test.test(result ?? "")).length;
  const others = calls.filter(({ result }) => result !== undefined && !["ok", "-"].includes(result));
  const ways = runs.map(({ configuration }) => configuration).join("; then ");
  return `Every public method of the clients of \`tinker\` ${plain.version}, found by introspection, is called in its synchronous and its asynchronous form. The server is the built-in backend with its real engine: first ${ways}.
\`get_tokenizer\` finds the tokenizer that the script has downloaded from the server first, as [Coming from Python](coming-from-python.md#tokenizers) shows: \`tinkerts/nano\` is on no hub.
${plain.rows.length} methods, ${count(/^ok$/)} calls right, ${count(/FAILED|MISSING/)} wrong.${others.length === 0 ? "" : ` The calls that were neither:\n\n${table(["call", "the backend", "result"], others.map(Object.values))}`}`;
}

function sameScript({ requests, compared, normalised, differences }) {
  return `One script runs twice: through the Python SDK and through ours, against two fresh backends. Both sent ${requests} requests, in the same order, with the same \`seq_id\`s and the same content: ${differences} differences.
Equal to the last bit: ${compared.join(", ")}.

Not compared, because the two may differ: ${normalised.join("; ")}.`;
}

/** @param {{ name: string, parts: [string, string][] }[]} workflows one per version  @returns {string} markdown */
export function workflowTable(workflows) {
  const cell = (result) => ({ ok: "yes", "not in this version": "-" })[result] ?? result;
  const [newest, ...old] = workflows;
  const versions = [...old, newest];
  return table(
    ["", ...versions.map(({ name }) => name)],
    newest.parts.map(([part], row) => [part, ...versions.map(({ parts }) => cell(parts[row][1]))]),
  );
}

function otherBackend(servers) {
  const summary = servers.map(({ name, rows }) => {
    const count = (test) => rows.filter(({ result }) => test.test(result)).length;
    return `- ${name}: ${count(/^ok/)} of ${rows.length} calls work, ${count(/^not /)} are not offered, ${count(/^FAILED/)} fail.`;
  });
  const others = servers.flatMap(({ name, rows }) => {
    const bad = rows.filter(({ result }) => result !== "ok");
    const calls = (wanted) => bad.filter(({ result }) => result === wanted).map(({ method }) => method);
    return [...new Set(bad.map(({ result }) => result))].map((result) => [
      name,
      result,
      calls(result).join(", "),
    ]);
  });
  return `${summary.join("\n")}\n\n${table(["server", "result", "calls"], others)}`;
}
