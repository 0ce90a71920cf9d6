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
  if (found.formats) sections.formats = formats(found.formats);
  if (found.weights) sections.weights = weights(found.weights, found["foreign-adapters"]);
  if (found.gguf?.models.length > 0) sections.gguf = gguf(found.gguf);
  if (found.templates) sections.templates = templates(found.templates);
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

function weights({ version, seed, merged, served, tensors }, foreign) {
  const lines = [
    `The judge is the package \`weights\` of \`tinker-cookbook\` ${version}, with small random models and adapters (seed ${seed}). Values of adapters are multiples of an eighth, so that a sum is the same in any order; one model has others.`,
    "",
    `- Merged as \`build_hf_model\` merges, with the same \`config.json\`: ${merged.join(", ")}. ${thousands(tensors)} tensors, all equal to the last bit (of the model named \`real\`, within 1e-5).`,
    `- For vLLM as \`build_lora_adapter\` makes them, with the same \`adapter_config.json\`: ${served.join(", ")}. Both refuse DeepSeek V3.`,
    "- A change of a tied head: the cookbook's embedding has the values of our head, and our embedding is that of the base.",
  ];
  if (foreign !== undefined) {
    lines.push(
      `- Adapters that \`peft\` ${foreign.version} made, imported into the built-in backend: ${foreign.cases.join(", ")}. Logprobs are PEFT's within 5e-4. DoRA is refused.`,
    );
  }
  return lines.join("\n");
}

function gguf({ seed, models, adapters, nano, tensors, tokenizers }) {
  const power = ({ difference }) => difference.toExponential(0);
  const largest = (cases) => power(cases.reduce((a, b) => (a.difference > b.difference ? a : b)));
  const [f32, f16, q8] = nano.map((difference) => difference.toExponential(0));
  return `The judges are llama.cpp (\`node-llama-cpp\`), PyPI's \`gguf\` and transformers, with small random models (seed ${seed}).

- Models in llama.cpp, in float32, beside transformers: ${models.map(({ name }) => name).join(", ")}. The likeliest tokens are the same, and the logprobs of all tokens within ${largest(models)}.
- Adapters for all linear layers and all experts, merged into the file and beside it: ${adapters.map(({ name }) => name).join(", ")}. Within ${largest(adapters)}.
- nano, trained with its tied head, beside the built-in backend: within ${f32} in f32, ${f16} in f16, ${q8} in q8_0.
- Quantized tensors of nano: ${tensors.gguf} equal to the last bit to \`gguf\`'s reference, ${tensors["llama.cpp"]} to llama.cpp's own quantizer, of all types.
- Tokenizers, token for token: ${tokenizers.map(({ name, texts }) => `${name} (${thousands(texts)} texts)`).join(", ")}. Left out are texts that are not composed (NFC), which llama.cpp does not compose, and two texts that it takes for special tokens in every vocabulary.`;
}

const JUDGES = ["template", "tml-renderers", "renderers"];
const PARTS = ["prompt", "example", "answer"];

function formats({ versions, seed, conversations, tallies, causes }) {
  const judges = Object.entries(versions).map(([name, version]) => `\`${name}\` ${version}`);
  const share = (tally) => tally && `${((100 * tally.same) / tally.asked).toFixed(1)} %`;
  const columns = JUDGES.flatMap((judge) => PARTS.map((part) => `${judge} ${part}`)).filter((column) =>
    Object.values(tallies).some((each) => column in each),
  );
  const times = {};
  for (const [renderer, each] of Object.entries(tallies))
    for (const { causes: found } of Object.values(each))
      for (const [cause, count] of Object.entries(found)) {
        times[cause] ??= { count: 0, renderers: new Set() };
        times[cause].count += count;
        times[cause].renderers.add(renderer);
      }
  const total = Object.values(tallies)
    .flatMap(Object.values)
    .reduce((sum, { asked }) => sum + asked, 0);
  return `The judges are ${judges.join(", ")}, the newest of each; \`trl\` holds the chat templates of the models (DeepSeek V3.1's is in \`vllm\`). ${thousands(conversations)} conversations a name (seed ${seed}), every second one up to where an answer is asked for: ${thousands(total)} comparisons. Shares that are identical, token for token (texts where a template judges) and with the weights of examples:

${table(
  ["renderer", ...columns],
  Object.entries(tallies).map(([renderer, each]) => [
    `\`${renderer}\``,
    ...columns.map((column) => share(each[column])),
  ]),
)}

All other comparisons differ for one of these causes; one that no cause explains fails the run:

${table(
  ["cause", "we take the side of", "why", "renderers", "times"],
  causes
    .filter(({ name }) => times[name])
    .map(({ name, side, reason }) => [
      name,
      side === "ours" ? "neither" : side,
      reason,
      families(times[name].renderers),
      thousands(times[name].count),
    ]),
)}`;
}

/** Names of renderers by their family: \`qwen3_5\`, \`gpt_oss\`. */
function families(renderers) {
  const family = (name) =>
    /^(qwen3_vl|qwen3_5|qwen3_8|qwen3|nemotron3|deepseekv3|deepseekv4_1|glm5_3|kimi_k2|gpt_oss|llama3|tml_v0)/.exec(
      name,
    )?.[0] ?? name;
  return [...new Set([...renderers].map(family))].map((name) => `\`${name}\``).join(", ");
}

function templates({ packages, total, rendered, differences, working, judged, refused }) {
  const from = Object.entries(packages).map(([name, version]) => `\`${name}\` ${version}`);
  return `The chat templates in the source packages ${from.join(", ")}: ${total}. Python's Jinja, set up as transformers does, and ours wrote ${thousands(rendered)} conversations with them, with ${differences} differences: the same text, or both refused.

**${working} of ${total}** train: plain conversations of one turn and of several. In ${thousands(judged)} conversations with system messages, thoughts, tools, calls and results no word of a user was trained on, no answer was missed, and each ended with a token that ends the turn, or the conversation was refused with its reason. These templates are refused as a whole:

${table(["templates", "reason"], refused)}`;
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
