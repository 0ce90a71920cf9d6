import { InvalidArgumentError } from "commander";
import type { Gateway, GatewayOptions } from "../../gateway/index.js";
import { GATEWAY_OPTIONS } from "../../gateway/options.js";
import { defaulting, message } from "../../wire/index.js";
import { type CommandContext, type CommandModule, UsageError } from "../context.js";
import { addDeviceOptions, type DeviceOptions } from "../device-options.js";
import { BUILT_IN, type OpenedService, openService } from "../local-service.js";
import { MODEL_HELP, type NamedModel, namedModel, samplingSource } from "../named-model.js";
import { addFlags, optionsFromFlags } from "../option-flags.js";
import { duration, gathered } from "../option-values.js";
import { checkReach, explainListening, whenAborted } from "../serve/listening.js";
import { serverKeys } from "../serve/server-keys.js";

const KEYS_VARIABLE = "TINKERTS_GATEWAY_API_KEYS";
const UPSTREAM_KEY_VARIABLE = "TINKERTS_UPSTREAM_API_KEY";
/** Some clients do not start without a key. */
const ANY_KEY = "tinkerts";

const { fields: GATEWAY } = GATEWAY_OPTIONS;
/** The options of `startGateway` that are flags of this command. */
const FLAGS = { ...GATEWAY, port: defaulting(GATEWAY.port, 8644) };
const IDLE_MINUTES = GATEWAY.sessionTimeoutMs.fallback! / 60_000;

interface GatewayCommandOptions extends DeviceOptions {
  readonly model?: readonly AskedModel[];
  readonly map?: readonly (readonly [string, string])[];
  readonly apiKeyFile?: string;
  readonly sessionTimeout?: number;
}

/** A model of the command line, and the name that agents use for it. */
interface AskedModel {
  readonly name: string;
  readonly model: string;
}

export const define: CommandModule["define"] = (command, context) => {
  command
    .option(
      "--model <model>",
      `${MODEL_HELP}; NAME=MODEL gives it a name for agents (repeatable; the first answers for unknown names)`,
      gathered(readModel),
    )
    .option(
      "--map <pattern=name>",
      "names that agents ask for, with * for any text, and the model that answers (repeatable)",
      gathered(readPair),
    );
  addFlags(command, FLAGS)
    .option("--api-key-file <file>", "file with the keys that agents must send, one per line")
    .option(
      "--session-timeout <time>",
      `time without requests after which a session ends, in s, m or h (default: ${IDLE_MINUTES}m)`,
      duration,
    );
  addDeviceOptions(command).action((options: GatewayCommandOptions) => run(options, context));
};

async function run(
  {
    model: asked = [],
    map = [],
    apiKeyFile,
    sessionTimeout,
    device,
    precision,
    ...flags
  }: GatewayCommandOptions,
  context: CommandContext,
): Promise<void> {
  const settings = message(FLAGS).check(optionsFromFlags(FLAGS, flags), "");
  const apiKeys = await serverKeys({ apiKeyFile }, context, KEYS_VARIABLE);
  checkReach(settings.host, apiKeys, KEYS_VARIABLE);
  const interrupted = context.interruption();
  const { startGateway } = await import("../../gateway/index.js");
  const timeout = sessionTimeout !== undefined && { sessionTimeoutMs: sessionTimeout };
  if (settings.upstream !== undefined) {
    if (asked.length > 0 || map.length > 0)
      throw new UsageError(
        "--upstream answers all requests: leave --model and --map out, or start another gateway for them",
      );
    const upstreamApiKey = process.env[UPSTREAM_KEY_VARIABLE] || undefined;
    if (apiKeys.length > 0 && upstreamApiKey === undefined)
      throw new UsageError(
        `agents send a key of this gateway, which is not passed on: set ${UPSTREAM_KEY_VARIABLE} to a key for ${settings.upstream}`,
      );
    const options: GatewayOptions = { ...settings, apiKeys, upstreamApiKey, ...timeout };
    await using gateway = await explainListening(settings, () => startGateway(options));
    const takesOwnKeys = upstreamApiKey === undefined;
    announce(gateway, { names: [settings.upstream], hasKeys: apiKeys.length > 0, takesOwnKeys }, context);
    await whenAborted(interrupted);
    return;
  }
  const named = await namedModels(asked);
  await using opened = await openService(context, [...named.values()][0]!, { device, precision });
  const options: GatewayOptions = {
    ...settings,
    service: opened.service,
    models: modelsOf(named, opened),
    map: Object.fromEntries(map),
    apiKeys,
    ...timeout,
  };
  await using gateway = await explainListening(settings, () => startGateway(options));
  announce(gateway, { names: [...named.keys()], hasKeys: apiKeys.length > 0 }, context);
  await whenAborted(interrupted);
}

