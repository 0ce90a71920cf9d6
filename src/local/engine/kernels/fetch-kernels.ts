/** The WebAssembly kernels, where there is no file to read them from. Default: from beside this module. */
export async function fetchKernels(
  url: string | URL = new URL("./kernels-plain.wasm", import.meta.url),
): Promise<WebAssembly.Module> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be fetched: status ${response.status}`);
  // Not compileStreaming: it insists on a content type that not every server knows.
  return WebAssembly.compile(await response.arrayBuffer());
}
