/** The type of one element of a storage buffer. */
export type ElementType = "f32" | "i32" | "u32" | "vec4<f32>" | "vec4<u32>" | "vec2<u32>";

/** A compute shader whose declarations are written for it: `p.PARAMETER`, a buffer by its name, `p.NAME_at` where it begins. */
export interface ShaderSource<Buffer extends string, Param extends string> {
  /** Unique among all shaders, with everything that the code was made for. */
  name: string;
  /** Frozen weights alone are read-only: two windows on the same block, of which one is written, must both be writable. */
  buffers: Record<Buffer, ElementType | `read ${ElementType}`>;
  /** Parameters that are whole numbers, and those that are float32. */
  ints: readonly Param[];
  floats?: readonly Param[];
  /** The entry point is `main`. */
  code: string;
  /** WGSL extensions: "subgroups", "f16", ... */
  enables?: readonly string[];
}

/** A shader with its declarations. */
export interface Shader<Buffer extends string = string, Param extends string = string> {
  readonly name: string;
  readonly buffers: readonly { name: Buffer; elementBytes: number; isReadOnly: boolean }[];
  readonly params: readonly { name: Param; type: "u32" | "f32" }[];
  readonly code: string;
}

/** Workgroups along x; more than that continue along y, and `flat(group)` numbers them all. */
export const MAX_GROUPS = 65_535;
/** Parameters of 4 bytes, the buffers' beginnings included. */
export const MAX_PARAMS = 64;

const ELEMENT_BYTES: Record<ElementType, number> = {
  f32: 4,
  i32: 4,
  u32: 4,
  "vec2<u32>": 8,
  "vec4<f32>": 16,
  "vec4<u32>": 16,
};

/** Writes the declarations in front of a shader's code. */
export function defineShader<Buffer extends string, Param extends string>(
  source: ShaderSource<Buffer, Param>,
): Shader<Buffer, Param> {
  const buffers = (Object.entries(source.buffers) as [Buffer, string][]).map(([name, declared]) => {
    const type = declared.replace("read ", "") as ElementType;
    return { name, type, elementBytes: ELEMENT_BYTES[type], isReadOnly: declared.startsWith("read ") };
  });
  const params = [
    ...source.ints.map((name) => ({ name, type: "u32" as const })),
    ...(source.floats ?? []).map((name) => ({ name, type: "f32" as const })),
  ];
  if (buffers.length + params.length > MAX_PARAMS) throw new Error(`${source.name} has too many parameters`);
  const fields = [
    ...buffers.map(({ name }) => `${name}_at: u32`),
    ...params.map(({ name, type }) => `${name}: ${type}`),
  ];
  const storage = buffers.map(
    ({ name, type, isReadOnly }, index) =>
      `@group(0) @binding(${index + 1}) var<storage, ${isReadOnly ? "read" : "read_write"}> ${name}: array<${type}>;`,
  );
  const code = [
    ...(source.enables ?? []).map((extension) => `enable ${extension};`),
    `struct Params { ${fields.join(", ")} }`,
    "@group(0) @binding(0) var<uniform> p: Params;",
    ...storage,
    `fn flat(group: vec3u) -> u32 { return group.x + group.y * ${MAX_GROUPS}u; }`,
    source.code,
  ].join("\n");
  return { name: source.name, buffers, params, code };
}

/** Declares several buffers of one type. */
export const typed = <Name extends string, Type extends string>(type: Type, ...names: Name[]) =>
  Object.fromEntries(names.map((name) => [name, type])) as Record<Name, Type>;

/** Shaders that are made for certain sizes or types, each once. */
export function shaderVariants<Settings, Buffer extends string, Param extends string>(
  make: (settings: Settings) => ShaderSource<Buffer, Param>,
): (settings: Settings) => Shader<Buffer, Param> {
  const made = new Map<string, Shader<Buffer, Param>>();
  return (settings) => {
    const key = keyOf(settings);
    let shader = made.get(key);
    if (!shader) {
      shader = defineShader(make(settings));
      made.set(key, shader);
    }
    return shader;
  };
}

/** The values in their order, several times as fast as JSON: every run of a shader asks for it. */
function keyOf(settings: unknown): string {
  if (typeof settings !== "object" || settings === null) return String(settings);
  let key = "";
  for (const name in settings) key += `${keyOf((settings as Record<string, unknown>)[name])},`;
  return `(${key})`;
}
