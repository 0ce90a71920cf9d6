// Generates src/wire/gen/ from src/wire/proto/tinker_public.proto. The result is committed, so this runs only after
// a change of the .proto file. Needs a protobuf compiler: `protoc` (Debian: protobuf-compiler), or Python's
// grpcio-tools; PROTOC names another one, for example PROTOC="python3 -m grpc_tools.protoc".
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
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

mkdirSync(`${root}src/wire/gen`, { recursive: true });
const [command, ...first] = compiler;
const generated = spawnSync(
  command,
  [
    ...first,
    `--plugin=protoc-gen-es=${root}node_modules/.bin/protoc-gen-es`,
    `--es_out=${root}src/wire/gen`,
    "--es_opt=target=ts,import_extension=js,erasable_syntax=true",
    `--proto_path=${root}src/wire/proto`,
    "tinker_public.proto",
  ],
  { stdio: "inherit" },
);
process.exit(generated.status ?? 1);
