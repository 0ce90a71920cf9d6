/** Global-norm clipping as torch.nn.utils.clip_grad_norm_ does it. */
export function clipScale(gradNorm: number, maxNorm: number): number {
  if (!(maxNorm > 0)) return 1;
  return Math.min(1, maxNorm / (gradNorm + 1e-6));
}
