// `npm run test:gpu`: the tests of test/gpu on the machine's graphics card, or on SwiftShader, a driver that computes on
// the CPU. Installs what is missing: the optional peer `webgpu`, and by apt a Vulkan loader and Chromium, which has
// SwiftShader in it. What follows `--` goes to vitest.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json";
const WEBGPU = "webgpu@0.6.2";

function run(command, args, options = {}) {
  return spawnSync(command, args, { cwd: root, stdio: "inherit", ...options }).status === 0;
}

function installPackages(...names) {
  const apt = (...args) => {
    const command = ["apt-get", "-qq", ...args];
    const [program, ...rest] = process.getuid?.() === 0 ? command : ["sudo", ...command];
    return run(program, rest, { stdio: "ignore" });
  };
  return apt("update") && apt("install", "-y", "--no-install-recommends", ...names);
}

/** The name of the adapter that Node finds, in a process of its own: a broken driver ends it. */
function adapterName(environment) {
  const look = `const { create } = await import("webgpu");
    const gpu = create([]);
    const adapter = await gpu.requestAdapter();
    console.log(adapter ? adapter.info.description || adapter.info.device || adapter.info.vendor : "");
    process.exit(0);`;
  const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", look], {
    cwd: root,
    encoding: "utf8",
    env: { ...process.env, ...environment },
    stdio: ["ignore", "pipe", "ignore"],
    timeout: 60_000,
  });
  return stdout?.trim() ?? "";
}

/** How Node reaches a GPU: the environment that it needs, or why it cannot. */
function nodeGpu() {
  const hasPackage = () => existsSync(new URL("../node_modules/webgpu/package.json", import.meta.url));
  // As a development dependency: npm takes an optional peer for installed, whether it is there or not.
  const install = [
    "install",
    "--save-dev",
    "--no-save",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    WEBGPU,
  ];
  if (!hasPackage() && !run("npm", install)) return { missing: `${WEBGPU} cannot be installed` };
  const own = adapterName({});
  if (own !== "") return { name: own, environment: { TINKERTS_TEST_GPU: "card" } };
  const environment = { VK_DRIVER_FILES: SWIFTSHADER };
  let name = existsSync(SWIFTSHADER) ? adapterName(environment) : "";
  if (name === "" && installPackages("libvulkan1", "chromium")) name = adapterName(environment);
  if (name !== "") return { name, environment };
  return { missing: "there is no graphics card, and SwiftShader (libvulkan1, chromium) cannot be installed" };
}

const hasChromium = () =>
  run("sh", ["-c", "command -v chromium || command -v google-chrome"], { stdio: "ignore" });
const node = nodeGpu();
const browser = hasChromium() || installPackages("chromium");
if (node.missing) console.log(`In Node: skipped, ${node.missing}.`);
else console.log(`In Node: ${node.name}.`);
if (!browser) console.log("In Chromium: skipped, there is none and it cannot be installed.");
if (node.missing && !browser) process.exit(0);

// The tests in a browser need nothing of Node's.
const files = node.missing ? ["test/gpu/browser"] : process.argv.slice(2);
const left = browser ? [] : ["--exclude", "test/gpu/browser*"];
const vitest = ["node_modules/vitest/vitest.mjs", "run", "-c", "vitest.gpu.config.ts", ...files, ...left];
process.exit(run(process.execPath, vitest, { env: { ...process.env, ...node.environment } }) ? 0 : 1);
