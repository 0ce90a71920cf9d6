/** Does the work and prints how it ended, its time, and the memory that it took beyond what was there. */
export async function report(work) {
  const before = process.resourceUsage().maxRSS;
  const began = performance.now();
  let end = { ok: true };
  try {
    await work();
  } catch (error) {
    // A trap inside WebAssembly, or a stack that is used up, is no refusal.
    end = { ok: false, isFault: error instanceof WebAssembly.RuntimeError || error instanceof RangeError };
  }
  const mb = (process.resourceUsage().maxRSS - before) / 1024;
  console.log(JSON.stringify({ ...end, ms: performance.now() - began, mb }));
}
