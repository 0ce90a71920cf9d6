// `npm run generate:protobuf`: writes src/wire/gen/, or the folder given as argument, from
// src/wire/proto/tinker_public.proto. The result is committed. Needs a protobuf compiler: `protoc` (Debian: protobuf-compiler), or Python's
// grpcio-tools; PROTOC names another one, for example PROTOC="python3 -m grpc_tools.protoc".
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const candidates = process.env.PROTOC
  ? [process.env.PROTOC.split(" ")]
  : [["protoc"], ["python3", "-m", "grpc_tools.protoc"]];
const compiler = candidates.find(([command, ...first]) => {
  return spawnSync(command, [...first, "--version"], { stdio: "ignore" }).status === 0;
});
if (compiler === undefined) {
  console.error("No protobuf compiler found: install protobuf-compiler or grpcio-tools, or set PROTOC.");
  process.exit(1);
}

const folder = resolve(process.argv[2] ?? `${root}src/wire/gen`);
mkdirSync(folder, { recursive: true });
const [command, ...first] = compiler;
const generated = spawnSync(
  command,
  [
    ...first,
    `--plugin=protoc-gen-es=${root}node_modules/.bin/protoc-gen-es`,
    `--es_out=${folder}`,
    "--es_opt=target=ts,import_extension=js,erasable_syntax=true",
    `--proto_path=${root}src/wire/proto`,
    "tinker_public.proto",
  ],
  { stdio: "inherit" },
);
process.exit(generated.status ?? 1);
