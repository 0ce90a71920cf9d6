// Models whose chat templates and tokenizer patterns are made to exhaust the server that writes conversations with them, and
// conversations that make an ordinary template work hard. Most of it comes from the publisher of a model; the customer
// chooses among the models and writes the conversation.
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { oneOf } from "../shared/random.mjs";
import { NANO } from "./world.mjs";

const CONTEXT_TOKENS = 8192;
const WRITE =
  "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
const loops = (...counts) =>
  counts.map((count) => `{% for x in ${count} %}`).join("") + "{% endfor %}".repeat(counts.length);
const growing = (more) =>
  `{% set ns = namespace(x=messages[0]['content'] + 'ab', y=[1]) %}{% for x in range(90000) %}${more}{% endfor %}`;

/** What each template does before it writes the conversation as nano's does. */
const TEMPLATES = {
  "nested loops": loops("range(900)", "range(900)", "range(900)"),
  "nearly too many loops": loops("range(400)", "range(400)"),
  "a long range": loops("range(10**12)"),
  "a large power": "{{ 10 ** 10 ** 10 }}{{ 'a' * 10 ** 12 }}",
  "loops over messages": loops("messages", "messages", "messages"),
  "texts that double": growing("{% set ns.x = ns.x + ns.x %}"),
  "texts that grow": growing("{% set ns.x = ns.x + 'a' %}"),
  "lists that double": growing("{% set ns.y = ns.y + ns.y %}"),
  "lists that grow": growing("{% set ns.y = ns.y + [1] %}"),
  "pieces of texts": growing("{% set z = (ns.x * 999).split('a') | length %}"),
  "replaced letters": growing("{% set z = (ns.x * 999).replace('a', 'bb') | upper %}"),
  "compared lists": growing("{% set z = range(9000) | list == range(9000) | list %}"),
  "sorted lists": growing("{% set z = range(9000) | sort | unique | list %}"),
  "JSON again and again": growing("{% set z = messages | tojson %}"),
  "a macro in itself": "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
  "a wide indent": "{{ ('a\\n' * 9000) | indent(900000) }}",
  "deep brackets": `{{ ${"(".repeat(3000)}1${")".repeat(3000)} }}`,
  ordinary: "",
};

/** Patterns of tokenizers by which a search may take exponential or long time. */
const PATTERNS = {
  "nested repeats": "(a+)+$",
  "a choice repeated": "(a|a)*b",
  "repeats in a row": "a*a*a*a*a*a*a*b",
  "a backward reference": "(a*)\\1*b",
  "a counted repeat": "((a{0,999}){0,999}){0,999}b",
};

async function writeModel(folder, template, pattern) {
  await mkdir(folder);
  const read = async (name) => JSON.parse(await readFile(join(NANO, name), "utf8"));
  const changed = {
    "config.json": { ...(await read("config.json")), max_position_embeddings: CONTEXT_TOKENS },
    "tokenizer_config.json": { ...(await read("tokenizer_config.json")), chat_template: template },
  };
  if (pattern !== undefined) {
    const split = { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
    const tokenizer = await read("tokenizer.json");
    const pretokenizers = [split, tokenizer.pre_tokenizer];
    changed["tokenizer.json"] = { ...tokenizer, pre_tokenizer: { type: "Sequence", pretokenizers } };
  }
  for (const name of await readdir(NANO)) {
    if (name in changed) await writeFile(join(folder, name), JSON.stringify(changed[name]));
    else await symlink(join(NANO, name), join(folder, name));
  }
}

const slug = (kind) => kind.replaceAll(" ", "-");
const MODELS = [
  ...Object.entries(TEMPLATES).map(([kind, begin]) => [`template: ${kind}`, `template/${slug(kind)}`, begin]),
  ...Object.entries(PATTERNS).map(([kind, pattern]) => [
    ...[`pattern: ${kind}`, `pattern/${slug(kind)}`, "", pattern],
  ]),
];
const ORDINARY = "template/ordinary";

const chat = (world, model, messages) => ({
  request: {
    method: "POST",
    path: "/v1/chat/completions",
    headers: [
      ["x-api-key", world.attacker.key],
      ["content-type", "application/json"],
    ],
    body: Buffer.from(JSON.stringify({ model, messages, max_tokens: 2 })),
  },
});
const turns = (count, content) =>
  Array.from({ length: count }, (_, index) => ({ role: index % 2 === 0 ? "user" : "assistant", content }));

export const templates = {
  name: "templates",
  models: async (folder) => {
    const made = MODELS.map(([, name, begin, pattern]) => ({
      name,
      path: join(folder, slug(name).replace("/", "-")),
      begin,
      pattern,
    }));
    for (const { path, begin, pattern } of made) await writeModel(path, begin + WRITE, pattern);
    return made.map(({ name, path }) => ({ name, path }));
  },
  ordinary: (_random, world, index) => ({
    kind: "ordinary",
    ...chat(world, ORDINARY, turns(1 + 2 * (index % 40), "Hello!")),
  }),
  hostile: (random, world, index) => {
    const [kind, name] = MODELS[index % MODELS.length];
    const content = oneOf(random, [
      "",
      "a",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
      "<think>a</think>",
      "<|im_end|>",
      "a\nb",
    ]);
    return { kind, ...chat(world, name, turns(oneOf(random, [1, 3, 41, 301, 1501, 9001]), content)) };
  },
};