/** The models by the names that agents use. */
async function namedModels(asked: readonly AskedModel[]): Promise<ReadonlyMap<string, NamedModel>> {
  if (asked.length === 0) await namedModel(undefined);
  const named = new Map<string, NamedModel>();
  for (const { name, model } of asked) {
    if (named.has(name)) throw new UsageError(`--model: two models are named ${name}`);
    named.set(name, await namedModel(model));
  }
  return named;
}

function modelsOf(
  named: ReadonlyMap<string, NamedModel>,
  { model: first, shown }: OpenedService,
): Readonly<Record<string, string>> {
  const models: Record<string, string> = {};
  for (const [place, [name, given]] of [...named].entries()) {
    const model = place === 0 ? first : given;
    if (shown.address === BUILT_IN && model.baseModel !== undefined && model.baseModel !== first.baseModel)
      throw new UsageError(
        `--model: ${BUILT_IN} of this command has one base model, and ${model.baseModel} is another: start \`tinkerts serve\` with both`,
      );
    const { baseModel, modelPath } = samplingSource(model);
    models[name] = modelPath ?? baseModel!;
  }
  return models;
}

interface Announced {
  readonly names: readonly string[];
  readonly hasKeys: boolean;
  /** Whether agents send the key that they have for the service behind this gateway. */
  readonly takesOwnKeys?: boolean;
}

function announce(
  { url, recording }: Gateway,
  { names, hasKeys, takesOwnKeys = false }: Announced,
  { notify, stdout }: CommandContext,
): void {
  notify(`Agents are answered by ${names.join(", ")} at ${url}. Ctrl-C ends the gateway.`);
  notify(
    `Each conversation is a session of its own. To name an agent's session, give it ${url}/s/NAME/v1 or ${url}/s/NAME/anthropic.`,
  );
  notify(
    takesOwnKeys
      ? "It passes the agent's own key on, and does not record it."
      : hasKeys
        ? "It takes requests with one of your keys, or with a session's own."
        : "It takes requests without a key: every user of this machine can use it. --api-key-file ends that.",
  );
  if (recording !== undefined)
    notify(
      `Sessions are recorded in ${recording.folder}; \`tinkerts gateway sessions ${recording.folder}\` lists them.`,
    );
  notify("For the agent's environment:\n");
  const key = hasKeys ? "'one of your keys'" : ANY_KEY;
  const withKey = (name: string) => (takesOwnKeys ? "" : `export ${name}=${key}\n`);
  stdout.write(`export OPENAI_BASE_URL=${url}/v1\n${withKey("OPENAI_API_KEY")}`);
  stdout.write(`export ANTHROPIC_BASE_URL=${url}/anthropic\n${withKey("ANTHROPIC_AUTH_TOKEN")}`);
}

function readModel(text: string): AskedModel {
  const [name, model] = text.includes("=") ? readPair(text) : [text, text];
  return { name, model };
}

function readPair(text: string): readonly [string, string] {
  const at = text.indexOf("=");
  const [left, right] = [text.slice(0, at), text.slice(at + 1)];
  if (at < 1 || right === "") throw new InvalidArgumentError("It must be two names with = between them.");
  return [left, right];
}
